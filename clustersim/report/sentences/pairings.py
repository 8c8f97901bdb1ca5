"""Each policy beside the baseline, over the jobs that both finished, and the deadlines that it meets."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import NamedTuple

from clustersim.records import Run
from clustersim.report.numbers import counted
from clustersim.report.runs import PolicyRuns, mean_of, measured, paired

__all__ = ["Pairing", "met_shares", "pairings_of"]


class Pairing(NamedTuple):
    """A policy beside the baseline: both mean JCTs over the jobs that both finished, averaged over seeds.
    `jobs`: the fewest and the most of these jobs in a seed; `share`: of those that the baseline finished.
    """

    jct_s: float
    baseline_s: float
    jobs: tuple[int, int]
    share: float

    @property
    def change(self) -> float:
        """The ratio of the mean JCTs."""
        return self.jct_s / self.baseline_s if self.baseline_s else 1.0

    @property
    def counted(self) -> str:
        fewest_jobs, most_jobs = self.jobs
        count = counted(most_jobs, "job")
        return count if fewest_jobs == most_jobs else f"{fewest_jobs:,} to {count}"


def pairings_of(runs: Sequence[Run], groups: Sequence[PolicyRuns], baseline: str) -> dict[str, Pairing]:
    """The policies that finished jobs which the baseline finished too, by label."""
    pairings = {}
    base_group = next(group for group in groups if group.label == baseline)
    for group in groups:
        pairs = [paired(run, [*base_group.runs, run], base_group.runs[0].policy) for run in group.runs]
        known_pairs = [pair for pair in pairs if pair is not None and pair.jobs]
        if group is base_group or not known_pairs:
            continue
        finished = fsum(measured(run).get("finished") or 0.0 for run in base_group.runs)
        means = [
            fsum(float(values["jct_mean_s"] or 0.0) for values in side) / len(known_pairs)
            for side in ([pair.variant for pair in known_pairs], [pair.baseline for pair in known_pairs])
        ]
        counts = [pair.jobs for pair in known_pairs]
        share = fsum(counts) / len(counts) / (finished / len(base_group.runs))
        pairings[group.label] = Pairing(means[0], means[1], (min(counts), max(counts)), share)
    return pairings


def met_shares(groups: Sequence[PolicyRuns]) -> dict[str, float]:
    """The share of deadlines that each policy meets, over its runs; empty if no job has a deadline."""
    if not measured(groups[0].runs[0]).get("deadline_jobs"):
        return {}
    return {group.label: mean_of(group, "deadline_met_ratio") for group in groups}
