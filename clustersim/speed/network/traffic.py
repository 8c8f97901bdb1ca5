"""How much a job sends between nodes: less than others where its plan compresses or postpones exchanges."""

from __future__ import annotations

from dataclasses import replace

from itertime.prediction import evaluate
from itertime.spec import DEFAULT_OPTIONS, ModelSpec, Plan, PlanBatch, Profile, System

__all__ = ["sent_share"]

_SLOW = 2.0**30
"""NICs slower by this factor: nothing hides a transfer, and latencies and computation are negligible."""


def sent_share(model: ModelSpec, plan: Plan, system: System, profile: Profile) -> float:
    """The bytes a second that a job on unhindered links sends between nodes, over those that it would send
    under the same plan without options; at most 1, and 1 for a plan without options.

    The bytes of an iteration are those by which `itertime` makes it longer when NICs get slower: then every
    transfer is exposed, whatever hides it otherwise. Exchanges that take place in some iterations only count
    with their mean. What workers send over a link between sites leaves by the NICs, and counts.
    """
    if plan.options == DEFAULT_OPTIONS:
        return 1.0
    plain = _bytes_per_s(model, replace(plan, options=DEFAULT_OPTIONS), system, profile)
    return min(1.0, _bytes_per_s(model, plan, system, profile) / plain) if plain > 0 else 1.0


def _bytes_per_s(model: ModelSpec, plan: Plan, system: System, profile: Profile) -> float:
    """What a node sends, in a unit that is the same for all plans on the system."""

    def iteration_s(slower: float) -> float:
        slow = replace(system, nic_bytes_per_s=system.nic_bytes_per_s / slower)
        return float(evaluate(model, PlanBatch.of([plan]), slow, profile).iteration_s[0])

    return (iteration_s(2 * _SLOW) - iteration_s(_SLOW)) / iteration_s(1.0)
