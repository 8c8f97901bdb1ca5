"""Behaviour that all commands of the project share: exit codes, error lines, JSON on stdout."""

from __future__ import annotations

import functools
import inspect
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from itertime.errors import UserError, printable, readable

OK, INTERNAL, USAGE, INTERRUPTED = 0, 1, 2, 130


def new_app(text: str, completion: bool = False) -> typer.Typer:
    """A Typer application with the project's defaults: `-h`, help without arguments, help in panels.

    `completion`: it has the options that install completion in a shell. Rich is imported for help alone.
    """
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def new_program(text: str) -> typer.Typer:
    """A `new_app` for a whole program: it adds completion in a shell, and `--version` of the project."""
    app = new_app(text, completion=True)

    def options(
        version: Annotated[
            bool, typer.Option("--version", is_eager=True, callback=_say_version, help="Show the version.")
        ] = False,
    ) -> None:
        """Options of the program itself, rather than of one of its commands."""

    app.callback(help=text)(options)
    return app


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A Typer command each of whose parameters that is annotated with a dataclass is a group of options.

    Typer sees the fields of the dataclass as parameters, so they are annotated like these; the command gets
    the dataclass as a whole. A field without a default is an option that must be stated.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint) and isinstance(hint, type)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _options_of(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @functools.wraps(command)
    def with_fields(**values: Any) -> None:
        group_values = {
            name: group(**{field.name: values.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**values, **group_values)

    with_fields.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_fields.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return with_fields


def _options_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    empty = inspect.Parameter.empty
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _say_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        print(f"clustersim {version('clustersim')}")
        raise typer.Exit


def run_app(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code.

    A `UserError` gives one `error: ...` message on stderr and the error's own exit code; a mistake in the
    options gives 2; an interrupt or SIGTERM 130. Any other exception is a bug: a traceback and 1.
    """
    in_main = threading.current_thread() is threading.main_thread()  # signals can only be handled there
    previous_handler = signal.signal(signal.SIGTERM, _stop) if in_main else None
    try:
        return _run(app, program, arguments)
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, previous_handler)


def _run(app: typer.Typer, program: str, arguments: Sequence[str] | None) -> int:
    command = typer.main.get_command(app)
    try:
        if sys.stdout is None:
            raise UserError("standard output is closed")
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8":
            sys.stdout.reconfigure(errors="replace")  # a locale may lack characters of tables and names
        result = command.main(
            args=None if arguments is None else list(arguments), prog_name=program, standalone_mode=False
        )
        sys.stdout.flush()
        if result == INTERRUPTED:  # how Typer reports Ctrl-C
            return _complain("interrupted", INTERRUPTED)
        return result if isinstance(result, int) else OK
    except UserError as error:
        return _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except typer.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:  # of the completion in a shell; some libraries turn a broken pipe into it
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        _drop_stdout()
        return stop.code if isinstance(stop.code, int) and _completing(program) else OK
    except BrokenPipeError:
        _drop_stdout()
        return OK
    except OSError as error:
        _drop_stdout()
        where = error.filename or "standard output"
        return _complain(f"{where}: {error.strerror or error}", USAGE)
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # click's errors about the options
            if hasattr(error, "message"):
                error.message = readable(str(error.message))
            error.show()
            return USAGE
        print(printable(traceback.format_exc()), file=sys.stderr, end="")
        return _complain(f"internal error, please report it: {type(error).__name__}: {error}", INTERNAL)


def _completing(program: str) -> bool:
    """Whether a shell asks for completion."""
    return f"_{program.upper()}_COMPLETE" in os.environ


def _stop(*_: object) -> None:
    """SIGTERM ends a command the way an interrupt from the keyboard does."""
    raise KeyboardInterrupt


def _drop_stdout() -> None:
    """Standard output is closed or cannot be written: keep the interpreter from reporting that at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(text: str, code: int) -> int:
    print(f"error: {printable(readable(text))}", file=sys.stderr)
    return code


def run_task(task: Callable[[], object]) -> int:
    """Run the one task of a module that is started with `python -m`, and return its exit code. A `UserError`
    is printed as by `run_app`.
    """
    try:
        task()
    except UserError as error:
        return _complain(str(error), error.exit_code)
    return OK


def print_json(document: Any) -> None:
    """Print one JSON document on stdout. Raises ValueError for NaN and infinity, which JSON does not have."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")
