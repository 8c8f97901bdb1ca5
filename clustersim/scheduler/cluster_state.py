"""The facts that the engine changes, and that views, drafts and `State` read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Generic, NamedTuple

from clustersim.cluster import Capacity, Cluster, NodeSet, Placement
from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.overheads import Overheads
from clustersim.placement import LimitedRoom, Placer, Room, SharedGpuRoom
from clustersim.speed import Interference, NodeSpeeds, Offer
from itertime.errors import UnknownName, UserError, quoted
from itertime.spec import Plan

from .internal import V, active_of
from .job_curve import JobCurves
from .ranking import ChangingRanking, CurrentKeys, Key, NonIncreasingKeys, Ranking, RunningOrder

__all__ = ["INSTANT_S", "ClosedNodes", "ClusterState", "RestartTimes", "WaitingJobs", "checked_quotas"]

INSTANT_S = 1e-3  # a wake-up may come this much early: times are sums of times
_MAX_RANKINGS = 16
_NO_INTERFERENCE = Interference()


class ClosedNodes(NamedTuple):
    """The nodes on which a job may get no GPUs now, and those that are reserved for it, to be used first."""

    closed: NodeSet
    reserved: NodeSet


_NO_CLOSED_NODES = ClosedNodes(0, 0)


def _no_closed_nodes(job: object) -> ClosedNodes:
    return _NO_CLOSED_NODES


class ClusterState(Generic[V]):
    """The cluster and the jobs in the system, as of `now_s`. Generic over what a policy sees of a job.

    | field | |
    |---|---|
    | `quotas` | GPUs guaranteed to tenants, by tenant |
    | `now_s` | seconds on the trace's clock |
    | `decision` | counts the calls of the policy, so that a proposal of an earlier one is recognised |
    | `oracle_used` | whether the policy looked at a run time that no user stated |
    | `capacity`, `gpus_down` | the free GPUs; the number of GPUs of nodes out of service |
    | `served` | GPUs by node that instances of services hold; `serving`: all of them |
    | `gone_for_good` | by a time, the nodes that never return after it; None if none are ever removed |
    | `leaving` | by node with a notice of its reclaim, the time of that |
    | `closed_to` | the nodes closed to a job now, or to every job (None), and those reserved for it |
    | `may_close` | whether `closed_to` may ever close any |
    | `limits_host` | whether a job has stated cores or memory, which nodes limit |
    | `running` | in the order of their starts, each with a number that every start changes |
    | `waiting` | the jobs that wait for GPUs |
    | `restart_s`, `curves` | see `RestartTimes` and `JobCurves` |
    | `type_slowdown` | how many times slower than on its best GPU type a job may be placed by default |
    | `node_speeds` | how much slower than predicted each node is; None: they are as predicted |
    | `packs` | the most jobs that the policy may run on the same GPUs |
    | `interference` | how much jobs on the same GPUs slow each other down |
    | `orders` | the running jobs by each key that a policy promised never grows while a job runs |
    """

    __slots__ = (
        "_all_alike",
        "_anywhere",
        "_by_placement",
        "capacity",
        "closed_to",
        "cluster",
        "curves",
        "decision",
        "gone_for_good",
        "gpus_down",
        "interference",
        "leaving",
        "limits_host",
        "may_close",
        "node_speeds",
        "now_s",
        "oracle_used",
        "orders",
        "overheads",
        "packs",
        "placer",
        "quotas",
        "restart_s",
        "running",
        "served",
        "serving",
        "type_slowdown",
        "waiting",
    )  # fmt: skip

    def __init__(
        self, cluster: Cluster, placer: Placer, overheads: Overheads, quotas: Mapping[str, int] | None = None
    ):
        self.cluster, self.placer, self.overheads = cluster, placer, overheads
        self.quotas: Mapping[str, int] = quotas or {}
        self.type_slowdown = inf
        self.node_speeds: NodeSpeeds | None = None
        self.packs, self.interference = 1, _NO_INTERFERENCE
        self.now_s = 0.0
        self.decision = 0
        self.oracle_used = False
        self.capacity = Capacity(cluster)
        self.gpus_down = self.serving = 0
        self.served: dict[int, int] = {}
        self.gone_for_good: Callable[[float], frozenset[int]] | None = None
        self.leaving: dict[int, float] = {}
        self.closed_to: Callable[[V | None], ClosedNodes] = _no_closed_nodes
        self.limits_host = self.may_close = False
        self._anywhere = Room(placer)
        self._by_placement, self._all_alike = cluster.network_model.by_placement, not cluster.mixed
        self.running: dict[V, int] = {}
        self.waiting: WaitingJobs[V] = WaitingJobs()
        self.restart_s = RestartTimes(cluster, overheads)
        self.curves = JobCurves(cluster, overheads)
        self.orders: dict[Key[V], NonIncreasingKeys[V]] = {}

    def default_offers(self, job: ActiveJob) -> tuple[Offer, ...]:
        """The GPU types on which a job starts if its policy names none, the first choice first: those where
        the run time of its request is at most `type_slowdown` times the shortest. A type that has lost so
        many nodes for good that the request no longer fits does not count.
        """
        offers = job.offers
        if self.type_slowdown == inf or len(offers) == 1:
            return offers
        gone = frozenset[int]() if self.gone_for_good is None else self.gone_for_good(self.now_s)
        if gone:
            offers = tuple(
                offer for offer in offers if offer.requested <= self._lasting(offer.gpu_type, gone)
            )
        limit = self.type_slowdown * min((offer.unit_s for offer in offers), default=0.0)
        return tuple(offer for offer in offers if offer.unit_s <= limit)

    def _lasting(self, gpu_type: str, gone: frozenset[int]) -> int:
        """The GPUs of a type that are not on nodes removed for good."""
        pool = next(pool for pool in self.cluster.pools if pool.gpu_type == gpu_type)
        nodes = range(pool.first, pool.first + pool.nodes)
        return pool.gpus - pool.gpus_per_node * sum(node in gone for node in nodes)

    def close_nodes(self, closed_to: Callable[[V | None], ClosedNodes]) -> None:
        """From now on, nodes are closed to jobs, and reserved for jobs, as `closed_to` says."""
        self.closed_to, self.may_close = closed_to, True
        self._all_alike = False

    @property
    def closes_nodes(self) -> bool:
        """Whether free GPUs may be such that some jobs cannot have them."""
        return self.limits_host or self.may_close

    def room_for(self, job: V | None, gpu_type: str | None = None) -> Room:
        """Which nodes `job` may use now, of one GPU type or of any, and how. Without a job: the nodes that
        are open to every job. PolicyError for a type that the cluster does not have.
        """
        if gpu_type is None and self._all_alike:
            if job is None:
                return self._anywhere
            active = active_of(job)
            if active.demand is None and not active.millionths:
                # Nothing limits the job. Where no placement is faster than another, one room serves all jobs.
                return Room(self.placer, active.curve.training) if self._by_placement else self._anywhere
        return self._room_within(self.closed_to(job), job, gpu_type)

    def room_if_open(self, job: V | None, gpu_type: str | None = None) -> Room:
        """The same if no node were closed to the job."""
        return self._room_within(_NO_CLOSED_NODES, job, gpu_type)

    def _room_within(self, nodes: ClosedNodes, job: V | None, gpu_type: str | None) -> Room:
        if gpu_type is not None:
            try:
                self.cluster.pool(gpu_type)
            except UnknownName as error:
                raise PolicyError(str(error)) from None
        closed, reserved = nodes
        if job is None:
            return LimitedRoom(self.placer, gpu_type=gpu_type, closed=closed)
        active = active_of(job)
        if active.millionths:
            return SharedGpuRoom(self.placer, active.millionths, gpu_type, closed, active.demand)
        plans: Mapping[int, Plan] = {}
        if self._by_placement:
            curve = active.offers_of(gpu_type)[0].curve if active.offers else active.curve
            plans = curve.training
        return LimitedRoom(self.placer, plans, gpu_type, closed, reserved & ~closed, active.demand)

    @property
    def in_service(self) -> int:
        """GPUs that are free or held by jobs of the policy: those of the cluster less those of nodes that are
        down and of services.
        """
        return self.cluster.gpus - self.gpus_down - self.serving

    def serve(self, placement: Placement, sign: int) -> None:
        """An instance of a service takes the GPUs of `placement` (`sign` 1), or releases them (-1)."""
        for node, count in placement:
            self.served[node] = self.served.get(node, 0) + sign * count
            self.serving += sign * count

    def running_order(self, key: Key[V], non_increasing: bool) -> RunningOrder[V]:
        """The running jobs by `key`. If the key never grows while a job runs, few keys are looked up."""
        if not non_increasing:
            return CurrentKeys(key, self.running)
        order = self.orders.get(key)
        if order is None:
            order = self.orders[key] = NonIncreasingKeys(key)
        order.update(self.running)
        return order


class WaitingJobs(Generic[V]):
    """The jobs that wait for GPUs, in order of submission and by each key that a policy ranks them by.

    `jobs`: in the order in which they began to wait; `sorted` if that is the order of submission.
    """

    __slots__ = ("_highest", "jobs", "rankings", "sorted")

    def __init__(self) -> None:
        self.jobs: OrderedDict[V, None] = OrderedDict()
        self.sorted = True
        self._highest = -1  # the highest order of submission so far
        self.rankings: dict[tuple[Key[V], bool, bool], Ranking[V]] = {}

    def in_order(self) -> Collection[V]:
        """The jobs in order of submission."""
        if not self.sorted:
            self.jobs = OrderedDict.fromkeys(sorted(self.jobs, key=lambda job: job.order))
            self.sorted = True
        return self.jobs.keys()

    def ranked_by(self, key: Key[V], elastic: bool, changing: bool) -> Ranking[V]:
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

    def add(self, job: V) -> None:
        order = job.order
        if order > self._highest:
            self._highest = order
        elif self.jobs and next(reversed(self.jobs)).order > order:
            self.sorted = False
        self.jobs[job] = None
        if self.rankings:
            for ranking in self.rankings.values():
                ranking.add(job)

    def remove(self, job: V) -> None:
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
        each = ", ".join(f"{tenant} {gpus}" for tenant, gpus in checked.items())
        raise UserError(
            f"quotas: {promised} GPUs are promised ({each:.200}), the cluster has {capacity}; lower them"
        )
    return checked
