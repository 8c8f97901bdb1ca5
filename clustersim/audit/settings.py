"""The settings of a run, from its manifest; folders of earlier versions lack some.

A manifest may come from an untrusted source. UserError names the entry that no run could have written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from clustersim.cluster import Cluster
from clustersim.energy import Energy
from clustersim.failures import Failures, Reservation, reservations_of
from clustersim.overheads import Overheads
from clustersim.speed import Interference, NodeSpeeds, Slowdown, StepTimes, Variability
from itertime.errors import UserError, quoted

__all__ = [
    "has_reclaims",
    "stated_energy",
    "stated_failures",
    "stated_idle_stops",
    "stated_interference",
    "stated_overheads",
    "stated_packs",
    "stated_reservations",
    "stated_slowdown",
]

Constants = TypeVar("Constants", Overheads, Failures, StepTimes, Energy)


def stated_overheads(manifest: Mapping[str, Any]) -> Overheads:
    return _constants(Overheads, manifest, "overheads") or Overheads.none()


def stated_failures(manifest: Mapping[str, Any]) -> Failures | None:
    return _constants(Failures, manifest, "failures")


def stated_energy(manifest: Mapping[str, Any]) -> Energy | None:
    """The power that GPUs take; None where the run has no such metric."""
    energy = _constants(Energy, manifest, "energy")
    if energy is not None and energy.limit_w is None:
        raise UserError("manifest.json: energy: must state limit_w; run again")
    return energy


def _constants(kind: type[Constants], manifest: Mapping[str, Any], name: str) -> Constants | None:
    entry = manifest.get(name)
    if entry is None:
        return None
    if not isinstance(entry, dict) or set(entry) != {f.name for f in fields(kind)}:
        raise UserError(f"manifest.json: {name}={quoted(entry)}: must state every constant; run again")
    return kind(**entry)


def stated_slowdown(manifest: Mapping[str, Any], cluster: Cluster) -> Slowdown | None:
    """What made jobs slower than predicted; None where nothing did."""
    seed: Any = manifest.get("seed")
    step_times = _constants(StepTimes, manifest, "step_time")
    if step_times is not None:
        _check_seed(seed, "step_time")
    node_speeds, entry = None, manifest.get("variability")
    if entry is not None:
        if not isinstance(entry, dict) or isinstance(entry.get("factors"), str):
            remedy = "must state every parameter; run again"
            raise UserError(f"manifest.json: variability={quoted(entry)}: {remedy}")
        _check_seed(seed, "variability")
        try:
            node_speeds = NodeSpeeds(Variability.of(entry), cluster, seed)
        except UserError as error:
            raise UserError(f"manifest.json: {error}") from None
    return None if step_times is None and node_speeds is None else Slowdown(step_times, node_speeds, seed)


def _check_seed(seed: object, setting: str) -> None:
    if type(seed) is not int or seed < 0:
        raise UserError(f"manifest.json: seed={quoted(seed)}: {setting} depends on it; run again")


def stated_interference(manifest: Mapping[str, Any]) -> Interference:
    entry = manifest.get("sharing")
    if entry is None:
        return Interference()
    if not isinstance(entry, Mapping):
        raise UserError(f"manifest.json: sharing={quoted(entry)}: must state slowdown and pairs; run again")
    return Interference.of(entry)


def stated_reservations(manifest: Mapping[str, Any], cluster: Cluster) -> tuple[Reservation, ...]:
    pools = {pool.gpu_type: range(pool.first, pool.first + pool.nodes) for pool in cluster.pools}
    try:
        return reservations_of(manifest.get("reservations", []), cluster.sizes, pools)
    except UserError as error:
        raise UserError(f"manifest.json: {error}") from None


def has_reclaims(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest states spot nodes, or a calendar with reclaims."""
    calendar = manifest.get("calendar")
    entries = calendar if isinstance(calendar, list) else []
    return bool(manifest.get("spot")) or any(
        isinstance(entry, dict) and "reclaim" in entry for entry in entries
    )


def stated_idle_stops(manifest: Mapping[str, Any]) -> int | None:
    """How many jobs lost GPUs to the policy that no job got; None in folders of earlier versions."""
    stops = manifest.get("idle_stops")
    if stops is not None and (type(stops) is not int or stops < 0):
        raise UserError(f"manifest.json: idle_stops={quoted(stops)}: must be a whole number; run again")
    return stops


def stated_packs(manifest: Mapping[str, Any]) -> int:
    """The most jobs that the policy ran on the same GPUs."""
    packs = manifest.get("packs", 1)
    if type(packs) is not int or not 1 <= packs <= 1000:
        raise UserError(f"manifest.json: packs={quoted(packs)}: must be a whole number; run again")
    return packs
