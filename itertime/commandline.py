"""Behaviour that all commands of the project share: help, exit codes, error lines, JSON on stdout.

`--help` begins with examples and shows the options that most calls need; `--help-all` shows all.
"""

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
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo

from itertime.errors import UserError, printable, readable

OK, INTERNAL, USAGE, INTERRUPTED = 0, 1, 2, 130
ALL = "--help-all"
_SHORT = ("-h", "--help")


class BriefGroup(TyperGroup):
    """A group of commands, which knows `--help-all` as its commands do."""

    _is_printing = False

    def get_help_option_names(self, ctx: Any) -> list[str]:
        return [*_SHORT, ALL]

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; for a help that is printed, copies for readers."""
        parameters: list[Any] = super().get_params(ctx)
        return list(map(_as_printed, parameters)) if self._is_printing else parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        self._is_printing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_printing = False


class BriefCommand(TyperCommand):
    """A command whose help shows its arguments, what must be stated, and `main_options`; all options if
    there are none.
    """

    main_options: Collection[str] = ()
    examples: str = ""
    _is_whole = False  # of the help that was asked for
    _is_printing = False

    def get_help_option_names(self, ctx: Any) -> list[str]:
        return [*_SHORT, ALL]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._is_whole = ALL in args or not self.main_options
        return super().parse_args(ctx, args)

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; for a help that is printed, copies for readers: of a brief one in one panel."""
        parameters: list[Any] = super().get_params(ctx)
        if not self._is_printing:
            return parameters
        if self._is_whole:
            return list(map(_as_printed, parameters))
        return [_as_printed(parameter, None) for parameter in parameters if self._is_main(parameter)]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: what the command does, its examples, and its options."""
        help_text, epilog = self.help, self.epilog
        self.help = "\n\n".join(filter(None, [help_text, self.examples]))
        if not self._is_whole:
            count = sum(not self._is_main(parameter) for parameter in self.params)
            self.epilog = f"{count} more options: `{ctx.command_path} {ALL}`"
        self._is_printing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_printing = False
            self.help, self.epilog = help_text, epilog

    def _is_main(self, parameter: Any) -> bool:
        if isinstance(parameter, TyperArgument) or parameter.required:
            return True
        return any(name in (*self.main_options, *_SHORT) for name in parameter.opts)


def _as_printed(parameter: Any, *panel: str | None) -> Any:
    """A copy for readers of a help, in another panel if one is given: the first if it is None."""
    printed_parameter = copy(parameter)
    printed_parameter.opts = [name for name in parameter.opts if name != ALL]
    if panel:
        (printed_parameter.rich_help_panel,) = panel
    return printed_parameter


def brief(main_options: Sequence[str], examples: Sequence[tuple[str, str]] = ()) -> type[BriefCommand]:
    """The class of a command whose help shows `main_options`, and above them examples: what each does, and
    its line.
    """
    lines = "\n".join(f"- {description}:  \n  `{line}`" for description, line in examples)
    text = f"**Examples**\n\n{lines}" if examples else ""
    return type("BriefCommandOf", (BriefCommand,), {"main_options": main_options, "examples": text})


class _App(typer.Typer):
    """An application whose commands know `--help-all`."""

    def command(self, name: str | None = None, *, cls: Any = BriefCommand, **settings: Any) -> Any:
        return super().command(name, cls=cls, **settings)


def new_app(text: str, completion: bool = False) -> typer.Typer:
    """A Typer application with the project's defaults: `-h`, help without arguments, help in panels.

    `completion`: it has the options that install completion in a shell. Rich is imported for help alone.
    """
    return _App(
        help=text,
        no_args_is_help=True,
        add_completion=completion,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        cls=BriefGroup,
        context_settings={"help_option_names": list(_SHORT)},
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
    command = typer.main.get_command(_called_part(app, program, arguments))
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


def _called_part(app: typer.Typer, program: str, arguments: Sequence[str] | None) -> typer.Typer:
    """The application with the command alone that the arguments call, if they begin with one: making the
    options of all commands takes as long as a short command does.
    """
    words = sys.argv[1:] if arguments is None else arguments
    if not words or _completing(program):
        return app
    commands = [info for info in app.registered_commands if _name_of(info) == words[0]]
    groups = [info for info in app.registered_groups if info.name == words[0]]
    if len(commands) + len(groups) != 1:
        return app
    called_part = copy(app)
    called_part.registered_commands, called_part.registered_groups = commands, groups
    return called_part


def _name_of(info: CommandInfo) -> str:
    return info.name or get_command_name(info.callback.__name__ if info.callback is not None else "")


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
