"""How a run came about: what `manifest.json` holds, but for what it says of the other files."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from traces.files import sha256, shown

from .config import RunConfig
from .failures import Failures
from .hashes import code_hash, policy_hash, recipe_hash, systems_hash
from .rundir import COMPLETE

if TYPE_CHECKING:
    from .runner import Trace
    from .scheduler import Scheduler
    from .simulation import Simulation
    from .speed import Speed

__all__ = ["is_of_this_code", "malformed_versions", "manifest_of", "source_hashes"]

_VERSIONS = {"clustersim": re.compile(r"\d[\w.+!-]*", re.ASCII), "code": re.compile("[0-9a-f]{64}")}
"""Of what a run states of the program that made it, the form."""


def source_hashes(config: RunConfig, policy: str | type[Scheduler]) -> dict[str, str | None]:
    """Of a policy that is named, and of the throughput table, as they are now; None where there is none."""
    return {
        "policy_sha256": policy_hash(policy) if isinstance(policy, str) else None,
        "table_sha256": None if config.table is None else sha256(config.table),
    }


def manifest_of(
    trace: Trace, config: RunConfig, simulation: Simulation, status: str, wall_s: float,
    hashes: Mapping[str, str | None],
) -> dict[str, Any]:  # fmt: skip
    """Plain JSON data. `status`: how the run ended; `hashes`: of its sources, when it began."""
    cluster = simulation.cluster
    planner = simulation.scheduler.planner if config.planner is None else config.planner
    source: dict[str, Any] = {"path": trace.path, "sha256": trace.sha256, "jobs": len(trace.jobs)}
    if trace.recipe is not None:
        source |= {"recipe": dict(trace.recipe), "recipe_sha256": recipe_hash(trace.recipe)}
    return {
        "versions": _versions(),
        "command": sys.argv,
        "seed": config.seed,
        "policy": config.policy,
        "params": config.params,
        "planner": planner,
        "cluster": {"shape": cluster.shape, "gpus": cluster.gpus, "system": cluster.system},
        "placement": config.placement,
        "overheads": None if config.overheads is None else simulation.overheads.stated(),
        "failures": None if config.failures is None else Failures.of(config.failures).stated(),
        "calendar": config.calendar,
        "quotas": dict(simulation.kernel.facts.quotas),
        "price_usd_per_gpu_h": config.price_usd_per_gpu_h,
        "until_s": config.until_s,
        "trace": source,
        "table": config.table,
        **hashes,
        "profile": _profile_of(simulation.speed),
        "systems_sha256": systems_hash(cluster, simulation.speed),
        "oracle_used": simulation.recorder.oracle_used,
        "complete": status == COMPLETE,
        "status": status,
        "end_s": simulation.recorder.end_s,
        "timings": {"wall_s": wall_s, "policy_wall_s": simulation.kernel.policy.wall_s},
    }  # fmt: skip


def is_of_this_code(manifest: Mapping[str, Any]) -> bool:
    """Whether a run states that it was made by the program that is installed here."""
    stated = manifest.get("versions")
    return isinstance(stated, dict) and stated.get("code") == code_hash()


def malformed_versions(manifest: Mapping[str, Any]) -> str:
    """What is wrong with the versions that a run states; empty if a program could have written them."""
    stated = manifest.get("versions")
    if not isinstance(stated, dict):
        return f"versions is {shown(stated)}, not what made the run"
    for name, form in _VERSIONS.items():
        if not isinstance(stated.get(name), str) or not form.fullmatch(stated[name]):
            return f"versions.{name} is {shown(stated.get(name))}, which no program writes"
    return ""


def _versions() -> dict[str, str]:
    return {
        "clustersim": version("clustersim"), "code": code_hash(), "python": platform.python_version(),
        "numpy": version("numpy"), "simpy": version("simpy"),
    }  # fmt: skip


def _profile_of(speed: Speed) -> dict[str, str] | None:
    """The profile of the nodes: of the first GPU type that has one, None if none has."""
    from itertime.profile import profile_path

    if speed.planner is None:
        return None
    file = profile_path(speed.planner.system.profile)
    return {"name": speed.planner.profile.name, "sha256": sha256(file)}
