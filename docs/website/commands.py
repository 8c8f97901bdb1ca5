"""The commands of a typer application as a page: usage, help, arguments and options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from .markdown import table

__all__ = ["commands_page"]


def commands_page(title: str, text: str, programs: dict[str, typer.Typer]) -> str:
    """A page of every command of some programs, with the same words as their `--help`."""
    parts = [f"# {title}", text]
    for name, app in programs.items():
        parts += [f"## {name}", typer.main.get_command(app).help or ""]
        for words, command in _commands(name, typer.main.get_command(app)):
            parts += _section(words, command)
    return "\n\n".join(parts) + "\n"


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command below this one, with the words that call it, and each group that does something."""
    for name, each in getattr(command, "commands", {}).items():
        if getattr(each, "hidden", False):
            continue
        called = f"{words} {name}"
        if not hasattr(each, "commands") or getattr(each, "invoke_without_command", False):
            yield called, each
        yield from _commands(called, each)


def _section(words: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    names = [_argument(p) for p in arguments]
    usage = " ".join([words, *names, *(["[OPTIONS]"] if options else [])])
    rows = [(f"`{_argument(p)}`", _default(p), p.help or "") for p in arguments]
    rows += [(_names(p), _default(p), p.help or "") for p in options if "--help" not in p.opts]
    parts = [f"### {words}", f"```sh\n{usage}\n```", _paragraphs(command.help or "")]
    return [*parts, table(("argument or option", "default", "meaning"), rows)] if rows else parts


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()).strip("[]").removesuffix("...")
    name += "..." if parameter.nargs != 1 else ""
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    """All spellings of an option, the negative one too, in the order of the help."""
    return " ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or value == [] or value == () or callable(value):
        return ""
    if value is True:
        return "on"
    if isinstance(value, list | tuple):
        return f"`{','.join(map(str, value))}`"
    return f"`{value}`"


def _paragraphs(text: str) -> str:
    r"""The help as Markdown: lines of a paragraph join, `\b` paragraphs keep theirs."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith("\b"):
            parts.append("```text\n" + part.removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(" ".join(part.split()))
    return "\n\n".join(parts)
