"""Which policies allocate other numbers of GPUs than jobs request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustersim.analysis.arrays import requested_gpus
from clustersim.analysis.tables import jobs_of
from clustersim.records import Run
from clustersim.report.numbers import listed
from clustersim.report.runs import PolicyRuns, group_runs

__all__ = ["MOST_TOLD", "SHORTEST_S", "shares_of_other_sizes", "sizes_given"]

MOST_TOLD = 6  # policies that a sentence names
SHORTEST_S = 1e-3  # GPUs follow from GPU-seconds (rounded to 1e-6) for allocations of at least this length


def sizes_given(runs: Sequence[Run]) -> list[str]:
    """Which policies allocate other numbers of GPUs than requested: this can explain most of a difference."""
    sizes = {group.label: shares_of_other_sizes(group) for group in group_runs(runs)}
    elastic = {label: shares for label, shares in sizes.items() if any(shares)}
    if not elastic:
        return []
    largest = sorted(elastic, key=lambda label: -max(elastic[label]))[:MOST_TOLD]
    went = listed(
        [
            f"to {_share(larger_share)} of the jobs under {label}"
            + (f" (fewer to {_share(fewer)})" if fewer else "")
            for label, (larger_share, fewer) in elastic.items()
            if label in largest
        ]
    )
    if len(elastic) > len(largest):
        went += f"; {len(elastic) - len(largest)} more policies changed sizes, too"
    rigid = [label for label in sizes if label not in elastic]
    rigid_text = f"; {listed(rigid)} gave each job what it asked for" if rigid else ""
    return [f"More GPUs than asked for, on average over their runs, went {went}{rigid_text}."]


def _share(ratio: float) -> str:
    """A share in whole percent, of which only none is 0 and only all is 100."""
    percent = f"{100 * ratio:.0f} %"
    if percent == "0 %" and ratio > 0:
        return "under 1 %"
    return "over 99 %" if percent == "100 %" and ratio < 1 else percent


def shares_of_other_sizes(group: PolicyRuns) -> tuple[float, float]:
    """Shares of finished jobs that held on average over 1 % more, and over 1 % fewer, GPUs than requested."""
    parts = []
    for jobs in map(jobs_of, group.runs):
        gpus, held_s = requested_gpus(jobs), jobs["jct_s"] - jobs["wait_s"]
        is_known = (held_s > SHORTEST_S) & (gpus > 0)  # not for NaN
        parts.append(jobs["gpu_seconds"][is_known] / held_s[is_known] / gpus[is_known])
    held = np.concatenate(parts)
    larger, fewer = int((held > 1.01).sum()), int((held < 0.99).sum())
    return (larger / len(held), fewer / len(held)) if len(held) else (0.0, 0.0)
