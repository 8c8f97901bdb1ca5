"""What a simulation runs on, under which policy, with which models of speed, overheads and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import attrgetter

from clustersim.cluster import Cluster
from clustersim.energy import Energy
from clustersim.errors import UnsuitedPolicy
from clustersim.failures import Failures, Maintenance, Reservation, Spot
from clustersim.overheads import Overheads
from clustersim.placement import Placer, placer
from clustersim.scheduler import Scheduler
from clustersim.speed import Interference, NodeSpeeds, Slowdown, Speed, StepTimes
from itertime.spec import Price, price_of
from traces.estimates import Estimates

__all__ = ["RunSetup"]


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """Everything that a simulation needs beside its jobs. UserError for a policy that cannot plan with the
    GPU types of the cluster.
    """

    cluster: Cluster
    """The machines."""
    scheduler: Scheduler
    """The policy."""
    speed: Speed
    """How fast jobs run on GPUs."""
    planner: str = ""
    """The name of the planner behind `speed`; empty: it has none."""
    overheads: Overheads = field(default_factory=Overheads)
    """What starts, preemptions and resizes cost."""
    sharing: Interference | None = None
    """How much jobs on one GPU slow each other down; None: not at all."""
    services_preempt: bool = True
    """Whether running jobs are stopped for instances of services."""
    placement: str | Placer = "pack"
    """A placer or its name."""
    type_slowdown: float = inf
    """How many times slower than on its best GPU type a job may start."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """GPUs promised to tenants."""
    failures: Failures | None = None
    """What breaks; None: nothing does."""
    maintenance: Maintenance | None = None
    """When nodes are out of service as planned."""
    spot: Spot | None = None
    """Nodes that are reclaimed with notice."""
    reservations: tuple[Reservation, ...] = ()
    """Nodes that are for some jobs alone, in order of time."""
    estimates: Estimates | None = None
    """The error of the work stated by users; None: that of the trace."""
    decision_interval_s: float = 0.0
    """Decisions are made at its multiples on the trace's clock; 0: at every event."""
    step_times: StepTimes | None = None
    """How much slower than predicted jobs run; None: as predicted."""
    node_speeds: NodeSpeeds | None = None
    """How much slower than predicted each node is; None: all are as predicted."""
    until_s: float | None = None
    """The end of the run on the trace's clock; None: when no event is left."""
    energy: Energy | None = None
    """The power that GPUs take; None: it is not asked."""
    price: Price = field(default_factory=partial(price_of, None))
    """Of GPU types for which the cluster states no price."""
    priced: bool = False
    """Whether jobs are charged that price even if this cluster states none, because its fleet states some."""
    seed: int = 0
    """Of everything random."""
    check_all_keys: bool = False
    """Whether to look up every waiting job's key after every decision, as a check."""
    parts: tuple[RunSetup, ...] = ()
    """The set-ups of the clusters of a fleet to which jobs are sent."""

    def __post_init__(self) -> None:
        if self.cluster.mixed and not self.parts and self.scheduler.one_gpu_type:
            types = ", ".join(self.cluster.gpu_types)
            policy = f"policy {type(self.scheduler).__name__}"
            raise UnsuitedPolicy(
                f"{policy} plans with one GPU type, the cluster has {types}; choose another policy, or a "
                "cluster of one type"
            )

        if self.cluster.unequal and not self.parts and self.scheduler.equal_nodes:
            pool = next(pool for pool in self.cluster.pools if len(pool.by_size) > 1)
            sizes = " and ".join(str(size) for size, _ in pool.by_size)
            policy = f"policy {type(self.scheduler).__name__}"
            raise UnsuitedPolicy(
                f"{policy} plans with nodes of one size, those of {pool.gpu_type} have {sizes} GPUs; choose "
                "another policy, or give each size a gpu_type of its own"
            )

        if self.packs > 1 and self.cluster.network_model.by_placement:
            policy, network = f"policy {type(self.scheduler).__name__}", self.cluster.network
            raise UnsuitedPolicy(
                f"{policy} runs jobs on the same GPUs, and no model says what network={network} does to "
                "them; choose network=ideal, or another policy"
            )

    @property
    def packs(self) -> int:
        """The most jobs that a policy of the run puts on the same GPUs."""
        return max(map(attrgetter("packs"), [self.scheduler, *self.parts]))

    @property
    def disturbs_jobs(self) -> bool:
        """Whether anything but the policy changes what jobs do: failures, other outages, or saves."""
        overheads, maintenance = self.overheads, self.maintenance
        saves = not isinstance(overheads.checkpoint_interval_s, str)
        planned = maintenance is not None and bool(maintenance.changes or maintenance.absent)
        unplanned = self.failures is not None or self.spot is not None or bool(self.reservations)
        return unplanned or planned or saves or overheads.storage_shared

    @property
    def prices(self) -> dict[str, float] | None:
        """US dollars per GPU-hour by GPU type; None if jobs are charged none."""
        if self.cluster.states_prices:
            return self.cluster.prices(self.price.usd_per_gpu_hour)
        of_all = dict.fromkeys(self.cluster.gpu_types, self.price.usd_per_gpu_hour)
        return of_all if self.priced else None

    @property
    def interference(self) -> Interference | None:
        """How much jobs on the same GPUs slow each other down; None where none share any, or none do."""
        return Interference() if self.sharing is None and self.packs > 1 else self.sharing

    @property
    def slowdown(self) -> Slowdown | None:
        """What makes jobs slower than predicted; None where nothing does."""
        if self.step_times is None and self.node_speeds is None:
            return None
        return Slowdown(self.step_times, self.node_speeds, self.seed)

    @property
    def placer(self) -> Placer:
        return placer(self.placement) if isinstance(self.placement, str) else self.placement
