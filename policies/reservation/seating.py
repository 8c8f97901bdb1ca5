"""Where jobs with reserved GPUs run: at the addresses of their reservations.

A job is *seated* when its placement is fixed: it runs at its reserved address and is never moved. Jobs that
are due at the same time were reserved together, so there are nodes enough for all of them: one for each
virtual node in use, and nodes for the jobs that reserved whole ones. All other jobs give way: jobs on spare
GPUs, and jobs that are due but run elsewhere than at their address.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from clustersim.scheduler import JobView, Proposal

from .calendar import WHOLE, Addresses, Placement, Slot
from .demand import Demand
from .gpu_types import Room, Share

__all__ = ["Seating"]


class Seating:
    """A draft in which jobs are seated. `due`: the slot that each job has reserved for now. `demands`: those
    of the jobs on the GPU types of their reservations. `rooms`: the nodes of each type.

    `seated`: jobs at their address. `evicted`: jobs that had to give way; those of them that are due are
    seated in turn. `unplaced`: jobs that are due and found no place, because too many nodes are out of
    service.
    """

    def __init__(
        self, proposal: Proposal, rooms: Mapping[str, Room], demands: Mapping[JobView, Demand],
        due: Mapping[JobView, Slot],
    ):  # fmt: skip
        self._draft, self._rooms, self._demands, self._due = proposal, rooms, demands, due
        self._claimed = {name: Addresses(room.gpus_per_node) for name, room in rooms.items()}
        self._to_claim: list[JobView] = []  # jobs in place of which the nodes are not claimed yet
        self._holders: dict[int, dict[JobView, int]] | None = None
        self.seated: dict[JobView, None] = {}
        self.evicted: dict[JobView, None] = {}
        self.unplaced: dict[JobView, None] = {}
        self._cleared: list[JobView] = []

    def keep_in_place(self, jobs: Iterable[JobView]) -> None:
        """Seat jobs that are at their address already, and have been seated together."""
        self._to_claim.extend(jobs)
        self.seated.update(dict.fromkeys(self._to_claim))

    @property
    def _addresses(self) -> dict[str, Addresses]:
        """Which node serves which address, by GPU type. Most decisions need not know."""
        for job in self._to_claim:
            placement = self._draft.placement(job)
            assert placement is not None
            self._claimed[self._demands[job].gpu_type].add(placement, self._due[job].node)
        self._to_claim.clear()
        return self._claimed

    def keep(self, job: JobView) -> bool:
        """Seat a job where it runs, if its address can be there. Returns whether it is seated."""
        placement, slot, name = self._draft.placement(job), self._due[job], self._demands[job].gpu_type
        if not placement or (name and self._draft.gpu_type(job) != name):
            return False
        addresses = self._addresses[name]
        if not addresses.fits(placement, slot.gpus, slot.node):
            return False
        addresses.add(placement, slot.node)
        self.seated[job] = None
        return True

    def seat(self, jobs: Iterable[JobView]) -> None:
        """Seat jobs that are due, in this order. Jobs that are not seated give way."""
        queue = deque(jobs)
        while queue:
            job = queue.popleft()
            if job not in self.seated and not self._seat(job):
                self.unplaced[job] = None
            queue.extend(other for other in self._cleared if other in self._due)
            self._cleared.clear()

    def give_spare(self, job: JobView, share: Share) -> bool:
        """Run a job, seated or not, on GPUs wherever they are free. Returns whether they are."""
        before, (gpus, name) = self._draft.placement(job), share
        addresses = self._addresses[self._demands[job].gpu_type] if job in self.seated else None
        change = self._draft.resize if before else self._draft.start
        after = change(job, gpus, gpu_type=name or None)
        if after is None:
            return False
        if addresses is not None:
            del self.seated[job]
            if before and self._due[job].node == WHOLE:
                addresses.drop(before)
        self._moved(job, before, after)
        return True

    def begin_early(self, job: JobView, slot: Slot) -> bool:
        """Start a waiting job ahead of its reservation, at the address reserved. Returns False if that is not
        free.
        """
        placement = self._start_on_free_nodes(job, slot) if slot.node == WHOLE else None
        if placement is None:
            placement = self._choose(job, slot, (), evict=False)
            if placement is None or not self._draft.has_room(job, placement):
                return False
            self._draft.start(job, slot.gpus, on=placement)
        self._moved(job, None, placement)
        return True

    # Placements

    def _seat(self, job: JobView) -> bool:
        draft, slot = self._draft, self._due[job]
        before = draft.placement(job)
        if before:
            draft.stop(job)
            self._moved(job, before, None)
        placement = self._start_on_free_nodes(job, slot) if slot.node == WHOLE else None
        if placement is None:
            placement = self._choose(job, slot, tuple(at for at, _ in before or ()), evict=True)
            if placement is None or not draft.in_shape(job, placement):
                return False
            for at, gpus in placement:
                self._clear(job, at, gpus)
            if not draft.has_room(job, placement):
                return False
            draft.start(job, slot.gpus, on=placement)
        self._addresses[self._demands[job].gpu_type].add(placement, slot.node)
        self._moved(job, None, placement)
        self.seated[job] = None
        return True

    def _start_on_free_nodes(self, job: JobView, slot: Slot) -> Placement | None:
        """Start a job on free nodes, as the placement rule of the cluster chooses; None if there are not
        enough.
        """
        name = self._demands[job].gpu_type
        placement = self._draft.start(job, slot.gpus, gpu_type=name or None)
        if placement is None or self._addresses[name].fits(placement, slot.gpus, WHOLE):
            return placement
        self._draft.stop(job)
        return None

    def _choose(self, job: JobView, slot: Slot, own: tuple[int, ...], evict: bool) -> Placement | None:
        """Nodes for a job's slot, preferably those in `own`; nodes in use only if `evict`. None if there are
        not enough.
        """
        name = self._demands[job].gpu_type
        if slot.node != WHOLE:
            at = self._addresses[name].serving.get(slot.node)
            if at is None:
                at = self._node_for(name, slot.gpus, own, evict)
            return None if at is None else ((at, slot.gpus),)
        size = self._rooms[name].gpus_per_node
        able = [at for at in self._unclaimed(name, size) if evict or self._draft.free_on(at) == size]
        nodes = sorted(able, key=lambda at: (self._held(at), at not in own, at))
        count = -(-slot.gpus // size)
        if len(nodes) < count:
            return None
        rest = slot.gpus - (count - 1) * size
        return tuple(sorted((at, size if i < count - 1 else rest) for i, at in enumerate(nodes[:count])))

    def _node_for(self, name: str, gpus: int, own: tuple[int, ...], evict: bool) -> int | None:
        """The node of a GPU type for a virtual node that has none: the fullest on which `gpus` GPUs are free;
        failing that, the one on which the fewest GPUs have to be cleared.
        """

        def cost(at: int) -> tuple[int, bool, int, int]:
            free = self._draft.free_on(at)
            return max(0, gpus - free), at not in own, free, at

        return min(
            (at for at in self._unclaimed(name, gpus) if evict or self._draft.free_on(at) >= gpus),
            key=cost,
            default=None,
        )

    def _unclaimed(self, name: str, gpus: int) -> list[int]:
        """The nodes of a GPU type that serve no address and have at least `gpus` GPUs in service."""
        room, claimed = self._rooms[name], self._addresses[name].address
        return [
            at
            for at in range(room.first, room.first + room.nodes)
            if at not in claimed and self._draft.free_on(at) + self._held(at) >= gpus
        ]

    def _clear(self, job: JobView, at: int, gpus: int) -> None:
        """Make room for `gpus` GPUs of a job on a node. Jobs that are not due go first, then small ones, then
        late submissions.
        """
        draft = self._draft
        others = [other for other in self._on(at) if other not in self.seated]
        others.sort(key=lambda other: (other in self._due, draft.gpus(other), -other.order))
        for other in others:
            if draft.has_room(job, ((at, gpus),)):
                return
            before = draft.placement(other)
            draft.stop(other)
            self._moved(other, before, None)
            self.evicted[other] = None
            self._cleared.append(other)

    # Jobs by node in the draft

    def _on(self, at: int) -> dict[JobView, int]:
        """The jobs on a node, with their GPUs there."""
        if self._holders is None:
            self._holders = {}
            for job in self._draft.running():
                self._moved(job, None, self._draft.placement(job))
        return self._holders.get(at, {})

    def _held(self, at: int) -> int:
        return sum(self._on(at).values())

    def _moved(self, job: JobView, before: Placement | None, after: Placement | None) -> None:
        if self._holders is None:
            return
        for at, _ in before or ():
            del self._holders[at][job]
        for at, count in after or ():
            self._holders.setdefault(at, {})[job] = count
