"""The conclusions of a comparison, as sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

import numpy as np

from clustersim.analysis import (
    HARDLY_ANY,
    LONG_TAIL,
    NEGLIGIBLE_WAIT,
    differs_from_stated,
    measured_jobs,
    says_little,
    service_levels,
)
from clustersim.analysis.arrays import requested_gpus
from clustersim.analysis.tables import jobs_of
from clustersim.records import REJECTED, Run
from itertime.errors import shown

from .distance import distances
from .numbers import counted, difference, duration, listed, plural
from .runs import (
    PolicyRuns,
    group_runs,
    measured,
    paired,
    planners_of,
    same_jobs_finished,
    same_trace,
)

__all__ = ["caution", "heads", "load_differences", "notes", "sizes_given", "verdict"]


_NEARLY_ALL = 0.95  # of the jobs of the baseline: a policy that leaves out more is not the soonest
_LEAST_JOBS = 10  # of which a few can be a tail
_MOST_SERVICES, _MOST_TOLD = 5, 6  # services and policies that a sentence names
_DIGITS, _STEP_S = 6, 1e-6  # to which tables state numbers
_SHORTEST_S = 1e-3  # GPUs follow from GPU-seconds (rounded to 1e-6) for allocations of at least this length


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


def heads(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before any number: the load that the jobs offer, and the planner, if all runs
    that plan jobs share one.
    """
    planners = planners_of(runs)
    return [*_load(group_runs(runs)), *([f"Planner: {planners[0]}."] if len(planners) == 1 else [])]


def load_differences(runs: Sequence[Run]) -> list[str]:
    """That a generated trace does not offer the load that it states, since it was generated for other nodes
    or another planner. Empty if it does, within 5 %, or if a run did not reach all jobs.
    """
    groups = group_runs(runs)
    loads: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for group in groups:
        for run in group.runs:
            recipe = _recipe_of(run)
            load, stated_load = run.summary.get("offered_load"), recipe.get("load")
            reaches_all = run.manifest.get("until_s") is None and run.manifest.get("complete") is True
            if not (reaches_all and recipe.get("load_of") == "trace"):
                continue
            if not (
                isinstance(load, int | float) and isinstance(stated_load, int | float) and stated_load > 0
            ):
                continue
            if differs_from_stated(load, stated_load):
                places = [recipe.get(name) for name in ("gpus", "system", "planner")]
                origin = "{} GPUs of {}, planner {}".format(*places)
                loads.setdefault((f"{stated_load:.2f}", origin), []).append((load, group.label))
    sentences = []
    for (stated_text, origin), entries in loads.items():
        lowest_load, highest_load = (f"{limit([load for load, _ in entries]):.2f}" for limit in (min, max))
        load_range = lowest_load if lowest_load == highest_load else f"{lowest_load} to {highest_load}"
        labels = dict.fromkeys(label for _, label in entries)
        policies = f" under {listed(list(labels))}" if len(labels) < len(groups) else ""
        sentences.append(
            f"The trace states a load of {stated_text} and offers {load_range}{policies}: it was generated "
            f"for {origin}."
        )
    return sentences


def _recipe_of(run: Run) -> Mapping[str, Any]:
    """What the manifest says of the recipe of a generated trace; empty for other traces."""
    source = run.manifest.get("trace")
    recipe = (source.get("recipe") or source.get("generated_for")) if isinstance(source, Mapping) else None
    return recipe if isinstance(recipe, Mapping) else {}


def notes(runs: Sequence[Run], *, read_records: bool = True) -> list[str]:
    """What a reader must know to judge the numbers, as sentences for the terminal and the page.

    - the window of measurement;
    - how far the results are from the best possible;
    - the need of inference services that was not met;
    - that hardly any job waited, so that the runs say little about scheduling;
    - that the end of a run belongs to a few jobs;
    - that policies differ in their planner alone;
    - that policies gave identical schedules, or that no job left elastic policies a choice of sizes;
    - that jobs ask for GPUs of another type than the cluster has;
    - that policies ran jobs on the same GPUs, and the run states no slowdown for it.

    `read_records`: whether to look at every job, which runs of millions of jobs do not keep in memory.
    """
    groups = group_runs(runs)
    return [
        *_window(groups), *_services(groups, read_records), *distances(groups),
        *_no_queueing(groups, read_records), *_same_policy(groups), *_tails(groups),
        *(_identical(groups) if read_records else []), *_rigid(groups), *_other_gpu_types(groups),
        *_packed_for_nothing(groups),
    ]  # fmt: skip


def _window(groups: Sequence[PolicyRuns]) -> list[str]:
    windows = [group.runs[0].summary.get("window") for group in groups]
    window = windows[0]
    if not isinstance(window, Mapping) or any(other_window is None for other_window in windows):
        return []
    values = measured(groups[0].runs[0])
    jobs, all_jobs = int(values.get("jobs") or 0), len(groups[0].runs[0].jobs)
    from_s, until_s = (values.get(name) or 0.0 for name in ("from_s", "until_s"))
    begins, ends = f"{from_s:,.0f} s", f"{until_s:,.0f} s"
    if groups[0].runs[0].manifest.get("until_s") is not None:  # jobs may be submitted after the run's end
        span = f"{begins} on, and the GPUs from then to {ends}"
    else:
        span = f"{begins} to {ends}, however late they finish, and the GPUs during that time"
    return [f"Measured in a window: the {jobs:,} of {all_jobs:,} jobs submitted from {span}."]


def _load(groups: Sequence[PolicyRuns]) -> list[str]:
    loads: dict[str, list[str]] = {}
    values = [measured(group.runs[0]) for group in groups]
    for group, group_values in zip(groups, values, strict=True):
        load = group_values.get("offered_load")
        if load is not None:
            loads.setdefault(f"{load:.2f}", []).append(group.label)
    arrivals_s, jobs = values[0].get("arrival_window_s"), int(values[0].get("jobs") or 0)
    if arrivals_s is not None and not loads and jobs > 1:
        return ["All jobs are submitted at once, so there is no offered load."]
    if not loads or arrivals_s is None:
        return []
    over = f"of the cluster's GPU time over {duration(arrivals_s)} of arrivals"
    if len(loads) == 1:
        text = f"Offered load: {next(iter(loads))} {over}"
    else:
        texts = [f"{load} under {listed(labels)}" for load, labels in loads.items()]
        text = f"Offered load, {over}: {', '.join(texts) if len(texts) < 8 else listed(texts)}"
    covered = int(values[0].get("load_jobs") or 0)
    exception = f", without {jobs - covered:,} of {jobs:,} jobs that cannot run or were not reached"
    return [f"{text}{exception if covered < jobs else ''}."]


def _services(groups: Sequence[PolicyRuns], read_records: bool) -> list[str]:
    """How much of the need of inference services was not met."""
    texts: list[str] = []
    for group in groups:
        service = group.runs[0].summary.get("services")
        if isinstance(service, Mapping):
            levels = service_levels(group.runs[0])[:_MOST_SERVICES] if read_records else []
            shares = [f"{level.service} {100 * level.satisfied_ratio:.1f} %" for level in levels]
            full_time_text = f" (time with all of it met: {', '.join(shares)})" if shares else ""
            texts.append(f"{100 * (1 - service['met_ratio']):.1f} % under {group.label}{full_time_text}")
    return [f"GPU-hours that services need and do not get: {'; '.join(texts)}."] if texts else []


def _no_queueing(groups: Sequence[PolicyRuns], read_records: bool) -> list[str]:
    """That hardly any job waited under any policy, was declined, or got fewer GPUs than requested, and that
    elastic policies come near the best possible.
    """
    runs = [run for group in groups for run in group.runs]
    values = [measured(run) for run in runs]
    if not all(
        says_little(run_values, run.manifest.get("elastic") is True)
        for run, run_values in zip(runs, values, strict=True)
    ):
        return []
    if any(
        _declined(run, run_values, read_records) >= HARDLY_ANY
        for run, run_values in zip(runs, values, strict=True)
    ):
        return []
    if read_records and any(_sizes(group)[1] >= HARDLY_ANY for group in groups):
        return []
    subject = "this comparison says" if len(groups) > 1 else "this run says"
    largest = max(run_values["waited_ratio"] or 0.0 for run_values in values)
    how = "no job waited" if not largest else f"at most {100 * largest:.1g} % of the jobs waited"
    share = f"{100 * NEGLIGIBLE_WAIT:g} % of the job's run time"
    return [f"No queueing: {subject} little about scheduling ({how} for more than {share})."]


def _declined(run: Run, values: Mapping[str, float | None], read_records: bool) -> float:
    """The share of jobs that can run, and that the policy declined; at most this share, without records."""
    jobs = values.get("jobs") or 0.0
    if not read_records:
        return (values.get("rejected") or 0.0) / jobs if jobs else 0.0
    table = jobs_of(run)
    able = measured_jobs(run) & ~np.isnan(table["isolated_s"])
    declined = int((able & table.equal("state", REJECTED)).sum())
    return declined / jobs if jobs else 0.0


def _tails(groups: Sequence[PolicyRuns]) -> list[str]:
    """The policies whose makespan is to a large part the tail of a few jobs."""
    texts = []
    for group in groups:
        values = measured(group.runs[0])
        share, jobs, few = (values.get(name) for name in ("tail_ratio", "jobs", "tail_jobs"))
        if share is None or jobs is None or share < LONG_TAIL or jobs < _LEAST_JOBS:
            continue
        last_jobs = "the last" if few == 1 else f"the last {few:,.0f}"
        texts.append(
            f"{last_jobs} of {jobs:,.0f} jobs ran alone for {100 * share:.0f} % of it under {group.label}"
        )
    if not texts:
        return []
    return [f"The makespan is largely the tail of a few jobs: {'; '.join(texts)}."]


def _same_policy(groups: Sequence[PolicyRuns]) -> list[str]:
    """The policies that decide alike and plan the jobs in other ways."""
    groups_alike: dict[str, list[PolicyRuns]] = {}
    for group in groups:
        algorithm = group.runs[0].manifest.get("algorithm") or group.runs[0].policy
        groups_alike.setdefault(str(algorithm), []).append(group)
    sentences = []
    for alike in groups_alike.values():
        planners = planners_of([run for group in alike for run in group.runs])
        if len(alike) > 1 and len(planners) > 1:
            names = listed([f"{group.label} ({group.runs[0].planner})" for group in alike])
            sentences.append(f"Same policy, other plans: {names} differ in their planner alone.")
    return sentences


def _identical(groups: Sequence[PolicyRuns]) -> list[str]:
    """The policies under which every job started, finished and held GPUs alike."""
    if np.isnan(jobs_of(groups[0].runs[0])["start_s"]).all():
        return []
    sets_of_groups: list[list[PolicyRuns]] = []
    for group in groups:
        for equal_groups in sets_of_groups:
            if _same_schedule(group.runs[0], equal_groups[0].runs[0]):
                equal_groups.append(group)
                break
        else:
            sets_of_groups.append([group])
    return [
        f"{listed([group.label for group in groups_alike])} gave identical schedules: "
        "every job started, finished and held GPUs alike."
        for groups_alike in sets_of_groups
        if len(groups_alike) > 1
    ]


def _same_schedule(run: Run, other_run: Run) -> bool:
    """Whether two runs of one seed are alike, in numbers as tables state them: so runs in memory and runs in
    folders compare equal.
    """
    ours, theirs = jobs_of(run), jobs_of(other_run)
    if run.manifest.get("seed") != other_run.manifest.get("seed") or ours.values("job_id") != theirs.values(
        "job_id"
    ):
        return False
    fields = [(ours[name], theirs[name]) for name in ("submit_s", "start_s", "finish_s", "gpu_seconds")]
    if any(
        (np.abs(run_values - other_values) > 2 * _STEP_S).any() for run_values, other_values in fields
    ):  # most runs that differ
        return False
    return all(
        list(map(_stated, run_values.tolist())) == list(map(_stated, other_values.tolist()))
        for run_values, other_values in fields
    )


def _stated(value: float) -> float | None:
    """A number as tables state it; None for NaN."""
    return None if value != value else round(value, _DIGITS)


def _rigid(groups: Sequence[PolicyRuns]) -> list[str]:
    """The elastic policies of a trace whose jobs all run on just the GPUs that they ask for.

    Jobs of a stated duration are such jobs. All others run by a plan or a throughput table.
    """
    runs = [run for group in groups for run in group.runs]
    if any(run.plans or run.manifest.get("table") or not run.summary.get("finished") for run in runs):
        return []
    elastic = [group.label for group in groups if group.runs[0].manifest.get("elastic") is True]
    if not elastic:
        return []
    have = plural(elastic, "has", "have")
    reason = "each states a run time on its own number of GPUs"
    return [f"No job can be resized, because {reason}: {have} no choice of sizes."]


def _other_gpu_types(groups: Sequence[PolicyRuns]) -> list[str]:
    """Jobs that ask for GPUs of a type that the cluster does not have, where it has only one."""
    manifest = groups[0].runs[0].manifest
    counts, profile = manifest.get("other_gpu_types"), manifest.get("profile")
    if not isinstance(counts, Mapping) or not isinstance(profile, Mapping):
        return []
    asking = [f"{counted(n, 'job')} for {shown(name)}" for name, n in counts.items() if isinstance(n, int)]
    nodes = f"the nodes have {shown(str(profile.get('name')))}"
    remedy = "state their --system, or a cluster file"
    return [f"GPU types: {listed(asking)}, but {nodes}, at whose speed and price all run; {remedy}."]


def _packed_for_nothing(groups: Sequence[PolicyRuns]) -> list[str]:
    """The policies that ran jobs on the same GPUs in runs without the setting `sharing`."""
    packing = [
        group.label
        for group in groups
        if any(run.summary.get("packed_without_slowdown") for run in group.runs)
    ]
    if not packing:
        return []
    ran = f"{listed(packing)} ran jobs on the same GPUs, where they slowed each other down by nothing"
    return [f"{ran}; state sharing.slowdown, as in --set sharing.slowdown=1.2."]


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


class _Pairing(NamedTuple):
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


def _pairings(runs: Sequence[Run], groups: Sequence[PolicyRuns], baseline: str) -> dict[str, _Pairing]:
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
        pairings[group.label] = _Pairing(means[0], means[1], (min(counts), max(counts)), share)
    return pairings


def _soonest(runs: Sequence[Run], groups: Sequence[PolicyRuns], baseline: str) -> list[str]:
    """Which policy completes jobs soonest, of those that finish nearly all jobs that the baseline finishes;
    then how the others complete the jobs that they do finish.
    """
    pairings = _pairings(runs, groups, baseline)
    if not pairings:
        return [f"No policy finished a job that {baseline} finished, so completion times cannot be compared."]
    candidates = {label: pairing for label, pairing in pairings.items() if pairing.share >= _NEARLY_ALL}
    sentences = [_leader(candidates, baseline)] if candidates else []
    declining_policies = [label for label in pairings if label not in candidates]
    for label in sorted(declining_policies, key=lambda label: pairings[label].change)[:_MOST_TOLD]:
        pairing = pairings[label]
        change = difference("time", pairing.jct_s, pairing.baseline_s)
        sentences.append(
            f"{label} finished {pairing.counted} of those that {baseline} finished, with mean JCT "
            f"{duration(pairing.jct_s)} against {duration(pairing.baseline_s)} ({change})."
        )
    return sentences


def _leader(pairings: Mapping[str, _Pairing], baseline: str) -> str:
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
    means = {
        group.label: fsum(measured(run).get("wait_mean_s") or 0.0 for run in group.runs) / len(group.runs)
        for group in groups
    }
    least_wait, most_wait = min(means.values()), max(means.values())
    if most_wait - least_wait < _SHORTEST_S:
        return []
    shortest, longest = (
        f"{duration(value, scale_s=most_wait)} on average under {listed(_all_with(means, value))}"
        for value in (least_wait, most_wait)
    )
    return [f"Jobs wait least, {shortest}, and longest, {longest}."]


def _most_in_time(groups: Sequence[PolicyRuns], baseline: str) -> list[str]:
    jobs = int(measured(groups[0].runs[0]).get("deadline_jobs") or 0)
    if not jobs:
        return []
    met: dict[str, float] = {}
    for group in groups:
        ratios = [measured(run).get("deadline_met_ratio") or 0.0 for run in group.runs]
        met[group.label] = fsum(ratios) / len(ratios)
    best = max(met, key=lambda label: met[label])
    if met[best] == min(met.values()):
        return [f"All policies meet {100 * met[best]:.1f} % of the {counted(jobs, 'deadline')}."]
    baseline_text = f"; {baseline} meets {100 * met[baseline]:.1f} %" if met[best] > met[baseline] else ""
    leaders = plural(_all_with(met, met[best]), "meets", "meet")
    return [f"{leaders} the most deadlines, {100 * met[best]:.1f} % of {jobs:,}{baseline_text}."]


def _rejections(groups: Sequence[PolicyRuns]) -> list[str]:
    """The numbers of rejected jobs, if policies differ in them: averages leave these jobs out."""
    rejected: dict[str, float] = {}
    for group in groups:
        rejected[group.label] = fsum(measured(run).get("rejected") or 0.0 for run in group.runs) / len(
            group.runs
        )
    if min(rejected.values()) == max(rejected.values()):
        return []
    jobs = int(measured(groups[0].runs[0]).get("jobs") or 0)
    none = [label for label, count in rejected.items() if not count]
    rejections = {label: count for label, count in rejected.items() if count or len(none) == 1}
    largest = sorted(rejections, key=lambda label: -rejections[label])[:_MOST_TOLD]
    texts = [f"{label} rejects {count:,.0f}" for label, count in rejections.items() if label in largest]
    if len(rejections) > len(largest):
        texts.append(f"{len(rejections) - len(largest)} more policies some")
    if len(none) > 1:
        texts.append("the others none")
    return [f"Of {counted(jobs, 'job')}, {', '.join(texts)}."]


def sizes_given(runs: Sequence[Run]) -> list[str]:
    """Which policies allocate other numbers of GPUs than requested: this can explain most of a difference."""
    sizes = {group.label: _sizes(group) for group in group_runs(runs)}
    elastic = {label: shares for label, shares in sizes.items() if any(shares)}
    if not elastic:
        return []
    largest = sorted(elastic, key=lambda label: -max(elastic[label]))[:_MOST_TOLD]
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


def _sizes(group: PolicyRuns) -> tuple[float, float]:
    """Shares of finished jobs that held on average over 1 % more, and over 1 % fewer, GPUs than requested."""
    parts = []
    for jobs in map(jobs_of, group.runs):
        gpus, held_s = requested_gpus(jobs), jobs["jct_s"] - jobs["wait_s"]
        is_known = (held_s > _SHORTEST_S) & (gpus > 0)  # not for NaN
        parts.append(jobs["gpu_seconds"][is_known] / held_s[is_known] / gpus[is_known])
    held = np.concatenate(parts)
    larger, fewer = int((held > 1.01).sum()), int((held < 0.99).sum())
    return (larger / len(held), fewer / len(held)) if len(held) else (0.0, 0.0)


def _all_with(values: Mapping[str, float], value: float) -> list[str]:
    return [label for label, label_value in values.items() if label_value == value]
