"""Network models: on what the speed of a job depends beside the number of its GPUs."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["IDEAL", "NETWORKS", "NetworkModel"]


class NetworkModel(NamedTuple):
    """A network model by the name that cluster files state.

    `by_placement`: whether a job's speed depends on the nodes that it holds. If it does not, the number of
    its GPUs says all, and the run needs no network. How such speeds are computed is in
    `clustersim.speed.network`.
    """

    name: str
    by_placement: bool


IDEAL = NetworkModel("ideal", by_placement=False)
"""The model of a cluster that states none."""

NETWORKS = {
    model.name: model
    for model in (
        IDEAL,
        NetworkModel("tiers", by_placement=True),
        NetworkModel("contention", by_placement=True),
    )
}
"""The network models by name."""
