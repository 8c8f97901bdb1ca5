"""Earliest deadline first, with an admission test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.gpu_calendar import FreeGpus, calendars_as_planned
from policies.toolkit.stepwise import jobs_by

__all__ = ["EdfAdmission"]

_GRACE_S = 1.0  # beyond rounding, so that a job which does what it states is done before

Stretch = tuple[float, float]
"""(from, to): a time during which a job holds its GPUs."""


class EdfAdmission(Scheduler):
    """Earliest deadline first, preemptive, at the requested GPUs; a job is declined if
    admitting it would make it or an admitted job late.

    The test computes the schedule of all admitted jobs and the new one under earliest deadline first. It
    counts GPUs and charges the costs of starts and restarts. No admitted job is late if jobs can run on any
    free GPUs. Where they cannot, small jobs migrate together, which the test does not charge. On one
    processor no test admits more (Liu and Layland, JACM 1973). A job that is late anyway, because of failures
    or removed nodes, keeps no other out. Jobs without a deadline are always admitted and run last, and so do
    jobs that have done all the work that they state and are not done. Run times that users do not state come
    from the oracle.
    """

    one_gpu_type = True
    leaves_idle = False

    def admit(self, job: JobView, state: State) -> bool:
        if job.deadline_s is None:
            return True
        rivals = [rival for rival in (*state.running, *state.pending) if _urgency(rival)[0] < inf]
        late_anyway: frozenset[JobView] | None = None
        for rival in _late(state, [*rivals, job]):
            if rival is job:
                return False
            if _urgency(rival) > _urgency(job):
                if late_anyway is None:
                    late_anyway = frozenset(_late(state, rivals))
                if rival not in late_anyway:
                    return False
        return True

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        proposal.run_by(_urgency)
        gpus_by_job = _due(state)
        if not all(proposal.placement(job) for job in gpus_by_job):
            proposal = _together(state, gpus_by_job) or proposal
        if state.pending:
            proposal.wake_at = _overstays_s(proposal, state.now)
        return proposal


def _due(state: State) -> dict[JobView, int]:
    """The jobs that run now if only GPUs are counted, as in the admission test, with their requests."""
    remaining = state.in_service
    gpus_by_job: dict[JobView, int] = {}
    walk = jobs_by(state, _urgency)(lambda gpus: gpus <= remaining)
    for job in walk:
        if job.requested <= remaining and state.ever_fits(job):
            gpus_by_job[job] = job.requested
            remaining -= job.requested
        if not remaining:
            break
    return gpus_by_job


def _overstays_s(proposal: Proposal, now: float) -> float | None:
    """When the first of the running jobs that are admitted by deadline is done for certain, if it does the
    work that it states; None if there is none. If it is not done then, it gives way to others.
    """
    ends = [
        (job.paying_s if job.running else job.start_cost_s(job.requested)) + job.oracle_remaining()
        for job in proposal.running()
        if _urgency(job)[0] < inf
    ]
    return now + min(ends) + _GRACE_S if ends else None


def _together(state: State, gpus_by_job: Mapping[JobView, int]) -> Proposal | None:
    """A draft in which all jobs of `gpus_by_job` run, with jobs smaller than a node migrated as needed; None
    if they do not fit even then.
    """
    proposal = state.proposal()
    for job in state.running:
        if job not in gpus_by_job:
            proposal.stop(job)
    waiting = {job: gpus for job, gpus in gpus_by_job.items() if proposal.placement(job) is None}
    draft = proposal.copy()
    if any(draft.start(job) is None for job in sorted(waiting, key=lambda job: -job.requested)):
        draft = proposal
        draft.compact(waiting)
    return draft if all(draft.gpus(job) == gpus for job, gpus in gpus_by_job.items()) else None


def _late(state: State, jobs: Iterable[JobView]) -> Iterator[JobView]:
    """The jobs that will miss their deadline, the most urgent first."""
    (free,) = calendars_as_planned(state).values()
    for job in sorted(jobs, key=_urgency):
        stretches = _stretches(free, job, state.now)
        if not _in_time(stretches, job):
            yield job
        for start, end in stretches:
            free.take(start, end, job.requested)


def _urgency(job: JobView) -> tuple[float, int]:
    return inf if job.deadline_s is None or job.outlived else job.deadline_s, job.order


def _in_time(stretches: list[Stretch], job: JobView) -> bool:
    assert job.deadline_s is not None
    return bool(stretches) and stretches[-1][1] <= job.deadline_s


def _stretches(free: FreeGpus, job: JobView, now: float) -> list[Stretch]:
    """When a job will hold its GPUs if it takes them whenever they are free, until its work is done; empty if
    the work is never done. Every stretch begins with a restart, except the one in which a running job goes
    on.
    """
    gpus, need = job.requested, job.oracle_remaining()
    again_s, load_s = job.start_cost_s(gpus), job.start_cost_s(gpus, saved=True)
    cost_s = job.paying_s if job.running else again_s
    stretches: list[Stretch] = []
    for start, end in free.gaps(gpus, now):
        if job.running and not stretches and start > now:
            cost_s = again_s
        if end - start >= cost_s + need:
            return [*stretches, (start, start + cost_s + need)]
        stretches.append((start, end))
        if end - start > cost_s:
            need -= end - start - cost_s
            again_s = load_s = job.restart_s(gpus)
        else:  # no work done: only what is left of the save is owed again
            again_s = max(load_s, again_s - (end - start))
        cost_s = again_s
    return []
