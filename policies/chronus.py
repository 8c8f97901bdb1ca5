"""Chronus: leases for jobs with deadlines, and best effort for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers import LeaseDemand, lease_terms
from policies.toolkit import LeaseCalendar, calendars_as_planned, increasing, number, whole

__all__ = ["Chronus"]

_GRACE_S = 1.0  # beyond rounding, so that a job which does what it states is done before
_SEARCH_NODES = 200


class Chronus(Scheduler):
    """Jobs with deadlines run in leases of `lease_s` seconds and are declined if no leases do their work in
    time; the others take what is left, the shortest remaining time first. Preemptive, at the requested GPUs.

    Gao, Ye, Sun, Wen and Zhang, "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs",
    SoCC 2021. A new job gets free terms. If these do not suffice, an integer program moves leases of admitted
    jobs: `movable` is the most jobs that it moves, and `window` the terms ahead that it plans.
    `soft_factors`: deadlines are soft. A job that cannot be promised its deadline is promised the first of
    these multiples of its time that can be, else it runs as best effort. Without them a deadline is hard. Run
    times that users do not state come from the oracle.
    """

    one_gpu_type = True

    def __init__(
        self, lease_s: float = 1200.0, window: int = 48, movable: int = 8,
        soft_factors: Sequence[float] | None = None,
    ):  # fmt: skip
        self.lease_s = number("lease_s", lease_s, minimum=1)
        self.window = whole("window", window, 1, 500)
        self.movable = whole("movable", movable, 0, 100)
        self.soft_factors = None if soft_factors is None else increasing("soft_factors", soft_factors)
        if self.soft_factors and self.soft_factors[0] <= 1:
            raise ValueError(f"soft_factors={self.soft_factors[0]:g}, ...: each must be larger than 1")
        self._leases = LeaseCalendar(self.lease_s)
        self._due_s: dict[JobView, float] = {}  # the promised ends
        self._planned = self._divided = -1  # the terms of the last look at the plan, and of the last division

    def admit(self, job: JobView, state: State) -> bool:
        if job.deadline_s is None:
            return True
        self._look_at_plan(state)
        for factor in (1.0, *(self.soft_factors or ())):
            due_s = job.submit_s + factor * (job.deadline_s - job.submit_s)
            if self._promise(job, due_s, state):
                return True
        return self.soft_factors is not None

    def schedule(self, state: State) -> Proposal:
        self._look_at_plan(state)
        term = self._leases.at(state.now)
        leased = [job for job in self._due_s if term in self._leases.terms(job)]
        proposal = state.proposal()
        if term != self._divided or any(not job.running for job in leased):
            proposal.run(list(self._wanted(leased, term != self._divided, state)), smaller=False)
        for job in state.pending_by(_rank).walk(proposal.fits):
            if not proposal.placement(job):
                proposal.start(job)
        self._divided = term
        if state.pending:
            proposal.wake_at = (term + 1) * self.lease_s
        return proposal

    def _wanted(
        self, leased: Sequence[JobView], begins: bool, state: State
    ) -> Iterator[tuple[JobView, int, None]]:
        """The jobs to run, most important first, as many as there are GPUs: those with a lease, then the
        others by remaining time. Within a term, and before it has worked for as long as its restart took, a
        job without a lease goes ahead of those that wait.
        """
        free_gpus, leased_jobs = state.in_service, dict.fromkeys(leased)
        unleased_jobs = [job for job in state.running if job not in leased_jobs]
        staying = state.unsettled() if begins else dict.fromkeys(unleased_jobs)
        ahead = [
            *sorted(leased, key=lambda job: (not job.running, -job.requested, job.order)),
            *sorted((job for job in unleased_jobs if job in staying), key=_place),
        ]
        newcomers = sorted((job for job in unleased_jobs if job not in staying), key=_place)
        waiting = (
            job
            for job in state.pending_by(_rank).walk(lambda gpus: gpus <= free_gpus)
            if job not in leased_jobs
        )
        for job in chain(ahead, merge(newcomers, waiting, key=_place)):
            if job.requested <= free_gpus:
                free_gpus -= job.requested
                yield job, job.requested, None

    # The plan

    def _look_at_plan(self, state: State) -> None:
        """Forget jobs that have left. When a term begins, drop leases that are not needed, and replace those
        of jobs that have done less than planned; a job for which that fails runs as best effort.
        """
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._forget(event.job)
        term = self._leases.at(state.now)
        if term == self._planned:
            return
        self._planned = term
        behind = []
        for job in list(self._due_s):
            to_come = [t for t in self._leases.terms(job) if t >= term]
            enough = None if job.outlived else self._still_enough(job, to_come, state)
            self._leases.give(job, to_come if enough is None else enough)
            if enough is None:
                behind.append(job)
        for job in behind:
            due_s = self._due_s[job]
            self._forget(job)
            if not job.outlived:
                self._promise(job, due_s, state)

    def _forget(self, job: JobView) -> None:
        self._leases.drop(job)
        self._due_s.pop(job, None)

    def _promise(self, job: JobView, due_s: float, state: State) -> bool:
        """Give `job`, which has no leases, such that its work is done by `due_s`. Returns whether there are
        any; otherwise nothing changes.
        """
        if job.requested > state.in_service:
            return False
        (capacity,) = calendars_as_planned(state).values()
        runs = self._leases.runs(job.requested, capacity, state.now, due_s)
        terms = next(
            (leased_terms for run in runs if (leased_terms := self._enough(job, run, due_s, state))), None
        )
        if terms is None:
            restart_s = job.restart_s(job.requested)
            long = [run for run in runs if len(run) * self.lease_s > restart_s]
            terms = self._enough(job, [term for run in long for term in run], due_s, state)
        if terms is None:
            return self._rearrange(job, due_s, state)
        self._leases.give(job, terms)
        self._due_s[job] = due_s
        return True

    def _enough(
        self, job: JobView, terms: Sequence[int], due_s: float, state: State, grace_s: float = _GRACE_S
    ) -> tuple[int, ...] | None:
        """The first of `terms` that do the work of `job` by `due_s`; None if they do not."""
        need_s, again_s = _need_s(job) - _GRACE_S + grace_s, job.restart_s(job.requested)
        return self._leases.enough(terms, need_s, again_s, job.running, state.now, due_s)

    def _still_enough(self, job: JobView, terms: Sequence[int], state: State) -> tuple[int, ...] | None:
        """The same for terms that were promised. The grace may be used up by rounding."""
        due_s = self._due_s[job]
        return self._enough(job, terms, due_s, state) or self._enough(job, terms, due_s, state, 0.0)

    def _rearrange(self, job: JobView, due_s: float, state: State) -> bool:
        """The same, with leases of other jobs moved. Those with the latest deadlines move first."""
        leases, term = self._leases, self._leases.at(state.now)
        window = range(term, term + self.window)
        neighbours = [
            neighbour
            for neighbour in self._due_s
            if neighbour.requested <= state.in_service
            and any(term <= leases.at(due_s) for term in leases.terms(neighbour))
            and leases.terms(neighbour)[-1] < window.stop
        ]
        movable = sorted(neighbours, key=lambda neighbour: (-self._due_s[neighbour], neighbour.order))[
            : self.movable
        ]
        (capacity,) = calendars_as_planned(state).values()
        free = [leases.in_term(capacity, t) - leases.used(t) for t in window]
        for neighbour in movable:
            for t in leases.terms(neighbour):
                if t >= term:
                    free[t - term] += neighbour.requested
        free = [max(0, gpus) for gpus in free]
        demands = [self._demand(neighbour, self._due_s[neighbour], window, state) for neighbour in movable]
        demands.append(self._demand(job, due_s, window, state))
        if not movable or not _may_fit(demands, free, [leases.seconds(t, state.now, due_s) for t in window]):
            return False
        new_terms = lease_terms(demands, free, search_nodes=_SEARCH_NODES)
        if new_terms is None:
            return False
        self._due_s[job] = due_s
        for neighbour, terms in zip([*movable, job], new_terms, strict=True):
            leases.give(neighbour, [term + t for t in terms])
        return True

    def _demand(self, job: JobView, due_s: float, window: range, state: State) -> LeaseDemand:
        return LeaseDemand(
            gpus=job.requested,
            need_s=_need_s(job),
            again_s=job.restart_s(job.requested),
            seconds=tuple(self._leases.seconds(t, state.now, due_s) for t in window),
            holds=job.running,
            keeps=window.start in self._leases.terms(job) and self._divided == window.start,
        )


def _may_fit(demands: Sequence[LeaseDemand], free: Sequence[int], seconds: Sequence[float]) -> bool:
    """False only if the GPU-seconds until the deadline of the last job, or those of all, do not suffice."""
    last_demand = demands[-1]
    until = sum(gpus * s for gpus, s in zip(free, seconds, strict=True) if gpus >= last_demand.gpus)
    longest_seconds = [max(column) for column in zip(*(demand.seconds for demand in demands), strict=True)]
    of_all = sum(gpus * s for gpus, s in zip(free, longest_seconds, strict=True))
    return (
        last_demand.gpus * last_demand.need_s <= until and sum(d.gpus * d.need_s for d in demands) <= of_all
    )


def _need_s(job: JobView) -> float:
    """Seconds that a job must hold its GPUs, without those of further starts."""
    return job.oracle_remaining() + job.paying_s + _GRACE_S


def _rank(job: JobView) -> float:
    return job.oracle_remaining()


def _place(job: JobView) -> tuple[float, int]:
    return _rank(job), job.order
