"""From a list of jobs with GPU counts, most important first, to a proposal that runs them."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, State

__all__ = ["Wanted", "run_ranked"]

Wanted = tuple[JobView, int]
"""A job and the GPUs it is to have."""


def run_ranked(state: State, ranked: Sequence[Wanted]) -> Proposal:
    """A draft in which the jobs of `ranked` run on that many GPUs, as many as there is room for, first come
    first; everybody else stops.

    Who runs is decided by counting GPUs; a job that keeps its count keeps its place. Where the free GPUs are
    scattered, small jobs move together; what still finds no room is skipped, except the first of the list,
    which always runs. Room that is left goes to those passed over before.
    """
    chosen = _within(state.cluster.gpus, ranked)
    proposal = state.proposal()
    for job in state.running:
        if chosen.get(job) != job.gpus:
            proposal.stop(job)
    if not _start(proposal, chosen):
        proposal.compact({job: gpus for job, gpus in chosen.items() if proposal.gpus(job) != gpus})
    if ranked and proposal.placement(ranked[0][0]) is None:
        proposal = _anew(state, ranked)
    for job, gpus in ranked:
        if proposal.placement(job) is None and proposal.fits(gpus):
            proposal.start(job, gpus)
    return proposal


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
