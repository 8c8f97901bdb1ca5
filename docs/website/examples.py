"""Runs the blocks of a page in order, as a reader would: files are saved, commands and Python are run.

| block | what happens |
|---|---|
| ```` ```yaml ````, ```` ```csv ```` with `# NAME` as first line | is saved as NAME, without this line |
| ```` ```sh ```` | each line is run, in the folder of the page's files |
| ```` ```python ```` | is run, after those before it |
| ```` ```text ```` directly below one of these | is what it prints |

`python -m docs.website.examples PAGE` writes what the blocks of a page print now into the page.

A block with a word after its language (```` ```sh gpu ````) is left alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from clustersim.cli import main as clustersim
from itertime.cli import main as itertime

from .pages import ROOT

__all__ = ["Shown", "refreshed", "run_page"]

PROGRAMS: dict[str, Callable[[list[str]], int]] = {"clustersim": clustersim, "itertime": itertime}
_BLOCK = re.compile(
    r"^```(sh|python|yaml|csv)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE
)
_NAME = re.compile(r"# (\S+\.\w+)\n")


class Shown(NamedTuple):
    """What stands below a block (None for nothing), and what the block printed."""

    block: str
    shown: str | None
    printed: str


def run_page(text: str, name: str) -> Iterator[Shown]:
    """Run the blocks of a page in the working folder. AssertionError for a command that fails."""
    names: dict[str, object] = {"__name__": "page"}
    for language, block, shown in _BLOCK.findall(text):
        saved = _NAME.match(block)
        if language in ("yaml", "csv"):
            if saved:
                Path(saved.group(1)).write_text(block[saved.end() :], encoding="utf-8")
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            if language == "python":
                exec(compile(block, name, "exec"), names)
            else:
                for line in block.splitlines():
                    run_line(line)
        yield Shown(block, shown or None, "".join(_trimmed(printed.getvalue())))


def run_line(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    code = PROGRAMS[program](arguments)
    assert code == 0, (line, code)


def _trimmed(text: str) -> list[str]:
    return [f"{line.rstrip()}\n" for line in text.splitlines() if line.strip()]


def refreshed(text: str, name: str) -> str:
    """The page with what its blocks print now below them."""
    for block, shown, printed in list(run_page(text, name)):
        if shown is not None:
            before, after = f"{block}```\n\n```text\n{shown}", f"{block}```\n\n```text\n{printed}"
            assert text.count(before) == 1, block
            text = text.replace(before, after)
    return text


def main(page: Path) -> None:
    """Write what the blocks of a page print now into the page; their files go to a temporary folder."""
    text = page.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        os.symlink(ROOT / "traces", "traces")  # the sample log, where a clone has it
        new = refreshed(text, page.name)
    page.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
