"""From jobs with GPU counts, most important first, to a draft that runs them (`Proposal.run`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from clustersim.scheduler.cluster_state import INSTANT_S, ClusterState
from clustersim.scheduler.draft import Draft
from clustersim.scheduler.internal import active_of, take_over
from clustersim.scheduler.job_view import JobView

from .compaction import compact

__all__ = ["Wanted", "fulfil", "in_service_by_type", "run_smaller", "unmet", "unsettled"]

Wanted = tuple[JobView, int, str | None]
"""A job, the GPUs that it is to have, and their type, None for any."""


def fulfil(
    draft: Draft, facts: ClusterState[JobView], entries: Sequence[Wanted], settling: Collection[JobView]
) -> None:
    """Make `draft` run as many jobs of `entries` as there are GPUs for, in order, on the counts given, and
    stop all other jobs. A job that is listed more than once runs on the first of its entries that fits.

    The choice is made by counting GPUs, then the chosen jobs are placed. A chosen job that still has no place
    is skipped, except the first of the list, which always runs. GPUs that remain go to jobs that were not
    chosen.

    `settling`: jobs that stay as they are, ahead of all others. If the first of the other jobs has to wait
    for them, no new job starts meanwhile.

    After failures or maintenance a job may have no place although there are GPUs enough. Such a job keeps no
    other out. If no job of `entries` has a place, the draft stays as it was, and pending jobs start
    where they fit.
    """
    draft_before, cluster = draft.copy(), facts.cluster
    free_entries = [entry for entry in entries if entry[0] not in settling] if settling else entries
    ordered: list[Wanted] = [
        (job, draft.gpus(job), draft.gpu_type(job) if cluster.mixed else None) for job in settling
    ]
    ordered += free_entries
    _place(draft, facts, _choose(draft, facts, ordered), settling)
    top_job = free_entries[0][0] if free_entries else None
    if top_job and draft.placement(top_job) is None:
        take_over(draft, _placed_in_order(draft_before, facts, ordered))
    blocked = bool(settling) and top_job is not None and draft.placement(top_job) is None
    for job, gpus, gpu_type in ordered:
        if not draft.free:
            break
        if (
            draft.placement(job) is None
            and _fits(draft, job, gpus, gpu_type)
            and (job.running or not blocked)
        ):
            draft.start(job, gpus, gpu_type=gpu_type)
    if entries and not settling and not any(draft.placement(job) for job, _, _ in ordered):
        _start_pending(draft_before, facts)
        take_over(draft, draft_before)


def run_smaller(draft: Draft, entries: Iterable[Wanted]) -> None:
    """Start the jobs of `entries` that have no GPUs on their largest size that fits, at most the count
    wanted.
    """
    for job, gpus, gpu_type in entries:
        if not draft.free:
            break
        if draft.placement(job) is None:
            sizes = job.sizes if gpu_type is None else job.sizes_on(gpu_type)
            fitting = [size for size in sizes if size <= gpus and _fits(draft, job, size, gpu_type)]
            if fitting:
                draft.start(job, fitting[-1], gpu_type=gpu_type)


def _fits(draft: Draft, job: JobView, gpus: int, gpu_type: str | None = None) -> bool:
    """Whether there is room; exact for a job that needs cores or memory beside its GPUs."""
    return draft.fits(gpus, gpu_type, None if active_of(job).demand is None else job)


def unmet(draft: Draft, entries: Iterable[Wanted]) -> dict[JobView, int]:
    """The jobs of `entries` of which no entry is what the job holds, with the GPUs that it holds."""
    missed: dict[JobView, int] = {}
    met: set[JobView] = set()
    for job, gpus, gpu_type in entries:
        held = draft.gpus(job)
        if held == gpus and (gpu_type is None or not gpus or draft.gpu_type(job) == gpu_type):
            met.add(job)
        else:
            missed[job] = held
    return {job: held for job, held in missed.items() if job not in met} if met else missed


def unsettled(facts: ClusterState[JobView]) -> dict[JobView, float]:
    """See `State.unsettled`."""
    now, restart_times, settled_s = facts.now_s, facts.restart_s, {}
    for view in facts.running:
        job = active_of(view)
        restart_s = restart_times[job.curve.parameters, job.gpus]
        productive_s = now - job.ready_s
        if productive_s > 0.0:
            if productive_s < restart_s - INSTANT_S:
                settled_s[view] = now + restart_s - productive_s
        elif restart_s > INSTANT_S:
            settled_s[view] = now + job.paying_s(now) + restart_s
    return settled_s


def in_service_by_type(draft: Draft, facts: ClusterState[JobView]) -> dict[str, int]:
    """GPUs that are free or held by jobs, by type in the order of the cluster's."""
    counts = {name: draft.free_of(name) for name in facts.cluster.gpu_types}
    for job in _running(draft, facts):
        gpu_type = draft.gpu_type(job)
        assert gpu_type is not None
        counts[gpu_type] += draft.gpus(job)
    return counts


def _running(draft: Draft, facts: ClusterState[JobView]) -> list[JobView]:
    """The jobs that hold GPUs in the draft: first those that do in reality, in the order of their start."""
    return [job for job in {**facts.running, **draft.changes} if draft.placement(job)]


def _choose(draft: Draft, facts: ClusterState[JobView], entries: Iterable[Wanted]) -> dict[JobView, Wanted]:
    """Those of `entries` that get GPUs when each in order takes its count from those of its type."""
    remaining = facts.in_service
    by_type = in_service_by_type(draft, facts) if facts.cluster.mixed else {}
    choice: dict[JobView, Wanted] = {}
    for entry in entries:
        job, gpus, gpu_type = entry
        enough = gpus <= remaining and (gpu_type is None or gpus <= by_type.get(gpu_type, gpus))
        if job not in choice and enough:
            choice[job] = entry
            remaining -= gpus
            if gpu_type in by_type:
                by_type[gpu_type] -= gpus
            if not remaining:
                break
    return choice


def _place(
    draft: Draft,
    facts: ClusterState[JobView],
    choice: Mapping[JobView, Wanted],
    settling: Collection[JobView],
) -> None:
    """Let the chosen jobs run, as far as they have a place, and stop all others.

    Jobs that keep their GPUs stay; the rest start, largest first. If some find no place, small jobs migrate
    together, unless that would disturb a job that is settling.
    """
    to_start = dict(choice)
    for job in _running(draft, facts):
        _, gpus, gpu_type = choice.get(job, (job, 0, None))
        if gpus == draft.gpus(job) and (gpu_type is None or gpu_type == draft.gpu_type(job)):
            del to_start[job]
        else:
            draft.stop(job)
    largest_first = sorted(to_start.values(), key=lambda entry: -entry[1])
    placed = [draft.start(job, gpus, gpu_type=gpu_type) for job, gpus, gpu_type in largest_first]
    if None not in placed or facts.cluster.mixed or facts.nodes.may_refuse_jobs:
        return
    compacted = draft.copy() if settling else draft
    counts = {job: gpus for job, gpus, _ in choice.values() if draft.gpus(job) != gpus}
    compact(compacted, facts, counts)
    if settling and all(compacted.gpus(job) == job.gpus for job in settling):
        take_over(draft, compacted)


def _placed_in_order(draft: Draft, facts: ClusterState[JobView], entries: Iterable[Wanted]) -> Draft:
    """A copy of `draft` in which jobs are placed on the empty cluster, strictly in the order of `entries`."""
    copy = draft.copy()
    for job in _running(copy, facts):
        copy.stop(job)
    for job, gpus, gpu_type in entries:
        if copy.placement(job) is None and _fits(copy, job, gpus, gpu_type):
            copy.start(job, gpus, gpu_type=gpu_type)
    return copy


def _start_pending(draft: Draft, facts: ClusterState[JobView]) -> None:
    """Let all jobs of the draft stay, and start pending jobs on the GPUs they request or on their largest
    size that fits.
    """
    for job in facts.waiting.in_order():
        if draft.placement(job) is None and draft.start(job) is None:
            sizes = [size for size in job.sizes if _fits(draft, job, size)]
            if sizes:
                draft.start(job, sizes[-1])
