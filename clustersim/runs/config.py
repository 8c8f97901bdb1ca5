"""The settings of one run, checked before anything is simulated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from clustersim.bounds import METHODS
from clustersim.cluster import Cluster, load_cluster
from clustersim.cluster.networks import NETWORKS
from clustersim.energy import Energy
from clustersim.engine.fleet import Routing
from clustersim.failures import (
    Failures,
    Maintenance,
    Reservation,
    Spot,
    read_calendar,
    read_reservations,
    reservations_of,
)
from clustersim.overheads import Overheads
from clustersim.placement import PLACERS, placer
from clustersim.scheduler import Scheduler
from clustersim.scheduler.cluster_state import checked_quotas
from clustersim.sites import cluster_of_site, site_of
from clustersim.speed import Interference, NodeSpeeds, StepTimes, Variability
from itertime.costs import MEMORY_HEADROOM
from itertime.errors import UnknownName, UserError
from itertime.io import parse_yaml, quoted
from itertime.planning import FORMER_NAMES
from traces.estimates import Estimates

from .settings import Entry, Setting
from .sites import changed_site, with_site

__all__ = ["NO_BOUND", "SETTINGS", "RunConfig", "values_of"]

NO_BOUND = "none"
"""The value of the setting `bound` with which no bound is computed."""

_REMEDIES = {
    "string_type": "must be text; put it in quotes if it looks like a number or a date",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "dict_type": "is set part by part: NAME.PART=VALUE",
    "list_type": "must be a list of entries, or a file FILE.yaml",
}
"""Messages by pydantic's type of the error."""

Parts = dict[str, Any]


# Checks that pydantic has not


def _refuse_truth(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value


def _refuse_infinity(params: Parts) -> Parts:
    """Parameters must be JSON, for the manifest."""
    try:
        json.dumps(params, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise ValueError("parameters must be finite numbers, text, lists or mappings") from None
    return params


def _refuse_unknown_method(bound: str) -> str:
    if bound not in (*METHODS, NO_BOUND):
        raise UnknownName("bound", bound, (*METHODS, NO_BOUND))
    return bound


def _refuse_unknown_placement(name: str) -> str:
    return placer(name).name


def _refuse_wrong_quotas(quotas: Any) -> Any:
    if isinstance(quotas, dict):
        checked_quotas(quotas)  # its errors name the tenant
    return quotas


def _calendar_of_file(calendar: Any) -> Any:
    return read_calendar(calendar) if isinstance(calendar, str) else calendar


def _reservations_of_file(reservations: Any) -> Any:
    return read_reservations(reservations) if isinstance(reservations, str) else reservations


def _folders_of_one(folders: Any) -> Any:
    return [folders] if isinstance(folders, str) else folders


def _with_factors_of_file(variability: Parts | None) -> Parts | None:
    """All parts of the setting, with the table of factors read from its file, so that it is read once."""
    return None if variability is None else Variability.of(variability).stated()


NoBoolean = BeforeValidator(_refuse_truth)


def _reservations(entries: list[Parts], cluster: Cluster, seed: int) -> tuple[Reservation, ...]:
    """The reservations of entries, whose nodes may be those of a GPU type."""
    pools = {pool.gpu_type: range(pool.first, pool.first + pool.nodes) for pool in cluster.pools}
    return reservations_of(entries, cluster.sizes, pools)


class RunConfig(BaseModel):
    """What to simulate, apart from the trace. Unknown settings are errors.

    Each field is the declaration of a setting (see `Setting`); `SETTINGS` has them by name.
    """

    # Before pydantic 2.10 names that start with model_ are reserved, and `model_path` is one.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    policy: Annotated[
        str,
        Setting(
            meaning="a registered name, or `file.py:Class`; not by `--set`",
            default="needed",
            option="--policy",
            entry=Entry.NO,
        ),
    ]
    params: Annotated[
        Parts,
        AfterValidator(_refuse_infinity),
        Setting(
            meaning="a parameter of the policy (`params` in the manifest). In `compare` it applies to all "
            "policies; `elasticflow.guard_s=2` or `mine.py:Mine.patience_s=60` applies to one",
            default="the policy's",
            assigned="policy.NAME",
            entry=Entry.NEEDED,
        ),
    ] = Field(default_factory=dict)
    cluster: Annotated[
        str,
        Setting(
            meaning="a shape, or a file ([clusters.md](clusters.md))", option="--cluster", entry=Entry.NO
        ),
    ] = "n128g8"
    network: Annotated[
        str | None,
        Setting(
            meaning=f"{', '.join(NETWORKS)} ([clusters.md](clusters.md))",
            default="what the cluster file says, else ideal",
            entry=Entry.NO,
        ),
    ] = None
    system: Annotated[
        str,
        Setting(
            meaning="the `itertime` system of its nodes; `system.KEY` changes one value, as in "
            "`system.nic_gbps=400` ([keys](models.md))",
            option="--system",
            entry=Entry.NO,
        ),
    ] = "dgx-a100-80gb"
    site: Annotated[
        Parts | None,
        Setting(
            meaning="a site of Slurm, in place or a file: its nodes are the cluster, its rules those of the "
            "policy `slurm`; `site.PATH` changes one value ([sites.md](sites.md#other-values-of-a-site))",
            default="none",
            option="--site",
            assigned="site.PATH",
        ),
    ] = None
    planner: Annotated[
        str | None,
        Setting(
            meaning="how jobs are planned for a number of GPUs: best, vtrain, vtrain-paper, data-parallel, "
            "data-parallel-tuned, data-parallel-best, megatron, reconfigurable. `best` is the fastest plan "
            "that `itertime search` finds, `vtrain` that of `itertime search --space vtrain` (1F1B, no ZeRO, "
            "no sequence parallelism), whose former name is `3d`, and `vtrain-paper` that of `itertime "
            "search --rules vtrain`",
            default="the policy's",
            option="--planner",
            field="planner",
            of_policy=True,
            entry=Entry.NEEDED,
        ),
    ] = None
    type_slowdown: Annotated[
        float | None,
        Field(ge=1, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="on several GPU types: how many times slower than on its best type a job may start if "
            "its policy names none; null for no limit ([clusters.md](clusters.md#gpu-types))",
            field="type_slowdown",
            entry=Entry.NEEDED,
        ),
    ] = 2.0
    memory_headroom: Annotated[
        float,
        Field(ge=0, lt=1, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="share of a GPU's memory that plans leave free "
            "([why](itertime.md#memory-costsmemory)); 0 fills it",
            entry=Entry.NEEDED,
        ),
    ] = MEMORY_HEADROOM
    placement: Annotated[
        str,
        AfterValidator(_refuse_unknown_placement),
        Setting(
            meaning="pack, spread, any, topology or buddy ([clusters.md](clusters.md))",
            option="--placement",
            field="placement",
            resolve=lambda name, cluster, seed: PLACERS[name],
            entry=Entry.NEEDED,
        ),
    ] = "pack"
    overheads: Annotated[
        Parts | None,
        Setting(
            meaning="what starts, restarts and resizes cost; null for nothing ([overheads.md](overheads.md))",
            default="default",
            option="--overheads",
            off_option="--no-overheads",
            kind=Overheads,
            parts_beside=("preset",),
            field="overheads",
            resolve=lambda parts, cluster, seed: Overheads.of(parts, cluster.gpus),
            entry=Entry.NEEDED,
        ),
    ] = Field(default_factory=dict)
    failures: Annotated[
        Parts | None,
        Setting(
            meaning="failures of nodes and jobs ([failures.md](failures.md))",
            default="nothing fails",
            kind=Failures,
            parts_beside=("preset",),
            field="failures",
            entry=Entry.NEEDED,
        ),
    ] = None
    sharing: Annotated[
        Parts | None,
        Setting(
            meaning="how jobs on one GPU slow each other down: `slowdown`, `pairs`, `profiles` "
            "([sharing.md](sharing.md))",
            default="not at all",
            kind=Interference,
            field="sharing",
            entry=Entry.ALWAYS,
        ),
    ] = None
    services_preempt: Annotated[
        bool,
        Setting(
            meaning="whether running jobs are stopped for instances of services "
            "([sharing.md](sharing.md#inference-services))",
            field="services_preempt",
            entry=Entry.ALWAYS,
        ),
    ] = True
    estimates: Annotated[
        Parts | None,
        Setting(
            meaning="how far off the work is that jobs state. With `sigma` users misstate it by a log-normal "
            "factor of this sigma ([traces.md](traces.md#misstated-work)). With `scale` all estimates and "
            "time limits are shorter or longer. With `predictor` run times are predicted from history: "
            "`history`, `rolling`, `last-two` or `blend`, with `cold_s` and `weight` "
            "([traces.md](traces.md#predicted-run-times))",
            default="the policy's, else as in the trace",
            kind=Estimates,
            field="estimates",
            of_policy=True,
            entry=Entry.ALWAYS,
        ),
    ] = None
    calendar: Annotated[
        list[Parts],
        BeforeValidator(_calendar_of_file),
        Setting(
            meaning="maintenance and capacity over time, in place or a file ([failures.md](failures.md))",
            default="none",
            field="maintenance",
            resolve=lambda entries, cluster, seed: Maintenance.of(entries, cluster.nodes),
            entry=Entry.NEEDED,
        ),
    ] = Field(default_factory=list)
    routing: Annotated[
        Parts | None,
        Setting(
            meaning="how jobs are sent to the clusters of a fleet, each with a policy of its own "
            "([fleets.md](fleets.md#routing))",
            default="one policy for all",
            kind=Routing,
        ),
    ] = None
    spot: Annotated[
        Parts | None,
        Setting(
            meaning="nodes that are reclaimed with notice ([fleets.md](fleets.md#spot-nodes))",
            default="none",
            kind=Spot,
            checked=False,  # its nodes are those of a cluster
            field="spot",
            resolve=lambda parts, cluster, seed: Spot.of(parts, cluster.nodes, cluster.spot_nodes),
        ),
    ] = None
    reservations: Annotated[
        list[Parts],
        BeforeValidator(_reservations_of_file),
        Setting(
            meaning="nodes that are for some jobs alone at some times, in place or a file "
            "([fleets.md](fleets.md#reservations))",
            default="none",
            field="reservations",
            resolve=_reservations,
        ),
    ] = Field(default_factory=list)
    quotas: Annotated[
        dict[str, int],
        BeforeValidator(_refuse_wrong_quotas),
        Setting(
            meaning="GPUs promised to a tenant ([failures.md](failures.md))",
            default="none",
            assigned="quotas.TENANT",
            field="quotas",
            resolve=lambda quotas, cluster, seed: quotas and checked_quotas(quotas, cluster.gpus),
            entry=Entry.NEEDED,
        ),
    ] = Field(default_factory=dict)
    table: Annotated[
        str | None,
        Setting(
            meaning="a throughput table: `model, global_batch, gpus, iterations_per_s`",
            default="none",
            option="--table",
            entry=Entry.NEEDED,
        ),
    ] = None
    model_path: Annotated[
        list[str],
        BeforeValidator(_folders_of_one),
        Setting(
            meaning="folders of model files, which the trace names without ending "
            "([traces.md](traces.md)); the manifest keeps the models",
            default="none",
            option="--model-path",
            entry=Entry.NO,
        ),
    ] = Field(default_factory=list)
    decision_interval_s: Annotated[
        float | None,
        Field(ge=0.001, le=1e9, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="the policy decides at multiples of it on the trace's clock, in seconds, instead of at "
            "every event ([overheads.md](overheads.md#decisions-in-rounds))",
            default="none",
            field="decision_interval_s",
            entry=Entry.ALWAYS,
        ),
    ] = None
    step_time: Annotated[
        Parts | None,
        Setting(
            meaning="how much slower than predicted jobs run: `slowdown`, `spread`, `worker_cv` "
            "([overheads.md](overheads.md#interference-and-unequal-steps))",
            default="as predicted",
            kind=StepTimes,
            field="step_times",
            entry=Entry.ALWAYS,
        ),
    ] = None
    variability: Annotated[
        Parts | None,
        AfterValidator(_with_factors_of_file),
        Setting(
            meaning="GPUs of one type that differ in speed, by class of job: `sigma`, `classes`, `factors` "
            "([overheads.md](overheads.md#gpus-of-unequal-speed))",
            default="none",
            kind=Variability,
            field="node_speeds",
            resolve=lambda parts, cluster, seed: NodeSpeeds(Variability.of(parts), cluster, seed),
        ),
    ] = None
    until_s: Annotated[
        float | None,
        Field(ge=0, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="end of the run, in seconds on the trace's clock",
            default="none",
            option="--until",
            field="until_s",
            entry=Entry.NEEDED,
        ),
    ] = None
    warmup_s: Annotated[
        float,
        Field(ge=0, le=1e12, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="beginning of a window whose metrics are stated beside those of the whole run, in "
            "seconds after the first submission ([metrics.md](metrics.md)); a grid has `window` instead",
            option="--warmup",
            entry=Entry.NO,
        ),
    ] = 0.0
    measure_s: Annotated[
        float | None,
        Field(gt=0, le=1e12, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="length of that window, in seconds",
            default="to the last submission",
            option="--measure",
            entry=Entry.NO,
        ),
    ] = None
    price_usd_per_gpu_h: Annotated[
        float | None,
        Field(ge=0, le=1e9, allow_inf_nan=False),
        NoBoolean,
        Setting(
            meaning="price of a GPU-hour in `cost_usd`; with a cluster file that of GPU types for which "
            "neither the file nor a system states one",
            default="as the system of the nodes states, or 5",
            field="price",
            entry=Entry.NEEDED,
        ),
    ] = None
    energy: Annotated[
        Parts | None,
        Setting(
            meaning="the power that GPUs take, for the metric `energy_kwh`: `limit_w`, `idle_share`, `load`, "
            "`pue` ([metrics.md](metrics.md#energy))",
            default="no such metric",
            kind=Energy,
            field="energy",
            resolve=lambda parts, cluster, seed: Energy.on(parts, cluster),
        ),
    ] = None
    bound: Annotated[
        str,
        AfterValidator(_refuse_unknown_method),
        Setting(
            meaning="how the best possible results are bounded ([bounds.md](bounds.md)); none computes no "
            "bound",
            off_option="--no-bound",
            entry=Entry.NO,
        ),
    ] = "auto"
    seed: Annotated[
        int,
        Field(ge=0),
        NoBoolean,
        Setting(
            meaning="seed of node and job failures, of errors in stated work and of the spread of step times "
            "and of the speeds of GPUs; a policy gets none",
            option="--seed",
            field="seed",
            entry=Entry.NEEDED,
        ),
    ] = 0

    @model_validator(mode="before")
    @classmethod
    def _with_document_of_site(cls, values: Any) -> Any:
        return with_site(values) if isinstance(values, Mapping) and values.get("site") is not None else values

    def stated_cluster(self) -> Cluster:
        """The cluster that the settings name: that of the site, if one is stated. UserError if both are."""
        if self.site is None:
            return load_cluster(self.cluster, self.system, self.network)
        for name in ("cluster", "system"):
            value = getattr(self, name)
            if value != RunConfig.model_fields[name].default:
                raise UserError(
                    f"{name}={quoted(value)}: contradicts site, which states the nodes; leave {name} out, or "
                    "change their number by site.nodes"
                )
        cluster = cluster_of_site(site_of(self.site))
        return cluster if self.network is None else Cluster.of(cluster.groups, self.network)

    @property
    def window(self) -> dict[str, float | None] | None:
        """The window of measurement, by the names of its settings; None without one."""
        if not self.warmup_s and self.measure_s is None:
            return None
        return {"warmup_s": self.warmup_s, "measure_s": self.measure_s}

    @classmethod
    def make(cls, settings: list[str] | None = None, **values: Any) -> RunConfig:
        """From keyword arguments, then assignments `a.b=c`, as in `--set`.

        None leaves a setting, or a part of one, as if it were not stated, unless None is one of its values.
        UserError names the setting and the value.
        """
        for text in settings or []:
            _assign(values, text)
        for name in values:
            if name not in SETTINGS:
                raise UnknownName("setting", name, [setting for setting in SETTINGS if setting != "params"])
        try:
            return cls(**dict(_stated(values)))
        except ValidationError as error:
            details = error.errors()[0]
            where = ".".join(str(key) for key in details["loc"])
            remedy = _REMEDIES.get(details["type"], details["msg"].removeprefix("Value error, ").lower())
            raise UserError(f"setting {where}={quoted(details.get('input'))}: {remedy}") from None


SETTINGS: Mapping[str, Setting] = {
    name: next(item for item in field.metadata if isinstance(item, Setting))
    for name, field in RunConfig.model_fields.items()
}
"""The declaration of every setting by its name, in the order of the fields of `RunConfig`."""


def values_of(config: RunConfig, scheduler: Scheduler) -> dict[str, Any]:
    """The value of every setting; of the policy where the configuration leaves it to the policy."""
    values = {}
    for name, setting in SETTINGS.items():
        value = getattr(config, name)
        values[name] = getattr(scheduler, name) if setting.of_policy and value is None else value
    values["planner"] = FORMER_NAMES.get(values["planner"], values["planner"])
    return values


def _stated(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The settings that are stated: not those that are None, nor all of whose parts are, without its being
    a value of theirs. Paths become text.
    """
    for name, value in values.items():
        if isinstance(value, PurePath):
            value = str(value)
        if value is None and type(None) not in get_args(RunConfig.model_fields[name].annotation):
            continue
        parts = SETTINGS[name].optional_parts
        if parts is not None and isinstance(value, Mapping) and None in value.values():
            stated = {part: item for part, item in value.items() if item is not None or parts.get(part, True)}
            if stated:
                yield name, stated
        else:
            yield name, value


def _parsed(text: str, raw: str) -> Any:
    """The value in an assignment. UserError if it is not YAML."""
    try:
        return parse_yaml(raw)
    except ValueError:
        raise UserError(f"--set {quoted(text)}: the value is not valid YAML") from None


def _assign(values: dict[str, Any], text: str) -> None:
    """Apply `a.b=c`, with a value in YAML. `policy.x` is short for `params.x`; `system.x` changes a value of
    the system, `site.x.y` one of the site.
    """
    key, equals, raw = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UserError(
            f"--set {quoted(text)}: write NAME=VALUE, as in overheads.launch_s=10 or policy.guard_s=2"
        )
    if parts[0] == "policy" and len(parts) > 1:
        parts[0] = "params"
    if parts[0] == "site" and len(parts) > 1 and raw.strip():
        values["site"] = changed_site(values.get("site"), ".".join(parts[1:]), _parsed(text, raw))
        return
    if parts[0] == "system" and len(parts) > 1 and raw.strip():
        # A change is part of the system's name, so every reader of the manifest applies it.
        system = values.get("system") or RunConfig.model_fields["system"].default
        values["system"] = f"{system},{'.'.join(parts[1:])}={raw.strip()}"
        return
    value = _parsed(text, raw)
    if not raw.strip():
        raise UserError(f"--set {quoted(text)}: the value is missing; write null for none, '' for empty text")
    if parts == ["policy"]:
        raise UserError(f"--set {quoted(text)}: name the policy with --policy")
    if len(parts) == 1:
        values[parts[0]] = value
        return
    if len(parts) > 2:
        raise UserError(f"--set {quoted(text)}: settings are nested one level deep at most")
    inner = values.get(parts[0])
    if parts[0] == "overheads" and "overheads" in values and inner is None:
        raise UserError(f"--set {quoted(text)}: contradicts --no-overheads; leave one of them out")
    values[parts[0]] = {**(inner if isinstance(inner, dict) else {}), parts[1]: value}
