"""How fast a job runs on how many GPUs, of which type.

Three sources, asked in this order: a throughput table that names the job's model; `itertime` (through a
planner), for a job that states model, global batch and iterations; the logged duration, for a job of which
nothing else is known. All three answer with a `Curve` per GPU type, as if the job were packed and alone; what
the placement adds is in `clustersim.network`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from itertime.errors import UnknownName, UserError
from traces.job import Job

from .cluster import Cluster, Pool
from .throughput import Throughputs, read_throughput_table, throughputs_by_type

if TYPE_CHECKING:
    from itertime.model import ModelSpec
    from itertime.plan import Plan
    from itertime.planner import Planner

__all__ = ["CannotRun", "Curve", "Offer", "Speed", "TypedSpeed", "read_throughput_table", "speed_for"]


class CannotRun(Exception):
    """No GPU count of this cluster can run the job; the text is the reason for its rejection."""


@dataclass(frozen=True)
class Curve:
    """Speed of one kind of job by GPU count, on one GPU type.

    `unit_s`: seconds per unit of work (an iteration, or a second of logged duration) at each count that can
    run it. `sizes`: the counts worth giving, ascending, each strictly faster than the one before. `plans`:
    what runs there, as text, and `training`, as the plans of `model` themselves.
    """

    unit_s: Mapping[int, float]
    sizes: tuple[int, ...]
    plans: Mapping[int, str] = field(default_factory=dict)
    parameters: float = 0.0
    training: Mapping[int, Plan] = field(default_factory=dict)
    model: ModelSpec | None = None


@dataclass(frozen=True)
class Offer:
    """What one GPU type offers a job: its speeds, the GPUs it is given if a policy names no number, and a
    note where that is not what it asked for.
    """

    gpu_type: str
    curve: Curve
    requested: int
    note: str


def regular_counts(cluster: Cluster) -> tuple[int, ...]:
    """1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes, up to the cluster."""
    node = cluster.gpus_per_node
    small = [1 << k for k in range(node.bit_length()) if 1 << k < node]
    return (*small, *(node << k for k in range(cluster.nodes.bit_length())))


def _worthwhile(unit_s: Mapping[int, float], counts: Iterable[int]) -> tuple[int, ...]:
    """The counts that are strictly faster than every smaller one."""
    sizes: list[int] = []
    best = float("inf")
    for n in sorted(counts):
        if n in unit_s and unit_s[n] < best:
            sizes.append(n)
            best = unit_s[n]
    return tuple(sizes)


class Speed:
    """Curves for the jobs of one run, each computed once per kind of job.

    The counts offered to elastic policies are those of `regular_counts`, within the job's `min_gpus` and
    `max_gpus`, and the count it asks for.
    """

    def __init__(
        self,
        cluster: Cluster,
        planner: Planner | None,
        table: Throughputs | None = None,
        gpu_type: str = "",
    ):
        self.cluster, self.planner, self.table, self.gpu_type = cluster, planner, table or {}, gpu_type
        self._counts = regular_counts(cluster)
        self._tabled_models = {model for model, _ in self.table}
        self._curves: dict[object, Curve | CannotRun] = {}
        self._offers: dict[object, tuple[Offer, ...]] = {}

    def offers(self, job: Job) -> tuple[Offer, ...]:
        """What each GPU type offers `job`, the best first. CannotRun, with the reason, if none can run it."""
        key = self._key(job)
        offers = self._offers.get(key)
        if offers is None:
            offers = self._offers[key] = self._find_offers(job)
        return offers

    def _find_offers(self, job: Job) -> tuple[Offer, ...]:
        curve = self.curve(job)
        return (Offer(self.gpu_type, curve, *self.requested(job, curve)),)

    def planner_of(self, gpu_type: str) -> Planner | None:
        """The planner on the nodes of a GPU type, None for a type without a profile."""
        return self.planner

    def curve(self, job: Job) -> Curve:
        """The curve of `job`. CannotRun, with the reason, if no number of GPUs here can run it."""
        key = self._key(job)
        curve = self._curves.get(key)
        if curve is None:
            try:
                curve = self._make(job)
            except CannotRun as reason:
                curve = reason
            self._curves[key] = curve
        if isinstance(curve, CannotRun):
            raise CannotRun(str(curve))  # anew: a raised exception keeps the frames of all its callers
        return curve

    def curve_on(self, job: Job, gpu_type: str) -> Curve:
        """The same on GPUs of one type of the cluster."""
        return self.curve(job)

    def requested(self, job: Job, curve: Curve) -> tuple[int, str]:
        """The GPUs a rigid policy gives the job, with a note where that is not what it asked for.

        A request that no plan fits into is raised to the smallest count that holds the model; a job without
        a request gets its smallest count. CannotRun for a request that is larger than the cluster.
        """
        if job.gpus is not None and job.gpus > self.cluster.gpus:
            raise CannotRun(f"asks for {job.gpus} GPUs, the cluster has {self.cluster.gpus}")
        if job.gpus in curve.unit_s:
            assert job.gpus is not None
            return job.gpus, ""
        larger = [n for n in curve.sizes if job.gpus is None or n >= job.gpus]
        gpus = larger[0] if larger else curve.sizes[-1]
        if job.gpus is None:
            return gpus, f"no GPU count requested; {gpus} is the smallest that can run it"
        return gpus, f"asked for {job.gpus} GPUs, which cannot run it; given {gpus}"

    def _key(self, job: Job) -> object:
        """What a job's curve depends on."""
        if job.kind == "duration":
            return job.gpus
        return job.model, job.global_batch, job.seq_len, job.gpus, job.min_gpus, job.max_gpus

    def _make(self, job: Job) -> Curve:
        if job.kind == "duration":
            return self._rigid(job)
        if job.model in self._tabled_models:
            return self._from_table(job)
        return self._from_planner(job)

    def _rigid(self, job: Job) -> Curve:
        assert job.gpus is not None
        if job.gpus > self.cluster.gpus:
            raise CannotRun(f"asks for {job.gpus} GPUs, the cluster has {self.cluster.gpus}")
        return Curve({job.gpus: 1.0}, (job.gpus,))

    def _offered(self, job: Job) -> list[int]:
        low, high = job.min_gpus or 1, min(job.max_gpus or self.cluster.gpus, self.cluster.gpus)
        asked = [
            n for n in (job.gpus, job.min_gpus, job.max_gpus) if n is not None and n <= self.cluster.gpus
        ]
        return sorted({n for n in (*self._counts, *asked) if low <= n <= high or n == job.gpus})

    def _from_table(self, job: Job) -> Curve:
        assert job.model is not None
        assert job.global_batch is not None
        rates = self.table.get((job.model, job.global_batch))
        if not rates:
            raise CannotRun(
                f"the throughput table has no row for {job.model} with global batch {job.global_batch}"
            )
        low, high = job.min_gpus or 1, min(job.max_gpus or self.cluster.gpus, self.cluster.gpus)
        unit_s = {n: 1.0 / rate for n, rate in sorted(rates.items()) if low <= n <= high and rate > 0}
        if not unit_s:
            raise CannotRun(
                f"the throughput table has no speed for {job.model} between {low} and {high} GPUs"
            )
        return Curve(unit_s, _worthwhile(unit_s, unit_s))

    def _from_planner(self, job: Job) -> Curve:
        from itertime import list_models, load_model

        if self.planner is None:
            known = f" has no profile, and no throughput table states {job.model} on it"
            raise CannotRun((f"GPU type {self.gpu_type}" if self.gpu_type else "this GPU type") + known)
        assert job.model is not None
        assert job.global_batch is not None
        if job.model not in list_models() and not job.model.endswith((".yaml", ".yml")):
            where = f" on GPU type {self.gpu_type}" if self.gpu_type else ""
            raise CannotRun(f"no model {job.model} is shipped, and no throughput table states it{where}")
        model = load_model(job.model)
        offered = self._offered(job)
        regular = set(self._counts)
        runs = dict(self.planner.curve(model, job.global_batch, self._counts, job.seq_len))
        odd = tuple(n for n in offered if n not in regular)
        if odd:
            runs.update(self.planner.curve(model, job.global_batch, odd, job.seq_len))
        unit_s = {n: runs[n].iteration_s for n in offered if n in runs}
        if not unit_s:
            raise CannotRun(self._why_no_plan(job, offered, runs))
        sizes = _worthwhile(unit_s, unit_s)
        plans = {n: runs[n].plan.label for n in unit_s}
        training = {n: runs[n].plan for n in unit_s}
        return Curve(unit_s, sizes, plans, float(model.parameters), training, model.with_seq_len(job.seq_len))

    def _why_no_plan(self, job: Job, offered: Sequence[int], runs: Mapping[int, object]) -> str:
        if not offered:
            low, high = job.min_gpus or 1, job.max_gpus or self.cluster.gpus
            return f"allows {low} to {high} GPUs, the cluster has {self.cluster.gpus}"
        where = f"{offered[0]} to {offered[-1]} GPUs" if len(offered) > 1 else f"{offered[0]} GPUs"
        rule = self.planner.name if self.planner else ""
        text = f"no {rule} plan of {job.model} with global batch {job.global_batch} fits on {where}"
        return f"{text}; the smallest count that does is {min(runs)}" if runs else text


class TypedSpeed(Speed):
    """The speeds on a cluster of several GPU types: those of each type's nodes, best first for each job."""

    def __init__(self, cluster: Cluster, by_type: Mapping[str, Speed]):
        first = next((speed for speed in by_type.values() if speed.planner), next(iter(by_type.values())))
        super().__init__(cluster, first.planner)
        self.by_type = dict(by_type)

    def _find_offers(self, job: Job) -> tuple[Offer, ...]:
        """Fewest requested GPUs first, then fastest there, then in the order of the cluster's groups.

        CannotRun, with every type's reason, if none can run the job.
        """
        found: list[Offer] = []
        reasons = []
        for name, speed in self.by_type.items():
            try:
                found += speed.offers(job)
            except CannotRun as reason:
                reasons.append(f"{name}: {reason}")
        if not found:
            raise CannotRun("; ".join(reasons))
        return tuple(sorted(found, key=lambda offer: (offer.requested, offer.curve.unit_s[offer.requested])))

    def planner_of(self, gpu_type: str) -> Planner | None:
        return self.by_type[gpu_type].planner

    def curve(self, job: Job) -> Curve:
        return self.offers(job)[0].curve

    def curve_on(self, job: Job, gpu_type: str) -> Curve:
        return self.by_type[gpu_type].curve(job)

    def requested(self, job: Job, curve: Curve) -> tuple[int, str]:
        best = self.offers(job)[0]
        return best.requested, best.note


def speed_for(cluster: Cluster, planner: str, table: str | Path | None = None) -> Speed:
    """The speeds of a run: a planner by name on the systems of the cluster, and a throughput table if there
    is one. UserError for unknown names.
    """
    tables = throughputs_by_type(table, cluster.gpu_types) if table else {}
    pools = cluster.pools
    speeds = {pool.gpu_type: _speed_of(pool, planner, tables.get(pool.gpu_type)) for pool in pools}
    if len(speeds) > 1:
        return TypedSpeed(cluster, speeds)
    return Speed(cluster, speeds[pools[0].gpu_type].planner, tables.get(pools[0].gpu_type), pools[0].gpu_type)


def _speed_of(pool: Pool, planner: str, table: Throughputs | None) -> Speed:
    """The speeds on the nodes of one GPU type, with their part of a node's NICs where they are parts of
    nodes of the system.
    """
    from itertime import load_system
    from itertime.curvecache import default_cache
    from itertime.planner import PLANNERS, make_planner

    cluster = Cluster(pool.nodes, pool.gpus_per_node, pool.system or "none")
    if pool.system is None:
        if planner not in PLANNERS:
            raise UnknownName("planner", planner, PLANNERS)
        return Speed(cluster, None, table, pool.gpu_type)
    system = load_system(pool.system)
    if pool.gpus_per_node > system.gpus_per_node:
        raise UserError(
            f"cluster {cluster.shape}: nodes of system {system.name} have {system.gpus_per_node} GPUs; "
            f"use a shape that ends in g{system.gpus_per_node}"
        )
    share = pool.gpus_per_node / system.gpus_per_node  # part of a node, with its part of the NICs
    nic = pool.nic_bytes_per_s or system.nic_bytes_per_s * share
    system = replace(system, gpus_per_node=pool.gpus_per_node, nic_bytes_per_s=nic)
    return Speed(cluster, make_planner(planner, system, cache=default_cache()), table, pool.gpu_type)
