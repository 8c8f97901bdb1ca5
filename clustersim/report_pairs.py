"""Each job against the baseline: how much sooner or later the same job completes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .report_headline import difference
from .report_runs import Group, baseline_run

__all__ = ["Pair", "pairs"]

_SAME = 0.01


@dataclass(frozen=True)
class Pair:
    """Jobs that finished under a policy and the baseline. `ratio` is JCT over the baseline's JCT, sorted."""

    label: str
    series: int
    ratio: np.ndarray
    cells: tuple[str, ...]


def pairs(groups: Sequence[Group], baseline: str | None) -> list[Pair]:
    """One row per policy but the baseline, from the first run of each.

    Cells: jobs compared, shares sooner, alike and later, and percentiles of the change in percent. Jobs that
    took no time under the baseline are not compared.
    """
    if baseline is None:
        return []
    runs = [group.runs[0] for group in groups]
    rows = []
    for series, (group, run) in enumerate(zip(groups, runs, strict=True)):
        base = baseline_run(run, runs, baseline)
        if base is run:
            continue
        theirs = {(job.job_id, job.submit_s): job.jct_s for job in base.jobs if job.jct_s}
        both = [
            (job.jct_s, theirs.get((job.job_id, job.submit_s))) for job in run.jobs if job.jct_s is not None
        ]
        ratio = np.sort([ours / other for ours, other in both if other])
        rows.append(Pair(group.label, series, ratio, _cells(ratio)))
    return rows


def _cells(ratio: np.ndarray) -> tuple[str, ...]:
    if not len(ratio):
        return ("0", *["–"] * 6)
    sooner, later = (ratio < 1 - _SAME).mean(), (ratio > 1 + _SAME).mean()
    shares = [f"{100 * share:.1f} %" for share in (sooner, max(0.0, 1 - sooner - later), later)]
    changes = [difference("time", float(value), 1.0) for value in np.percentile(ratio, (10, 50, 90))]
    return (f"{len(ratio):,}", *shares, *changes)
