"""From a list of jobs with GPU counts, most important first, to a proposal that runs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Wanted", "in_service_by_type", "run_at_most", "run_elastic", "run_ranked"]

Wanted = tuple[JobView, int, str | None]
"""A job, the GPUs it is to have, and their type, None for any."""


def run_ranked(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """A draft that runs as many jobs of `ranked` as there are GPUs for, in order, on the counts given. All
    other jobs stop. A job that is listed more than once runs on the first of its entries that fits.

    The choice is made by counting GPUs, then the chosen jobs are placed. A job that keeps its count keeps its
    placement. On clusters of one GPU type, small jobs migrate together where free GPUs are scattered. A
    chosen job that still has no place is skipped, except the first of the list, which always runs. GPUs that
    remain go to jobs that were not chosen.

    Jobs that are settling stay as they are, ahead of all others: with restarts longer than the time between
    two decisions, jobs would otherwise preempt and resize each other endlessly without progress. If the first
    of the other jobs has to wait for them, no new job starts meanwhile. A draft that differs from `ranked`
    for this reason asks for a wake-up when the first of them has settled.

    After failures or maintenance a job may have no place although there are GPUs enough. Such a job keeps no
    other out. If no job of `ranked` has a place, all running jobs stay and pending jobs start where they fit.
    """
    settling = state.unsettled()
    others = [entry for entry in ranked if entry[0] not in settling] if settling else ranked
    line: list[Wanted] = [(job, job.gpus, job.gpu_type if state.cluster.mixed else None) for job in settling]
    line += others
    proposal = _place(state, _choose(state, line), settling)
    first = others[0][0] if others else None
    if first and proposal.placement(first) is None:
        proposal = _place_in_order(state, line)
    blocked = bool(settling) and first is not None and proposal.placement(first) is None
    for job, gpus, gpu_type in line:
        if not proposal.free:
            break
        if proposal.placement(job) is None and proposal.fits(gpus, gpu_type) and (job.running or not blocked):
            proposal.start(job, gpus, gpu_type=gpu_type)
    if not settling and not any(proposal.placement(job) for job, _, _ in line):
        return _start_pending(state)
    if settling and any(proposal.gpus(job) != gpus for job, gpus, _ in ranked):
        proposal.wake_at = min(settling.values())
    return proposal


def run_elastic(state: State, shares: Mapping[JobView, int]) -> Proposal:
    """As `run_at_most`, on GPUs that are all alike."""
    return run_at_most(state, [(job, gpus, None) for job, gpus in shares.items()])


def run_at_most(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """As `run_ranked`, for jobs that may also run on fewer GPUs: a job that would have no place runs on its
    largest size that fits.
    """
    proposal = run_ranked(state, ranked)
    for job, gpus, gpu_type in ranked:
        if not proposal.free:
            break
        if proposal.placement(job) is None:
            sizes = job.sizes if gpu_type is None else job.sizes_on(gpu_type)
            fitting = [size for size in sizes if size <= gpus and proposal.fits(size, gpu_type)]
            if fitting:
                proposal.start(job, fitting[-1], gpu_type=gpu_type)
    return proposal


def in_service_by_type(state: State) -> dict[str, int]:
    """GPUs that are free or held by jobs, by type in the order of the cluster's."""
    proposal = state.proposal()
    counts = {name: proposal.free_of(name) for name in state.cluster.gpu_types}
    for job in state.running:
        assert job.gpu_type is not None
        counts[job.gpu_type] += job.gpus
    return counts


def _choose(state: State, line: Sequence[Wanted]) -> dict[JobView, Wanted]:
    """The entries of `line` that get GPUs when each in order takes its count from those of its type."""
    remaining = state.in_service
    by_type = in_service_by_type(state) if state.cluster.mixed else {}
    chosen: dict[JobView, Wanted] = {}
    for entry in line:
        job, gpus, gpu_type = entry
        enough = gpus <= remaining and (gpu_type is None or gpus <= by_type.get(gpu_type, gpus))
        if enough and job not in chosen:
            chosen[job] = entry
            remaining -= gpus
            if gpu_type in by_type:
                by_type[gpu_type] -= gpus
            if not remaining:
                break
    return chosen


def _place(state: State, chosen: Mapping[JobView, Wanted], settling: Collection[JobView]) -> Proposal:
    """A draft in which the chosen jobs run, as far as they have a place, and all others stop.

    Jobs that keep their GPUs stay; the rest start, largest first. If some find no place, small jobs migrate
    together, unless that would disturb a job that is settling.
    """
    proposal = state.proposal()
    to_start = dict(chosen)
    for job in state.running:
        _, gpus, gpu_type = chosen.get(job, (job, 0, None))
        if gpus == job.gpus and gpu_type in (None, job.gpu_type):
            del to_start[job]
        else:
            proposal.stop(job)
    largest_first = sorted(to_start.values(), key=lambda entry: -entry[1])
    placed = [proposal.start(job, gpus, gpu_type=gpu_type) for job, gpus, gpu_type in largest_first]
    if None not in placed or state.cluster.mixed:
        return proposal
    compacted = proposal.copy() if settling else proposal
    compacted.compact({job: gpus for job, gpus, _ in chosen.values() if proposal.gpus(job) != gpus})
    undisturbed = all(compacted.gpus(job) == job.gpus for job in settling)
    return compacted if undisturbed else proposal


def _place_in_order(state: State, line: Sequence[Wanted]) -> Proposal:
    """A draft that places all jobs on the empty cluster, strictly in the order of `line`."""
    proposal = state.proposal()
    for job in state.running:
        proposal.stop(job)
    for job, gpus, gpu_type in line:
        if proposal.placement(job) is None and proposal.fits(gpus, gpu_type):
            proposal.start(job, gpus, gpu_type=gpu_type)
    return proposal


def _start_pending(state: State) -> Proposal:
    """A draft in which all running jobs stay, and pending jobs start on the GPUs they request or on their
    largest size that fits.
    """
    proposal = state.proposal()
    for job in state.pending:
        if proposal.start(job) is None:
            sizes = [size for size in job.sizes if proposal.fits(size)]
            if sizes:
                proposal.start(job, sizes[-1])
    return proposal
