"""What a simulation runs on, under which policy, with which models of speed, overheads and failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from clustersim.cluster import Cluster
from clustersim.failures import Failures, Maintenance, Reservation, Spot
from clustersim.overheads import Overheads
from clustersim.placement import Placer, placer
from clustersim.scheduler import Scheduler
from clustersim.speed import Interference, NodeSpeeds, Speed, StepTimes
from itertime.errors import UserError
from traces.estimates import Estimates

__all__ = ["RunSetup"]


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """Everything that a simulation needs beside its jobs. UserError for a policy that cannot plan with the
    GPU types of the cluster.

    | field | what | default |
    |---|---|---|
    | `cluster`, `scheduler` | the machines, and the policy | |
    | `speed` | how fast jobs run on GPUs | |
    | `planner` | the name of the planner behind `speed` | empty: it has none |
    | `overheads` | what starts, preemptions and resizes cost | the default constants |
    | `sharing` | how much jobs on one GPU slow each other down | not at all |
    | `services_preempt` | whether running jobs are stopped for instances of services | true |
    | `placement` | a placer or its name | `pack` |
    | `type_slowdown` | how many times slower than on its best GPU type a job may start | no limit |
    | `quotas` | GPUs promised to tenants | none |
    | `failures`, `maintenance` | what takes nodes out of service | nothing |
    | `spot` | nodes that are reclaimed with notice | none |
    | `reservations` | nodes that are for some jobs alone, in order of time | none |
    | `estimates` | how far the work is off that jobs state | by what the trace states |
    | `decision_interval_s` | decisions are made at multiples of it on the trace's clock | 0: at every event |
    | `step_times` | how much slower than predicted jobs run | as predicted |
    | `nodes` | how much slower than predicted each node is | all are as predicted |
    | `until_s` | the end of the run on the trace's clock | when no event is left |
    | `price_usd_per_gpu_h` | of GPU types for which the cluster states no price | 5 |
    | `priced` | whether GPUs have that price where no type has another, as elsewhere in a fleet | false |
    | `seed` | of everything random | 0 |
    | `parts` | the set-ups of the clusters of a fleet to which jobs are sent | none |
    | `check_all_keys` | whether to look up every waiting job's key after every decision, as a check | false |
    """

    cluster: Cluster
    scheduler: Scheduler
    speed: Speed
    planner: str = ""
    overheads: Overheads = field(default_factory=Overheads)
    sharing: Interference | None = None
    services_preempt: bool = True
    placement: str | Placer = "pack"
    type_slowdown: float = inf
    quotas: Mapping[str, int] = field(default_factory=dict)
    failures: Failures | None = None
    maintenance: Maintenance | None = None
    spot: Spot | None = None
    reservations: tuple[Reservation, ...] = ()
    estimates: Estimates | None = None
    decision_interval_s: float = 0.0
    step_times: StepTimes | None = None
    nodes: NodeSpeeds | None = None
    until_s: float | None = None
    price_usd_per_gpu_h: float = 5.0
    priced: bool = False
    seed: int = 0
    check_all_keys: bool = False
    parts: tuple[RunSetup, ...] = ()

    def __post_init__(self) -> None:
        if self.cluster.mixed and not self.parts and self.scheduler.one_gpu_type:
            types = ", ".join(self.cluster.gpu_types)
            name = type(self.scheduler).__name__
            refused = f"policy {name} plans with one GPU type, the cluster has {types}"
            raise UserError(f"{refused}; choose another policy, or a cluster of one type")

        if self.packs > 1 and self.cluster.network_model.by_placement:
            name, network = type(self.scheduler).__name__, self.cluster.network
            what = f"runs jobs on the same GPUs, and no model says what network={network} does to them"
            raise UserError(f"policy {name} {what}; choose network=ideal, or another policy")

    @property
    def packs(self) -> int:
        """The most jobs that a policy of the run puts on the same GPUs."""
        return max([self.scheduler.packs, *(part.packs for part in self.parts)])

    @property
    def prices(self) -> dict[str, float] | None:
        """US dollars per GPU-hour by GPU type; None if jobs are charged none."""
        stated = self.cluster.prices(self.price_usd_per_gpu_h)
        if stated is None and self.priced:
            return dict.fromkeys(self.cluster.gpu_types, self.price_usd_per_gpu_h)
        return stated

    @property
    def interference(self) -> Interference | None:
        """How much jobs on the same GPUs slow each other down; None where none share any, or none do."""
        return Interference() if self.sharing is None and self.packs > 1 else self.sharing

    @property
    def placer(self) -> Placer:
        return placer(self.placement) if isinstance(self.placement, str) else self.placement
