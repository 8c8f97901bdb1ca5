"""What jobs need of a node beside its GPUs."""

from __future__ import annotations

from clustersim.engine.world import World
from clustersim.jobs import ActiveJob

__all__ = ["HostDemands"]


class HostDemands:
    """Notes the cores and the memory that jobs need, on a cluster that limits them. Drafts do the rest."""

    columns = ()

    def __init__(self, world: World):
        self._facts = world.facts

    def receive(self, active: ActiveJob) -> bool:
        self._facts.note_demand(active)
        return False
