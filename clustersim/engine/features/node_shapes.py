"""Jobs that ask for GPUs on a number of nodes."""

from __future__ import annotations

from clustersim.engine.world import World
from clustersim.jobs import ActiveJob

__all__ = ["NodeShapes"]


class NodeShapes:
    """Notes how the GPUs of jobs are to lie on nodes. Their rooms do the rest."""

    columns = ("nodes",)

    def __init__(self, world: World):
        self._facts = world.facts

    def receive(self, active: ActiveJob) -> bool:
        self._facts.note_shape(active)
        return False
