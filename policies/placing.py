"""From a list of jobs with GPU counts, most important first, to a proposal that runs them."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Wanted", "available", "run_elastic", "run_ranked", "settles"]

_INSTANT_S = 1e-3  # a wake-up may come this much early: times are sums of times

Wanted = tuple[JobView, int]
"""A job and the GPUs it is to have."""


def available(state: State) -> int:
    """GPUs that jobs hold or could have."""
    return state.free + sum(job.gpus for job in state.running)


def run_ranked(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """A draft in which the jobs of `ranked` run on that many GPUs, as many as there is room for, first come
    first; everybody else stops.

    Who runs is decided by counting GPUs; a job that keeps its count keeps its place. Where the free GPUs are
    scattered, small jobs move together; what still finds no room is skipped, except the first of the list,
    which always runs. Room that is left goes to those passed over before.

    Jobs that are settling are left as they are, ahead of everybody: with restarts longer than the time
    between two decisions jobs would otherwise change places and sizes for ever and get nothing done. If the
    first of the others has to wait for them, nobody new starts meanwhile. A draft that is not what was wanted
    asks to be thought over when the first of them has settled.
    """
    wanted = ranked
    settling = {job: _settled_s(job, state.now) for job in state.running if settles(job)}
    others = [entry for entry in ranked if entry[0] not in settling]
    ranked = [*((job, job.gpus) for job in settling), *others]
    chosen = _within(available(state), ranked)
    proposal = state.proposal()
    for job in state.running:
        if chosen.get(job) != job.gpus:
            proposal.stop(job)
    if not _start(proposal, chosen):
        proposal.compact({job: gpus for job, gpus in chosen.items() if proposal.gpus(job) != gpus})
    if others and proposal.placement(others[0][0]) is None:
        proposal = _anew(state, ranked)
    blocked = bool(others) and proposal.placement(others[0][0]) is None
    for job, gpus in ranked:
        if proposal.placement(job) is None and proposal.fits(gpus) and (job.gpus == gpus or not blocked):
            proposal.start(job, gpus)
    if any(proposal.gpus(job) != gpus for job, gpus in wanted):
        proposal.wake_at = min(settling.values(), default=None)
    return proposal


def run_elastic(state: State, wanted: Sequence[Wanted]) -> Proposal:
    """As `run_ranked`, for jobs that may also run on less: who finds no room gets the most that there is."""
    proposal = run_ranked(state, wanted)
    for job, gpus in wanted:
        if proposal.placement(job) is None:
            sizes = [size for size in job.sizes if size <= gpus and proposal.fits(size)]
            if sizes:
                proposal.start(job, sizes[-1])
    return proposal


def settles(job: JobView) -> bool:
    """Whether a job runs, but has not yet worked for as long as a restart would take it."""
    return job.running and job.productive_s < job.restart_s(job.gpus) - _INSTANT_S


def _settled_s(job: JobView, now: float) -> float:
    """When a job that settles will have."""
    return now + job.paying_s + job.restart_s(job.gpus) - job.productive_s


def _within(gpus: int, ranked: Sequence[Wanted]) -> dict[JobView, int]:
    """Those of `ranked` who get GPUs when each in turn takes what is left of `gpus`."""
    chosen = {}
    for job, count in ranked:
        if count <= gpus:
            chosen[job] = count
            gpus -= count
    return chosen


def _start(proposal: Proposal, chosen: dict[JobView, int]) -> bool:
    """Start those of `chosen` who do not run in the draft, largest first; whether all of them found room."""
    waiting = sorted((job for job in chosen if proposal.placement(job) is None), key=lambda job: -chosen[job])
    placed = [proposal.start(job, chosen[job]) for job in waiting]
    return None not in placed


def _anew(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """A draft that places everybody from an empty cluster, strictly in the order of the list."""
    proposal = state.proposal()
    for job in state.running:
        proposal.stop(job)
    for job, gpus in ranked:
        if proposal.fits(gpus):
            proposal.start(job, gpus)
    return proposal
