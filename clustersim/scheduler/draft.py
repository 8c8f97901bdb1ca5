"""A draft of an allocation: which job runs where. An illegal state cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Self

from clustersim.cluster import (
    MILLION,
    Capacity,
    CapacityIfStopped,
    FreeNodesByLeaf,
    NodeSet,
    Placement,
    SharedPlacement,
    open_nodes,
    parts_of,
)
from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.placement import unit_of
from itertime.errors import UnknownName

from .cluster_state import ClusterState
from .job_view import JobView, active_of

__all__ = ["Draft", "adopt", "facts_of", "take_over"]


class Draft:
    """A draft of which job runs where from now on. It starts as reality; each call changes the draft only.

    Every call checks the rules, so a draft is always possible: no GPU twice, all GPUs of a job at once,
    only counts that the job can run on, placed by the run's placer.
    """

    __slots__ = ("_capacity", "_changes", "_closed_to", "_facts", "_owns_capacity", "decision")

    def __init__(self, facts: ClusterState[JobView], capacity: Capacity | None = None):
        """`capacity`: the free GPUs to begin with, if not the real ones; then no node is closed to a job."""
        self._facts = facts
        self.decision = facts.decision
        """The number of the policy's call in which the draft was made."""
        self._capacity = facts.capacity if capacity is None else capacity
        self._closed_to = facts.closed_to if capacity is None else None
        self._owns_capacity = False
        self._changes: dict[JobView, Placement | None] = {}

    @property
    def free(self) -> int:
        """Free GPUs in this draft."""
        return self._capacity.free

    @property
    def changes(self) -> Mapping[JobView, Placement | None]:
        """The jobs whose GPUs differ from reality: where each runs, None if it does not. Read-only."""
        return self._changes

    def free_on(self, node: int) -> int:
        """Free GPUs of a node in this draft; 0 on a node that is out of service."""
        return self._capacity.free_on(node)

    def nodes_with(self, free: int) -> int:
        """The nodes with exactly `free` free GPUs in this draft, as a set of bits."""
        return self._capacity.nodes_with(free)

    def placement(self, job: JobView) -> Placement | None:
        """Where `job` runs in this draft, None if it does not."""
        return self._changes.get(job, active_of(job).placement)

    def gpus(self, job: JobView) -> int:
        """The GPUs that `job` holds in this draft."""
        if job not in self._changes:
            return job.gpus
        return sum(count for _, count in self._changes[job] or ())

    def running(self) -> list[JobView]:
        """The jobs that hold GPUs in this draft, in order of submission."""
        jobs = {**self._facts.running, **self._changes}
        return sorted((job for job in jobs if self.placement(job)), key=lambda job: job.order)

    def free_of(self, gpu_type: str) -> int:
        """Free GPUs of that type in this draft."""
        return self._free_nodes(gpu_type).free

    def gpu_type(self, job: JobView) -> str | None:
        """The type of the GPUs that `job` holds in this draft, None if it holds none."""
        placement = self.placement(job)
        return None if not placement else self._facts.cluster.type_of(placement[0][0])

    @property
    def full(self) -> bool:
        """Whether no job could start in this draft, not even on part of a GPU that jobs share."""
        return not self._capacity.free and not self._capacity.idle_parts

    def fits(self, gpus: float, gpu_type: str | None = None, job: JobView | None = None) -> bool:
        """Whether the draft has room for a job of `gpus` GPUs of that type (of any one type if None).

        Below 1 they are part of a GPU: on one that jobs share already, or on a free one. `job`: which job; if
        None, nodes count that are open to any job, for example those of a reservation.
        """
        placer, cluster = self._facts.placer, self._facts.cluster
        if gpus < 1:
            span = self._free_nodes(gpu_type).span
            if self._capacity.part(parts_of(gpus), span, self._closed_to_part(job)) is not None:
                return True
            gpus = 1
        assert isinstance(gpus, int)
        if gpu_type is not None:
            return placer.fits(self._open_nodes(gpu_type, job), gpus)
        if cluster.mixed:
            return any(placer.fits(self._open_nodes(name, job), gpus) for name in cluster.gpu_types)
        if self._closed_to is None and (job is None or active_of(job).demand is None):
            return placer.fits(self._capacity, gpus)
        return placer.fits(self._open_nodes(None, job), gpus)

    def free_for(self, job: JobView) -> int:
        """Free GPUs in this draft on nodes that are open to `job`."""
        return self._open_nodes(None, job).free

    def may_fit_without(self, placements: Iterable[Placement], gpus: float) -> bool:
        """Whether a job of `gpus` GPUs may fit once the jobs in `placements` have stopped. On a cluster of
        several pools, and for a part of a GPU, the answer is always True.
        """
        if len(self._facts.cluster.pools) > 1 or gpus < 1:
            return True
        assert isinstance(gpus, int)
        return self._facts.placer.fits(CapacityIfStopped(self._capacity, placements), gpus)

    def start(
        self, job: JobView, gpus: int | None = None, on: Placement | None = None,
        gpu_type: str | None = None,
    ) -> Placement | None:  # fmt: skip
        """Give a job without GPUs `gpus` GPUs (its request if None). Returns where, or None if there is no
        room.

        `gpu_type` asks for GPUs of that type. If None, the job gets the first of its `gpu_types` with room,
        and waits where all of those are slower than the run's `type_slowdown` allows.
        `on` asks for exactly this placement. A job that was stopped in this draft gets its own GPUs back if
        they are still free; in reality nothing happens to it then.
        """
        active = active_of(job)
        if self._changes.get(job, active.placement) is not None:
            raise PolicyError(f"start(job {job.id}): it already runs in this proposal; use resize")
        if on is not None and self._facts.cluster.mixed:
            gpu_type = self._type_of_placement(job, on, gpu_type)
        count = self._count(job, active, "start", gpus, gpu_type)
        if on is not None or not active.offers:
            return self._place(job, active, count, on, gpu_type=gpu_type)
        offers = self._facts.default_offers(active) if gpu_type is None else active.offers_of(gpu_type)
        for offer in offers:
            count = offer.requested if gpus is None else gpus
            if count in offer.curve.unit_s:
                placement = self._place(job, active, count, None, gpu_type=offer.gpu_type)
                if placement is not None:
                    return placement
        return None

    def stop(self, job: JobView) -> None:
        """Take the GPUs from a job; it keeps its progress and waits again."""
        own = active_of(job).placement
        placement = self._changes.get(job, own)
        if placement is None:
            raise PolicyError(f"stop(job {job.id}): it does not run in this proposal")
        self._own().release(placement, active_of(job).demand)
        self._note(job, None, own)

    def resize(self, job: JobView, gpus: int, gpu_type: str | None = None) -> Placement | None:
        """Give a job that runs in the draft another number of GPUs, or GPUs of another type (of the same if
        None). Returns where, or None (and no change) if there is no room.
        """
        active = active_of(job)
        before = self._changes.get(job, active.placement)
        if before is None:
            raise PolicyError(f"resize(job {job.id}): it does not run in this proposal; use start")
        current_type = self.gpu_type(job) if self._facts.cluster.mixed else gpu_type
        wanted = gpu_type or current_type
        count = self._count(job, active, "resize", gpus, wanted)
        if count == self.gpus(job) and wanted == current_type:
            return before
        self._own().release(before, active.demand)
        after = self._place(job, active, count, None, prefer=before, gpu_type=wanted)
        if after is None:
            self._capacity.take(before, active.demand)
        return after

    def copy(self) -> Self:
        """An independent draft that starts as this one, for looking ahead."""
        twin = type(self)(self._facts)
        twin._closed_to = self._closed_to
        twin.decision = self.decision
        twin._capacity, twin._owns_capacity = self._capacity, self._owns_capacity
        if self._owns_capacity:
            twin._capacity = self._capacity.copy()
        twin._changes = dict(self._changes)
        return twin

    def _count(
        self, job: JobView, active: ActiveJob, call: str, gpus: int | None, gpu_type: str | None
    ) -> int:
        """The GPUs that a call asks for. PolicyError if the job cannot run on so many."""
        facts = self._facts
        count = active.requested if gpus is None else gpus
        if job not in facts.waiting.jobs and job not in facts.running:
            raise PolicyError(f"{call}(job {job.id}): it is no longer in the system")
        if gpus is None and gpu_type is None:
            return count
        if gpus is None:
            count = next((offer.requested for offer in active.offers_of(gpu_type)), count)
        if not job.can_run_on(count, gpu_type):
            where = f", gpu_type={gpu_type}" if gpu_type else ""
            sizes = job.sizes_on(gpu_type) if gpu_type else job.sizes
            what = f"{', '.join(map(str, sizes))} GPUs" if sizes else f"{', '.join(job.gpu_types)} alone"
            raise PolicyError(f"{call}(job {job.id}, gpus={count!r}{where}): it can run on {what}")
        return count

    def _type_of_placement(self, job: JobView, placement: Placement, gpu_type: str | None) -> str:
        """The type of the GPUs of `placement`."""
        cluster = self._facts.cluster
        try:
            types = list(dict.fromkeys(cluster.type_of(node) for node, _ in placement))
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, on={placement}): {error}") from None
        if len(types) != 1 or gpu_type not in (None, types[0]):
            asked = f", gpu_type={gpu_type}" if gpu_type else ""
            what = f"the places are on {' and '.join(types) or 'no'} nodes; a job runs on GPUs of one type"
            raise PolicyError(f"start(job {job.id}, on={placement}{asked}): {what}")
        return types[0]

    def _free_nodes(self, gpu_type: str | None) -> FreeNodesByLeaf:
        """What a placer may look at."""
        if gpu_type is None:
            return self._capacity
        try:
            return self._capacity.pool(gpu_type)
        except UnknownName as error:
            raise PolicyError(str(error)) from None

    def _closed(self, job: JobView | None) -> NodeSet:
        """The nodes on which `job` may get no GPUs; if None, any job."""
        return 0 if self._closed_to is None else self._closed_to(job)

    def _closed_to_part(self, job: JobView | None) -> NodeSet:
        """The nodes on which `job` may get no part of a GPU."""
        demand = None if job is None else active_of(job).demand
        return self._closed(job) | (0 if demand is None else self._capacity.host_use().short(demand))

    def _open_nodes(self, gpu_type: str | None, job: JobView | None) -> FreeNodesByLeaf:
        """What a placer may look at for `job`."""
        demand = None if job is None else active_of(job).demand
        return open_nodes(self._free_nodes(gpu_type), self._closed(job), self._capacity, demand)

    def _unit(self, active: ActiveJob, gpus: int, gpu_type: str | None) -> int:
        """GPUs of the job that must share a node; 1 on an ideal network, where no placement is faster."""
        if not self._facts.cluster.network_model.by_placement:
            return 1
        curve = active.offers_of(gpu_type)[0].curve if active.offers else active.curve
        plan, nodes = curve.training.get(gpus), self._free_nodes(gpu_type)
        nodes = open_nodes(nodes, 0, self._capacity, active.demand)
        return 1 if plan is None else unit_of(plan.tp, gpus, nodes)

    def _own(self) -> Capacity:
        if not self._owns_capacity:
            self._capacity, self._owns_capacity = self._capacity.copy(), True
        return self._capacity

    def _place(
        self, job: JobView, active: ActiveJob, gpus: int, placement: Placement | None, prefer: Placement = (),
        gpu_type: str | None = None,
    ) -> Placement | None:  # fmt: skip
        own = active.placement
        if active.parts:
            return self._place_part(job, active, placement, gpu_type)
        if placement is None:
            if gpus > self._capacity.free:
                return None
            if own is not None and self._could_keep(job, own, gpus, gpu_type):
                placement = own
            else:
                near = prefer or own
                if self._closed_to is not None or active.demand is not None:
                    placement = self._find_open(job, active, gpus, near or (), gpu_type)
                else:
                    placement = self._facts.placer.place(
                        self._capacity if gpu_type is None else self._free_nodes(gpu_type), gpus,
                        [node for node, _ in near] if near else (), self._unit(active, gpus, gpu_type),
                    )  # fmt: skip
            if placement is None:
                return None
        else:
            if not isinstance(placement, SharedPlacement):
                placement = tuple(sorted((node, count) for node, count in placement))
            elif placement.parts * self._facts.packs < MILLION - self._facts.packs:
                raise PolicyError(f"start(job {job.id}, on={placement}): its policy packs no jobs so small")
            if sum(count for _, count in placement) != gpus:
                what = f"the places do not add up to {gpus} GPUs"
                raise PolicyError(f"start(job {job.id}, gpus={gpus}, on={placement}): {what}")
            self._check_open(job, placement, own or ())
        return self._take(job, gpus, placement, own)

    def _place_part(
        self, job: JobView, active: ActiveJob, asked: Placement | None, gpu_type: str | None
    ) -> Placement | None:
        """Give a job part of a GPU: its own if that is free, else of the fullest with room, else of a new."""
        parts, own, capacity, placement = active.parts, active.placement, self._capacity, asked
        if not isinstance(asked, SharedPlacement):
            where = None if asked is None else tuple(asked)
            if where is not None and (len(where) != 1 or where[0][1] != 1):
                raise PolicyError(f"start(job {job.id}, on={asked}): it needs part of one GPU")
            keeps = own is not None and where in (None, tuple(own)) and gpu_type in (None, job.gpu_type)
            if own is not None and keeps and capacity.has_room(own, active.demand):
                placement = own
            else:
                span = self._free_nodes(gpu_type).span if where is None else (where[0][0], 1)
                placement = capacity.part(parts, span, self._closed_to_part(job))
                if placement is None and where is None and capacity.free:
                    where = self._facts.placer.place(self._open_nodes(gpu_type, job), 1)
                if placement is None and where is not None:
                    placement = capacity.new_part(parts, where)
        if placement is None:
            return None
        self._check_open(job, placement, own or ())
        return self._take(job, 1, placement, own)

    def _take(self, job: JobView, gpus: int, placement: Placement, own: Placement | None) -> Placement:
        """Give a job these GPUs, which must be free. `own`: its real placement."""
        try:
            self._own().take(placement, active_of(job).demand)
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, gpus={gpus}, on={placement}): {error}") from None
        self._note(job, placement, own)
        return placement

    def _find_open(
        self, job: JobView, active: ActiveJob, gpus: int, near: Placement, gpu_type: str | None
    ) -> Placement | None:
        """Find a place on nodes that are open to the job, on those reserved for it first."""
        facts, liked, unit = self._facts, [node for node, _ in near], self._unit(active, gpus, gpu_type)
        reserved = 0 if facts.reserved_for is None else facts.reserved_for(job)
        found = None
        if reserved:
            own = open_nodes(self._free_nodes(gpu_type), ~reserved, self._capacity, active.demand)
            found = facts.placer.place(own, gpus, liked, unit)
        return found or facts.placer.place(self._open_nodes(gpu_type, job), gpus, liked, unit)

    def _check_open(self, job: JobView, placement: Placement, own: Placement) -> None:
        """PolicyError if the job does not hold GPUs of `placement` that are on nodes closed to it."""
        closed = self._closed(job)
        for node, count in placement if closed else ():
            if closed >> node & 1 and (node, count) not in own:
                what = f"node {node} is closed to it: it is reserved for other jobs, or about to be reclaimed"
                raise PolicyError(f"start(job {job.id}, on={placement}): {what}")

    def _could_keep(self, job: JobView, own: Placement, gpus: int, gpu_type: str | None) -> bool:
        """Whether `own`, the job's real placement, satisfies the call and is still free in this draft."""
        if gpus != job.gpus or (gpu_type is not None and gpu_type != job.gpu_type):
            return False
        return self._capacity.has_room(own, active_of(job).demand)

    def _note(self, job: JobView, placement: Placement | None, own: Placement | None) -> None:
        """`own`: the job's real placement."""
        if placement == own:
            self._changes.pop(job, None)
        else:
            self._changes[job] = placement


# For the engine and for searches on drafts; policies do not reach these.


facts_of: Callable[[Draft], ClusterState[JobView]] = attrgetter("_facts")
"""The facts that a draft was made from."""


def take_over(draft: Draft, other: Draft) -> None:
    """Change `draft` into `other`, a copy of it that is not used any more."""
    draft._capacity, draft._owns_capacity = other._capacity, other._owns_capacity
    draft._changes = other._changes


def adopt(draft: Draft) -> Mapping[JobView, Placement | None]:
    """Make the free GPUs of a draft the real ones and return its changes. The draft can then change without
    an effect on them.

    ValueError if the changes of the draft do not match the GPUs that it took and released: they were changed
    from outside.
    """
    changes = draft._changes
    if not changes:
        return changes
    facts, drafted = draft._facts, draft._capacity
    taken = sum([count for placement in changes.values() for _, count in placement or ()])
    released = sum([active_of(job).gpus for job in changes])
    exact = not drafted.closed and drafted.shared is None  # a job that shares a GPU may take none
    if exact and drafted.free != facts.capacity.free + released - taken:
        raise ValueError(f"of {taken} GPUs in the changes of a proposal some are not free there")
    facts.capacity, draft._owns_capacity = drafted, False
    return changes
