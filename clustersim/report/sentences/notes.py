"""What a reader must know to judge the numbers of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from clustersim.analysis import (
    HARDLY_ANY,
    LONG_TAIL,
    NEGLIGIBLE_WAIT,
    measured_jobs,
    says_little,
    service_levels,
)
from clustersim.analysis.tables import jobs_of
from clustersim.records import REJECTED, Run
from clustersim.report.numbers import counted, listed, plural
from clustersim.report.runs import PolicyRuns, group_runs, measured, planners_of
from itertime.errors import shown

from .sizes import shares_of_other_sizes

__all__ = ["notes"]

_LEAST_JOBS = 10  # of which a few can be a tail
_MOST_SERVICES = 5  # that a sentence names
_DIGITS, _STEP_S = 6, 1e-6  # to which tables state numbers


def notes(runs: Sequence[Run], *, read_records: bool = True) -> list[str]:
    """What a reader must know to judge the numbers, as sentences for the terminal and the page.

    - the window of measurement;
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
        *_window(groups), *_services(groups, read_records),
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
    if read_records and any(shares_of_other_sizes(group)[1] >= HARDLY_ANY for group in groups):
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
    tails: dict[str, dict[str, int]] = {}  # percentages by policy, by how many jobs are the last
    for group in groups:
        values = measured(group.runs[0])
        share, jobs, few = (values.get(name) for name in ("tail_ratio", "jobs", "tail_jobs"))
        if share is None or jobs is None or share < LONG_TAIL or jobs < _LEAST_JOBS:
            continue
        last_jobs = f"{'the last' if few == 1 else f'the last {few:,.0f}'} of {jobs:,.0f} jobs"
        tails.setdefault(last_jobs, {})[group.label] = round(100 * share)
    texts = []
    for last_jobs, shares in tails.items():
        least, most = min(shares.values()), max(shares.values())
        span = f"{least} %" if least == most else f"{least} to {most} %"
        texts.append(f"{last_jobs} ran alone for {span} of it under {listed(list(shares))}")
    return [f"The makespan is largely the tail of a few jobs: {'; '.join(texts)}."] if texts else []


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
