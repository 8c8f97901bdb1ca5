"""Spot capacity: nodes that their owner takes back with notice, and returns later.

When a node is reclaimed, and for how long, is drawn; both times are exponential, an assumption. A node has a
random stream of its own, so all policies meet the same reclaims (common random numbers). A calendar can state
reclaims instead (`maintenance.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from itertime.errors import UnknownName, UserError, quoted

from .maintenance import nodes_named

__all__ = ["Spot", "SpotNode"]

HOUR_S = 3600.0
_RANGES = {"mean_up_h": (1e-3, 1e9), "mean_down_h": (0.0, 1e9), "notice_s": (0.0, 1e9)}


@dataclass(frozen=True)
class Spot:
    """How nodes are reclaimed.

    | parameter | unit | meaning | default |
    |---|---|---|---|
    | nodes | | the numbers of the nodes | those of groups with `spot: true` |
    | mean_up_h | hours | in service between two reclaims of a node | 24 |
    | mean_down_h | hours | until a reclaimed node is back | 1 |
    | notice_s | s | between the notice and the reclaim; jobs can save meanwhile | 120 |
    | cordon | | whether a node with a notice gets no further jobs | true |
    """

    nodes: tuple[int, ...]
    mean_up_h: float = 24.0
    mean_down_h: float = 1.0
    notice_s: float = 120.0
    cordon: bool = True

    @classmethod
    def of(cls, settings: Mapping[str, Any], nodes: int, marked: Sequence[int] = ()) -> Spot:
        """From settings. `nodes`: how many the cluster has. `marked`: those that the cluster file marks.

        UnknownName for a parameter that does not exist, UserError for a wrong value and for no nodes.
        """
        names = [f.name for f in fields(cls)]
        for name in settings:
            if name not in names:
                raise UnknownName("parameter of spot", str(name), names)
        values = dict(settings)
        if values.get("nodes") is None:
            values["nodes"] = tuple(marked)
            if not marked:
                problem = (
                    "names no nodes; state spot.nodes, as in 8-15, or spot: true in groups of the cluster"
                )
                raise UserError(f"spot: {problem}")
        else:
            values["nodes"] = tuple(sorted(nodes_named("spot.nodes", values["nodes"], nodes)))
        for name, (low, high) in _RANGES.items():
            value = values.get(name, low)
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
                raise UserError(f"spot.{name}={quoted(value)}: must be a number from {low:g} to {high:g}")
        if not isinstance(values.get("cordon", True), bool):
            raise UserError(f"spot.cordon={quoted(values['cordon'])}: must be true or false")
        return cls(**values)

    def stated(self) -> dict[str, Any]:
        """Every parameter as plain JSON data; `Spot.of` reads it again."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**values, "nodes": list(self.nodes)}


class SpotNode:
    """The random draws of one spot node: how long it stays, and how long it is away, in turns."""

    __slots__ = ("_draws", "_spot")

    def __init__(self, spot: Spot, seed: int, node: int):
        self._spot, self._draws = spot, np.random.default_rng([seed, node, *b"spot"])

    def up_s(self) -> float:
        """Seconds until the next reclaim."""
        return float(self._draws.exponential(self._spot.mean_up_h * HOUR_S))

    def down_s(self) -> float:
        """Seconds until the node is back."""
        return float(self._draws.exponential(self._spot.mean_down_h * HOUR_S))
