"""Earliest deadline first, with an admission test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.gpu_calendar import FreeGpus
from policies.toolkit.stepwise import jobs_by

__all__ = ["EdfAdmission"]

Stretch = tuple[float, float]
"""(from, to): a time during which a job holds its GPUs."""


class EdfAdmission(Scheduler):
    """Earliest deadline first, preemptive, at the requested GPUs; a job whose admission would make it or an
    admitted one late is declined.

    The test works out the schedule that earliest deadline first will make of all admitted jobs and the new
    one, counting GPUs, with what starts and restarts cost; nobody is late if any free GPUs will do. Where
    they will not, small jobs move together, which the test does not charge. On one processor no test admits
    more (Liu and Layland, JACM 1973). Who is late in any case, because of failures or because his nodes were
    taken away, keeps nobody out. Jobs without a deadline are always admitted and run last. Run times that
    users do not state come from the oracle.
    """

    one_gpu_type = True

    def admit(self, job: JobView, state: State) -> bool:
        if job.deadline_s is None:
            return True
        rivals = [other for other in (*state.running, *state.pending) if other.deadline_s is not None]
        late_anyway: frozenset[JobView] | None = None
        for other in _late(state, [*rivals, job]):
            if other is job:
                return False
            if _urgency(other) > _urgency(job):
                if late_anyway is None:
                    late_anyway = frozenset(_late(state, rivals))
                if other not in late_anyway:
                    return False
        return True

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_urgency, falling=True)
        due = _due(state)
        if all(proposal.placement(job) for job in due):
            return proposal
        return _together(state, due) or proposal


def _due(state: State) -> dict[JobView, int]:
    """Requests of the jobs that run now if GPUs are counted, as the admission test counts them."""
    left = state.in_service
    due: dict[JobView, int] = {}
    walk = jobs_by(state, _urgency)(lambda gpus: gpus <= left)
    for job in walk:
        if job.requested <= left and state.ever_fits(job):
            due[job] = job.requested
            left -= job.requested
        if not left:
            break
    return due


def _together(state: State, due: Mapping[JobView, int]) -> Proposal | None:
    """A draft in which all of them run, jobs smaller than a node moved as far as it takes; None if they find
    no place even so.
    """
    proposal = state.proposal()
    for job in state.running:
        if job not in due:
            proposal.stop(job)
    waiting = {job: gpus for job, gpus in due.items() if proposal.placement(job) is None}
    draft = proposal.copy()
    if any(draft.start(job) is None for job in sorted(waiting, key=lambda job: -job.requested)):
        draft = proposal
        draft.compact(waiting)
    return draft if all(draft.gpus(job) == gpus for job, gpus in due.items()) else None


def _late(state: State, jobs: Iterable[JobView]) -> Iterator[JobView]:
    """Those of `jobs` who will miss their deadline, the most urgent first."""
    free = FreeGpus(state.now, state.in_service)
    for job in sorted(jobs, key=_urgency):
        pieces = _pieces(free, job, state.now)
        if not _in_time(pieces, job):
            yield job
        for start, end in pieces:
            free.take(start, end, job.requested)


def _urgency(job: JobView) -> tuple[float, int]:
    return inf if job.deadline_s is None else job.deadline_s, job.order


def _in_time(pieces: list[Stretch], job: JobView) -> bool:
    assert job.deadline_s is not None
    return bool(pieces) and pieces[-1][1] <= job.deadline_s


def _pieces(free: FreeGpus, job: JobView, now: float) -> list[Stretch]:
    """When a job will hold its GPUs if it takes them whenever they are free, until its work is done; empty if
    it never is. Every piece begins with a restart, but that in which a running job goes on.
    """
    gpus, need = job.requested, job.oracle_remaining()
    cost_s = job.paying_s if job.running else job.start_cost_s(gpus)
    pieces: list[Stretch] = []
    for start, end in free.gaps(gpus, now):
        if job.running and not pieces and start > now:
            cost_s = job.restart_s(gpus)
        if end - start >= cost_s + need:
            return [*pieces, (start, start + cost_s + need)]
        pieces.append((start, end))
        need -= max(0.0, end - start - cost_s)
        cost_s = job.restart_s(gpus)
    return []
