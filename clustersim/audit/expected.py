"""Plans and speeds of the jobs of a recorded run, computed again by the installed program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from clustersim.cluster import Cluster
from clustersim.records import EventRecord, PlanKey, PlanRecord, plan_of_label
from clustersim.runs import LARGEST_FILE, is_of_this_code, plan_record, profile_of, systems_hash
from clustersim.speed import CannotRun, Curve, NodeSizes, Offer, Speed, regular_counts, speed_for
from itertime.costs import checked_headroom
from itertime.errors import UserError
from itertime.io import sha256, shown
from itertime.prediction import evaluate
from itertime.spec import Models, PlanBatch, list_systems, refusal_of
from traces.job import Job

__all__ = ["Recomputed", "recorded_models"]

_MOST_KINDS = 10_000  # kinds of jobs whose results are kept
_FAILURES = (UserError, ArithmeticError, ValueError)  # forged numbers make the program raise these


class Recomputed:
    """Curves, plans and rows of plans.csv of a run, computed from its manifest.

    `why_not`: why nothing can be computed again; empty if everything can. `same_code`: whether the installed
    program made the run, by the manifest; only then is a difference a violation.
    """

    def __init__(self, cluster: Cluster, manifest: Mapping[str, Any]):
        self._cluster = cluster
        self.planner, table = manifest.get("planner"), manifest.get("table")
        self.has_table = table is not None
        self._speed: Speed | None = None
        self.models = recorded_models(manifest)
        self._known_models = set(self.models.names())
        self.why_not = "" if table is None else _why_not_table(table, manifest.get("table_sha256"))
        if not self.why_not:
            try:
                self._speed = speed_for(cluster, str(self.planner), table, _headroom(manifest), self.models)
                self._known_models |= self._speed.tabled_models
            except UserError as error:
                self.why_not = str(error)
        self.same_code = is_of_this_code(manifest)
        if self._speed is not None and self.same_code:
            self._compare_systems(self._speed, manifest.get("systems_sha256"))
        self._regular = {pool.gpu_type: regular_counts(cluster.of_pool(pool)) for pool in cluster.pools}
        self._node_sizes: NodeSizes | None = None
        if cluster.unequal and self._speed is not None:
            self._node_sizes = NodeSizes(cluster, self._speed)
        self.curve = lru_cache(_MOST_KINDS)(self._curve)
        self.fault = lru_cache(_MOST_KINDS)(self._fault)

    def _compare_systems(self, speed: Speed, recorded: object) -> None:
        """Refuse system files that changed since the run. Shipped systems change only with the program."""
        files = [pool.system for pool in self._cluster.pools if pool.system not in (None, *list_systems())]
        if files and recorded != systems_hash(self._cluster, speed):
            file_list = ", ".join(f"{name:.300}" for name in dict.fromkeys(files))
            self._speed, self.why_not = None, f"system {file_list}, or its profile, is not what the run read"

    def _curve(
        self, model: str, global_batch: int | None, seq_len: int | None, framework: str, precision: str,
        plan_options: str, gpu_type: str, gpus: int,
    ) -> Curve | str:  # fmt: skip
        """The speeds of a job that asks for `gpus` GPUs, on one GPU type; or why they are unknown."""
        if self._speed is None:
            return self.why_not
        speed = self._speed
        if model not in self._known_models:
            return f"model {shown(model)} is not known here"
        if global_batch is None:
            return f"no global batch of model {shown(model)} is stated"
        software = framework, precision, plan_options
        job = _job(PlanKey(model, global_batch, seq_len, *software, gpu_type, gpus, ""))
        try:
            return speed.curve_on(job, gpu_type) if gpu_type else speed.curve(job)
        except (CannotRun, *_FAILURES) as error:
            return f"model {shown(model)}: {error}"

    def offers(self, job: Job) -> tuple[Offer, ...] | CannotRun | None:
        """The offers of the cluster to a job of the trace, or why the job cannot run; None if unknown."""
        if self._speed is None:
            return None
        try:
            return self._speed.offers(job)
        except CannotRun as reason:
            return reason
        except _FAILURES:
            return None

    def unit_s(self, curve: Curve, event: EventRecord) -> float:
        """The predicted seconds per unit of a job alone on the GPUs that it gets, on an ideal network."""
        if self._node_sizes is None:
            return curve.unit_s[event.gpus]
        return self._node_sizes.unit_s(curve, event.gpus, event.placement)

    def is_exact(self, gpu_type: str, gpus: int) -> bool:
        """Whether the folder determines the plan on `gpus` GPUs. Under data-parallel-best, the plan on an
        irregular number of GPUs depends on the smallest number that the job allows, which no record states.
        """
        regular = self._regular.get(gpu_type) or self._regular[self._cluster.gpu_types[0]]
        return self.planner != "data-parallel-best" or gpus in regular

    def _fault(self, key: PlanKey) -> str:
        """Why the plan cannot run on its GPUs under any planner; empty if it can."""
        plan = plan_of_label(key.plan, key.global_batch or 0)
        if plan is None:
            return f"{shown(key.plan)} is no plan"
        if plan.gpus > key.gpus:  # a plan may leave GPUs idle, because not every count has a plan
            return f"its plan {key.plan} uses {plan.gpus} GPUs of {key.gpus}"
        model = self.models.find(key.model) if key.model in self.models.names() else None
        if model is None:
            return ""
        try:
            shape = model.with_seq_len(key.seq_len)
            broken = [*plan.broken_rules(shape), *filter(None, [refusal_of(shape)])]
        except _FAILURES as error:
            return f"its plan {key.plan}: {error}"
        return f"its plan {key.plan} cannot train {key.model}: {'; '.join(broken)}" if broken else ""

    def unfit(self, key: PlanKey) -> str:
        """Why a valid plan does not fit into the memory of its GPUs; empty if it fits."""
        plan = plan_of_label(key.plan, key.global_batch or 0)
        planner = None if self._speed is None else self._speed.planner_of(key.gpu_type)
        model = self.models.find(key.model) if key.model in self.models.names() else None
        if plan is None or planner is None or model is None:
            return ""
        model = model.with_seq_len(key.seq_len)
        try:
            planner = planner.under(key.framework or None, key.precision or None)
        except UserError as error:
            return str(error)
        evaluation = evaluate(
            model,
            PlanBatch.of([plan]),
            planner.system,
            planner.profile,
            memory_headroom=planner.memory_headroom,
        ).prediction(0)
        return "" if evaluation.fits else f"its plan {key.plan} does not fit: {evaluation.reason}"

    def row(self, key: PlanKey) -> PlanRecord | None:
        """The row of plans.csv for a plan; None if the row cannot be computed."""
        if self._speed is None or key.global_batch is None or key.model not in self._known_models:
            return None
        try:
            return plan_record(_job(key), key, self._speed)
        except _FAILURES:
            return None

    def profile(self) -> dict[str, str] | None:
        """The name and the hash of the profile, as the manifest of such a run states it; None if unknown."""
        return profile_of(self._cluster, self._speed) if self._speed is not None and self.same_code else None

    def systems(self) -> str | None:
        """The hash of the systems and their profiles, as the manifest of such a run states it; None if
        unknown.
        """
        if self._speed is None or not self.same_code:
            return None
        return systems_hash(self._cluster, self._speed)

    def speed(self) -> Speed:
        """The speeds of the run. Call only if `why_not` is empty."""
        assert self._speed is not None
        return self._speed


def recorded_models(manifest: Mapping[str, Any]) -> Models:
    """The models of the run as its manifest states them; the shipped ones alone if it states none that can
    be.
    """
    try:
        return Models.recorded(manifest.get("models"))
    except UserError:
        return Models.recorded({})


def _job(key: PlanKey) -> Job:
    """A job that may run the plan."""
    return Job(
        "",
        0.0,
        model=key.model,
        gpus=key.gpus,
        global_batch=key.global_batch,
        seq_len=key.seq_len,
        iterations=1.0,
        framework=key.framework or None,
        precision=key.precision or None,
        plan_options=key.plan_options or None,
    )


def _headroom(manifest: Mapping[str, Any]) -> float:
    """The memory headroom of a run; 0, that of runs before there was one, if the manifest states none."""
    headroom = manifest.get("memory_headroom", 0.0)
    if isinstance(headroom, bool) or not isinstance(headroom, int | float):
        raise UserError(f"memory_headroom={shown(headroom)}: must be a number")
    return checked_headroom(headroom)


def _why_not_table(table: object, digest: object) -> str:
    if not isinstance(table, str):
        return f"table={shown(table)}: must name a file"
    try:
        is_same_file = sha256(table, LARGEST_FILE) == digest
    except (OSError, ValueError) as error:
        return f"{table:.300}: cannot be read: {getattr(error, 'strerror', None) or error}"
    return "" if is_same_file else f"{table:.300} is not what the run read"
