"""How fast a job runs on how many GPUs, of which type.

A `Curve` per GPU type comes from the first of three sources that applies:

1. a throughput table that names the job's model;
2. `itertime`, through a planner, for a job that states its model, global batch and iterations;
3. the logged duration, for a job of which nothing else is known.

A curve holds for a job that is packed and alone on the network; `network` adds the effect of the
placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Protocol

from clustersim.cluster import Cluster, HostDemand, NodeShape, Stretch
from itertime.errors import UserError
from itertime.io import shown
from itertime.planning import PlannedRun, Planner
from itertime.spec import (
    DEFAULT_RULES,
    Models,
    ModelSpec,
    PlanOptions,
    System,
    at_depth,
    parse_options,
    refusal_of,
)
from traces.job import Job
from traces.phases import parse_phases, seconds_factor, seconds_factors

from .curve import CannotRun, Curve, Offer, PhaseSpeeds, in_phases, regular_counts, worthwhile
from .throughput_table import Throughputs

__all__ = ["Speed", "SpeedOnOneType", "kind_of"]


class Speed(Protocol):
    """The speeds of the jobs of one run, on one GPU type (`SpeedOnOneType`) or several (`SpeedByType`)."""

    @property
    def tabled_models(self) -> Set[str]:
        """The models that the throughput table of any GPU type names."""

    def system_of(self, gpu_type: str) -> System | None:
        """The system of the nodes of a GPU type; None for a type without a profile."""

    def planner_of(self, gpu_type: str) -> Planner | None:
        """The planner on the nodes of a GPU type; None for a type without a profile."""

    def offers(self, job: Job) -> tuple[Offer, ...]:
        """What each GPU type offers `job`, the best first. CannotRun, with the reason, if none can run it."""

    def curve(self, job: Job) -> Curve:
        """The curve of `job` on its best GPU type. CannotRun as in `offers`."""

    def curve_on(self, job: Job, gpu_type: str) -> Curve:
        """The curve of `job` on one GPU type of the cluster. CannotRun if that type cannot run it."""


class SpeedOnOneType:
    """Speeds on equal nodes of one GPU type. A curve is computed once per kind of job.

    The counts offered to elastic policies are those of `regular_counts` within the job's `min_gpus` and
    `max_gpus`, and the counts that the job names.
    """

    def __init__(
        self, cluster: Cluster, make_planner: Callable[[], Planner] | None, table: Throughputs | None = None,
        gpu_type: str = "", models: Models | None = None, stretches: Sequence[Stretch] = (),
        system: System | None = None,
    ):  # fmt: skip
        """`make_planner` is called when the first job is to be planned; None without a profile. `stretches`:
        the cores and the memory of the nodes; empty where they set no limit. `system`: that of the nodes.
        """
        self._stretches = [] if all(part.host == (None, None) for part in stretches) else stretches
        self.cluster, self.table, self.gpu_type, self.system = cluster, table or {}, gpu_type, system
        self._make_planner, self._stated_models = make_planner, models
        self.tabled_models = frozenset(map(itemgetter(0), self.table))
        self._curves: dict[object, Curve | CannotRun] = {}
        self._offers: dict[object, tuple[Offer, ...]] = {}

    @cached_property
    def _counts(self) -> tuple[int, ...]:
        """The counts on which every model is planned."""
        return regular_counts(self.cluster)

    def offers(self, job: Job) -> tuple[Offer, ...]:
        """The one offer of this GPU type. CannotRun, with the reason, if it cannot run the job."""
        key = self._kind(job)
        offers = self._offers.get(key)
        if offers is None:
            curve = self.curve(job)
            offers = self._offers[key] = (Offer(self.gpu_type, curve, *self.requested(job, curve)),)
        return offers

    @cached_property
    def planner(self) -> Planner | None:
        """The planner on these nodes; None without a profile."""
        return None if self._make_planner is None else self._make_planner()

    @cached_property
    def models(self) -> Models:
        """The models that jobs may name; by default shipped ones and any file."""
        return self._stated_models or Models()

    def system_of(self, gpu_type: str) -> System | None:
        """The system; there is one GPU type."""
        return self.system

    def planner_of(self, gpu_type: str) -> Planner | None:
        """The planner; there is one GPU type."""
        return self.planner

    def curve(self, job: Job) -> Curve:
        """The curve of `job`. CannotRun, with the reason, if no number of GPUs here can run it."""
        key = self._kind(job)
        curve = self._curves.get(key)
        if curve is None:
            try:
                curve = self._make(job)
            except CannotRun as reason:
                curve = reason
            self._curves[key] = curve
        if isinstance(curve, CannotRun):
            raise CannotRun(str(curve))  # a new one: a raised exception keeps the frames of all its callers
        return curve

    def curve_on(self, job: Job, gpu_type: str) -> Curve:
        """The same as `curve`; there is one GPU type."""
        return self.curve(job)

    def requested(self, job: Job, curve: Curve) -> tuple[int, str]:
        """The GPUs that a rigid policy gives the job, with a note if the job asked for another number.

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

    def most_gpus(self, job: Job) -> int:
        """The most GPUs that the job can have. A node on which it holds GPUs, all of them if it holds more
        than a node has, must have the cores and the memory that it needs beside them.
        """
        if not self._stretches:
            return self.cluster.gpus
        demand = HostDemand.of(job.cpus, job.host_memory_gb, job.gpus)
        if demand is None:
            return self.cluster.gpus
        most_on_one = most_on_full_nodes = 0
        for nodes in self._stretches:
            size = nodes.gpus_per_node
            on_one = min(demand.gpus_on(*nodes.host), size)
            most_on_one = max(most_on_one, on_one)
            most_on_full_nodes += nodes.nodes * size if on_one == size else 0
        return max(most_on_one, most_on_full_nodes)

    def _kind(self, job: Job) -> object:
        """What the job's curve here depends on. CannotRun for a job that no node can hold."""
        if job.nodes is not None:
            shape = NodeShape.of(job.gpus, job.nodes, job.gpus_per_node)
            if shape is not None and not any(shape.fits_nodes(pool.by_size) for pool in self.cluster.pools):
                raise CannotRun(f"asks for {shape}; the cluster {self.cluster.shape} has fewer such nodes")
        if not self._stretches:
            return kind_of(job)
        gpu_limit = self.most_gpus(job)
        if gpu_limit == self.cluster.gpus:
            return kind_of(job)
        if job.gpus is not None and gpu_limit < job.gpus:
            largest = max(self._stretches, key=lambda part: part.gpus_per_node)
            raise CannotRun(largest.host.shortage(job.cpus, job.host_memory_gb, job.gpus))
        return kind_of(job), gpu_limit

    def _make(self, job: Job) -> Curve:
        if job.phases is not None:
            return self._in_phases(job)
        if job.kind == "duration":
            return self._from_log(job)
        if job.model in self.tabled_models:
            return self._from_table(job)
        return self._from_planner(job)

    def _in_phases(self, job: Job) -> Curve:
        assert job.phases is not None
        phases = parse_phases(job.phases)
        if job.kind == "duration":
            alone = self.curve(replace(job, phases=None))
            factors = seconds_factors(phases, None)
            return in_phases(
                [
                    PhaseSpeeds(phase.share, {None: (alone, k)})
                    for phase, k in zip(phases, factors, strict=True)
                ]
            )
        assert job.global_batch is not None
        assert job.model is not None
        curves: dict[tuple[int, int | None], Curve] = {}
        for phase in phases:
            model = at_depth(job.model, phase.layers)
            for batch in phase.batches:
                if (batch, phase.layers) not in curves:
                    part = replace(job, phases=None, model=model, global_batch=batch)
                    try:
                        curves[batch, phase.layers] = self.curve(part)
                    except CannotRun:
                        if batch == phase.value:
                            raise
        phase_speeds: list[PhaseSpeeds] = []
        for phase in phases:
            by_batch: dict[int | None, tuple[Curve, float]] = {
                batch: (curves[batch, phase.layers], seconds_factor(phase.noise, batch, job.global_batch))
                for batch in phase.batches
                if (batch, phase.layers) in curves
            }
            phase_speeds.append(PhaseSpeeds(phase.share, by_batch, phase.layers))
        return in_phases(phase_speeds)

    def _from_log(self, job: Job) -> Curve:
        assert job.gpus is not None
        if job.gpus > self.cluster.gpus:
            raise CannotRun(f"asks for {job.gpus} GPUs, the cluster has {self.cluster.gpus}")
        return Curve({job.gpus: 1.0}, (job.gpus,))

    def _from_table(self, job: Job) -> Curve:
        assert job.model is not None
        assert job.global_batch is not None
        rates = self.table.get((job.model, job.global_batch))
        if not rates:
            raise CannotRun(
                f"the throughput table has no row for {job.model} with global batch {job.global_batch}"
            )
        low, high = self._bounds(job)
        unit_s = {n: 1.0 / rate for n, rate in sorted(rates.items()) if low <= n <= high and rate > 0}
        if not unit_s:
            raise CannotRun(
                f"the throughput table has no speed for {job.model} between {low} and {high} GPUs"
            )
        return Curve(unit_s, worthwhile(unit_s))

    def _from_planner(self, job: Job) -> Curve:
        planner, model = self._planner_for(job)
        assert job.global_batch is not None
        if reason := refusal_of(model.with_seq_len(job.seq_len)):
            raise CannotRun(
                f"{job.model} cannot be predicted: {reason}; a throughput table can state its speed"
            )
        counts = self._counts_for(job)
        runs = self._planned(job, planner, model, self._counts)
        irregular = tuple(n for n in counts if n not in self._counts)
        if irregular:
            runs.update(self._planned(job, planner, model, irregular))
        unit_s = {n: runs[n].iteration_s for n in counts if n in runs}
        if not unit_s:
            raise CannotRun(self._why_no_plan(job, model, counts, runs))
        return Curve(
            unit_s=unit_s,
            sizes=worthwhile(unit_s),
            plans={n: runs[n].plan.label for n in unit_s},
            parameters=float(model.parameters),
            training={n: runs[n].plan for n in unit_s},
            model=model.with_seq_len(job.seq_len),
            framework=job.framework,
        )

    def _planned(
        self, job: Job, planner: Planner, model: ModelSpec, counts: Sequence[int]
    ) -> dict[int, PlannedRun]:
        """The plans on the counts that have one. CannotRun for options that no plan of the model can have,
        for samples that are longer than its sequences, and for what the planner's rules cannot say.
        """
        assert job.global_batch is not None
        try:
            return dict(planner.curve(model, job.global_batch, counts, job.seq_len))
        except UserError as error:
            if job.plan_options is None and not model.lengths and planner.space.rules == DEFAULT_RULES:
                raise
            wrong = str(error).removeprefix(f"search: {model.name}: ")
            prefix = f"plan_options={job.plan_options}: " if job.plan_options else ""
            raise CannotRun(f"{prefix}no plan of {job.model}: {wrong}") from None

    def _planner_for(self, job: Job) -> tuple[Planner, ModelSpec]:
        """The planner, and the job's model. CannotRun if there is none of them. UserError for a file that is
        no model.
        """
        assert job.model is not None
        if self.planner is None:
            name = f"GPU type {self.gpu_type}" if self.gpu_type else "this GPU type"
            raise CannotRun(f"{name} has no profile, and no throughput table states {job.model} on it")
        planner = self._planner_under(self.planner, job)
        try:
            model = self.models.find(job.model)
        except UserError as error:
            raise UserError(f"job {shown(job.job_id)}: model={shown(job.model)}: {error}") from None
        if model is None:
            where = f" on GPU type {self.gpu_type}" if self.gpu_type else ""
            raise CannotRun(f"no model {job.model} is shipped, and no throughput table states it{where}")
        return planner, model

    def _planner_under(self, planner: Planner, job: Job) -> Planner:
        """The planner for the framework, the precision and the plan's options that the job states. CannotRun
        if the GPUs cannot run its precision. UserError for a framework or options that do not exist.
        """
        if job.framework is None and job.precision is None and job.plan_options is None:
            return planner
        profile, precision = planner.profile, job.precision or "bf16"
        able = profile.trained_precisions
        if precision not in able:
            alternatives = f"the profile {profile.name} has {', '.join(able)}"
            raise CannotRun(f"its GPUs do not run precision {precision}: {alternatives}")
        options = _options_of(job)
        try:
            return planner.under(job.framework, job.precision, options)
        except UserError as error:
            raise UserError(f"job {shown(job.job_id)}: framework={shown(job.framework)}: {error}") from None

    def _bounds(self, job: Job) -> tuple[int, int]:
        """The fewest and the most GPUs that the job may get here."""
        if job.gpu_fraction is not None:
            return 1, 1
        gpu_limit = self.most_gpus(job)
        return job.min_gpus or 1, min(job.max_gpus or gpu_limit, gpu_limit)

    def _counts_for(self, job: Job) -> list[int]:
        """The GPU counts to plan the job for, ascending."""
        low, high = self._bounds(job)
        job_counts = [n for n in (job.gpus, job.min_gpus, job.max_gpus) if n is not None]
        counts = {*self._counts, *(n for n in job_counts if n <= self.cluster.gpus)}
        return sorted(n for n in counts if low <= n <= high or n == job.gpus)

    def _why_no_plan(
        self, job: Job, model: ModelSpec, counts: Sequence[int], runs: Mapping[int, object]
    ) -> str:
        if not counts:
            low, high = job.min_gpus or 1, job.max_gpus or self.cluster.gpus
            return f"allows {low} to {high} GPUs, the cluster has {self.cluster.gpus}"
        assert self.planner is not None
        where = f"{counts[0]} to {counts[-1]} GPUs" if len(counts) > 1 else f"{counts[0]} GPUs"
        text = f"no {self.planner.name} plan of {job.model} with global batch {job.global_batch}"
        if runs:
            return f"{text} fits on {where}; the smallest count that does is {min(runs)}"
        if broken := self._broken_options(job, model, counts):
            return f"{text} on {where} can have plan_options={job.plan_options}: {broken}"
        return f"{text} fits on {where}"

    def _broken_options(self, job: Job, model: ModelSpec, counts: Sequence[int]) -> str:
        """The rules that the job's options break in the plan that it would have on the most GPUs without
        them; "" for a job without options, or without such a plan.
        """
        assert self.planner is not None
        assert job.global_batch is not None
        options = _options_of(job)
        if options is None:
            return ""
        planner = self.planner.under(job.framework, job.precision)
        runs = planner.curve(model, job.global_batch, counts, job.seq_len)
        if not runs:
            return ""
        plan = replace(runs[max(runs)].plan, options=options)
        return "; ".join(plan.broken_rules(model.with_seq_len(job.seq_len)))


def kind_of(job: Job) -> object:
    """What a job's curve depends on."""
    if job.phases is not None:
        return job.phases, kind_of(replace(job, phases=None))
    if job.kind == "duration":
        return job.gpus
    software = job.framework, job.precision, job.plan_options
    if job.gpu_fraction is not None:
        return job.model, job.global_batch, job.seq_len, *software, "part of a GPU"
    return job.model, job.global_batch, job.seq_len, *software, job.gpus, job.min_gpus, job.max_gpus


def _options_of(job: Job) -> PlanOptions | None:
    """The options that the job states for its plans. UserError for text that states none."""
    if job.plan_options is None:
        return None
    try:
        return parse_options(job.plan_options)
    except UserError as error:
        place = f"job {shown(job.job_id)}: plan_options={shown(job.plan_options)}"
        raise UserError(f"{place}: {str(error).removeprefix('options: ')}") from None
