"""How a run came about: the fields of `manifest.json`, apart from the hashes of the other files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from clustersim.bounds import Bound
from clustersim.engine import RunSetup
from clustersim.engine.fleet import Routing
from clustersim.records import COMPLETE, Recorder
from clustersim.scheduler import Scheduler
from clustersim.speed import Speed
from itertime.io import sha256
from itertime.spec import profile_path
from traces.sidecars import report_of, since_1970

from .config import RunConfig
from .fingerprints import policy_hash, recipe_hash, systems_hash, versions
from .source import Trace

__all__ = ["Ending", "bound_stated", "manifest_of", "profile_of", "source_hashes", "source_of"]


class Ending(NamedTuple):
    """How a run ended (`COMPLETE`, `STOPPED`, `INTERRUPTED`), and the seconds that it and its policy took."""

    status: str
    wall_s: float
    policy_wall_s: float


def source_hashes(config: RunConfig, policy: str | type[Scheduler]) -> dict[str, str | None]:
    """Current hashes of the files of a named policy and of the throughput table; None without one."""
    return {
        "policy_sha256": policy_hash(policy) if isinstance(policy, str) else None,
        "table_sha256": None if config.table is None else sha256(config.table),
    }


def manifest_of(
    trace: Trace, config: RunConfig, setup: RunSetup, recorder: Recorder, ending: Ending,
    hashes: Mapping[str, str | None], bound: Bound | None,
) -> dict[str, Any]:  # fmt: skip
    """Plain JSON data. `hashes`: those of `source_hashes` when the run began. `bound`: None if it was not
    computed.
    """
    cluster = setup.cluster
    return {
        "versions": versions(),
        "command": sys.argv,
        "seed": setup.seed,
        "policy": config.policy,
        "params": config.params,
        "elastic": setup.scheduler.elastic,
        **({"packs": setup.packs} if setup.packs > 1 else {}),
        "planner": setup.planner,
        "memory_headroom": config.memory_headroom,
        "type_slowdown": config.type_slowdown,
        "cluster": {"shape": cluster.shape, "gpus": cluster.gpus, "system": cluster.system},
        "placement": config.placement,
        "overheads": None if config.overheads is None else setup.overheads.stated(),
        "failures": None if setup.failures is None else setup.failures.stated(),
        "estimates": None if setup.estimates is None else setup.estimates.stated(),
        "sharing": None if setup.sharing is None else setup.sharing.stated(),
        "services_preempt": setup.services_preempt,
        "calendar": config.calendar,
        "quotas": dict(setup.quotas),
        **_routing(config),
        **({} if setup.spot is None else {"spot": setup.spot.stated()}),
        **({"reservations": config.reservations} if config.reservations else {}),
        "window": config.window,
        "price_usd_per_gpu_h": config.price_usd_per_gpu_h,
        "decision_interval_s": config.decision_interval_s,
        "step_time": None if setup.step_times is None else setup.step_times.stated(),
        **({} if config.variability is None else {"variability": config.variability}),
        "until_s": setup.until_s,
        "trace": source_of(trace),
        "table": config.table,
        "models": trace.models.document(),
        **hashes,
        "profile": profile_of(setup.speed),
        "systems_sha256": systems_hash(cluster, setup.speed),
        "oracle_used": recorder.oracle_used,
        **({} if recorder.predictions is None else {"predictions": recorder.predictions}),
        "complete": ending.status == COMPLETE,
        "status": ending.status,
        "end_s": recorder.end_s,
        "bound": None if bound is None else bound_stated(bound),
        "timings": {
            "wall_s": ending.wall_s,
            "policy_wall_s": ending.policy_wall_s,
            "bound_s": None if bound is None else bound.seconds,
        },
    }


def source_of(trace: Trace) -> dict[str, Any]:
    """Where the jobs come from. `since_1970_s`: when the clock of an imported log starts, if it is known."""
    source: dict[str, Any] = {"path": trace.path, "sha256": trace.sha256, "jobs": len(trace.jobs)}
    if trace.recipe is not None:
        source |= {"recipe": dict(trace.recipe), "recipe_sha256": recipe_hash(trace.recipe)}
    report = report_of(Path(trace.path)) if trace.path else None
    if report is not None and (starts_s := since_1970(report[1])) is not None:
        source["since_1970_s"] = starts_s
    return source


def _routing(config: RunConfig) -> dict[str, Any]:
    """The routing of a fleet, with a hash of each policy that it names; nothing without one."""
    if config.routing is None:
        return {}
    routing = Routing.of(config.routing)
    hashes = {name: policy_hash(policy) for name, policy in routing.policies.items()}
    return {"routing": routing.stated(), "routing_sha256": hashes}


def bound_stated(bound: Bound) -> dict[str, Any]:
    """The values of a bound and their method, which depend on trace and settings alone."""
    return {name: value for name, value in asdict(bound).items() if name != "seconds"}


def profile_of(speed: Speed) -> dict[str, str] | None:
    """The profile of the nodes: of the first GPU type that has one, None if none has."""
    if speed.planner is None:
        return None
    file = profile_path(speed.planner.system.profile)
    return {"name": speed.planner.profile.name, "sha256": sha256(file)}
