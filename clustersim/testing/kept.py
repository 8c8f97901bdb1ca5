"""A case of the checks as files, and the command that runs it again (`policies check --keep`)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.rundir.csv_out import EVENTS, csv_text
from itertime.errors import UserError
from itertime.io import write_text
from traces.native import write_trace

from .outcome import BrokenCase, Case

__all__ = ["keep_case"]


def keep_case(broken: BrokenCase, folder: Path, policy: str, params: Mapping[str, Any]) -> str:
    """Write the trace, the speeds, the planned changes of nodes and the event logs of a case to a folder of
    its name in `folder`. Returns the command that runs the case again under `policy` with `params`.

    UserError if the files cannot be written.
    """
    case = broken.case
    home = folder / case.name.replace(" ", "-")
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{home}: cannot be made: {error.strerror}; name another folder") from None
    write_trace(case.jobs, home / "trace.csv")
    words = [
        "clustersim",
        "run",
        str(home / "trace.csv"),
        "--policy",
        policy,
        "--cluster",
        case.cluster.shape,
    ]
    if case.table:
        write_text(home / "table.csv", _table_text(case))
        words += ["--table", str(home / "table.csv")]
    if case.calendar:
        write_text(home / "calendar.yaml", json.dumps({"calendar": list(case.calendar)}, indent=1) + "\n")
        words += ["--set", f"calendar={home / 'calendar.yaml'}"]
    for i, events in enumerate(broken.logs):
        write_text(home / ("events.csv" if not i else f"events_{i + 1}.csv"), csv_text(EVENTS, events))
    words += ["--placement", case.placement, "--seed", str(case.seed), *_overheads(case), *_failures(case)]
    words += [
        word for name, value in params.items() for word in ("--set", f"policy.{name}={json.dumps(value)}")
    ]
    return shlex.join([*words, "--out", str(home / "run")])


def _overheads(case: Case) -> Iterator[str]:
    if case.overheads == Overheads.none():
        yield "--no-overheads"
    else:
        yield from _settings("overheads", case.overheads.stated(), Overheads.of({}).stated())


def _failures(case: Case) -> Iterator[str]:
    if case.failures is not None:
        yield from _settings("failures", case.failures.stated(), Failures().stated())


def _settings(name: str, stated: Mapping[str, Any], usual: Mapping[str, Any]) -> Iterator[str]:
    """The options that set what differs from the default."""
    for part, value in stated.items():
        if value != usual[part]:
            yield from ("--set", f"{name}.{part}={json.dumps(value)}")


def _table_text(case: Case) -> str:
    """The speeds as a throughput table. A model without speeds gets one for a batch that no job has: a trace
    may name known models only, and the job is then rejected as in the case.
    """
    rows = [
        f"{model},{batch},{gpus},{rate!r}"
        for (model, batch), rates in case.table.items()
        for gpus, rate in rates.items()
    ]
    known = {model for model, _ in case.table}
    unknown = sorted({job.model for job in case.jobs if job.model is not None} - known)
    unused = 1 + max((job.global_batch or 0 for job in case.jobs), default=0)
    rows += [f"{model},{unused},1,1.0" for model in unknown]
    return "\n".join(["model,global_batch,gpus,iterations_per_s", *rows]) + "\n"
