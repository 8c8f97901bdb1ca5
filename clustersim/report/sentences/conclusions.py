"""The conclusions of a comparison: which policy does best, by how much, and over which jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clustersim.records import Run
from clustersim.report.numbers import counted, difference, duration, listed, plural
from clustersim.report.runs import (
    NEARLY_ALL,
    PolicyRuns,
    group_runs,
    mean_of,
    measured,
    same_jobs_finished,
    same_trace,
)

from .pairings import Pairing, met_shares, pairings_of
from .sizes import MOST_TOLD, SHORTEST_S, sizes_given

__all__ = ["caution", "verdict"]


def verdict(runs: Sequence[Run], baseline: str | None) -> list[str]:
    """For one policy, the outcome of its jobs. For several, which policy completes jobs soonest, where jobs
    wait least and longest, which policy meets the most deadlines, which reject jobs, and which allocate other
    numbers of GPUs than requested.

    Each policy is compared with the baseline by mean JCT over the jobs that both finished, averaged over
    seeds.
    """
    groups = group_runs(runs)
    if len(groups) == 1:
        return [*_account(groups[0].label, measured(groups[0].runs[0])), *sizes_given(runs)]
    if not same_trace(runs):
        return ["These runs are not over the same jobs: their differences say little about the policies."]
    baseline_label = next(
        (group.label for group in groups if group.runs[0].policy == baseline), groups[0].label
    )
    return [
        *_soonest(runs, groups, baseline_label), *_waiting(groups), *_most_in_time(groups, baseline_label),
        *_rejections(groups),
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
        sentences.append(
            "The policies did not finish the same jobs: averages cover the jobs of each, differences those "
            "of both."
        )
    knowing = [group.label for group in groups if any(run.manifest.get("oracle_used") for run in group.runs)]
    if knowing:
        were = "was" if len(knowing) == 1 else "were"
        oracle = f"{were} told true run times from the log, which no real scheduler knows."
        sentences.append(f"{listed(knowing)} {oracle}")
    return " ".join(sentences)


def _account(label: str, values: Mapping[str, float | None]) -> list[str]:
    finished, jobs, deadlines = (int(values.get(name) or 0) for name in ("finished", "jobs", "deadline_jobs"))
    if not finished:
        return [f"{label} finished none of {counted(jobs, 'job')}."]
    longest = max(values.get(name) or 0.0 for name in ("jct_p99_s", "wait_mean_s", "queue_mean_s"))
    jct, p99, wait, first_waits = (
        duration(values.get(name), longest)
        for name in ("jct_mean_s", "jct_p99_s", "wait_mean_s", "queue_mean_s")
    )
    waited = f"they waited {wait} on average, {first_waits} of it for their first GPUs"
    if values.get("wait_mean_s") is None:  # in folders of older versions
        waited = f"they waited {first_waits} for their first GPUs on average"
    sentences = [
        f"{label} finished {finished:,} of {counted(jobs, 'job')}: "
        f"mean JCT {jct}, 99th percentile {p99}; {waited}.",
        *_use(values),
    ]
    if deadlines:
        met = 100 * (values.get("deadline_met_ratio") or 0.0)
        sentences.append(f"{met:.1f} % of {{0}} met.")
    return sentences


def _use(values: Mapping[str, float | None]) -> list[str]:
    """How much of the cluster was in use, over the makespan and while jobs arrived."""
    names = ("gpu_allocated_ratio", "gpu_useful_ratio", "gpu_allocated_arrival_ratio")
    allocated, useful, arriving = (values.get(name) for name in names)
    is_complete = values.get("makespan_s") is not None and useful is not None
    if allocated is None:
        return []
    text = f"{100 * allocated:.1f} % of the GPUs were allocated"
    if is_complete:
        text += f" and {100 * (useful or 0.0):.1f} % made progress over {duration(values['makespan_s'])}"
    if is_complete and arriving is not None:
        text += f"; while jobs arrived, {100 * arriving:.1f} % were allocated"
    return [f"{text}."]


def _soonest(runs: Sequence[Run], groups: Sequence[PolicyRuns], baseline: str) -> list[str]:
    """Which policy completes jobs soonest, of those that finish nearly all jobs that the baseline finishes;
    then how the others complete the jobs that they do finish.
    """
    pairings = pairings_of(runs, groups, baseline)
    if not pairings:
        return [f"No policy finished a job that {baseline} finished, so completion times cannot be compared."]
    candidates = {label: pairing for label, pairing in pairings.items() if pairing.share >= NEARLY_ALL}
    sentences = [_leader(candidates, baseline)] if candidates else []
    declining_policies = [label for label in pairings if label not in candidates]
    for label in sorted(declining_policies, key=lambda label: pairings[label].change)[:MOST_TOLD]:
        pairing = pairings[label]
        change = difference("time", pairing.jct_s, pairing.baseline_s)
        sentences.append(
            f"{label} finished {pairing.counted} of those that {baseline} finished, with mean JCT "
            f"{duration(pairing.jct_s)} against {duration(pairing.baseline_s)} ({change})."
        )
    return sentences


def _leader(pairings: Mapping[str, Pairing], baseline: str) -> str:
    changes = {label: pairing.change for label, pairing in pairings.items()}
    best = min(changes, key=lambda label: changes[label])
    pairing = pairings[best]
    over = f"over the {pairing.counted} that both finished"
    if set(changes.values()) == {1.0}:
        return f"All policies have the same mean JCT, {duration(pairing.baseline_s)}, {over}."
    if changes[best] < 1:
        leaders = plural(_all_with(changes, changes[best]), "completes", "complete")
        change = difference("time", pairing.jct_s, pairing.baseline_s)
        return (
            f"{leaders} jobs soonest: mean JCT {duration(pairing.jct_s, scale_s=pairing.baseline_s)} {over}, "
            f"against {duration(pairing.baseline_s)} under {baseline} ({change})."
        )
    second = min((label for label in changes if changes[label] > 1), key=lambda label: changes[label])
    pairing = pairings[second]
    base_text = duration(pairing.baseline_s, scale_s=pairing.jct_s)
    return (
        f"No policy completes jobs sooner than {baseline}: mean JCT {base_text} over the {pairing.counted} "
        f"that both finished; {second} takes {duration(pairing.jct_s)} "
        f"({difference('time', pairing.jct_s, pairing.baseline_s)})."
    )


def _waiting(groups: Sequence[PolicyRuns]) -> list[str]:
    """The mean waiting under the policies where jobs wait least and most, if they finish the same jobs."""
    runs = [run for group in groups for run in group.runs]
    waits = [measured(run).get("wait_mean_s") for run in runs]
    waits_known = [wait for wait in waits if wait is not None]
    if len(waits_known) < len(waits) or not same_jobs_finished(runs):
        return []
    means = {group.label: mean_of(group, "wait_mean_s") for group in groups}
    least_wait, most_wait = min(means.values()), max(means.values())
    if most_wait - least_wait < SHORTEST_S:
        return []
    shortest, longest = (
        f"{duration(value, scale_s=most_wait)} on average under {listed(_all_with(means, value))}"
        for value in (least_wait, most_wait)
    )
    return [f"Jobs wait least, {shortest}, and longest, {longest}."]


def _most_in_time(groups: Sequence[PolicyRuns], baseline: str) -> list[str]:
    jobs, met = int(measured(groups[0].runs[0]).get("deadline_jobs") or 0), met_shares(groups)
    if not met:
        return []
    best = max(met, key=lambda label: met[label])
    if met[best] == min(met.values()):
        return [f"All policies meet {100 * met[best]:.1f} % of the {counted(jobs, 'deadline')}."]
    baseline_text = f"; {baseline} meets {100 * met[baseline]:.1f} %" if met[best] > met[baseline] else ""
    leaders = plural(_all_with(met, met[best]), "meets", "meet")
    return [f"{leaders} the most deadlines, {100 * met[best]:.1f} % of {jobs:,}{baseline_text}."]


def _rejections(groups: Sequence[PolicyRuns]) -> list[str]:
    """The numbers of rejected jobs, if policies differ in them: averages leave these jobs out."""
    rejected = {group.label: mean_of(group, "rejected") for group in groups}
    if min(rejected.values()) == max(rejected.values()):
        return []
    jobs = int(measured(groups[0].runs[0]).get("jobs") or 0)
    none = [label for label, count in rejected.items() if not count]
    rejections = {label: count for label, count in rejected.items() if count or len(none) == 1}
    largest = sorted(rejections, key=lambda label: -rejections[label])[:MOST_TOLD]
    texts = [f"{label} rejects {count:,.0f}" for label, count in rejections.items() if label in largest]
    if len(rejections) > len(largest):
        texts.append(f"{len(rejections) - len(largest)} more policies some")
    if len(none) > 1:
        texts.append("the others none")
    return [f"Of {counted(jobs, 'job')}, {', '.join(texts)}."]


def _all_with(values: Mapping[str, float], value: float) -> list[str]:
    return [label for label, label_value in values.items() if label_value == value]
