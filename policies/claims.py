"""Which node of the cluster serves which address of reservations."""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.scheduler import Cluster
from policies.reservation.calendar import WHOLE

__all__ = ["Claims", "Place"]

Place = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Claims:
    """The nodes that jobs hold at the addresses of their reservations: each serves one virtual node, or is
    whole the job's.
    """

    def __init__(self, cluster: Cluster):
        self.node = cluster.gpus_per_node
        self.address: dict[int, int] = {}  # by node of the cluster: a virtual node, or WHOLE
        self.serving: dict[int, int] = {}  # by virtual node: the node of the cluster

    def fits(self, place: Place, gpus: int, address: int) -> bool:
        """Whether a job that holds `gpus` GPUs at `place` may be taken to hold them at `address`."""
        if sum(count for _, count in place) != gpus:
            return False
        if address == WHOLE:
            return len(place) == -(-gpus // self.node) and all(at not in self.address for at, _ in place)
        if len(place) > 1:
            return False
        at = place[0][0]
        return self.serving.get(address, at) == at and self.address.get(at, address) == address

    def add(self, place: Place, address: int) -> None:
        for at, _ in place:
            self.address[at] = address
            if address != WHOLE:
                self.serving[address] = at

    def drop(self, place: Place) -> None:
        """Give up whole nodes."""
        for at, _ in place:
            assert self.address.pop(at) == WHOLE

    def home(self, place: Place, former: Mapping[int, int]) -> int | None:
        """The address at which a job that runs at `place` could go on, None if there is none. `former`: the
        virtual node to prefer for a node that serves none yet.
        """
        gpus = sum(count for _, count in place)
        if gpus >= self.node:
            return WHOLE if self.fits(place, gpus, WHOLE) else None
        if len(place) > 1:
            return None
        at = place[0][0]
        if at in self.address:
            return None if self.address[at] == WHOLE else self.address[at]
        if at in former and former[at] not in self.serving:
            return former[at]
        return next(v for v in range(len(self.serving) + 1) if v not in self.serving)
