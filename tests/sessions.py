"""Sessions of commands: what the programs print, line by line, kept as text.

A file of sessions is YAML, a list of these:

| key | what |
|---|---|
| `case`, `why` | what the session shows |
| `files` | texts that are there before it, by name |
| `columns` | the width of the terminal; 80 if not stated |
| `steps` | the commands in order: `run` with the words of a shell, `code`, `out`, `err`, `writes`; |
| | or `show`, the name of a file, with its `text`: of a page, the text that a reader sees, of a folder, |
| | the names of the files below it |

A step without a code ends with 0, without `out` or `err` prints nothing there, without `writes` leaves no new
file. Commands run in an empty folder. `ROOT` stands for the repository, `<s>` for seconds that were measured,
`<sha256>` for a hash,
`<key>` for that of a cell.

    python -m tests.sessions FILE...     # write what commands print now into the files
"""

import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from tests.places import ROOT

__all__ = ["Session", "as_told", "dump", "load", "replay", "tell"]

Session = dict[str, Any]
_MEASURED = re.compile(
    r'("(?:wall_s|policy_wall_s|compile_s|bound_s|seconds)": |^Method \w+, )[0-9.e-]+', re.MULTILINE
)


def load(file: Path) -> list[Session]:
    found: list[Session] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def replay(session: Session, folder: Path) -> Session:
    """Run a session in an empty folder. Returns it with what its commands do now."""
    for name, text in session.get("files", {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    environment = {"COLUMNS": str(session.get("columns", 80)), "ITERTIME_CACHE": "off"}
    with chdir(folder), mock.patch.dict(os.environ, environment):
        return {**session, "steps": [_again(step, folder) for step in session["steps"]]}


def _again(step: dict[str, Any], folder: Path) -> dict[str, Any]:
    if "show" in step:
        place = folder / step["show"]
        text = "\n".join(sorted(_files(place))) if place.is_dir() else place.read_text(encoding="utf-8")
        page = place.suffix == ".html"
        return {**step, "text": _plain(_PageText.of(text) if page else text, folder)}
    return tell(step["run"], folder)


def tell(line: str, folder: Path) -> dict[str, Any]:
    """Run a command line in a folder. Returns it with its exit code, output, and the files that it makes."""
    program, *words = shlex.split(line)
    before = set(_files(folder))
    code, out, err = as_told(_main(program), [word.replace("ROOT", str(ROOT)) for word in words], folder)
    made = sorted({name.split("/")[0] for name in set(_files(folder)) - before})
    step = {"run": line, "code": code, "out": out, "err": err, "writes": made}
    return {key: value for key, value in step.items() if value or key == "run"}


def as_told(main: Callable[[Sequence[str]], int], words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """The exit code of a program, and what it prints, the same wherever and however fast it runs."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    command = mock.patch.object(sys, "argv", ["clustersim", *words])
    with command, redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = main(words)
    return code, *(_plain(stream.buffer.getvalue().decode(), folder) for stream in streams)  # type: ignore[attr-defined]


def _main(program: str) -> Callable[[Sequence[str]], int]:
    from clustersim.cli import main as clustersim
    from itertime.cli import main as itertime

    return {"clustersim": clustersim, "itertime": itertime}[program]


def _files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def _plain(text: str, folder: Path) -> str:
    for place, name in ((f"{folder}/", ""), (str(folder), "."), (str(ROOT), "ROOT")):
        text = text.replace(place, name)
    text = re.sub("[0-9a-f]{64}", "<sha256>", _MEASURED.sub(r"\1<s>", text))
    text = re.sub(r"(failed, in )\d[^\n]*", r"\1<s>", text)
    text = re.sub(r"(?m)^(\| (?:policy_)?wall_s|\| Versions) \|.*$", r"\1 | ...", text)
    text = re.sub(r"\b[0-9a-f]{24}\b|(?<=^\| )[0-9a-f]{8}(?= \|)", "<key>", text, flags=re.MULTILINE)
    lines = "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")
    return f"{lines}\n" if lines else ""


class _PageText(HTMLParser):
    """The text of a page, a line for each row of a table and for each other block."""

    @classmethod
    def of(cls, html: str) -> str:
        page = cls(convert_charrefs=True)
        page.feed(html)
        page.close()
        lines = (" ".join(line.split()) for line in "".join(page.pieces).split("\n"))
        return "\n".join(line for line in lines if line.strip(" |")) + "\n"

    def __init__(self, **options: bool):
        super().__init__(**options)
        self.pieces: list[str] = []
        self._hidden = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._hidden = tag
        elif tag in ("td", "th"):
            self.pieces.append(" | ")
        elif tag not in ("a", "b", "code", "em", "span", "strong", "abbr", "sup", "button", "option"):
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = "" if tag == self._hidden else self._hidden

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append(" ".join(data.split("\n")))


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dump(sessions: list[Session], file: Path) -> None:
    texts = [
        yaml.dump([session], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for session in sessions
    ]
    file.write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        renewed = []
        for each in load(Path(name)):
            with tempfile.TemporaryDirectory() as temporary:
                renewed.append(replay(each, Path(temporary).resolve()))
        dump(renewed, Path(name))
