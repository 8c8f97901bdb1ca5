"""How a run came about: the fields of `manifest.json`, apart from the hashes of the other files."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from itertime.profile import profile_path
from traces.files import sha256, shown

from .config import RunConfig
from .hashes import code_hash, policy_hash, recipe_hash, systems_hash
from .recorder import Recorder
from .run_result import COMPLETE
from .run_setup import RunSetup
from .scheduler import Scheduler
from .speed import Speed
from .trace_source import Trace

__all__ = ["Ending", "is_of_this_code", "malformed_versions", "manifest_of", "source_hashes"]

_VERSIONS = {"clustersim": re.compile(r"\d[\w.+!-]*", re.ASCII), "code": re.compile("[0-9a-f]{64}")}
"""The form of the versions by which a run identifies the program that made it."""


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
    hashes: Mapping[str, str | None],
) -> dict[str, Any]:  # fmt: skip
    """Plain JSON data. `hashes`: those of `source_hashes` when the run began."""
    cluster = setup.cluster
    source: dict[str, Any] = {"path": trace.path, "sha256": trace.sha256, "jobs": len(trace.jobs)}
    if trace.recipe is not None:
        source |= {"recipe": dict(trace.recipe), "recipe_sha256": recipe_hash(trace.recipe)}
    return {
        "versions": _versions(),
        "command": sys.argv,
        "seed": setup.seed,
        "policy": config.policy,
        "params": config.params,
        "planner": setup.planner,
        "cluster": {"shape": cluster.shape, "gpus": cluster.gpus, "system": cluster.system},
        "placement": config.placement,
        "overheads": None if config.overheads is None else setup.overheads.stated(),
        "failures": None if setup.failures is None else setup.failures.stated(),
        "calendar": config.calendar,
        "quotas": dict(setup.quotas),
        "price_usd_per_gpu_h": config.price_usd_per_gpu_h,
        "until_s": setup.until_s,
        "trace": source,
        "table": config.table,
        **hashes,
        "profile": _profile_of(setup.speed),
        "systems_sha256": systems_hash(cluster, setup.speed),
        "oracle_used": recorder.oracle_used,
        "complete": ending.status == COMPLETE,
        "status": ending.status,
        "end_s": recorder.end_s,
        "timings": {"wall_s": ending.wall_s, "policy_wall_s": ending.policy_wall_s},
    }


def is_of_this_code(manifest: Mapping[str, Any]) -> bool:
    """Whether the manifest names the program that is installed here as the one that made the run."""
    stated = manifest.get("versions")
    return isinstance(stated, dict) and stated.get("code") == code_hash()


def malformed_versions(manifest: Mapping[str, Any]) -> str:
    """What is wrong with the versions in a manifest; empty if a program could have written them."""
    stated = manifest.get("versions")
    if not isinstance(stated, dict):
        return f"versions is {shown(stated)}, not what made the run"
    for name, form in _VERSIONS.items():
        if not isinstance(stated.get(name), str) or not form.fullmatch(stated[name]):
            return f"versions.{name} is {shown(stated.get(name))}, which no program writes"
    return ""


def _versions() -> dict[str, str]:
    return {
        "clustersim": version("clustersim"),
        "code": code_hash(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "simpy": version("simpy"),
    }


def _profile_of(speed: Speed) -> dict[str, str] | None:
    """The profile of the nodes: of the first GPU type that has one, None if none has."""
    if speed.planner is None:
        return None
    file = profile_path(speed.planner.system.profile)
    return {"name": speed.planner.profile.name, "sha256": sha256(file)}
