"""Files that are refused, and the whole error: the cases of `refused/*.yaml`.

A case names what `reads` the file, the `path`, the `files` that lie there, and the `error`.
`python -m tests.files.refused_files` writes the errors anew; what has changed is then read in the difference.
"""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from itertime import load_model, load_profile, load_system
from itertime.calibration.table import read_table
from itertime.errors import UserError
from itertime.spec import load_lengths
from tests.traces.logs.golden_logs import cases, renew
from traces import read_trace
from traces.workload.rules import load_rules

__all__ = ["FILES", "cases", "error_of"]

FILES = sorted((Path(__file__).parent / "refused").glob("*.yaml"))
READERS: Mapping[str, Callable[[str], object]] = {
    "lengths": load_lengths,
    "model": load_model,
    "profile": load_profile,
    "rules": load_rules,
    "system": load_system,
    "table": read_table,
    "trace": read_trace,
}


def error_of(case: dict[str, Any], folder: Path) -> str:
    """The text of the error, behind its exit code, with paths relative to the folder."""
    for name, text in case["files"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")
    inside = case["path"] in case["files"]  # otherwise a name, or a file that is not there
    with contextlib.chdir(folder), pytest.raises(UserError) as caught:
        READERS[case["reads"]](str(folder / case["path"]) if inside else case["path"])
    text = f"{caught.value.exit_code}: {caught.value}".replace(f"{folder}/", "")
    return f"{text}\n" if "\n" in text else text


if __name__ == "__main__":
    renew(FILES, "error", error_of)
