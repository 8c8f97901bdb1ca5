"""The settings of one run, checked before anything is simulated."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from clustersim.bounds import METHODS
from clustersim.engine.fleet import Routing
from clustersim.failures import Failures, read_calendar, read_reservations
from clustersim.overheads import Overheads
from clustersim.scheduler.cluster_state import checked_quotas
from clustersim.speed import Interference, StepTimes, Variability
from itertime.costs import MEMORY_HEADROOM
from itertime.errors import UnknownName, UserError
from itertime.io import parse_yaml, quoted
from traces.estimates import Estimates

__all__ = ["NO_BOUND", "RunConfig"]

NO_BOUND = "none"
"""The value of the setting `bound` with which no bound is computed."""

_WANTED = {
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


class RunConfig(BaseModel):
    """What to simulate, apart from the trace. Unknown settings are errors.

    | setting | value |
    |---|---|
    | `policy`, `params` | a registered name or `file.py:Class`, and its keyword arguments |
    | `cluster` | a shape like `n128g8` with nodes of `system`, or a cluster file |
    | `system` | a system's name or file, with changes behind commas: `dgx-h100,nic_gbps=400` |
    | `network` | ideal, tiers or contention; None: that of the cluster file |
    | `planner` | None: the policy's own |
    | `type_slowdown` | on several GPU types: how many times slower than on its best type a job may start |
    | `memory_headroom` | share of a GPU's memory that plans leave free |
    | `placement` | a placer: pack, spread, topology, buddy or any |
    | `overheads` | constants of `Overheads` to replace, those of `preset` if given; None: no overheads |
    | `failures` | parameters of `Failures` to replace, likewise; None: nothing fails |
    | `sharing` | parameters of `Interference`: how jobs on one GPU slow each other down; None: not at all |
    | `services_preempt` | whether running jobs are stopped for instances of services |
    | `estimates` | parameters of `Estimates`: how far off the work is that jobs state; None: as the trace |
    | `calendar` | planned changes of nodes, as a list or a file |
    | `routing` | parameters of `Routing`: how a fleet sends jobs to its clusters; None: one policy for all |
    | `spot` | parameters of `Spot`: nodes that are reclaimed with notice; None: none are |
    | `reservations` | nodes that are for some jobs alone, as a list or a file |
    | `quotas` | GPUs promised to tenants, by tenant |
    | `table` | a throughput table (file) |
    | `model_path` | folders of model files, which jobs name without ending |
    | `decision_interval_s` | the policy decides at its multiples on the trace's clock; None: at every event |
    | `step_time` | parameters of `StepTimes`: how much slower than predicted jobs run; None: as predicted |
    | `variability` | parameters of `Variability`: GPUs of one type that differ in speed; None: they do not |
    | `until_s` | end of the run on the trace's clock; None: when no event is left |
    | `warmup_s`, `measure_s` | a window of measurement (`clustersim.analysis.windows`); 0, None: none |
    | `price_usd_per_gpu_h` | US dollars per GPU-hour, for the cost of a run |
    | `bound` | a method of `clustersim.bounds` for the best possible results; auto or none |
    | `seed` | of everything random |
    """

    # Before pydantic 2.10 names that start with model_ are reserved, and `model_path` is one.
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    policy: str
    params: dict[str, Any] = Field(default_factory=dict)
    cluster: str = "n128g8"
    network: str | None = None
    system: str = "dgx-a100-80gb"
    planner: str | None = None
    type_slowdown: float | None = Field(default=2.0, ge=1, allow_inf_nan=False)
    memory_headroom: float = Field(default=MEMORY_HEADROOM, ge=0, lt=1, allow_inf_nan=False)
    placement: str = "pack"
    overheads: dict[str, Any] | None = Field(default_factory=dict)
    failures: dict[str, Any] | None = None
    sharing: dict[str, Any] | None = None
    services_preempt: bool = True
    estimates: dict[str, Any] | None = None
    calendar: list[dict[str, Any]] = Field(default_factory=list)
    routing: dict[str, Any] | None = None
    spot: dict[str, Any] | None = None
    reservations: list[dict[str, Any]] = Field(default_factory=list)
    quotas: dict[str, int] = Field(default_factory=dict)
    table: str | None = None
    model_path: list[str] = Field(default_factory=list)
    decision_interval_s: float | None = Field(default=None, ge=0.001, le=1e9, allow_inf_nan=False)
    step_time: dict[str, Any] | None = None
    variability: dict[str, Any] | None = None
    until_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    warmup_s: float = Field(default=0.0, ge=0, le=1e12, allow_inf_nan=False)
    measure_s: float | None = Field(default=None, gt=0, le=1e12, allow_inf_nan=False)
    price_usd_per_gpu_h: float = Field(default=5.0, ge=0, le=1e9, allow_inf_nan=False)
    bound: str = "auto"
    seed: int = Field(default=0, ge=0)

    @field_validator("overheads")
    @classmethod
    def _are_overheads(cls, overheads: dict[str, Any] | None) -> dict[str, Any] | None:
        if overheads is not None:
            Overheads.of(overheads)  # its errors name the constant
        return overheads

    @field_validator("failures")
    @classmethod
    def _are_failures(cls, failures: dict[str, Any] | None) -> dict[str, Any] | None:
        if failures is not None:
            Failures.of(failures)
        return failures

    @field_validator("estimates")
    @classmethod
    def _are_estimates(cls, estimates: dict[str, Any] | None) -> dict[str, Any] | None:
        if estimates is not None:
            Estimates.of(estimates)
        return estimates

    @field_validator("sharing")
    @classmethod
    def _is_interference(cls, sharing: dict[str, Any] | None) -> dict[str, Any] | None:
        if sharing is not None:
            Interference.of(sharing)
        return sharing

    @field_validator("step_time")
    @classmethod
    def _are_step_times(cls, step_time: dict[str, Any] | None) -> dict[str, Any] | None:
        if step_time is not None:
            StepTimes.of(step_time)
        return step_time

    @field_validator("variability")
    @classmethod
    def _is_variability(cls, variability: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if variability is None else Variability.of(variability).stated()  # a table is read once

    @field_validator("routing")
    @classmethod
    def _is_a_routing(cls, routing: dict[str, Any] | None) -> dict[str, Any] | None:
        if routing is not None:
            Routing.of(routing)
        return routing

    @field_validator("calendar", mode="before")
    @classmethod
    def _may_be_a_file(cls, calendar: Any) -> Any:
        return read_calendar(calendar) if isinstance(calendar, str) else calendar

    @field_validator("reservations", mode="before")
    @classmethod
    def _may_name_a_file(cls, reservations: Any) -> Any:
        return read_reservations(reservations) if isinstance(reservations, str) else reservations

    @field_validator("bound")
    @classmethod
    def _is_a_way_to_bound(cls, bound: str) -> str:
        if bound not in (*METHODS, NO_BOUND):
            raise UnknownName("bound", bound, (*METHODS, NO_BOUND))
        return bound

    @field_validator("quotas", mode="before")
    @classmethod
    def _are_quotas(cls, quotas: Any) -> Any:
        if isinstance(quotas, dict):
            checked_quotas(quotas)  # its errors name the tenant
        return quotas

    @field_validator(
        "decision_interval_s",
        "until_s",
        "warmup_s",
        "measure_s",
        "price_usd_per_gpu_h",
        "memory_headroom",
        "type_slowdown",
        "seed",
        mode="before",
    )
    @classmethod
    def _is_no_truth(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("must be a number, not true or false")
        return value

    @field_validator("model_path", mode="before")
    @classmethod
    def _may_be_one_folder(cls, folders: Any) -> Any:
        return [folders] if isinstance(folders, str) else folders

    @field_validator("params")
    @classmethod
    def _can_be_written_down(cls, params: dict[str, Any]) -> dict[str, Any]:
        """Parameters must be JSON, for the manifest."""
        try:
            json.dumps(params, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise ValueError("parameters must be finite numbers, text, lists or mappings") from None
        return params

    @property
    def window(self) -> dict[str, float | None] | None:
        """The window of measurement, by the names of its settings; None without one."""
        if not self.warmup_s and self.measure_s is None:
            return None
        return {"warmup_s": self.warmup_s, "measure_s": self.measure_s}

    @classmethod
    def make(cls, settings: list[str] | None = None, **values: Any) -> RunConfig:
        """From keyword arguments, then assignments `a.b=c`, as in `--set`.

        UserError names the setting and the value.
        """
        for text in settings or []:
            _assign(values, text)
        for name in values:
            if name not in cls.model_fields:
                raise UnknownName("setting", name, [known for known in cls.model_fields if known != "params"])
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            what = _WANTED.get(first["type"], first["msg"].removeprefix("Value error, ").lower())
            raise UserError(f"setting {where}={quoted(first.get('input'))}: {what}") from None


def _assign(values: dict[str, Any], text: str) -> None:
    """Apply `a.b=c`, with a value in YAML. `policy.x` is short for `params.x`; `system.x` changes a value of
    the system.
    """
    key, equals, raw = text.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UserError(
            f"--set {quoted(text)}: write NAME=VALUE, as in overheads.launch_s=10 or policy.guard_s=2"
        )
    if parts[0] == "policy" and len(parts) > 1:
        parts[0] = "params"
    if parts[0] == "system" and len(parts) > 1 and raw.strip():
        # A change is part of the system's name, so every reader of the manifest applies it.
        system = values.get("system") or RunConfig.model_fields["system"].default
        values["system"] = f"{system},{'.'.join(parts[1:])}={raw.strip()}"
        return
    try:
        value = parse_yaml(raw)
    except ValueError:
        raise UserError(f"--set {quoted(text)}: the value is not valid YAML") from None
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
