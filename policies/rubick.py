"""Rubick: execution plans and GPUs together, by sensitivity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from operator import attrgetter

from clustersim.scheduler import JobView, Proposal, Ranking, Scheduler, State
from policies.solvers.divisions import Division, Ladder, ladder
from policies.toolkit import number, switch

__all__ = ["Rubick"]

_ROUNDING = 1e-9


@dataclass(eq=False, slots=True)
class _Request:
    """What is known of a job: its steps where it keeps `least` GPUs and where it may be stopped, whether its
    tenant is promised the first, and its place among the waiting jobs, which are ranked by `key` and kept
    apart by the GPUs that the first step `needs`.
    """

    job: JobView
    least: int
    kept: Ladder
    effort: Ladder
    guaranteed: bool
    order: int = field(init=False)
    needs: int = field(init=False)
    sizes: tuple[int, ...] = field(init=False)
    key: tuple[bool, float] = field(init=False)

    def __post_init__(self) -> None:
        steps = self.kept if self.guaranteed else self.effort
        self.order, self.sizes = self.job.order, self.job.sizes
        self.needs = steps.counts[0] or steps.counts[1]
        self.key = not self.guaranteed, -steps.slope(0, self.needs)


class Rubick(Scheduler):
    """Jobs change plans and GPUs: those whose speed rises most per GPU take GPUs from those whose speed falls
    least; guaranteed jobs keep the GPUs on which they are as fast as their users asked; at every event.

    Zhang et al., "Rubick: Exploiting Job Reconfigurability for Deep Learning Cluster Scheduling", MLSys 2025
    (arXiv 2408.08586). Jobs of tenants with a quota are guaranteed, the others best effort; without quotas
    none is guaranteed. A job takes other GPUs only if changes cost it no more than 1 - `gate` of its time
    with GPUs, or to make room for a guaranteed one. A job that has waited for `patience_s` seconds is served
    first, and none starts before it. With `user_plans` the estimate of a job is its run time on its request
    under its user's plan, and its guarantee is that speed; else that of the best plan there.
    """

    planner = "reconfigurable"
    one_gpu_type = True
    elastic = True

    def __init__(self, gate: float = 0.97, patience_s: float = 14400.0, user_plans: bool = False):
        self.gate = number("gate", gate, 0.0, 1.0)
        self.patience_s = number("patience_s", patience_s, 0.0, 1e9)
        self.user_plans = switch("user_plans", user_plans)
        self._requests: dict[JobView, _Request] = {}
        self._waiting: Ranking[_Request] = Ranking(attrgetter("key"))
        self._changes: dict[JobView, int] = {}  # of GPUs while running, by job
        self._quotas: Mapping[str, int] = {}
        self._by_slope = self._rank  # one object, as rankings want it

    def schedule(self, state: State) -> Proposal:
        self._follow(state)
        proposal, unsettled = state.proposal(), state.unsettled()
        division, opens_s = self._division(state, unsettled)
        quotas_left = _Left(state, self._request)
        if self._serve_overdue(state, division, quotas_left):
            division.exchange(self._serve_guaranteed(state, division, quotas_left))
        if any(gpus != job.gpus for job, gpus in division.held.items()):
            self._run(state, division, proposal)
        wakes = [at_s for job, at_s in opens_s.items() if division.could_step(job)]
        if division.room_refused:
            wakes += unsettled.values()
        if proposal.wake_at is not None:
            wakes.append(proposal.wake_at)
        proposal.wake_at = min(wakes, default=None)
        return proposal

    def _follow(self, state: State) -> None:
        """Bring what is known up to date."""
        self._quotas = state.quotas
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._changes.pop(event.job, None)
        departed, arrived = state.pending_by(self._by_slope, elastic=True).changes()
        for _, _, job in departed:
            self._waiting.remove(self._requests[job])
        for _, _, job in arrived:
            self._waiting.add(self._request(job))
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._requests.pop(event.job, None)

    def _rank(self, job: JobView) -> tuple[bool, float]:
        """Guaranteed jobs first, then by the slope of the first step."""
        return self._request(job).key

    def _request(self, job: JobView) -> _Request:
        """What is known of a job, as of its submission."""
        request = self._requests.get(job)
        if request is None:
            asked_rate = job.rate(job.requested)
            if self.user_plans and job.estimate_s is not None:
                asked_rate = min(asked_rate, job.work_left / job.estimate_s)
            speeds = {count: job.rate(count) / asked_rate for count in job.sizes}
            least_gpus = next(count for count in job.sizes if speeds[count] >= 1 - _ROUNDING)
            guaranteed = least_gpus <= self._quotas.get(job.tenant, 0)
            # `Proposal.run` may start the job on its requested GPUs, which may be no step of its ladder.
            request_speed = {job.requested: job.rate(job.requested) / asked_rate}
            kept_ladder, effort = (ladder(speeds, count, request_speed) for count in (least_gpus, 0))
            request = _Request(job, least_gpus, kept_ladder, effort, guaranteed)
            self._requests[job] = request
        return request

    def _division(
        self, state: State, unsettled: Mapping[JobView, float]
    ) -> tuple[Division[JobView], dict[JobView, float]]:
        """The GPUs as they are held; and by job that is kept from steps by the gate, when that opens."""
        division, opens_s = Division[JobView](state.free), dict[JobView, float]()
        for job in state.running:
            ran_s = state.now - job.submit_s - job.waited_s
            lost_s = (self._changes.get(job, 0) + 1) * job.restart_s(job.gpus)
            movable = lost_s <= (1 - self.gate) * ran_s + _ROUNDING
            if not movable and self.gate < 1:
                opens_s[job] = state.now + lost_s / (1 - self.gate) - ran_s
            division.add(
                job, self._steps(job, state), job.gpus, settled=job not in unsettled, movable=movable
            )
        return division, opens_s

    def _steps(self, job: JobView, state: State) -> Ladder:
        """The steps of a job. A guarantee that the nodes in service cannot hold is suspended."""
        request = self._request(job)
        suspended = not request.guaranteed or request.least > state.in_service
        return request.effort if suspended else request.kept

    def _serve_overdue(self, state: State, division: Division[JobView], quotas_left: _Left) -> bool:
        """Serve the first waiting job if it has waited for too long. Returns whether others may start."""
        job = next((job for job in state.pending if quotas_left.allows(job)), None)
        if job is None or job.waited_s < self.patience_s:
            return True
        steps = self._steps(job, state)
        first_count = steps.counts[0] or steps.counts[1]
        if first_count > state.in_service:
            return True
        if not division.make_room(first_count):
            return False
        quotas_left.take(job)
        division.start(job, steps, first_count, settled=False)  # or steeper jobs would take it all again
        return True

    def _serve_guaranteed(
        self, state: State, division: Division[JobView], quotas_left: _Left
    ) -> Iterator[tuple[JobView, Ladder]]:
        """Start guaranteed jobs on their least GPUs; then the waiting best-effort jobs, with their steps."""
        walk = (request.job for request in self._waiting.walk(division.may_serve))
        waiting = ((job, self._steps(job, state)) for job in walk if job not in division.held)
        for job, steps in waiting:
            if not steps.counts[0]:
                return chain([(job, steps)], waiting)
            if quotas_left.allows(job) and division.make_room(steps.counts[0]):
                quotas_left.take(job)
                division.start(job, steps, steps.counts[0])
        return iter(())

    def _run(self, state: State, division: Division[JobView], proposal: Proposal) -> None:
        """Draft the division. A job that finds no place for its GPUs takes as many as it can, but not fewer
        than it is promised.
        """
        jobs = sorted(division.held, key=lambda job: (not job.running, job.order))
        requests = [(job, division.held[job], None) for job in jobs if division.held[job]]
        fewer = [
            (job, count, None)
            for job in jobs
            for count in reversed(self._steps(job, state).counts)
            if 0 < count < division.held[job]
        ]
        proposal.run([*requests, *fewer], smaller=False, let_settle=True)
        if all(proposal.gpus(job) == gpus for job, gpus in division.held.items()):
            proposal.wake_at = None  # `run` would wake for entries of `fewer`, too
        for job in state.running:
            if proposal.gpus(job) not in (0, job.gpus):
                self._changes[job] = self._changes.get(job, 0) + 1


class _Left:
    """GPUs of tenants' quotas that the least counts of running guaranteed jobs leave."""

    def __init__(self, state: State, request_of: Callable[[JobView], _Request]):
        self._request_of, self._left = request_of, dict(state.quotas)
        for job in state.running:
            self.take(job)

    def allows(self, job: JobView) -> bool:
        """Whether the guarantee of a job, if it has one, is within the quota of its tenant."""
        request = self._request_of(job)
        return not request.guaranteed or self._left.get(job.tenant, inf) >= request.least

    def take(self, job: JobView) -> None:
        """The job runs."""
        request = self._request_of(job)
        if request.guaranteed and job.tenant in self._left:
            self._left[job.tenant] -= request.least
