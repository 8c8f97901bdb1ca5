"""The Scheduler API: what a policy is, what it sees (`State`), and how it says what it wants (`Proposal`).

    class Fifo(Scheduler):
        def schedule(self, state):
            proposal = state.proposal()           # everything stays as it is
            for job in state.pending:
                if not proposal.start(job):       # returns the placement, or None
                    break
            return proposal

A policy proposes, the engine disposes: capacity, gang and placement rules live in the proposal, so that one
that breaks them cannot be written; the engine compares the proposal with reality and derives starts,
preemptions, resizes and migrations, and charges their overheads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .active import ActiveJob
from .capacity import Capacity
from .cluster import Cluster
from .errors import PolicyError
from .job_view import JobView
from .proposal import Proposal
from .ranking import FallingKeys, Key, KeysOfNow, Line, Ranking
from .tenancy import Tenancy

if TYPE_CHECKING:
    from .overheads import Overheads
    from .placement import Placer

__all__ = ["Cluster", "Event", "JobView", "PolicyError", "Proposal", "Ranking", "Scheduler", "State"]

_MAX_RANKINGS = 16
_INSTANT_S = 1e-3  # a wake-up may come this much early: times are sums of times


class Scheduler:
    """Base of all policies. Subclass it, implement `schedule`.

    `planner` names how its jobs are planned for a number of GPUs (see `itertime.planner`). Parameters are
    keyword arguments of `__init__`, stored under their own names.
    """

    planner: str = "3d"
    one_gpu_type: bool = False
    """Whether it plans with GPUs that are all alike; then a cluster of several types is refused at once."""

    def admit(self, job: JobView, state: State) -> bool:
        """Whether to accept a job that was just submitted.

        Declined jobs are counted as rejected and never seen again.
        """
        return True

    def schedule(self, state: State) -> Proposal:
        """What should run from now on.

        Called once per instant at which something happened, after all of it has been applied.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement schedule(self, state)")


class Event(NamedTuple):
    """Something that happened since the policy was last called.

    | kind | job | node |
    |---|---|---|
    | submitted | which was admitted | |
    | finished | which has left the system, also where it failed, was cancelled or given up | |
    | woken | none: the proposal's `wake_at` has come | |
    | node_down, node_up | none | which is out of service from now on, or back |
    | interrupted | which lost its GPUs by that and waits, less the work it had not saved | which failed |
    | stopped | which lost its GPUs by that and waits, with all its progress | planned to be down |
    """

    kind: str
    job: JobView | None
    node: int | None = None


class State:
    """The cluster and its jobs as a policy sees them. Read-only; the same object in every call, always as
    of `now`.

    `now`: seconds on the trace's clock. `pending`: jobs that wait, in order of submission. `running`: jobs
    that hold GPUs, in order of their start. `events`: what happened since the last call.
    """

    def __init__(
        self, cluster: Cluster, placer: Placer, overheads: Overheads, tenancy: Tenancy | None = None
    ):
        self.cluster = cluster
        self._tenancy = tenancy if tenancy is not None else Tenancy()
        self._now = 0.0
        self.events: list[Event] = []
        self._oracle_used = False
        self._decision = (
            0  # counts the calls of the policy, so that a proposal of an earlier one is recognised
        )
        self._placer, self._overheads = placer, overheads
        self._capacity = Capacity(cluster)
        self._down = 0  # GPUs of nodes out of service
        self._gone_for_good: Callable[[float], frozenset[int]] | None = None  # nodes, by a time
        self._lasting: tuple[frozenset[int], Capacity] | None = None  # those nodes, and all others when free
        self._pending: OrderedDict[JobView, None] = OrderedDict()
        self._pending_in_order = True
        self._running: dict[JobView, None] = {}
        self._rankings: dict[tuple[Key, bool], Ranking] = {}
        self._falling: dict[Key, FallingKeys] = {}
        self._restart_times: dict[tuple[float, int], float] = {}  # by parameters of the model, and GPUs

    @property
    def now(self) -> float:
        """Seconds on the trace's clock."""
        return self._now

    @property
    def pending(self) -> Collection[JobView]:
        if not self._pending_in_order:
            self._pending = OrderedDict.fromkeys(sorted(self._pending, key=lambda job: job.order))
            self._pending_in_order = True
        return self._pending.keys()

    @property
    def running(self) -> Collection[JobView]:
        return self._running.keys()

    @property
    def free(self) -> int:
        """GPUs that nobody holds."""
        return self._capacity.free

    @property
    def in_service(self) -> int:
        """GPUs that are free or held: those of the cluster less those of nodes that are down."""
        return self.cluster.gpus - self._down

    @property
    def quotas(self) -> Mapping[str, int]:
        """GPUs promised to tenants, by tenant; together no more than the cluster has."""
        return self._tenancy.quotas

    def quota(self, tenant: str) -> int:
        """GPUs promised to `tenant`, 0 if none are.

        A promise of the site, which the engine does not enforce: what a tenant holds beyond it is borrowed,
        and a policy says on what terms.
        """
        return self._tenancy.quota(tenant)

    def used(self, tenant: str) -> int:
        """GPUs that the running jobs of `tenant` hold now, whatever a proposal says."""
        return self._tenancy.used(tenant, self._running, self._decision)

    def pending_by(self, key: Key, elastic: bool = False) -> Ranking:
        """The pending jobs sorted by `key`, ties in order of submission, kept up to date between calls.

        `key` must be the same function object each time, and its value must not change while a job waits.
        Jobs that wait do not make progress, so remaining time is such a key. `elastic`: a walk asks for room
        for a job's smallest size, not for its request.
        """
        ranking = self._rankings.get((key, elastic))
        if ranking is None:
            if len(self._rankings) >= _MAX_RANKINGS:
                raise PolicyError(
                    f"pending_by: more than {_MAX_RANKINGS} different keys; pass the same function each time"
                )
            ranking = self._rankings[key, elastic] = Ranking(key, elastic)
            for job in self.pending:
                ranking.add(job)
        return ranking

    def _line(self, key: Key, falling: bool) -> Line:
        """The running jobs by `key`; one that is `falling` is not looked up anew for all of them."""
        if not falling:
            return KeysOfNow(key, self._running)
        keys = self._falling.get(key)
        if keys is None:
            keys = self._falling[key] = FallingKeys(key)
        keys.begin(self._running)
        return keys

    def unsettled(self) -> dict[JobView, float]:
        """The running jobs that have not yet worked on their GPUs for as long as a restart there would take,
        in the order of their start, and the time at which each will have.

        A policy that stops or resizes them spends more on restarts than they get done.
        """
        now, known, found = self._now, self._restart_times, {}
        for view in self._running:
            job = view._job
            restart_s = known.get((job.curve.parameters, job.gpus))
            if restart_s is None:
                restart_s = self._restart_s(job, job.gpus)
            productive_s = now - job.ready_s
            if productive_s > 0.0:
                if productive_s < restart_s - _INSTANT_S:
                    found[view] = now + restart_s - productive_s
            elif restart_s > _INSTANT_S:
                found[view] = now + job.paying_s(now) + restart_s
        return found

    def ever_fits(self, job: JobView) -> bool:
        """Whether a job that waits could have the GPUs it asks for if nobody else ran: False only where nodes
        were taken away for good. Nodes that failed, are maintained or are yet to be added count as there.

        A policy that lets others wait for such a job keeps them for ever.
        """
        gone = self._gone_for_good(self._now) if self._gone_for_good is not None else frozenset()
        if not gone or job.running:
            return True
        if self._lasting is None or self._lasting[0] != gone:
            lasting = Capacity(self.cluster)
            for node in gone:
                lasting.close(node)
            self._lasting = gone, lasting
        draft = Proposal(self)
        draft._capacity = self._lasting[1]
        return draft.start(job) is not None

    def proposal(self) -> Proposal:
        """A fresh draft in which everything stays as it is."""
        return Proposal(self)

    def _restart_s(self, job: ActiveJob, gpus: int) -> float:
        kind = job.curve.parameters, gpus
        restart_s = self._restart_times.get(kind)
        if restart_s is None:
            nodes = -(-gpus // self.cluster.gpus_per_node)
            restart_s = self._overheads.change_s(job.curve.parameters, nodes, gpus)
            self._restart_times[kind] = restart_s
        return restart_s

    def _launch_s(self, gpus: int) -> float:
        return self._overheads.start_s(gpus)

    def _adopt(self, proposal: Proposal) -> None:
        """What the draft leaves free is free from now on; what is done to the draft later changes nothing.

        ValueError if its changes are not what it took and gave back GPUs for: somebody reached behind it.
        """
        drafted, changes = proposal._capacity, proposal._changes
        taken = sum([count for place in changes.values() for _, count in place or ()])
        given_back = sum([job._job.gpus for job in changes])
        if drafted.free != self._capacity.free + given_back - taken and not drafted.closed:
            raise ValueError(f"of {taken} GPUs in the changes of a proposal some are not free there")
        self._capacity, proposal._owns_capacity = drafted, False

    def _add_pending(self, job: JobView) -> None:
        last = next(reversed(self._pending), None)
        if last is not None and last._job.order > job._job.order:
            self._pending_in_order = False
        self._pending[job] = None
        if self._rankings:
            for ranking in self._rankings.values():
                ranking.add(job)

    def _drop_pending(self, job: JobView) -> None:
        del self._pending[job]
        if self._rankings:
            for ranking in self._rankings.values():
                ranking.remove(job)
