"""Where jobs with reserved GPUs run: at the addresses of their reservations.

Whatever is due at one time has been reserved together, so that there are nodes enough: a node of the cluster
for each virtual node in use, and nodes for those who take whole ones. A job that is *seated* is never moved.
Everybody else gives way: jobs on spare GPUs, also those that could be at their address and are elsewhere
because they were running there already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from clustersim.scheduler import Cluster, JobView, Proposal

from .calendar import WHOLE, Claims, Piece, Place

__all__ = ["Seating"]


class Seating:
    """A draft in which jobs are seated. `due`: the pieces of reservations to follow now.

    `evicted`: who had to give way; of them, those who are due are seated too. `unplaced`: who is due and
    found no place, because too many nodes are out of service.
    """

    def __init__(self, proposal: Proposal, cluster: Cluster, due: Mapping[JobView, Piece]):
        self._draft, self._cluster, self._due = proposal, cluster, due
        self._claims = Claims(cluster)
        self._holders: dict[int, dict[JobView, int]] | None = None
        self.seated: dict[JobView, None] = {}
        self.evicted: dict[JobView, None] = {}
        self.unplaced: dict[JobView, None] = {}
        self._cleared: list[JobView] = []

    def keep(self, job: JobView) -> bool:
        """Seat a job where it runs, if that may be its address; whether it is seated."""
        place, piece = self._draft.placement(job), self._due[job]
        if not place or not self._claims.fits(place, piece.gpus, piece.node):
            return False
        self._claims.add(place, piece.node)
        self.seated[job] = None
        return True

    def seat(self, jobs: Iterable[JobView]) -> None:
        """Give due jobs their places, in this order, whoever else is there."""
        queue = deque(jobs)
        while queue:
            job = queue.popleft()
            if job not in self.seated and not self._seat(job):
                self.unplaced[job] = None
            queue.extend(other for other in self._cleared if other in self._due)
            self._cleared.clear()

    def give_spare(self, job: JobView, gpus: int) -> bool:
        """Let a job, seated or not, have `gpus` GPUs wherever there is room; whether there was."""
        before = self._draft.placement(job)
        after = self._draft.resize(job, gpus) if before else self._draft.start(job, gpus)
        if after is None:
            return False
        if job in self.seated:
            del self.seated[job]
            if before and self._due[job].node == WHOLE:
                self._claims.drop(before)
        self._moved(job, before, after)
        return True

    def begin_early(self, job: JobView, piece: Piece) -> bool:
        """Start a waiting job ahead of its reservation where it will be at its address; False if there is no
        room.
        """
        place = self._free_whole(job, piece) if piece.node == WHOLE else None
        if place is None:
            place = self._choose(piece, (), evict=False)
            if place is None or any(self._draft.free_on(at) < gpus for at, gpus in place):
                return False
            self._draft.start(job, piece.gpus, on=place)
        self._moved(job, None, place)
        return True

    # Places

    def _seat(self, job: JobView) -> bool:
        draft, piece = self._draft, self._due[job]
        before = draft.placement(job)
        if before:
            draft.stop(job)
            self._moved(job, before, None)
        place = self._free_whole(job, piece) if piece.node == WHOLE else None
        if place is None:
            place = self._choose(piece, tuple(at for at, _ in before or ()), evict=True)
            if place is None:
                return False
            for at, gpus in place:
                self._clear(at, gpus)
            draft.start(job, piece.gpus, on=place)
        self._claims.add(place, piece.node)
        self._moved(job, None, place)
        self.seated[job] = None
        return True

    def _free_whole(self, job: JobView, piece: Piece) -> Place | None:
        """Nodes that nobody holds, where the placement rule of the cluster would have them."""
        place = self._draft.start(job, piece.gpus)
        if place is None or self._claims.fits(place, piece.gpus, WHOLE):
            return place
        self._draft.stop(job)
        return None

    def _choose(self, piece: Piece, own: tuple[int, ...], evict: bool) -> Place | None:
        """The nodes for a piece, of equal ones those in `own`; where others are only if `evict` allows it."""
        if piece.node != WHOLE:
            at = self._claims.serving.get(piece.node)
            if at is None:
                at = self._roomiest(piece.gpus, own, evict)
            return None if at is None else ((at, piece.gpus),)
        size = self._cluster.gpus_per_node
        able = [at for at in self._unclaimed(size) if evict or self._draft.free_on(at) == size]
        nodes = sorted(able, key=lambda at: (self._held(at), at not in own, at))
        count = -(-piece.gpus // size)
        if len(nodes) < count:
            return None
        rest = piece.gpus - (count - 1) * size
        return tuple(sorted((at, size if i < count - 1 else rest) for i, at in enumerate(nodes[:count])))

    def _roomiest(self, gpus: int, own: tuple[int, ...], evict: bool) -> int | None:
        """The node for a virtual node that has none: the fullest with room for `gpus`; failing that, one on
        which the fewest have to give way.
        """

        def price(at: int) -> tuple[int, bool, int, int]:
            free = self._draft.free_on(at)
            return max(0, gpus - free), at not in own, free, at

        return min(
            (at for at in self._unclaimed(gpus) if evict or self._draft.free_on(at) >= gpus),
            key=price,
            default=None,
        )

    def _unclaimed(self, gpus: int) -> list[int]:
        """The nodes that serve no address and have `gpus` GPUs in service."""
        return [
            at
            for at in range(self._cluster.nodes)
            if at not in self._claims.address and self._draft.free_on(at) + self._held(at) >= gpus
        ]

    def _clear(self, at: int, gpus: int) -> None:
        """Make room for `gpus` GPUs on a node: first go those who are not due, the small and the late."""
        draft = self._draft
        others = [job for job in self._on(at) if job not in self.seated]
        others.sort(key=lambda job: (job in self._due, draft.gpus(job), -job.order))
        for job in others:
            if draft.free_on(at) >= gpus:
                return
            before = draft.placement(job)
            draft.stop(job)
            self._moved(job, before, None)
            self.evicted[job] = None
            self._cleared.append(job)

    # Who is where in the draft

    def _on(self, at: int) -> dict[JobView, int]:
        """Who holds how many GPUs of a node."""
        if self._holders is None:
            self._holders = {}
            for job in self._draft.running():
                self._moved(job, None, self._draft.placement(job))
        return self._holders.get(at, {})

    def _held(self, at: int) -> int:
        return sum(self._on(at).values())

    def _moved(self, job: JobView, before: Place | None, after: Place | None) -> None:
        if self._holders is None:
            return
        for at, _ in before or ():
            del self._holders[at][job]
        for at, count in after or ():
            self._holders.setdefault(at, {})[job] = count
