"""The common time axis of the charts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from clustersim.analysis import Usage, holdings
from clustersim.analysis.tables import jobs_of, snapshots_of
from clustersim.records import Run

from .frame import FIRST_DATE_S, Axis, short
from .numbers import duration

__all__ = ["TimeAxis", "moment"]

_BINS, _MOST_CHANGES = 600, 500
_UNITS = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))

Steps = tuple[list[float], list[float]]


def moment(seconds: float) -> str:
    """A time in seconds since 1970 as a date and a time of day in UTC.

    >>> moment(1772323200.0)
    '2026-03-01 00:00'
    """
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def starts_s(runs: Sequence[Run]) -> float:
    """Seconds since 1970 at time 0 of the trace of some runs, as an imported log states them; else 0."""
    traces = [run.manifest.get("trace") for run in runs]
    start_times = {trace.get("since_1970_s", 0.0) if isinstance(trace, dict) else 0.0 for trace in traces}
    only = start_times.pop() if len(start_times) == 1 else 0.0
    return float(only) if isinstance(only, int | float) else 0.0


@dataclass(frozen=True)
class TimeAxis:
    """A time axis from the first submission to the last event of any run.

    `zero_s`: seconds since 1970 at time 0 of the trace, where the manifests know them.

    If one run changes too often for a screen, all runs are averaged over the same spans (`exact` is False).
    """

    from_s: float
    to_s: float
    unit: str
    unit_s: float
    exact: bool
    zero_s: float = 0.0

    @classmethod
    def of(cls, runs: Sequence[Run]) -> TimeAxis:
        tables = [jobs_of(run) for run in runs if run.jobs]
        from_s = min((float(jobs["submit_s"].min()) for jobs in tables), default=0.0)
        ends = [float(np.fmax.reduce(jobs["finish_s"], initial=from_s)) for jobs in tables]
        to_s = max([from_s, *ends, *(run.snapshots[-1].time_s for run in runs if run.snapshots)])
        clock = cls.over(from_s, to_s, max((len(run.snapshots) for run in runs), default=0))
        return replace(clock, zero_s=starts_s(runs))

    @classmethod
    def over(cls, from_s: float, to_s: float, changes: int) -> TimeAxis:
        """The axis of a span, for curves of at most this number of changes."""
        unit, unit_s = next((u, s) for u, s in _UNITS if to_s - from_s >= 3 * s or s == 1.0)
        return cls(from_s, to_s, unit, unit_s, changes < _MOST_CHANGES)

    @property
    def is_dated(self) -> bool:
        """Whether the trace's clock counts the seconds since a known date, so that its times are dates."""
        return self.zero_s + self.from_s >= FIRST_DATE_S

    @property
    def dates(self) -> str:
        """The first and the last day in UTC; empty if the clock has no dates."""
        if not self.is_dated:
            return ""
        first_day, last_day = (moment(self.zero_s + seconds)[:10] for seconds in (self.from_s, self.to_s))
        return f"on {first_day} (UTC)" if first_day == last_day else f"from {first_day} to {last_day} (UTC)"

    @property
    def axis(self) -> Axis:
        since = f"{moment(self.zero_s + self.from_s)} UTC" if self.is_dated else "the first submission"
        return Axis(f"{self.unit} since {since}")

    @property
    def resolution(self) -> str:
        bin_s = (self.to_s - self.from_s) / _BINS
        return "every change" if self.exact else f"averaged over spans of {duration(bin_s)}"

    def snapshots(self, run: Run, field: str) -> Steps:
        """Times, and the value of one field of the snapshots from each time on."""
        rows = snapshots_of(run)
        return self.steps(rows["time_s"], rows[field])

    def useful(self, run: Run) -> Steps:
        """Times, and the number of GPUs that make progress from each time on: held, overhead paid."""
        held = holdings(run)
        times, change = np.unique(np.append(held.from_s + held.paid_s, held.to_s), return_inverse=True)
        gpus = np.cumsum(np.bincount(change, np.append(held.gpus, -held.gpus), minlength=len(times)))
        return self.steps(times, gpus)

    def steps(self, times: np.ndarray, values: np.ndarray) -> Steps:
        """Every change, or averages over spans."""
        if not len(times):
            return [], []
        if not self.exact:
            edges = np.linspace(self.from_s, self.to_s, _BINS + 1)
            usage = Usage(times, values, values, values, self.to_s)
            times, values = edges[:-1], usage.averages(values, edges[:-1], edges[1:])
        times, values = np.append(times, self.to_s), np.append(values, values[-1])
        return short((times - self.from_s) / self.unit_s), short(values)
