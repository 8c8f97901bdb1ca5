"""The runs of a report: their groups and labels, which of them may be compared, and how much sooner or later
the same job completes under one policy than under another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, nan

import numpy as np

from clustersim.analysis import PairedMetrics, measured_jobs, paired_metrics
from clustersim.analysis.tables import jobs_of
from clustersim.cluster import Cluster
from clustersim.records import Run
from itertime.errors import UnknownName

from .frame import looks_of
from .numbers import difference

__all__ = [
    "NEARLY_ALL",
    "Named",
    "Pair",
    "PolicyRuns",
    "baseline_run",
    "cluster_words",
    "finishing",
    "group_runs",
    "mean_of",
    "measured",
    "named",
    "paired",
    "pairs",
    "planners_of",
    "run_labels",
    "same_jobs_finished",
    "same_trace",
]

NEARLY_ALL = 0.95
"""The share of the jobs that another policy finishes which a policy must finish to complete jobs soonest."""

_SAME = 0.01  # changes of JCT up to this share count as none


@dataclass(frozen=True)
class PolicyRuns:
    """The runs of one policy under one planner, with different seeds. `look`: as of `frame.looks`."""

    label: str
    look: int
    runs: tuple[Run, ...]


def group_runs(runs: Sequence[Run]) -> list[PolicyRuns]:
    """The runs by policy, in order of appearance. Labels name the planner if a policy ran under several."""
    planners: dict[str, dict[str, None]] = {}
    for run in runs:
        planners.setdefault(run.policy, {})[run.planner] = None
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        label = run.policy if len(planners[run.policy]) == 1 else f"{run.policy} ({run.planner})"
        grouped.setdefault(label, []).append(run)
    looks = looks_of([(members[0].policy, label) for label, members in grouped.items()])
    return [
        PolicyRuns(label, look, tuple(members))
        for look, (label, members) in zip(looks, grouped.items(), strict=True)
    ]


def planners_of(runs: Sequence[Run]) -> list[str]:
    """The planners that planned jobs, in order of appearance; none where no job had a training plan."""
    return list(dict.fromkeys(run.planner for run in runs if run.plans))


def run_labels(group: PolicyRuns) -> list[str]:
    """A label for each run of a group, with its seed if the group has several runs."""
    if len(group.runs) == 1:
        return [group.label]
    return [f"{group.label}, seed {run.manifest.get('seed', index)}" for index, run in enumerate(group.runs)]


@dataclass(frozen=True)
class Named:
    """A run with its label and the look of its policy."""

    label: str
    series: int
    run: Run


def named(runs: Sequence[Run]) -> list[Named]:
    """The runs by policy, labelled, in the order of all tables."""
    return [
        Named(label, group.look, run)
        for group in group_runs(runs)
        for label, run in zip(run_labels(group), group.runs, strict=True)
    ]


def cluster_words(cluster: Cluster) -> str:
    """The nodes of a cluster and their system, by group.

    >>> from clustersim.cluster import Cluster
    >>> cluster_words(Cluster.parse("n128g8"))
    '128 nodes × 8, dgx-a100-80gb'
    """
    groups = cluster.groups or (cluster,)
    return " + ".join(f"{g.nodes:,} nodes × {g.gpus_per_node}, {g.system or g.gpu_type}" for g in groups)  # type: ignore[union-attr]


# Comparison


def baseline_run(run: Run, runs: Sequence[Run], baseline: str) -> Run:
    """The run of policy `baseline` to compare `run` with, if possible of the same seed. UnknownName if no run
    has this policy.
    """
    candidates = [candidate for candidate in runs if candidate.policy == baseline]
    if not candidates:
        raise UnknownName("baseline", baseline, {candidate.policy for candidate in runs})
    same_seed = [
        candidate for candidate in candidates if candidate.manifest.get("seed") == run.manifest.get("seed")
    ]
    return (same_seed or candidates)[0]


def same_trace(runs: Sequence[Run]) -> bool:
    """Whether all runs had the same jobs, submitted at the same times."""
    first_jobs, *other_runs = (jobs_of(run) for run in runs)
    return all(
        jobs.values(name) == first_jobs.values(name) for jobs in other_runs for name in ("job_id", "submit_s")
    )


def paired(run: Run, runs: Sequence[Run], baseline: str) -> PairedMetrics | None:
    """The run beside that of policy `baseline`, over the jobs that both finished; None for the baseline
    itself, and for runs of different jobs.
    """
    base = baseline_run(run, runs, baseline)
    return None if base is run else paired_metrics(run, base)


def same_jobs_finished(runs: Sequence[Run]) -> bool:
    """Whether averages over finished jobs cover the same jobs in all runs."""
    pairs_of_runs = [paired_metrics(run, runs[0]) for run in runs[1:]]
    return all(pair is not None and pair.is_whole for pair in pairs_of_runs)


def measured(run: Run) -> dict[str, float | None]:
    """The summary, or that of the window if the run has one, and `disruptions` = preemptions + resizes. None
    stands for values that are not numbers.
    """
    values: dict[str, float | None] = {}
    window = run.summary.get("window")
    for name, value in (window if isinstance(window, dict) else run.summary).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        values[name] = float(value) if is_number else None
    if isinstance(window, dict):  # equal to the ratio of allocated GPUs there
        values["gpu_allocated_arrival_ratio"] = None
    values["disruptions"] = fsum(values.get(name) or 0.0 for name in ("preemptions", "resizes"))
    return values


def mean_of(group: PolicyRuns, metric: str) -> float:
    """The mean of a metric over the runs of a policy in which it is defined; 0 if it is in none."""
    values = [measured(run).get(metric) for run in group.runs]
    defined_values = [value for value in values if value is not None]
    return fsum(defined_values) / len(defined_values) if defined_values else 0.0


def finishing(groups: Sequence[PolicyRuns]) -> list[PolicyRuns]:
    """The policies that finish nearly as many jobs as the policy that finishes the most."""
    finished = [mean_of(group, "finished") for group in groups]
    least = NEARLY_ALL * max(finished)
    return [group for group, count in zip(groups, finished, strict=True) if count >= least]


@dataclass(frozen=True)
class Pair:
    """The jobs that finished under both a policy and the baseline. `ratio`: JCT over JCT under the baseline,
    sorted.
    """

    label: str
    series: int
    ratio: np.ndarray
    cells: tuple[str, ...]


def pairs(groups: Sequence[PolicyRuns], baseline: str | None) -> list[Pair]:
    """One row for each policy other than the baseline, from its first run.

    Cells: jobs compared; shares of jobs that complete sooner, at the same time and later; percentiles of the
    change in percent. Jobs that took no time under the baseline are not compared.
    """
    if baseline is None:
        return []
    runs = [group.runs[0] for group in groups]
    rows = []
    for group, run in zip(groups, runs, strict=True):
        base = baseline_run(run, runs, baseline)
        if base is run:
            continue
        ours, theirs = jobs_of(run)["jct_s"], _jct_of(base, _keys(run))
        is_paired = measured_jobs(run) & ~np.isnan(ours) & (theirs > 0)  # not for NaN
        ratio = np.sort(ours[is_paired] / theirs[is_paired])
        rows.append(Pair(group.label, group.look, ratio, _cells(ratio)))
    return rows


def _keys(run: Run) -> list[tuple[str, float]]:
    jobs = jobs_of(run)
    return list(zip(jobs.values("job_id"), jobs.values("submit_s"), strict=True))


def _jct_of(run: Run, keys: Sequence[tuple[str, float]]) -> np.ndarray:
    """The JCTs of the jobs of these ids and submission times in a run; NaN for others and unfinished ones."""
    run_keys = _keys(run)
    if run_keys == keys:
        return jobs_of(run)["jct_s"]
    jct_of_key = dict(zip(run_keys, jobs_of(run)["jct_s"].tolist(), strict=True))
    return np.array([jct_of_key.get(key, nan) for key in keys], dtype=float)


def _cells(ratio: np.ndarray) -> tuple[str, ...]:
    if not len(ratio):
        return ("0", *["–"] * 6)
    sooner, later = (ratio < 1 - _SAME).mean(), (ratio > 1 + _SAME).mean()
    shares = [f"{100 * share:.1f} %" for share in (sooner, max(0.0, 1 - sooner - later), later)]
    changes = [difference("ratio", float(value), 1.0) for value in np.percentile(ratio, (10, 50, 90))]
    return (f"{len(ratio):,}", *shares, *changes)
