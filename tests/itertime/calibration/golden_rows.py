"""Rows of measured runs, and what each is taken for: the cases of `golden/*.yaml`.

A case is a `table`, and `becomes` what its rows are: the system, the model, the candidate plans and what is
assumed, as far as they differ from a plain one, or the reason to skip the row, or the error of the table.
`python -m tests.itertime.calibration.golden_rows` writes the answers anew; what has changed is then read in
the difference, line by line.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from itertime import Site
from itertime.calibration import RunSet, read_table
from itertime.calibration.run_set import expressed
from itertime.errors import UserError
from tests.traces.logs.golden_logs import cases, renew

__all__ = ["FILES", "becomes", "cases"]

FILES = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
LEFT_OUT = ("source", "approximations")
"""Texts for readers."""


def becomes(case: dict[str, Any], folder: Path) -> str:
    path = folder / "runs.csv"
    path.write_text(case["table"], encoding="utf-8", newline="")
    try:
        lines = list(_rows(path))
    except UserError as error:
        lines = [f"{type(error).__name__}: {line}" for line in str(error).splitlines()]
    return "\n".join(lines).replace(f"{folder}/", "") + "\n"


def _rows(path: Path) -> Iterator[str]:
    for row in read_table(path):
        runs = RunSet.of([row])
        if runs.skipped:
            yield from (f"skipped {row['id']}: {why}" for _, why in runs.skipped)
            continue
        run, plans = expressed(row, Site())
        yield f"system {_told(run.system)}"
        yield f"profile {run.profile.name} domain_gpus={run.system.domain_gpus}"
        yield f"model {_told(run.model)}"
        yield from (f"plan {_told(plan)}" for plan in plans)
        yield from (f"assumed {text}" for text in run.assumed)


def _told(spec: Any) -> str:
    """The fields that differ from their defaults."""
    told = []
    for field in fields(spec):
        value = getattr(spec, field.name)
        default = getattr(type(spec), field.name, None)  # a field of a file has its default there alone
        if value not in (default, None) and field.name not in LEFT_OUT:
            shown = f"({_told(value)})" if is_dataclass(value) else str(value)
            told += [f"{field.name}={shown}"] if shown != "()" else []
    return " ".join(told)


if __name__ == "__main__":
    renew(FILES, "becomes", becomes)
