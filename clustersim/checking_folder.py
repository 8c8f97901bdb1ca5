"""What the folder of a run proves of itself: the rules of `clustersim.checking` on its event log, and that
its other files say what the event log says.

The tables state times to 1e-6 s; sums are compared within what that rounding can make of them. Work is
counted in the units of the log: a job's work is its run time on the GPUs it asked for over the seconds per
unit there, which its `submit` states. The sizes of checkpoints are those of the models that `itertime` ships.
The tables are read beside each other, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from math import inf, isclose, ulp
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from itertime.errors import UserError

from .checking import Evidence, Finding, Known, Life, Log, Rule, Violation
from .checking_network import PlacedPlans
from .checking_nodes import RULES
from .checking_plans import Plans
from .checking_records import RESOLUTION_S, Records, Tally, Usage, counted
from .checking_replay import prove
from .checking_settings import Drawn, Stated
from .checking_speeds import Recomputed
from .checking_trace import Submitted, find_trace
from .columns import Columns
from .failures import Failures
from .garbage import collect_less_often
from .metrics import summarise
from .overheads import Overheads
from .records import EventRecord, JobRecord, Snapshot
from .rundir import Recorded, changes
from .rundir_stream import read_streamed

__all__ = ["check_run", "check_run_folder"]

_MOST = 1e15  # beyond all sense, and still far from overflowing
_RATIOS = ("slowdown_mean", "finish_time_fairness_max", "jain_index")


def check_run_folder(directory: str | Path, trace: str | Path | None = None) -> list[Finding]:
    """Check the folder of a run, files first. UserError, TableError for what cannot be read. `trace`: where
    its trace is, if not where the run read it.
    """
    with collect_less_often():
        run = read_streamed(directory)
        text = "the files are those that manifest.json was written for"
        changed = tuple(Violation(f"{change}") for change in changes(directory, run))
        return [Finding("files", text, changed), *check_run(run, trace)]


def check_run(run: Recorded, trace: str | Path | None = None) -> list[Finding]:
    """Check the records of a run as its folder states them, a `Finding` per rule."""
    tally, usage, manifest = Tally(run.jobs), Columns(Snapshot), run.manifest
    end_s, until_s = (
        None if manifest.get(name) is None else _number(manifest, name) for name in ("end_s", "until_s")
    )
    evidence = Evidence(
        run.cluster, _constants(Overheads, manifest, "overheads") or Overheads.none(), run.events, tally,
        _known, end_s, max(RESOLUTION_S, 2 * ulp(end_s or 0.0)), _constants(Failures, manifest, "failures"),
    )  # fmt: skip
    complete = manifest.get("complete") is True
    speeds = Recomputed(run.cluster, manifest)
    jobs = find_trace(manifest, trace)
    plans = Plans if run.cluster.network == "ideal" else PlacedPlans
    rules: list[Callable[[Log], Rule]] = [
        *RULES,
        partial(Drawn, manifest=manifest),
        partial(plans, due=speeds, rows=run.plans, complete=complete),
        partial(Submitted, tally=tally, manifest=manifest, trace=jobs, speeds=speeds),
        partial(Stated, manifest=manifest, until_s=until_s),
        partial(Records, tally=tally, submitted=_submitted(manifest)),
        partial(Usage, snapshots=counted(run.snapshots, usage), complete=complete),
        partial(_Summary, run=run, jobs=tally.columns, usage=usage),
    ]
    return prove(evidence, rules)


def _known(record: JobRecord | None, first: EventRecord | None, planned: bool) -> Known:
    if record is None:
        return Known()
    # A request without a plan runs at a speed from a table, with checkpoints of no stated size.
    parameters = _parameters(record.model) if planned else 0.0
    unit_s = first.unit_s if first is not None and first.event == "submit" else 0.0
    rigid = not record.model  # known by its duration alone: a second of work takes a second
    speeds = {record.gpus: 1.0} if rigid and record.gpus is not None else {}
    if record.isolated_s is None or unit_s <= 0:
        return Known(None, 0.0, speeds, rigid, parameters)
    return Known(record.isolated_s / unit_s, RESOLUTION_S / unit_s, speeds, rigid, parameters)


@lru_cache(1000)
def _parameters(model: str) -> float | None:
    from itertime import list_models, load_model

    return float(load_model(model).parameters) if model in list_models() else None


Constants = TypeVar("Constants", Overheads, Failures)


def _constants(kind: type[Constants], manifest: Mapping[str, Any], name: str) -> Constants | None:
    stated = manifest.get(name)
    if stated is None:
        return None
    if not isinstance(stated, dict) or set(stated) != {f.name for f in fields(kind)}:
        raise UserError(f"manifest.json: {name}={stated!r:.80}: must state all of them; run again")
    return kind(**stated)


def _number(manifest: Mapping[str, Any], name: str) -> float:
    value = manifest.get(name)
    if not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise UserError(f"manifest.json: {name}={value!r:.80}: must be from 0 to {_MOST:g}; run again")
    return float(value)


def _submitted(manifest: Mapping[str, Any]) -> object:
    trace = manifest.get("trace")
    return trace.get("jobs") if isinstance(trace, dict) else None


class _Summary(Rule):
    """`jobs` and `usage` hold the numbers of all records and snapshots when the log has ended."""

    name = "summary"
    text = "summary.json is what the records give when computed again"

    def __init__(self, log: Log, run: Recorded, jobs: Columns, usage: Columns):
        super().__init__(log)
        self._run, self._jobs, self._usage = run, jobs, usage
        stated = "price_usd_per_gpu_h" in run.manifest
        self._price = _number(run.manifest, "price_usd_per_gpu_h") if stated else 5.0
        self._skipped: tuple[str, ...] = ()

    def end(self, unrecorded: Sequence[Life]) -> None:
        summary, end_s = self._run.summary, max(self.evidence.end_s or 0.0, self.log.last_s)
        try:
            again = summarise(
                self._jobs, self._usage, self._run.cluster,
                end_s=end_s, events=self.log.count, price_usd_per_gpu_h=self._price,
            )  # fmt: skip
        except (ArithmeticError, ValueError) as error:
            self.say(f"the records give no metrics: {error}")
            return
        shortest = _shortest_s(self._jobs)
        coarse = shortest < 1e3 * RESOLUTION_S  # ratios to such times are lost in the rounding of the tables
        self._skipped = (*_RATIOS, "covers") if coarse else ()
        precision = dict.fromkeys(_RATIOS, 1e-6 if coarse else 1e-6 + 2e-6 / shortest)
        money = 1e-6 * (1 + len(self._jobs) * self._price / 3600)
        for name, value in again.items():
            stated = summary.get(name, "missing")
            if name not in self._skipped and not _same(stated, value, precision.get(name, 1e-6), money):
                self.say(f"{name} is {stated} in summary.json, {value} by the records")
        for name in summary:
            if name not in again:
                self.say(f"{name} is in summary.json, but is no metric")

    def unproved(self) -> str:
        return f"{', '.join(self._skipped)}: some jobs took under 1 ms" if self._skipped else ""


def _shortest_s(jobs: Columns) -> float:
    """The shortest of the times that ratios are made of."""
    finished = jobs.equal("state", "finished")
    times = np.concatenate([jobs[name][finished] for name in ("isolated_s", "jct_s")])
    return float(np.min(times, where=~np.isnan(times), initial=inf)) if len(times) else 1.0


def _same(a: Any, b: Any, relative: float, absolute: float) -> bool:
    if type(a) in (int, float) and isinstance(b, float):
        return abs(a) <= 1e300 and isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and a == b
