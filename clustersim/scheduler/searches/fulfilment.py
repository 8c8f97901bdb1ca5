"""From jobs with GPU counts, most important first, to a draft that runs them (`Proposal.run`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter

from clustersim.cluster import MILLION, SharedPlacement
from clustersim.jobs import ActiveJob
from clustersim.scheduler.cluster_state import INSTANT_S, ClusterState
from clustersim.scheduler.draft import Draft
from clustersim.scheduler.internal import active_of, take_over
from clustersim.scheduler.job_view import JobView

from .compaction import compact

__all__ = ["Wanted", "fulfil", "hand_back", "in_service_by_type", "is_packed", "unmet", "unsettled"]

Wanted = tuple[JobView, int, str | None]
"""A job, the GPUs that it is to have, and their type, None for any."""


def fulfil(
    draft: Draft,
    facts: ClusterState[JobView],
    entries: Sequence[Wanted],
    settling: Collection[JobView] = (),
    smaller: bool = True,
) -> None:
    """Make `draft` run the jobs of `entries`, most important first: places are found before jobs are stopped.

    `Proposal.run` says what becomes of each job. A *wish* is an entry, or what a running job holds, which is
    its last wish. Wishes are met in order of importance, each if it has a place beside all wishes met before
    it (`_wishes_met`). What then remains free goes, in that order, to jobs whose wishes are not met: back to
    a job that held it, or else to a job that it suffices. Then come `smaller` sizes, and the jobs that are
    not listed.

    `settling`: jobs that keep their counts, ahead of all others. If the first of the other jobs has to wait
    for them, no new job starts on what remains.

    If no job of `entries` has a place, which failures can cause, waiting jobs start where they fit.
    """
    held = _held(draft, facts)
    wishes = _wishes(held, entries, settling)
    trial = _wishes_met(draft, facts, wishes, held)
    top_job = next((job for job, _, _ in entries if job not in settling), None)
    take_over(draft, trial)
    blocked = bool(settling) and top_job is not None and draft.placement(top_job) is None
    for job, gpus, gpu_type in wishes:
        if draft.full:
            break
        if draft.placement(job) or draft.keep(job):
            continue
        if (job.running or not blocked) and _fits(draft, job, gpus, gpu_type):
            draft.start(job, gpus, gpu_type=gpu_type)
    if smaller:
        _run_smaller(draft, entries)
    hand_back(draft, [job for job, placement in draft.changes.items() if placement is None and job in held])
    if entries and not settling and not any(draft.placement(job) for job, _, _ in entries):
        _start_pending(draft, facts)


def _held(draft: Draft, facts: ClusterState[JobView]) -> dict[JobView, Wanted]:
    """What each job with GPUs in the draft holds, as a wish; the type on clusters of several types alone."""
    if facts.cluster.mixed:
        return {job: (job, draft.gpus(job), draft.gpu_type(job)) for job in _running(draft, facts)}
    if draft.changes:
        return {job: (job, draft.gpus(job), None) for job in _running(draft, facts)}
    return {job: (job, active_of(job).gpus, None) for job in facts.running}


def _wishes(
    held: Mapping[JobView, Wanted], entries: Sequence[Wanted], settling: Collection[JobView]
) -> list[Wanted]:
    """All wishes in order of importance, of which a job gets at most one. `held`: by job, what it holds."""
    wishes = [held[job] for job in settling]
    last_entries = dict(zip(map(itemgetter(0), entries), entries, strict=True))
    content_jobs: set[JobView] = set()
    for entry in entries:
        job = entry[0]
        if job in settling:
            continue
        wishes.append(entry)
        held_wish = held.get(job)
        if held_wish is None:
            continue
        if entry == held_wish or _is_held(entry, held_wish):
            content_jobs.add(job)
        elif last_entries[job] is entry and job not in content_jobs:
            wishes.append(held_wish)
    return wishes


def _is_held(wish: Wanted, held_wish: Wanted) -> bool:
    """Whether a wish is what its job holds."""
    _, gpus, gpu_type = wish
    return gpus == held_wish[1] and (gpu_type is None or held_wish[2] in (None, gpu_type))


def _wishes_met(
    draft: Draft,
    facts: ClusterState[JobView],
    wishes: Sequence[Wanted],
    held: Mapping[JobView, Wanted],
) -> Draft:
    """A copy of `draft` in which wishes are met, and all other jobs stopped.

    As long as those for which there are GPUs enough do not all have a place, the first without a place beside
    those before it is given up. Most often that is the first that found none beside all others.
    """
    given_up: set[int] = set()
    placeable = 0  # so many of the wishes are known to have a place together
    while True:
        indices = _choose(draft, facts, wishes, given_up)
        candidates = list(map(wishes.__getitem__, indices))
        trial, homeless_jobs = _placed(draft, facts, candidates, held)
        if trial is not None:
            robbers = _robbers(draft, trial, wishes, indices, sorted(given_up)) if given_up else ()
            if not robbers:
                return trial
            given_up.update(robbers)
            placeable = 0
            continue
        too_many = len(candidates)
        suspect = next((i for i, wish in enumerate(candidates) if wish[0] in homeless_jobs), too_many)
        while too_many - placeable > 1:
            middle = (placeable + too_many) // 2
            count = next((n for n in (suspect, suspect + 1) if placeable < n < too_many), middle)
            if _placed(draft, facts, candidates[:count], held)[0] is None:
                too_many = count
            else:
                placeable = count
        given_up.add(indices[placeable])


def _robbers(
    draft: Draft,
    trial: Draft,
    wishes: Sequence[Wanted],
    indices: Sequence[int],
    suspects: Iterable[int],
) -> list[int]:
    """Those of `indices`, of wishes met in `trial`, that take GPUs which a more important job would keep
    without them. `suspects`: the wishes, as indices, whose jobs may be such: a wish given up found no place
    in one order of placing.
    """
    for i in suspects:
        loser = wishes[i][0]
        placement = draft.placement(loser)
        if not placement or trial.placement(loser):
            continue
        nodes, copy, robbers = {node for node, _ in placement}, trial.copy(), []
        for j in indices:
            job = wishes[j][0]
            new_placement = trial.placement(job)
            if j < i or not new_placement or new_placement == draft.placement(job):
                continue
            if nodes & {node for node, _ in new_placement}:
                copy.stop(job)
                robbers.append(j)
        if robbers and copy.keep(loser):
            return robbers
    return []


def _run_smaller(draft: Draft, entries: Iterable[Wanted]) -> None:
    """Start the jobs of `entries` that have no GPUs on their largest size that fits, at most the count
    wanted.
    """
    for job, gpus, gpu_type in entries:
        if draft.full:
            break
        if draft.placement(job) is None:
            sizes = job.sizes if gpu_type is None else job.sizes_on(gpu_type)
            fitting = [size for size in sizes if size <= gpus and _fits(draft, job, size, gpu_type)]
            if fitting:
                draft.start(job, fitting[-1], gpu_type=gpu_type)


def hand_back(draft: Draft, stopped_jobs: Iterable[JobView]) -> None:
    """Let those of `stopped_jobs` that have no GPUs in the draft keep what they hold in reality, where no job
    got any of it. A job that its policy packed on GPUs with others stays stopped.
    """
    for job in stopped_jobs:
        if draft.placement(job) is None and not is_packed(active_of(job)):
            draft.keep(job)


def is_packed(job: ActiveJob) -> bool:
    """Whether a running job holds a share of GPUs because its policy packs jobs."""
    return isinstance(job.placement, SharedPlacement) and not job.millionths


def _fits(draft: Draft, job: JobView, gpus: int, gpu_type: str | None = None) -> bool:
    """Whether there is room for so many GPUs, or for the part of a GPU that the job shares; exact for a job
    that needs cores or memory beside its GPUs.
    """
    needs = job.needs if job.needs < 1 else gpus
    return draft.fits(needs, gpu_type, None if active_of(job).terms is None else job)


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
    """GPUs that are free or held by jobs, by type in the order of the cluster's. A GPU that jobs share counts
    for each of them.
    """
    return _free_or_held(draft, facts, _running(draft, facts))


def _free_or_held(draft: Draft, facts: ClusterState[JobView], jobs: Iterable[JobView]) -> dict[str, int]:
    """GPUs that are free or held by these jobs, by type in the order of the cluster's."""
    counts = {name: draft.free_of(name) for name in facts.cluster.gpu_types}
    for job in jobs:
        gpu_type = draft.gpu_type(job)
        assert gpu_type is not None
        counts[gpu_type] += draft.gpus(job)
    return counts


def _holders(draft: Draft, facts: ClusterState[JobView]) -> Iterable[JobView]:
    """The jobs that hold GPUs in the draft; of those that share GPUs the first."""
    jobs: dict[object, JobView] = {}
    for job in _running(draft, facts):
        placement = draft.placement(job)
        jobs.setdefault(placement.key if isinstance(placement, SharedPlacement) else job, job)
    return jobs.values()


def _running(draft: Draft, facts: ClusterState[JobView]) -> list[JobView]:
    """The jobs that hold GPUs in the draft: first those that do in reality, in the order of their start."""
    if not draft.changes:
        return list(facts.running)
    return [job for job in {**facts.running, **draft.changes} if draft.placement(job)]


def _choose(
    draft: Draft, facts: ClusterState[JobView], wishes: Sequence[Wanted], given_up: Collection[int]
) -> list[int]:
    """The wishes, as indices, that are met when each in order takes its count, or its part of a GPU, from the
    GPUs of its type; at most one of each job.
    """
    remaining = facts.in_service * MILLION
    by_type = {}
    if facts.cluster.mixed:
        counts = _free_or_held(draft, facts, _holders(draft, facts))
        by_type = {name: gpus * MILLION for name, gpus in counts.items()}
    indices: dict[JobView, int] = {}
    for i, (job, gpus, gpu_type) in enumerate(wishes):
        millionths = active_of(job).millionths or gpus * MILLION
        if millionths > remaining or job in indices or i in given_up:
            continue
        if gpu_type in by_type:
            if millionths > by_type[gpu_type]:
                continue
            by_type[gpu_type] -= millionths
        indices[job] = i
        remaining -= millionths
        if not remaining:
            break
    return list(indices.values())


def _placed(
    draft: Draft,
    facts: ClusterState[JobView],
    wishes: Sequence[Wanted],
    held: Mapping[JobView, Wanted],
) -> tuple[Draft | None, Collection[JobView]]:
    """A copy of `draft` in which these wishes are met and all other jobs stopped; None if not all have a
    place. Also the jobs that find no place on free GPUs.

    Jobs that keep their count stay; the others start, largest first, which packs best. If some find no place,
    small jobs migrate together; those that are settling, too, since others would wait for them.
    """
    copy = draft.copy()
    to_stop, to_start = dict(held), []
    for wish in wishes:
        held_wish = held.get(wish[0])
        if held_wish is not None and (wish == held_wish or _is_held(wish, held_wish)):
            del to_stop[wish[0]]
        else:
            to_start.append(wish)
    for job in to_stop:
        copy.stop(job)
    homeless: dict[JobView, int] = {}
    for job, gpus, gpu_type in sorted(to_start, key=lambda wish: -wish[1]):
        if copy.start(job, gpus, gpu_type=gpu_type) is None:
            homeless[job] = gpus
    if not homeless:
        return copy, homeless
    if facts.cluster.mixed or facts.nodes.may_refuse_jobs:
        return None, homeless
    compact(copy, facts, {job: homeless[job] for job, _, _ in wishes if job in homeless})
    if any(copy.gpus(job) != gpus for job, gpus, _ in wishes):
        return None, homeless
    return copy, homeless


def _start_pending(draft: Draft, facts: ClusterState[JobView]) -> None:
    """Let all jobs of the draft stay, and start pending jobs on the GPUs they request or on their largest
    size that fits.
    """
    for job in facts.waiting.in_order():
        if draft.placement(job) is None and draft.start(job) is None:
            sizes = [size for size in job.sizes if _fits(draft, job, size)]
            if sizes:
                draft.start(job, sizes[-1])
