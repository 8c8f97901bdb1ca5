"""The facts that the engine changes, and that views, drafts and `State` read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Generic

from clustersim.cluster import MILLION, Capacity, Cluster, NodeShape, Placement
from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.overheads import Overheads
from clustersim.placement import PLACERS, LimitedRoom, Placer, Room, ShapedRoom, SharedGpuRoom
from clustersim.speed import Interference, Offer
from itertime.errors import UnknownName, UserError, quoted
from itertime.spec import Plan

from .changes.job_changes import JobChanges
from .internal import AnyView, active_of
from .job_curve import JobCurves
from .node_states import NO_CLOSED_NODES, ClosedNodes, NodeStates
from .ranking import ChangingRanking, CurrentKeys, Key, NonIncreasingKeys, Ranking, RunningOrder

__all__ = ["INSTANT_S", "ClusterState", "GpuSharing", "RestartTimes", "WaitingJobs", "checked_quotas"]

INSTANT_S = 1e-3  # a wake-up may come this much early: times are sums of times
_MAX_RANKINGS = 16


@dataclass(frozen=True)
class GpuSharing:
    """`packs`: the most jobs that the policy may run on the same GPUs. `interference`: how much jobs on the
    same GPUs slow each other down.
    """

    packs: int = 1
    interference: Interference = field(default_factory=Interference)

    def allows(self, millionths: int) -> bool:
        """Whether a job may have so small a share of each GPU: at least 1 / `packs`, in whole millionths."""
        return (millionths + 1) * self.packs >= MILLION


_NO_SHARING = GpuSharing()


def _no_tasks(array_id: str) -> int:
    return 0


def _as_predicted(model: str | None, placement: Placement) -> float:
    return 1.0


class ClusterState(Generic[AnyView]):
    """The cluster and the jobs in the system, as of `now_s`. Generic over what a policy sees of a job.

    | field | |
    |---|---|
    | `cluster`, `placer`, `overheads` | the machines; the rule that places jobs; what changes cost |
    | `quotas` | GPUs guaranteed to tenants, by tenant |
    | `type_slowdown` | how many times slower than on its best GPU type a job may be placed by default |
    | `node_factor` | how many times as long as predicted a job of a model takes in a placement |
    | `sharing` | how many jobs may run on the same GPUs, and how much they slow each other down |
    | `now_s` | seconds on the trace's clock |
    | `decision` | counts the calls of the policy, so that a proposal of an earlier one is recognised |
    | `stamp` | moves with every change but the passage of time, see `State.stamp` |
    | `idle_stops` | how many jobs lost GPUs to the policy, none of which it gave to another job |
    | `oracle_used` | whether the policy looked at a run time that no user stated |
    | `capacity` | the free GPUs |
    | `nodes` | why jobs cannot have GPUs of some nodes (`NodeStates`) |
    | `running` | in the order of their starts, each with a number that every start changes |
    | `waiting` | the jobs that wait for GPUs |
    | `tasks_held_back` | how many tasks of an array wait for its limit alone, by its name |
    | `restart_s`, `curves` | see `RestartTimes` and `JobCurves` |
    | `changes` | the jobs that changed since the last decision; None until the policy asks for them |
    | `orders` | the running jobs by each key that a policy promised never grows while a job runs |
    """

    __slots__ = (
        "_any_node",
        "_by_placement",
        "_lasting",
        "_open_to_any",
        "capacity",
        "changes",
        "cluster",
        "curves",
        "decision",
        "idle_stops",
        "node_factor",
        "nodes",
        "now_s",
        "oracle_used",
        "orders",
        "overheads",
        "placer",
        "quotas",
        "restart_s",
        "running",
        "sharing",
        "stamp",
        "tasks_held_back",
        "type_slowdown",
        "waiting",
    )

    def __init__(
        self, cluster: Cluster, placer: Placer, overheads: Overheads, quotas: Mapping[str, int] | None = None
    ):
        self.cluster = cluster
        self.placer = placer
        self.overheads = overheads
        self.quotas: Mapping[str, int] = quotas or {}
        self.type_slowdown = inf
        self.node_factor: Callable[[str | None, Placement], float] = _as_predicted
        self.sharing = _NO_SHARING
        self.now_s = 0.0
        self.decision = self.stamp = 0
        self.idle_stops = 0
        self.oracle_used = False
        self.capacity = Capacity(cluster)
        self.nodes: NodeStates[AnyView] = NodeStates()
        self.nodes.unequal = cluster.unequal
        self.running: dict[AnyView, int] = {}
        self.waiting: WaitingJobs[AnyView] = WaitingJobs()
        self.tasks_held_back: Callable[[str], int] = _no_tasks
        self.restart_s = RestartTimes(cluster, overheads)
        self.curves = JobCurves(cluster, overheads)
        self.changes: JobChanges[AnyView] | None = None
        self.orders: dict[Key[AnyView], NonIncreasingKeys[AnyView]] = {}
        self._any_node = self._open_to_any = Room(placer)
        self._lasting: tuple[frozenset[int], Capacity] | None = None  # removed nodes; the others, all free
        self._by_placement = cluster.network_model.by_placement

    def default_offers(self, job: ActiveJob) -> tuple[Offer, ...]:
        """The GPU types on which a job starts if its policy names none, the first choice first: those where
        the run time of its request is at most `type_slowdown` times the shortest. A type that has lost so
        many nodes for good that the request has no place there any more does not count.
        """
        offers = job.offers
        if self.type_slowdown == inf or len(offers) == 1:
            return offers
        if self.nodes.removed_by(self.now_s):
            offers = tuple(
                offer for offer in offers if self.ever_fits(job, [(offer.gpu_type, offer.requested)])
            )
        limit = self.type_slowdown * min((offer.unit_s for offer in offers), default=0.0)
        return tuple(offer for offer in offers if offer.unit_s <= limit)

    def ever_fits(
        self,
        job: ActiveJob,
        sizes: Iterable[tuple[str | None, int]] | None = None,
        now: float | None = None,
    ) -> bool:
        """Whether what a job asks for has a place on the nodes that are not removed for good, were all of
        them free. Nodes that failed, are maintained, reserved or yet to be added count as present.

        Only what the job asks for counts: its GPUs, whole or a part of one, and the cores and the memory
        beside them. It may run, wait, or be a job that is still to be submitted. `sizes`: (GPU type, GPUs),
        of which one with a place is enough; by default those that it requests. `now`: the time, if it is
        not that of the last decision.
        """
        removed = self.nodes.removed_by(self.now_s if now is None else now)
        if not removed:
            return True
        if self._lasting is None or self._lasting[0] != removed:
            capacity = Capacity(self.cluster)
            for node in removed:
                capacity.close(node)
            self._lasting = removed, capacity
        capacity = self._lasting[1]
        for gpu_type, gpus in _requests(job) if sizes is None else sizes:
            room = self._room_within(NO_CLOSED_NODES, job, gpu_type)
            if gpus <= capacity.free and room.place(capacity, gpus) is not None:
                return True
        return False

    def note_demand(self, active: ActiveJob) -> None:
        """Work out what a job that was submitted needs beside its GPUs, where the nodes limit that."""
        job = active.job
        active.demand = self.cluster.demand_of(job.cpus, job.host_memory_gb, job.gpus)
        if active.demand is not None:
            self.nodes.limit_hosts = True

    def note_shape(self, active: ActiveJob) -> None:
        """Work out how the GPUs of a job that was submitted are to lie on nodes, if it says so."""
        job = active.job
        shape = None if active.millionths else NodeShape.of(job.gpus, job.nodes, job.gpus_per_node)
        if shape is not None and shape.gpus == active.requested:
            active.shape = shape
            self.nodes.limit_hosts = True
            self._open_to_any = Room(PLACERS["any"])

    def room_for(
        self, job: AnyView | None, gpu_type: str | None = None, until_s: float | None = None
    ) -> Room:
        """Which nodes `job` may use now, of one GPU type or of any, and how. Without a job: the nodes that
        are open to every job. `until_s`: when the job is expected to end; nodes that are planned to be closed
        to it before are none of its room. PolicyError for a type that the cluster does not have.
        """
        if until_s is not None and self.nodes.plans is not None:
            closed = self.nodes.plans.closed_during(job, self.now_s, until_s)
            return self._room_within(closed, None if job is None else active_of(job), gpu_type)
        if gpu_type is None and not self.nodes.may_close:
            if job is None:
                return self._open_to_any
            active = active_of(job)
            if active.demand is None and active.shape is None and not active.millionths:
                # Nothing limits the job. Where no placement is faster than another, one room serves all jobs.
                return Room(self.placer, active.curve.training) if self._by_placement else self._any_node
        closed = self.nodes.closed_to(job)
        return self._room_within(closed, None if job is None else active_of(job), gpu_type)

    def room_later(
        self, time_s: float, job: AnyView | None, gpu_type: str | None = None, until_s: float | None = None
    ) -> Room:
        """The room of `room_for` at a later time, as planned."""
        closed = NO_CLOSED_NODES
        if self.nodes.plans is not None:
            closed = self.nodes.plans.closed_during(job, time_s, time_s if until_s is None else until_s)
        return self._room_within(closed, None if job is None else active_of(job), gpu_type)

    def _room_within(self, nodes: ClosedNodes, active: ActiveJob | None, gpu_type: str | None) -> Room:
        if gpu_type is not None:
            try:
                self.cluster.pool(gpu_type)
            except UnknownName as error:
                raise PolicyError(str(error)) from None
        if active is None:
            any_shape = self._open_to_any is not self._any_node
            return LimitedRoom(
                PLACERS["any"] if any_shape else self.placer, gpu_type=gpu_type, closed=nodes.closed
            )
        if active.millionths:
            return SharedGpuRoom(self.placer, active.millionths, gpu_type, nodes.closed, active.demand)
        plans: Mapping[int, Plan] = {}
        if self._by_placement:
            offers = active.offers_of(gpu_type)  # none of a type on which the job cannot run
            curves = [offer.curve for offer in offers] if active.offers else [active.curve]
            plans = curves[0].training if curves else {}
        reserved = nodes.reserved & ~nodes.closed
        if active.shape is not None:
            return ShapedRoom(self.placer, active.shape, gpu_type, nodes.closed, reserved, active.demand)
        return LimitedRoom(self.placer, plans, gpu_type, nodes.closed, reserved, active.demand)

    @property
    def in_service(self) -> int:
        """GPUs that are free or held by jobs of the policy: those of the cluster less those of nodes that are
        down and of services.
        """
        return self.cluster.gpus - self.nodes.gpus_down - self.nodes.serving

    def running_order(self, key: Key[AnyView], non_increasing: bool) -> RunningOrder[AnyView]:
        """The running jobs by `key`. If the key never grows while a job runs, few keys are looked up."""
        if not non_increasing:
            return CurrentKeys(key, self.running)
        order = self.orders.get(key)
        if order is None:
            order = self.orders[key] = NonIncreasingKeys(key)
        order.update(self.running)
        return order

    def rerank(self, key: Key[AnyView], job: AnyView) -> None:
        """See `State.rerank`."""
        if job in self.running:
            if (order := self.orders.get(key)) is not None:
                order.rerank(job)
        elif job in self.waiting.jobs:
            for (key_of_ranking, _, _), ranking in self.waiting.rankings.items():
                if key_of_ranking == key:
                    ranking.rerank(job)


class WaitingJobs(Generic[AnyView]):
    """The jobs that wait for GPUs, in order of submission and by each key that a policy ranks them by.

    `jobs`: in the order in which they began to wait; `sorted` if that is the order of submission.
    """

    __slots__ = ("_highest", "jobs", "rankings", "sorted")

    def __init__(self) -> None:
        self.jobs: OrderedDict[AnyView, None] = OrderedDict()
        self.sorted = True
        self._highest = -1  # the highest order of submission so far
        self.rankings: dict[tuple[Key[AnyView], bool, bool], Ranking[AnyView]] = {}

    def in_order(self) -> Collection[AnyView]:
        """The jobs in order of submission."""
        if not self.sorted:
            self.jobs = OrderedDict.fromkeys(sorted(self.jobs, key=lambda job: job.order))
            self.sorted = True
        return self.jobs.keys()

    def ranked_by(self, key: Key[AnyView], elastic: bool, changing: bool) -> Ranking[AnyView]:
        """See `State.pending_by`."""
        ranking = self.rankings.get((key, elastic, changing))
        if ranking is None:
            if len(self.rankings) >= _MAX_RANKINGS:
                remedy = "pass the same function each time: a method of the policy, not a lambda in schedule"
                raise PolicyError(f"run_by, pending_by: more than {_MAX_RANKINGS} different keys; {remedy}")
            ranking = ChangingRanking(key, elastic) if changing else Ranking(key, elastic)
            self.rankings[key, elastic, changing] = ranking
            for job in self.in_order():
                ranking.add(job)
        return ranking

    def add(self, job: AnyView) -> None:
        order = job.order
        if order > self._highest:
            self._highest = order
        elif self.jobs and next(reversed(self.jobs)).order > order:
            self.sorted = False
        self.jobs[job] = None
        if self.rankings:
            for ranking in self.rankings.values():
                ranking.add(job)

    def remove(self, job: AnyView) -> None:
        del self.jobs[job]
        if self.rankings:
            for ranking in self.rankings.values():
                ranking.remove(job)


class RestartTimes(dict[tuple[float, int], float]):
    """Seconds of a restart or resize, by (parameters of the model, GPUs), for a packed job.

    Each pair is computed when it is first looked up.
    """

    __slots__ = ("_cluster", "_overheads")

    def __init__(self, cluster: Cluster, overheads: Overheads):
        super().__init__()
        self._cluster, self._overheads = cluster, overheads

    def __missing__(self, kind: tuple[float, int]) -> float:
        parameters, gpus = kind
        nodes = -(-gpus // self._cluster.gpus_per_node)
        restart_s = self[kind] = self._overheads.change_s(parameters, nodes, gpus)
        return restart_s


def _requests(job: ActiveJob) -> Iterator[tuple[str | None, int]]:
    """What a job requests on each GPU type that can run it."""
    if not job.offers:
        yield None, job.requested
    for offer in job.offers:
        yield offer.gpu_type, offer.requested


def checked_quotas(quotas: Mapping[str, int] | None, capacity: int | None = None) -> Mapping[str, int]:
    """Guaranteed GPUs by tenant. UserError for a quota that is no whole number of GPUs, and for quotas that
    guarantee more than `capacity` GPUs in all.
    """
    checked = {str(tenant): gpus for tenant, gpus in (quotas or {}).items()}
    for tenant, gpus in checked.items():
        if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
            raise UserError(f"quotas.{tenant}={quoted(gpus)}: must be a whole number of GPUs, at least 0")
    promised = sum(checked.values())
    if capacity is not None and promised > capacity:
        promises = ", ".join(f"{tenant} {gpus}" for tenant, gpus in checked.items())
        raise UserError(
            f"quotas: {promised} GPUs are promised ({promises:.200}), the cluster has {capacity}; lower them"
        )
    return checked
