"""How a run came about: the fields of `manifest.json`, apart from the hashes of the other files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from clustersim.bounds import Bound
from clustersim.cluster import Cluster
from clustersim.engine import RunSetup
from clustersim.engine.fleet import Routing
from clustersim.records import COMPLETE, Recorder
from clustersim.scheduler import Scheduler
from clustersim.speed import Speed
from itertime.io import sha256
from itertime.spec import SHIPPED_PROFILES, load_profile, profile_path
from traces.sidecars import report_of, since_1970

from .config import SETTINGS, RunConfig, values_of
from .fingerprints import policy_hash, recipe_hash, systems_hash, versions
from .policies import algorithm_of
from .settings import Entry
from .source import Trace

__all__ = [
    "IN_SUMMARY",
    "Ending",
    "bound_stated",
    "manifest_of",
    "missing_entries",
    "profile_of",
    "source_hashes",
    "source_of",
    "summarised_entries",
]


GENERATED_FOR = ("load", "load_of", "gpus", "system", "planner")
"""What a manifest repeats of the recipe of a trace that lies in a file."""


class Ending(NamedTuple):
    """How a run ended (`COMPLETE`, `STOPPED`, `INTERRUPTED`), and the seconds that it and its policy took.
    `compile_s`: for compiling kernels or loading them, which `policy_wall_s` does not hold.
    """

    status: str
    wall_s: float
    policy_wall_s: float
    compile_s: float


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
    algorithm = algorithm_of(type(setup.scheduler))
    entries = {
        "policy": config.policy,
        **({} if algorithm is None else {"algorithm": algorithm}),
        "elastic": setup.scheduler.elastic,
        **({"packs": setup.packs} if setup.packs > 1 else {}),
        "cluster": {"shape": cluster.shape, "gpus": cluster.gpus, "system": cluster.system},
        **_settings(config, setup),
        **summarised_entries(trace, setup, recorder, bound),
        **({} if config.routing is None else _routing_hashes(config.routing)),
        "window": config.window,
        "trace": source_of(trace),
        "versions": versions(),
        "command": sys.argv,
        "models": {} if trace.models is None else trace.models.document(),
        **hashes,
        "profile": profile_of(cluster, setup.speed),
        "systems_sha256": systems_hash(cluster, setup.speed),
        "oracle_used": recorder.oracle_used,
        "idle_stops": recorder.idle_stops,
        "complete": ending.status == COMPLETE,
        "status": ending.status,
        "end_s": recorder.end_s,
        "timings": {
            "wall_s": ending.wall_s,
            "policy_wall_s": ending.policy_wall_s,
            "compile_s": ending.compile_s,
            "bound_s": None if bound is None else bound.seconds,
        },
    }
    return {name: entries[name] for name in _ORDER if name in entries}


def summarised_entries(
    trace: Trace, setup: RunSetup, recorder: Recorder, bound: Bound | None
) -> dict[str, Any]:
    """The entries of a manifest that a summary needs: those of `IN_SUMMARY`, and the bound."""
    other_types = _other_gpu_types(trace, setup.cluster, setup.speed)
    return {
        "price_usd_per_gpu_h": setup.price.usd_per_gpu_hour,
        "price_from": setup.price.origin,
        **({"other_gpu_types": other_types} if other_types else {}),
        **({} if recorder.predictions is None else {"predictions": recorder.predictions}),
        "bound": None if bound is None else bound_stated(bound),
    }


def missing_entries(manifest: Mapping[str, Any]) -> list[str]:
    """The entries that this program writes into every manifest and that `manifest` lacks, by name."""
    missing = [name for name in _ORDER if name not in manifest and _is_of_every_run(name)]
    for name, parts in (("versions", versions()), ("trace", ("path", "sha256", "jobs"))):
        entry = manifest.get(name)
        if isinstance(entry, Mapping):
            missing += [f"{name}.{part}" for part in parts if part not in entry]
    return missing


_FOLLOWERS = {
    "seed": "policy",
    "algorithm": "planner",
    "elastic": "planner",
    "packs": "planner",
    "memory_headroom": "type_slowdown",
    "cluster": "placement",
    "estimates": "sharing",
    "quotas": "routing",
    "routing_sha256": "spot",
    "window": "decision_interval_s",
    "price_usd_per_gpu_h": "decision_interval_s",
}
"""Entries that do not stand where the order of the settings would put them, with the entry that follows."""


def _in_order() -> list[str]:
    """The names of all entries, in the order that manifests have had from the beginning."""
    names = [name for name in SETTINGS if name not in ("table", "bound")]
    for name, follower in _FOLLOWERS.items():
        if name in names:
            names.remove(name)
        names.insert(names.index(follower), name)
    names.insert(names.index("price_usd_per_gpu_h") + 1, "price_from")
    of_files = ("models", "policy_sha256", "table_sha256", "profile", "systems_sha256")
    ending = ("oracle_used", "idle_stops", "predictions", "complete", "status", "end_s", "bound", "timings")
    return ["versions", "command", *names, "trace", "other_gpu_types", "table", *of_files, *ending]


_ORDER = _in_order()
IN_SUMMARY = ("price_usd_per_gpu_h", "price_from", "other_gpu_types", "predictions")
"""Entries that the summary repeats, where the manifest has them."""
_OF_SOME_RUNS = ("algorithm", "packs", "routing_sha256", "predictions", "price_from", "other_gpu_types")


def _is_of_every_run(name: str) -> bool:
    """Whether every manifest has an entry of this name. Settings without an entry of their own may be part
    of another one.
    """
    if name in SETTINGS and name not in ("policy", "cluster", "bound"):
        return SETTINGS[name].entry in (Entry.NEEDED, Entry.ALWAYS)
    return name not in _OF_SOME_RUNS


def _settings(config: RunConfig, setup: RunSetup) -> dict[str, Any]:
    """The settings that have an entry of their own, with every part."""
    entries = {}
    for name, value in values_of(config, setup.scheduler).items():
        setting, default = SETTINGS[name], RunConfig.model_fields[name].get_default(call_default_factory=True)
        absent = setting.entry is Entry.IF_STATED and value == default
        if setting.entry is not Entry.NO and not absent:
            if name == "price_usd_per_gpu_h":  # where it is not stated, that of the nodes
                value = setup.price.usd_per_gpu_hour
            if value is not None and setting.kind is not None:
                value = (getattr(setup, setting.field) if setting.field else setting.kind.of(value)).stated()
            entries[name] = value
    return entries


def source_of(trace: Trace) -> dict[str, Any]:
    """Where the jobs come from. `since_1970_s`: when the clock of an imported log starts, if it is known.
    `generated_for`: the load that the file of a generated trace was to offer, and where.
    """
    source: dict[str, Any] = {"path": trace.path, "sha256": trace.sha256, "jobs": len(trace.jobs)}
    if trace.recipe is not None:
        source |= {"recipe": dict(trace.recipe), "recipe_sha256": recipe_hash(trace.recipe)}
    report = report_of(Path(trace.path)) if trace.path else None
    if report is not None and (starts_s := since_1970(report[1])) is not None:
        source["since_1970_s"] = starts_s
    if report is not None and report[0] == "generate" and isinstance(report[1].get("recipe"), dict):
        recipe = report[1]["recipe"]
        source["generated_for"] = {name: recipe.get(name) for name in GENERATED_FOR}
    return source


def _other_gpu_types(trace: Trace, cluster: Cluster, speed: Speed) -> dict[str, int]:
    """How many jobs ask for GPUs of another type than the only one of the cluster, by that type, most jobs
    first. They run on the cluster's GPUs, and are charged their price.
    """
    system = None if cluster.mixed else speed.system_of(cluster.gpu_types[0])
    if system is None:
        return {}
    chips = {system.profile.partition("-")[0].lower(), *(pool.chip.lower() for pool in cluster.pools)} - {""}
    counts = Counter(job.gpu_type for job in trace.jobs if job.gpu_type)
    return {
        name: count for name, count in counts.most_common() if not any(chip in name.lower() for chip in chips)
    }


def _routing_hashes(routing: Mapping[str, Any]) -> dict[str, Any]:
    """A hash of each policy that the routing of a fleet names."""
    policies = Routing.of(routing).policies
    return {"routing_sha256": {name: policy_hash(policy) for name, policy in policies.items()}}


def bound_stated(bound: Bound) -> dict[str, Any]:
    """The values of a bound and their method, which depend on trace and settings alone."""
    stated = asdict(bound)
    del stated["seconds"]
    return stated


def profile_of(cluster: Cluster, speed: Speed) -> dict[str, str] | None:
    """The profile of the nodes: of the first GPU type that has one, None if none has."""
    for gpu_type in cluster.gpu_types:
        system = speed.system_of(gpu_type)
        if system is not None:
            shipped = system.profile in SHIPPED_PROFILES
            return dict(_shipped_profile(system.profile) if shipped else _stated_profile(system.profile))
    return None


def _stated_profile(profile: str) -> dict[str, str]:
    return {"name": load_profile(profile).name, "sha256": sha256(profile_path(profile))}


_shipped_profile = cache(_stated_profile)
"""The same for shipped profiles, which are read once: they are part of the program."""
