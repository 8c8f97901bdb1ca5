"""From a cell's settings to everything that its result depends on, and to its key.

| part of the key | what |
|---|---|
| trace | hash of the trace file; or the recipe of a generated trace, with hashes of its rules and sizes |
| since_1970_s | the date of the trace's zero, where the site of a run has dates |
| models | hashes of the files of models that the trace names |
| config | the settings of the run, with hashes of the files that they name, of the systems and the policy |
| code | hash of `itertime`, `traces` and the parts of `clustersim` that simulate |
| versions | Python, numpy, scipy, simpy |

Cells with equal inputs have the same key and the same result. Relative paths in a grid file start at its
folder; the functions here must be called there, and every cell runs there.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from clustersim.cluster import Cluster, load_cluster
from clustersim.engine.fleet import Routing
from clustersim.runs import (
    RunConfig,
    changed_site,
    code_hash,
    find_policy,
    has_dates,
    policy_hash,
    recipe_values,
)
from itertime.errors import UnknownName, UserError
from itertime.io import digest, sha256, shown
from itertime.spec import load_system, profile_of
from traces.sidecars import report_of, since_1970
from traces.synthetic import Recipe, sizes_path
from traces.workload import rules_path

__all__ = ["Hashes", "Inputs", "key_of", "resolve"]

RECIPE = [field.name for field in fields(Recipe) if field.name != "seed"]
DATA_ENDINGS = (".csv", ".csv.gz", ".parquet", ".yaml", ".yml", ".json")
_SHAPE = re.compile(r"n[0-9]+(g[0-9]+)")
LIBRARIES = ("numpy", "scipy", "simpy")
_RECIPES = TypeAdapter(Recipe)


@dataclass(frozen=True)
class Inputs:
    """The inputs of one run: its settings, and a trace file or the recipe of a trace."""

    config: RunConfig
    trace: str | Recipe

    def document(self) -> dict[str, Any]:
        """As plain data."""
        trace = self.trace if isinstance(self.trace, str) else dict(vars(self.trace))
        return {"trace": trace, "config": self.config.model_dump()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Inputs:
        trace = document["trace"]
        return cls(RunConfig(**document["config"]), trace if isinstance(trace, str) else Recipe(**trace))


def resolve(
    settings: Mapping[str, Any], seed: int, trace_settings: Mapping[str, Any] | None = None
) -> Inputs:
    """The run that `settings` describe. UserError names a setting that is wrong.

    A generated trace takes what its recipe does not state (GPUs, system, planner, headroom of memory) from
    the run that `trace_settings` describe, by default from this one.

    `a.b` sets `b` within `a`, before or after `a`; `policy.b` is a parameter of the policy, `system.b` a
    value of the system, and `nodes` the number of nodes of a cluster that is given by its shape or by a site,
    `site.b.c` a value of the site.
    """
    parts = {name[6:]: value for name, value in settings.items() if name.startswith("trace.")}
    trace = _trace(settings.get("trace"), parts, seed)
    config = _config(settings, seed)
    if isinstance(trace, str):
        return Inputs(config, trace)
    stated_values = {**(settings.get("trace") or {}), **parts}
    run_config = config if trace_settings is None else _config(trace_settings, seed)
    values = {name: value for name, value in recipe_values(run_config).items() if name not in stated_values}
    return Inputs(config, replace(trace, **values))


def _config(settings: Mapping[str, Any], seed: int) -> RunConfig:
    """The settings of the run alone."""
    plain_settings = {name: value for name, value in settings.items() if "." not in name and name != "trace"}
    parts = [(name.split(".", 1), value) for name, value in settings.items() if "." in name]
    if "nodes" in plain_settings and plain_settings.get("site") is not None:
        nodes = plain_settings.pop("nodes")
        plain_settings["site"] = changed_site(plain_settings["site"], "nodes", nodes)
    if "nodes" in plain_settings:
        plain_settings["cluster"] = _with_nodes(plain_settings.get("cluster"), plain_settings.pop("nodes"))
    if "policy" not in plain_settings:
        raise UserError("policy: is not given; name one in set or as an axis of the matrix")
    for (a, b), value in parts:
        if a == "trace":
            continue
        if a == "site":
            plain_settings[a] = changed_site(plain_settings.get(a), b, value)
            continue
        if a == "system":  # a change is part of the system's name
            system = plain_settings.get("system", RunConfig.model_fields["system"].default)
            plain_settings["system"] = f"{system},{b}={'null' if value is None else value}"
            continue
        name = "params" if a == "policy" else a
        outer = plain_settings.get(name, {})
        if not isinstance(outer, Mapping):
            raise UserError(f"{a}.{b}: contradicts {a}: {shown(outer)}; leave one of them out")
        plain_settings[name] = {**outer, b: value}
    return RunConfig.make(seed=seed, **plain_settings)


def _with_nodes(cluster: Any, nodes: Any) -> str:
    """The shape of a cluster with another number of nodes."""
    cluster_text = RunConfig.model_fields["cluster"].default if cluster is None else cluster
    shape = _SHAPE.fullmatch(cluster_text) if isinstance(cluster_text, str) else None
    if shape is None:
        problem = f"nodes={shown(nodes)}: changes a cluster that is given as a shape, as in cluster: n64g8"
        raise UserError(
            f"{problem}, not {shown(cluster_text)}; vary cluster instead, with a file for each value"
        )
    if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
        raise UserError(f"nodes={shown(nodes)}: must be a whole number, at least 1")
    return f"n{nodes}{shape[1]}"


def _trace(trace_value: Any, parts: Mapping[str, Any], seed: int) -> str | Recipe:
    if isinstance(trace_value, str):
        if parts:
            name = next(iter(parts))
            raise UserError(
                f"trace.{name}: contradicts trace: {shown(trace_value)}, a file; leave one of them out"
            )
        return trace_value
    if trace_value is not None and not isinstance(trace_value, Mapping):
        raise UserError(
            f"trace={shown(trace_value)}: must be a file, or settings of `clustersim trace generate`"
        )
    recipe = {**(trace_value or {}), **parts}
    if not recipe:
        raise UserError("trace: is not given; name a file, or say how to generate one: trace: {jobs: 500}")
    if "seed" in recipe:
        raise UserError("trace.seed: seeds are given by `seeds`, for runs and generated traces alike")
    for name in recipe:
        if name not in RECIPE:
            raise UserError(f"trace.{name}: {UnknownName('setting of a generated trace', name, RECIPE)}")
    if recipe.get("rules", "") is None:  # YAML's null, where the command has the word
        recipe["rules"] = "none"
    try:
        return _RECIPES.validate_python({**recipe, "seed": seed})
    except ValidationError as error:
        first_error = error.errors(include_url=False)[0]
        name = ".".join(["trace", *(str(part) for part in first_error["loc"])])
        if first_error["type"] in ("missing", "missing_argument"):
            raise UserError(f"{name}: is not given; a generated trace needs it") from None
        raise UserError(f"{name}={shown(first_error.get('input'))}: {first_error['msg'].lower()}") from None


class Hashes:
    """Hashes of files and parts of the program, each computed once, and the versions of libraries."""

    def __init__(self) -> None:
        self.file = cache(sha256)
        self.policy = cache(_policy_hash)
        self.system = cache(_system_hash)
        self._groups = cache(self._of_names)
        self.versions = {"python": platform.python_version(), **{name: version(name) for name in LIBRARIES}}

    def groups(self, config: RunConfig) -> list[str | None]:
        """Hashes of the systems of the groups of nodes, which a cluster file names and which may be files."""
        if config.site is None:
            return self._groups(config.cluster, config.system, config.network)
        return self._of_nodes(config.stated_cluster())

    def _of_names(self, cluster: str, system: str, network: str | None) -> list[str | None]:
        return self._of_nodes(load_cluster(cluster, system, network))

    def _of_nodes(self, cluster: Cluster) -> list[str | None]:
        return [None if group.system is None else self.system(group.system) for group in cluster.groups]


def key_of(inputs: Inputs, hashes: Hashes, models: Mapping[str, Sequence[str]]) -> tuple[str, dict[str, Any]]:
    """The key of a cell (24 hexadecimal digits), and the document that the key is the hash of. `models`:
    hashes of the files of the user's models that the trace names.
    """
    config, trace = inputs.config, inputs.trace
    document: dict[str, Any] = {
        "trace": {"sha256": hashes.file(trace)} if isinstance(trace, str) else _recipe(trace, hashes),
        "config": config.model_dump(),
        "models": {name: list(digests) for name, digests in models.items()},
        "policy": hashes.policy(config.policy),
        **_routed(config, hashes),
        **_dated(config, trace),
        "system": hashes.system(config.system),
        "files": {name: hashes.file(file) for name, file in _files_of(config)},
        "groups": hashes.groups(config),
        "code": code_hash(),
        "versions": hashes.versions,
    }
    return digest(document)[:24], document


def _routed(config: RunConfig, hashes: Hashes) -> dict[str, Any]:
    """The policies that the routing of a fleet names."""
    if config.routing is None:
        return {}
    policies = Routing.of(config.routing).policies
    return {"routing": {name: hashes.policy(policy) for name, policy in policies.items()}}


def _dated(config: RunConfig, trace: str | Recipe) -> dict[str, Any]:
    """The date of the trace's zero, which the report beside it states, where a run depends on it."""
    report = report_of(Path(trace)) if isinstance(trace, str) and has_dates(config.site) else None
    return {} if report is None else {"since_1970_s": since_1970(report[1])}


def _files_of(config: RunConfig) -> Iterator[tuple[str, str]]:
    """The settings that name files: a throughput table, a system, a cluster."""
    for name in RunConfig.model_fields:
        value = getattr(config, name)
        if isinstance(value, str) and value.endswith(DATA_ENDINGS) and Path(value).is_file():
            yield name, value


def _recipe(recipe: Recipe, hashes: Hashes) -> dict[str, Any]:
    return {
        "recipe": dict(vars(recipe)),
        "sizes": hashes.file(sizes_path(recipe.sizes)),
        "rules": None if recipe.rules == "none" else hashes.file(rules_path(recipe.rules)),
        "system": hashes.system(recipe.system),
    }


def _system_hash(name: str) -> str:
    system = load_system(name)
    return hashlib.sha256(f"{system!r} {profile_of(system).digest}".encode()).hexdigest()


def _policy_hash(name: str) -> str:
    find_policy(name)  # raises if it cannot be used
    return policy_hash(name)
