"""The conclusions of a comparison, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from clustersim.records import Run

from .numbers import difference, duration
from .runs import Group, common_jobs, group_runs, mean_jct_s, measured, same_jobs_finished, same_trace

__all__ = ["caution", "sizes_given", "verdict"]

_SHORTEST_S = 1e-3  # GPUs follow from GPU-seconds (rounded to 1e-6) for allocations of at least this length


def verdict(runs: Sequence[Run], baseline: str | None) -> list[str]:
    """For one policy, the outcome of its jobs. For several, which policy completes jobs soonest, which meets
    the most deadlines, which reject jobs, and which allocate other numbers of GPUs than requested.

    Policies are compared by the mean JCT over the jobs that all of them finished, averaged over seeds.
    """
    groups = group_runs(runs)
    if len(groups) == 1:
        return [*_account(groups[0].label, measured(groups[0].runs[0])), *sizes_given(runs)]
    if not same_trace(runs):
        return ["These runs are not over the same jobs: their differences say little about the policies."]
    named = next((group.label for group in groups if group.runs[0].policy == baseline), groups[0].label)
    return [
        *_soonest(groups, named), *_most_in_time(groups, named), *_rejections(groups),
        *sizes_given(runs),
    ]  # fmt: skip


def caution(runs: Sequence[Run]) -> str:
    """The limits of the verdict; empty if there are none."""
    groups = group_runs(runs)
    sentences = []
    if len(groups) > 1:
        seeds = min(len(group.runs) for group in groups)
        few = f"One trace, {seeds} seed{'s' if seeds > 1 else ''}"
        sentences.append(f"{few}: differences of a few per cent may be chance.")
    if len(groups) > 1 and same_trace(runs) and not same_jobs_finished(runs):
        sentences.append("The policies did not finish the same jobs, so their own averages differ in scope.")
    knowing = [group.label for group in groups if any(run.manifest.get("oracle_used") for run in group.runs)]
    if knowing:
        were = "was" if len(knowing) == 1 else "were"
        oracle = f"{were} told true run times from the log, which no real scheduler knows."
        sentences.append(f"{_listed(knowing)} {oracle}")
    return " ".join(sentences)


def _account(label: str, values: Mapping[str, float | None]) -> list[str]:
    finished, jobs, deadlines = (int(values.get(name) or 0) for name in ("finished", "jobs", "deadline_jobs"))
    if not finished:
        return [f"{label} finished none of {jobs:,} jobs."]
    longest = max(values.get("jct_p99_s") or 0.0, values.get("queue_mean_s") or 0.0)
    times = [duration(values.get(name), longest) for name in ("jct_mean_s", "queue_mean_s", "jct_p99_s")]
    shares = ("gpu_allocated_ratio", "gpu_useful_ratio", "deadline_met_ratio")
    allocated, useful, met = (100 * (values.get(name) or 0.0) for name in shares)
    sentences = [
        f"{label} finished {finished:,} of {jobs:,} jobs: mean JCT {times[0]}, 99th percentile {times[2]}; "
        f"they waited {times[1]} for their first GPUs on average.",
        f"{allocated:.1f} % of the GPUs were allocated and {useful:.1f} % made progress "
        f"over {duration(values.get('makespan_s'))}.",
    ]
    if deadlines:
        sentences.append(f"{met:.1f} % of {deadlines:,} deadlines were met.")
    return sentences


def _soonest(groups: Sequence[Group], baseline: str) -> list[str]:
    common = common_jobs([run for group in groups for run in group.runs])
    if not common:
        return ["No job was finished under every policy, so completion times cannot be compared."]
    means = {g.label: fsum(mean_jct_s(run, common) for run in g.runs) / len(g.runs) for g in groups}
    best, base = min(means, key=lambda label: means[label]), means[baseline]
    over = f"over the {len(common):,} jobs that every policy finished"
    if means[best] == max(means.values()):
        return [f"All policies have the same mean JCT, {duration(base)} {over}."]
    if means[best] < base:
        leaders = _plural(_all_with(means, means[best]), "completes", "complete")
        text = f"{leaders} jobs soonest: mean JCT {duration(means[best], beside=base)} {over}, "
        change = difference("time", means[best], base)
        return [text + f"against {duration(base)} under {baseline} ({change})."]
    later = {label: mean for label, mean in means.items() if mean > base}
    second = min(later, key=lambda label: later[label])
    takes = later[second]
    text = (
        f"No policy completes jobs sooner than {baseline}: mean JCT {duration(base, beside=takes)} {over}; "
    )
    return [text + f"{second} takes {duration(takes)} ({difference('time', takes, base)})."]


def _most_in_time(groups: Sequence[Group], baseline: str) -> list[str]:
    jobs = int(measured(groups[0].runs[0]).get("deadline_jobs") or 0)
    if not jobs:
        return []
    met: dict[str, float] = {}
    for group in groups:
        ratios = [measured(run).get("deadline_met_ratio") or 0.0 for run in group.runs]
        met[group.label] = fsum(ratios) / len(ratios)
    best = max(met, key=lambda label: met[label])
    if met[best] == min(met.values()):
        return [f"All policies meet {100 * met[best]:.1f} % of the {jobs:,} deadlines."]
    rest = f"; {baseline} meets {100 * met[baseline]:.1f} %" if met[best] > met[baseline] else ""
    leaders = _plural(_all_with(met, met[best]), "meets", "meet")
    return [f"{leaders} the most deadlines, {100 * met[best]:.1f} % of {jobs:,}{rest}."]


def _rejections(groups: Sequence[Group]) -> list[str]:
    """The numbers of rejected jobs, if policies differ in them: averages leave these jobs out."""
    rejected: dict[str, float] = {}
    for group in groups:
        rejected[group.label] = fsum(measured(run).get("rejected") or 0.0 for run in group.runs) / len(
            group.runs
        )
    if min(rejected.values()) == max(rejected.values()):
        return []
    jobs = len(groups[0].runs[0].jobs)
    return [
        f"Of {jobs:,} jobs, "
        + ", ".join(f"{label} rejects {count:,.0f}" for label, count in rejected.items())
        + "."
    ]


def sizes_given(runs: Sequence[Run]) -> list[str]:
    """Which policies allocate other numbers of GPUs than requested: this can explain most of a difference."""
    sizes = {group.label: _sizes(group) for group in group_runs(runs)}
    elastic = {label: shares for label, shares in sizes.items() if any(shares)}
    if not elastic:
        return []
    went = _listed(
        [
            f"to {100 * more:.0f} % of the jobs under {label} (fewer to {100 * fewer:.0f} %)"
            for label, (more, fewer) in elastic.items()
        ]
    )
    rigid = [label for label in sizes if label not in elastic]
    rest = f"; {_listed(rigid)} gave each job what it asked for" if rigid else ""
    return [f"More GPUs than asked for, on average over their runs, went {went}{rest}."]


def _sizes(group: Group) -> tuple[float, float]:
    """Shares of finished jobs that held on average over 1 % more, and over 1 % fewer, GPUs than requested."""
    held = [
        job.gpu_seconds / (job.jct_s - job.wait_s) / job.gpus
        for run in group.runs
        for job in run.jobs
        if job.jct_s is not None and job.gpus and job.jct_s - job.wait_s > _SHORTEST_S
    ]
    more, fewer = (sum(ratio > 1.01 for ratio in held), sum(ratio < 0.99 for ratio in held))
    return (more / len(held), fewer / len(held)) if held else (0.0, 0.0)


def _all_with(values: Mapping[str, float], value: float) -> list[str]:
    return [label for label, found in values.items() if found == value]


def _plural(labels: Sequence[str], singular: str, plural: str) -> str:
    return f"{_listed(labels)} {singular if len(labels) == 1 else plural}"


def _listed(labels: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    *most, last = labels
    return f"{', '.join(most)} and {last}" if most else last
