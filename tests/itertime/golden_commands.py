"""Commands of itertime and what they print: the cases of `golden/*.yaml`, and how they are compared.

A case has the `arguments` of a command, the `files` that lie in the working folder before it, and what it
`prints`: its exit code unless 0, the lines of stderr behind `!`, those of stdout as they are (numbers of JSON
have five digits), and the names of the files that it writes. Messages of the log are left out: pytest takes
them. `python -m tests.itertime.golden_commands` writes the output anew; what has changed is then read in the
difference, line by line.
"""

import contextlib
import io
import json
import os
import re
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest

from itertime.cli import main as itertime
from tests.places import ROOT
from tests.traces.logs.golden_logs import cases, renew

__all__ = ["FILES", "assert_prints", "cases", "printed"]

FILES = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
_NUMBER = re.compile(r"\d+\.\d+(?:e[-+]\d+)?|\d+")
_TAKEN = re.compile(r"\b[\d.,]+ ms$", re.MULTILINE)
"""What the machine took, which is no result."""


def printed(case: dict[str, Any], folder: Path) -> str:
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    before = set(folder.rglob("*"))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = itertime(shlex.split(case["arguments"]))
    lines = [f"exit {code}"] if code else []
    lines += [f"! {line}" for line in err.getvalue().splitlines() if "is extrapolated beyond" not in line]
    lines += _in_short(_relative(out.getvalue(), folder)).splitlines()
    lines += sorted(f"written: {path.relative_to(folder)}" for path in set(folder.rglob("*")) - before)
    text = _relative("\n".join(line.rstrip() for line in lines), folder)
    return _TAKEN.sub("TIME", text) + "\n"


def _relative(text: str, folder: Path) -> str:
    """Paths without the folders they lie in, before lines are broken: breaks would depend on their length."""
    return text.replace(f"{folder}/", "").replace(f"{ROOT}/", "")


def _in_short(text: str) -> str:
    try:
        document = json.loads(text, parse_float=lambda number: float(f"{float(number):.5g}"))
    except ValueError:
        return text
    if "feasible" in document:  # a search, which tells how long it took
        document["seconds"] = "TIME"
    return "\n".join(textwrap.wrap(json.dumps(document), 100, break_long_words=False, break_on_hyphens=False))


def assert_prints(shown: str, expected: str) -> None:
    """Numbers to one in a thousand: the last bits of predictions differ between processors."""
    assert _NUMBER.sub("#", shown) == _NUMBER.sub("#", expected)
    numbers = [list(map(float, _NUMBER.findall(text))) for text in (shown, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "80"
    renew(FILES, "prints", printed)
