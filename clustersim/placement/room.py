"""The room of a job: which nodes the job may use now, and how it uses them.

| class | the job |
|---|---|
| `Room` | has whole GPUs on any node: nothing is closed to it, and it needs nothing beside its GPUs |
| `LimitedRoom` | may use some nodes only, or needs cores or memory beside its GPUs |
| `ShapedRoom` | asks for GPUs on a number of nodes |
| `SharedGpuRoom` | has a share of one GPU |

A room holds no free GPUs. Its methods take them as `capacity`, so one room serves the real cluster and all
drafts. `clustersim.scheduler.cluster_state` decides which room a job has.
"""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.cluster import (
    Capacity,
    FreeNodesByLeaf,
    HostDemand,
    NodeSet,
    NodeShape,
    OpenNodes,
    Placement,
    SharedPlacement,
    millionths_of,
    node_set,
    open_nodes,
)
from itertime.spec import Plan

from .placers import Placer, unit_of

__all__ = ["LimitedRoom", "Room", "ShapedRoom", "SharedGpuRoom"]

_NO_PLANS: Mapping[int, Plan] = {}


class Room:
    """All nodes, for a job of whole GPUs that needs nothing beside them.

    `placer` chooses among the nodes. `plans`: the training plan of the job by number of GPUs, whose
    tensor-parallel groups stay on one node each; empty where no placement is faster than another.

    `closed`: the nodes on which the job may get no GPUs. `demand`: the cores and the memory that it needs.
    """

    __slots__ = ("_choose", "_fits", "_plans")

    closed: NodeSet = 0
    demand: HostDemand | None = None

    def __init__(self, placer: Placer, plans: Mapping[int, Plan] = _NO_PLANS):
        self._fits, self._choose, self._plans = placer.fits, placer.place, plans

    def open(self, capacity: Capacity) -> FreeNodesByLeaf:
        """The free GPUs that the job can have: what a placer may look at."""
        return capacity

    def fits(self, capacity: Capacity, gpus: float) -> bool:
        """Whether there is room for `gpus` GPUs. Below 1 they are a share of one GPU, of one that jobs share
        already or of a free one.
        """
        if gpus < 1:
            return self._fits_share(capacity, gpus)
        assert isinstance(gpus, int)
        return self._fits(capacity, gpus)

    def keep(self, capacity: Capacity, held: Placement) -> Placement | None:
        """`held`, the GPUs that the job holds in reality, if they are of this room and still free; else None.
        Nodes that were closed to the job since do not count as closed.
        """
        return held if self._includes(capacity, held) and capacity.has_room(held, self.demand) else None

    def place(self, capacity: Capacity, gpus: int, neighbours: Placement = ()) -> Placement | None:
        """Where the job gets `gpus` free GPUs, if possible on nodes of `neighbours`; None if there is no
        room.
        """
        unit = self._unit(gpus, capacity) if self._plans else 1
        return self._choose(capacity, gpus, [node for node, _ in neighbours] if neighbours else (), unit)

    def shared_gpu(self, capacity: Capacity, share: int) -> SharedPlacement | None:
        """Where the job fits best with `share` millionths of a GPU that other jobs share already."""
        return capacity.shared_with_room(share, capacity.span)

    def _fits_share(self, capacity: Capacity, share: float) -> bool:
        return self.shared_gpu(capacity, millionths_of(share)) is not None or self.fits(capacity, 1)

    def _unit(self, gpus: int, nodes: FreeNodesByLeaf) -> int:
        """The GPUs of the job that must share a node."""
        plan = self._plans.get(gpus)
        return 1 if plan is None else unit_of(plan.tp, gpus, nodes)

    def _includes(self, capacity: Capacity, placement: Placement) -> bool:
        """Whether the nodes of a placement are of the GPU type of this room."""
        return True


class LimitedRoom(Room):
    """The nodes of one GPU type (of any if None) without those that are `closed` to a job, where it has the
    cores and the memory of its `demand`. The nodes of `reserved`, of which none is closed, are used first.
    """

    __slots__ = ("_gpu_type", "_reserved", "closed", "demand")

    def __init__(
        self,
        placer: Placer,
        plans: Mapping[int, Plan] = _NO_PLANS,
        gpu_type: str | None = None,
        closed: NodeSet = 0,
        reserved: NodeSet = 0,
        demand: HostDemand | None = None,
    ):
        super().__init__(placer, plans)
        self._gpu_type, self._reserved = gpu_type, reserved
        self.closed, self.demand = closed, demand

    def open(self, capacity: Capacity) -> FreeNodesByLeaf:
        return open_nodes(self._of_type(capacity), self.closed, capacity, self.demand)

    def fits(self, capacity: Capacity, gpus: float) -> bool:
        if gpus < 1:
            return self._fits_share(capacity, gpus)
        assert isinstance(gpus, int)
        return self._fits(self.open(capacity), gpus)

    def place(self, capacity: Capacity, gpus: int, neighbours: Placement = ()) -> Placement | None:
        if self._reserved:
            reserved = open_nodes(self._of_type(capacity), ~self._reserved, capacity, self.demand)
            placement = self._place_among(reserved, gpus, neighbours)
            if placement is not None:
                return placement
        return self._place_among(self.open(capacity), gpus, neighbours)

    def shared_gpu(self, capacity: Capacity, share: int) -> SharedPlacement | None:
        return capacity.shared_with_room(share, self._of_type(capacity).span, self._closed_to_share(capacity))

    def _place_among(self, nodes: FreeNodesByLeaf, gpus: int, neighbours: Placement) -> Placement | None:
        return self._choose(nodes, gpus, [node for node, _ in neighbours], self._unit(gpus, nodes))

    def _closed_to_share(self, capacity: Capacity) -> NodeSet:
        """The nodes on which the job may get no share of a GPU. Cores or memory may be missing there."""
        return self.closed if self.demand is None else self.closed | capacity.host_use().short(self.demand)

    def _of_type(self, capacity: Capacity) -> FreeNodesByLeaf:
        return capacity if self._gpu_type is None else capacity.pool(self._gpu_type)

    def _includes(self, capacity: Capacity, placement: Placement) -> bool:
        first_node, nodes = self._of_type(capacity).span
        return first_node <= placement[0][0] < first_node + nodes


class ShapedRoom(LimitedRoom):
    """The same nodes for a job that asks for GPUs in a `shape`: so many on each of so many nodes. The placer
    chooses one node after the other. Other numbers of GPUs, which only some policies give, have no shape.
    """

    __slots__ = ("_shape",)

    def __init__(
        self,
        placer: Placer,
        shape: NodeShape,
        gpu_type: str | None = None,
        closed: NodeSet = 0,
        reserved: NodeSet = 0,
        demand: HostDemand | None = None,
    ):
        super().__init__(placer, _NO_PLANS, gpu_type, closed, reserved, demand)
        self._shape = shape

    def fits(self, capacity: Capacity, gpus: float) -> bool:
        if gpus != self._shape.gpus:
            return super().fits(capacity, gpus)
        return self._shape.fits(self.open(capacity))

    def _place_among(self, nodes: FreeNodesByLeaf, gpus: int, neighbours: Placement) -> Placement | None:
        if gpus != self._shape.gpus:
            return super()._place_among(nodes, gpus, neighbours)
        if not self._shape.fits(nodes):
            return None
        spots: list[tuple[int, int]] = []
        preferred = [node for node, _ in neighbours]
        for count in self._shape.counts:
            taken = node_set(node for node, _ in spots)
            spot = self._choose(OpenNodes(nodes, taken) if spots else nodes, count, preferred, count)
            if spot is None or len(spot) > 1:
                return None
            spots += spot
        return tuple(sorted(spots))


class SharedGpuRoom(LimitedRoom):
    """The same nodes for a job that has `share` millionths of one GPU: of the fullest shared GPU with room,
    else of a free one, which the job is then the first to share. To placers it is a job of one GPU.
    """

    __slots__ = ("_share",)

    def __init__(
        self,
        placer: Placer,
        share: int,
        gpu_type: str | None = None,
        closed: NodeSet = 0,
        demand: HostDemand | None = None,
    ):
        super().__init__(placer, gpu_type=gpu_type, closed=closed, demand=demand)
        self._share = share

    def place(self, capacity: Capacity, gpus: int, neighbours: Placement = ()) -> Placement | None:
        shared = self.shared_gpu(capacity, self._share)
        if shared is not None or not capacity.free:
            return shared
        free = self._place_among(self.open(capacity), gpus, ())
        return None if free is None else capacity.first_share(self._share, free)

    def place_on(self, capacity: Capacity, target: Placement) -> SharedPlacement:
        """The share of one GPU of the node that `target` names: of the fullest with room, else of a free one.
        The free one may lie on a node that is closed to the job, and may not be there at all.
        """
        shared = capacity.shared_with_room(self._share, (target[0][0], 1), self._closed_to_share(capacity))
        return capacity.first_share(self._share, target) if shared is None else shared
