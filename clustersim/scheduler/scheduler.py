"""What a policy subclasses and sees: `Scheduler`, `Event`, and `State`, a read-only view of the cluster.

A policy proposes, the engine disposes. Capacity, gang and placement rules live in the proposal, so a proposal
that breaks them cannot be written. The engine compares the proposal with reality, derives starts,
preemptions, resizes and migrations, and charges their overheads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from math import inf, isnan
from typing import Any, NamedTuple

from clustersim.errors import PolicyError

from .changes import JobChanges, JobTable
from .cluster_state import ClusterState
from .draft import Draft
from .internal import active_of
from .job_view import JobView
from .look_ahead import Ahead, Shares, run_ahead
from .proposal import Proposal
from .ranking import Key, Ranking
from .searches import in_service_by_type, unsettled

__all__ = ["Event", "Scheduler", "State"]


class Scheduler:
    """Base class of all policies. A subclass implements `schedule`.

    `planner` names how its jobs are planned for a number of GPUs (see `itertime.planning`). Parameters are
    keyword arguments of `__init__`, stored under their own names.
    """

    planner: str = "best"
    one_gpu_type: bool = False
    """Whether the policy assumes that all GPUs are alike; a cluster of several types is then refused."""
    equal_nodes: bool = False
    """Whether the policy assumes that all nodes of a GPU type have as many GPUs; others are then refused."""
    elastic: bool = False
    """Whether the policy chooses how many GPUs a job gets. Notes then say where no job leaves a choice."""
    packs: int = 1
    """The most jobs that the policy runs on the same GPUs (`Proposal.start_shared`)."""
    leaves_idle: bool | None = None
    """Whether a job may lose GPUs none of which another job gets. True: the policy means it. False: the job
    keeps them, whatever the proposal says. None: the proposal holds, and `policies check` reports such jobs.
    """
    replays_preemptions: bool = True
    """Whether logged runs that a preemption ended are repeated. False: the policy preempts by itself."""
    estimates: Mapping[str, Any] | None = None
    """The setting `estimates` of runs that state none: how the policy wants run times to be predicted."""

    @classmethod
    def timer_phases(cls, count: int) -> list[dict[str, float]]:
        """Parameters for `count` runs that differ in nothing but the phases of the policy's own timers, which
        a real scheduler of this kind leaves to chance; an empty list if the policy has no such timers.
        """
        return []

    def admit(self, job: JobView, state: State) -> bool:
        """Whether to accept a job that was just submitted.

        A declined job is recorded as rejected and does not appear again.
        """
        return True

    def refusal(self, job: JobView) -> str:
        """Which limit that the parameters state keeps a job from ever running, in words; empty if none does.

        Asked before `admit`. The job is declined then, and the words end its `reason`, since a limit that
        nothing lifts would let it wait for ever.
        """
        return ""

    def schedule(self, state: State) -> Proposal:
        """What should run from now on.

        Called once per instant at which something happened, after all its events have been applied.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement schedule(self, state)")


class Event(NamedTuple):
    """Something that happened since the policy was last called.

    | kind | job | node |
    |---|---|---|
    | submitted | the job that was admitted | |
    | finished | the job that left the system; also if it failed, was cancelled or given up | |
    | phase | the running job that goes on in its next phase, at another speed (`JobView.phases`) | |
    | woken | none: the proposal's `wake_at` has come | |
    | node_down, node_up | none | the node that is out of service from now on, or back |
    | interrupted | the job that lost its GPUs and unsaved work and now waits | the node that failed |
    |  | likewise for one that was requeued, and lost all of its work; it may be held first | none |
    | eligible | the job that was requeued and held, and now waits | |
    | stopped | the job that lost its GPUs and waits, with its progress | the node planned to be down |
    |  | likewise for a service that needs its GPUs | none |
    | reclaim_notice | none | the node that is to be reclaimed, see `State.leaving` |
    | reserved, released | none | none; a reservation begins or ends, see `State.reservations` |
    | services | none: services hold other GPUs than before | |
    """

    kind: str
    job: JobView | None
    node: int | None = None


class State:
    """The cluster and its jobs as a policy sees them. Read-only; the same object in every call, always as
    of `now`.

    `events`: what happened since the last call.
    """

    def __init__(self, facts: ClusterState[JobView]):
        self._facts = facts
        self.cluster = facts.cluster
        self.events: list[Event] = []
        self._used: dict[str, int] = {}  # GPUs by tenant, counted once per decision
        self._counted = -1
        self._table: JobTable[JobView] | None = None

    @property
    def now(self) -> float:
        """Seconds on the trace's clock."""
        return self._facts.now_s

    @property
    def stamp(self) -> int:
        """A number that every change moves on which an answer may depend, apart from the passage of time:
        jobs that come, go, start, stop, are resized, or change their phase, batch or speed; nodes that go,
        come back or are removed for good; notices, reservations and services; loads of checkpoints that begin
        or end.

        A policy whose answer depends on nothing else may leave all as it is while the stamp is that of its
        last proposal (`Proposal.stamp`). Numbers of free GPUs, or of GPUs in service, do not tell: a
        reservation that ends moves neither.
        """
        return self._facts.stamp

    @property
    def pending(self) -> Collection[JobView]:
        """The jobs that wait for GPUs, in order of submission."""
        waiting = self._facts.waiting
        return waiting.jobs.keys() if waiting.sorted else waiting.in_order()

    @property
    def running(self) -> Collection[JobView]:
        """The jobs that hold GPUs, in order of their start."""
        return self._facts.running.keys()

    @property
    def changed_jobs(self) -> Collection[JobView]:
        """The jobs that changed since the policy's last decision: those that came, left (`in_system` is
        false), started, stopped, got other GPUs, went on at another speed, in another phase or with another
        batch, had loaded their checkpoint or share its storage with other loads than before. Each is listed
        once. In the first decision that asks these are all jobs in the system.

        Of all other jobs what was known goes on in a straight line: a waiting job stays as it is; a running
        one pays the rest of its overhead, then does `speed` units of work a second. Two things bend that
        line without an event: saves that repeat while the job runs, and the end of stated work that the job
        outlives (`outlived`).

        A policy that asks in every decision misses none. One that asks at its rounds has `table`.
        """
        changes = self._facts.changes
        if changes is None:
            changes = self._facts.changes = JobChanges()
        jobs_of_events = {event.job: None for event in self.events if event.job is not None}
        return changes.jobs(jobs_of_events, chain(self.running, self.pending))

    @property
    def table(self) -> JobTable[JobView]:
        """The running jobs as vectors: work left, GPUs held, speed, restart cost and more, each a numpy array
        with a number for every job. Only jobs that changed since it was last read are asked.
        """
        table, facts = self._table, self._facts
        if table is None:
            table = self._table = JobTable(facts)
        changed_jobs = self.changed_jobs
        assert facts.changes is not None
        if facts.changes.read_in != facts.decision:
            table.update(facts.changes.take_unread(facts.decision, changed_jobs))
        return table

    @property
    def free(self) -> int:
        """Free GPUs."""
        return self._facts.capacity.free

    @property
    def in_service(self) -> int:
        """GPUs that are free or held: those of the cluster less those of nodes that are down."""
        return self._facts.in_service

    @property
    def leaving(self) -> Mapping[int, float]:
        """The nodes with a notice, and when each is reclaimed."""
        now = self._facts.now_s
        return {node: time_s for node, time_s in self._facts.nodes.leaving.items() if time_s > now}

    def in_service_by_type(self) -> dict[str, int]:
        """The same by GPU type, in the order of the cluster's."""
        return in_service_by_type(Draft(self._facts), self._facts)

    def planned_changes(self, job: JobView | None = None) -> list[tuple[float, str, int]]:
        """How the GPUs in service of each type change from now on, as the run's calendar announces: (time,
        type, GPUs more or less), in order of time. With a job: how those change that it may use, by the
        reservations that are not for it, on top of that.
        """
        plans = self._facts.nodes.plans
        if plans is None:
            return []
        gpus: dict[tuple[float, str], int] = {}
        for time_s, node, sign in plans.changes(job):
            key = time_s, self.cluster.type_of(node)
            gpus[key] = gpus.get(key, 0) + sign * self.cluster.size_of(node)
        return [(*key, gpus[key]) for key in sorted(gpus)]

    @property
    def quotas(self) -> Mapping[str, int]:
        """Guaranteed GPUs by tenant; together no more than the cluster has."""
        return self._facts.quotas

    def quota(self, tenant: str) -> int:
        """GPUs guaranteed to `tenant`, 0 if none are.

        The site makes this guarantee; the engine does not enforce it. GPUs that a tenant holds beyond its
        quota are borrowed, and the policy decides on what terms.
        """
        return self._facts.quotas.get(tenant, 0)

    def used(self, tenant: str) -> int:
        """GPUs that the running jobs of `tenant` hold now, whatever a proposal says."""
        if self._counted != self._facts.decision:
            self._used.clear()
            for job in self._facts.running:
                self._used[job.tenant] = self._used.get(job.tenant, 0) + job.gpus
            self._counted = self._facts.decision
        return self._used.get(tenant, 0)

    def pending_by(
        self, key: Key[JobView], elastic: bool = False, changing: bool = False
    ) -> Ranking[JobView]:
        """The pending jobs sorted by `key`, ties in order of submission, kept up to date between calls.

        `key` must be the same function object each time. Its value must not change while a job waits: it is
        looked up once, when the job begins to wait. Jobs that wait make no progress, so remaining time is
        such a key. `changing` allows other keys, such as the time that a job has waited: each walk then looks
        up the keys of the jobs that may fit. `elastic`: a walk needs room for a job's smallest size, not for
        its request.
        """
        return self._facts.waiting.ranked_by(key, elastic, changing)

    def rerank(self, key: Key[JobView], job: JobView) -> None:
        """Look up the key of a job again that has changed: of a waiting job, or of a running one whose key
        has grown although `run_by` was promised that it does not (`falling`).
        """
        self._facts.rerank(key, job)

    def unsettled(self) -> dict[JobView, float]:
        """The running jobs that have not yet worked on their GPUs for as long as a restart there would take,
        in the order of their start, and the time at which each will have.

        A policy that stops or resizes such jobs loses more time to restarts than the jobs have worked.
        """
        return unsettled(self._facts)

    def ever_fits(self, job: JobView) -> bool:
        """Whether the request of a job has a place on the nodes that remain in the cluster; also of one that
        is to be admitted. False only where nodes were removed for good: nodes that failed, are maintained,
        reserved or yet to be added count as present.

        A policy whose queue blocks on a job that never fits would starve the jobs behind it.
        """
        active = active_of(job)
        return self._facts.ever_fits(active) or active.placement is not None

    def proposal(self) -> Proposal:
        """A fresh draft in which everything stays as it is."""
        return Proposal(self._facts)

    def look_ahead(
        self,
        shares: Callable[[State], Shares],
        jobs: Iterable[JobView] | None = None,
        *,
        until_s: float = inf,
        round_s: float = inf,
    ) -> dict[JobView, float]:
        """When each job would end if GPUs were divided by `shares` from now on: {job: time}, in the order of
        the ends; infinite for a job that does not end by `until_s`, or never gets GPUs.

        `shares(ahead)` returns {job: GPUs}, or {job: (GPUs, type)}; jobs that it leaves out wait, and those
        that have ended need nothing. It is called now, whenever jobs end, and every `round_s` seconds.
        `ahead` is a `State` in which time has passed: its jobs answer as always (`work_left`, `curve`,
        `change_cost_s`), and its events are the ends. So a policy can try out the very function by which it
        decides, if that keeps no notes. `jobs`: which take part, by default all that run or wait.

        GPUs are counted, not placed: every job is packed and alone in the network. Changes cost what the
        engine charges. Work is what users state; that of jobs that state none comes from the oracle, which
        the records note. Arrivals, failures and periodic checkpoints are left out.

        PolicyError for shares that are impossible, for times that are none, and if no job ends in 10,000
        rounds.
        """
        if not round_s > 0 or isnan(until_s):
            raise PolicyError(
                f"look_ahead(until_s={until_s!r}, round_s={round_s!r}): must be a time and seconds above 0"
            )
        ahead = Ahead(
            self._facts, [*self.running, *self.pending] if jobs is None else jobs, self.in_service_by_type()
        )
        state = _StateAhead(ahead)
        return run_ahead(ahead, lambda ended: shares(state.after(ended)), until_s, round_s)


class _StateAhead(State):
    """The state in a look-ahead."""

    def __init__(self, ahead: Ahead):
        super().__init__(ahead.facts)
        self._ahead = ahead

    @property
    def changed_jobs(self) -> Collection[JobView]:
        """All jobs that take part."""
        return list(self._ahead.real)

    @property
    def table(self) -> JobTable[JobView]:
        table = JobTable(self._facts)
        table.update(self.running)
        return table

    @property
    def free(self) -> int:
        return self._ahead.free

    def in_service_by_type(self) -> dict[str, int]:
        return dict(self._ahead.in_service)

    def proposal(self) -> Proposal:
        raise PolicyError("look_ahead: GPUs are not placed there; return {job: GPUs} instead of a proposal")

    def after(self, ended: Iterable[JobView]) -> State:
        """This state, after the ends of these jobs."""
        self._facts.decision += 1
        self._facts.stamp += 1
        self.events[:] = [Event("finished", job) for job in ended]
        return self
