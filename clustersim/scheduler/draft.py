"""A draft of an allocation: which job runs where. An illegal state cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Self

from clustersim.cluster import Capacity, CapacityIfStopped, Placement, SharedPlacement, nodes_of
from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.placement import Room, SharedGpuRoom
from itertime.errors import UnknownName

from .cluster_state import ClusterState
from .internal import active_of
from .job_view import JobView

__all__ = ["Draft"]


class Draft:
    """A draft of which job runs where from now on. It starts as reality; each call changes the draft only.

    Every call checks the rules, so a draft is always possible: no GPU twice, all GPUs of a job at once,
    only counts that the job can run on, placed by the run's placer.
    """

    __slots__ = ("_capacity", "_changes", "_facts", "_owns_capacity", "_room_for", "decision")

    def __init__(self, facts: ClusterState[JobView]):
        self._facts = facts
        self.decision = facts.decision
        """The number of the policy's call in which the draft was made."""
        self._capacity = facts.capacity
        self._room_for: Callable[..., Room] = facts.room_for
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
        try:
            return self._capacity.pool(gpu_type).free
        except UnknownName as error:
            raise PolicyError(str(error)) from None

    def gpu_type(self, job: JobView) -> str | None:
        """The type of the GPUs that `job` holds in this draft, None if it holds none."""
        placement = self.placement(job)
        return None if not placement else self._facts.cluster.type_of(placement[0][0])

    @property
    def full(self) -> bool:
        """Whether no job could start in this draft, not even on part of a GPU that jobs share."""
        return not self._capacity.free and not self._capacity.idle_millionths

    def fits(self, gpus: float, gpu_type: str | None = None, job: JobView | None = None) -> bool:
        """Whether the draft has room for a job of `gpus` GPUs of that type (of any one type if None).

        Below 1 they are part of a GPU: on one that jobs share already, or on a free one. `job`: which job; if
        None, nodes count that are open to any job, for example those of a reservation.
        """
        if gpu_type is None and (cluster := self._facts.cluster).mixed:
            gpu_types = cluster.gpu_types if job is None else job.gpu_types
            return any(self._room_for(job, name).fits(self._capacity, gpus) for name in gpu_types)
        return self._room_for(job, gpu_type).fits(self._capacity, gpus)

    def free_for(self, job: JobView) -> int:
        """Free GPUs in this draft on nodes that are open to `job`."""
        return self._room_for(job, None).open(self._capacity).free

    @property
    def plans_closures(self) -> bool:
        """Whether nodes are planned to be closed to some jobs: by reservations, or by a calendar."""
        return self._facts.nodes.plans is not None

    def openings_s(self) -> list[float]:
        """The times after now at which nodes are planned to open to some jobs, ascending."""
        plans = self._facts.nodes.plans
        return [] if plans is None else list(plans.openings_s())

    def later(self, time_s: float) -> Self:
        """A copy of the draft as of a later time. Its nodes are closed to jobs, or back in service, as
        planned. Its jobs are those of this draft: the caller stops those that have ended by then.
        """
        twin = self.copy()
        plans = self._facts.nodes.plans
        if plans is not None:
            twin._room_for = partial(self._facts.room_later, time_s)
            for node in nodes_of(plans.back_by(time_s) & self._capacity.closed):
                twin._own_capacity().open(node)
        return twin

    def may_fit_without(self, placements: Iterable[Placement], gpus: float) -> bool:
        """Whether a job of `gpus` GPUs may fit once the jobs in `placements` have stopped. On a cluster of
        several pools, and for a part of a GPU, the answer is always True.
        """
        if len(self._facts.cluster.pools) > 1 or gpus < 1:
            return True
        assert isinstance(gpus, int)
        return self._facts.placer.fits(CapacityIfStopped(self._capacity, placements), gpus)

    def start(
        self,
        job: JobView,
        gpus: int | None = None,
        on: Placement | None = None,
        gpu_type: str | None = None,
        until_s: float | None = None,
    ) -> Placement | None:
        """Give a job without GPUs `gpus` GPUs (its request if None). Returns where, or None if there is no
        room.

        `gpu_type` asks for GPUs of that type. If None, the job gets the first of its `gpu_types` with room,
        and waits where all of those are slower than the run's `type_slowdown` allows.
        `on` asks for exactly this placement, which must be `in_shape`. A job that was stopped in this draft
        gets its own GPUs back if they are still free; in reality nothing happens to it then.
        `until_s`: when the policy expects the job to end. It then gets no GPUs of nodes that are planned to
        be closed to it before that, by reservations or by a calendar.
        """
        active = active_of(job)
        if self._changes.get(job, active.placement) is not None:
            raise PolicyError(f"start(job {job.id}): it already runs in this proposal; use resize")
        if on is not None and self._facts.cluster.mixed:
            gpu_type = self._type_of_placement(job, on, gpu_type)
        count = self._count(job, active, "start", gpus, gpu_type)
        if on is not None:
            return self._place_on(job, active, count, on, gpu_type)
        if not active.offers:
            return self._place(job, active, count, gpu_type, until_s=until_s)
        offers = self._facts.default_offers(active) if gpu_type is None else active.offers_of(gpu_type)
        for offer in offers:
            count = offer.requested if gpus is None else gpus
            if count in offer.curve.unit_s:
                placement = self._place(job, active, count, offer.gpu_type, until_s=until_s)
                if placement is not None:
                    return placement
        return None

    def in_shape(self, job: JobView, placement: Placement) -> bool:
        """Whether GPUs lie on as many nodes, with as many on each, as `job` asks for; True for a job that
        does not ask, and for another number of GPUs than it requests.
        """
        shape = active_of(job).shape
        return shape is None or shape.holds(placement)

    def stop(self, job: JobView) -> None:
        """Take the GPUs from a job; it keeps its progress and waits again."""
        held = active_of(job).placement
        placement = self._changes.get(job, held)
        if placement is None:
            raise PolicyError(f"stop(job {job.id}): it does not run in this proposal")
        self._own_capacity().release(placement, active_of(job).demand)
        self._note(job, None, held)

    def keep(self, job: JobView) -> bool:
        """Let a job that was stopped in this draft keep the GPUs that it holds in reality, if all of them are
        still free in it. Returns whether they are.
        """
        active = active_of(job)
        held = active.placement
        if held is None or self._changes.get(job, held) is not None:
            return False
        too_large = active.gpus > self._capacity.free and not isinstance(held, SharedPlacement)
        if too_large or not self._capacity.has_room(held, active.demand):
            return False
        self._own_capacity().take(held, active.demand)
        self._note(job, held, held)
        return True

    def resize(self, job: JobView, gpus: int, gpu_type: str | None = None) -> Placement | None:
        """Give a job that runs in the draft another number of GPUs, or GPUs of another type (of the same if
        None). Returns where, or None (and no change) if there is no room.
        """
        active = active_of(job)
        old_placement = self._changes.get(job, active.placement)
        if old_placement is None:
            raise PolicyError(f"resize(job {job.id}): it does not run in this proposal; use start")
        current_type = self.gpu_type(job) if self._facts.cluster.mixed else gpu_type
        new_type = gpu_type or current_type
        count = self._count(job, active, "resize", gpus, new_type)
        if new_type == current_type:
            is_real = old_placement is active.placement
            if count == (active.gpus if is_real else sum([spot[1] for spot in old_placement])):
                return old_placement
        self._own_capacity().release(old_placement, active.demand)
        new_placement = self._place(job, active, count, new_type, neighbours=old_placement)
        if new_placement is None:
            self._capacity.take(old_placement, active.demand)
        return new_placement

    def copy(self) -> Self:
        """An independent draft that starts as this one, for looking ahead."""
        twin = type(self)(self._facts)
        twin.decision = self.decision
        # Free GPUs that neither draft owns are copied by the first of them that changes them.
        twin._owns_capacity = self._owns_capacity
        twin._capacity = self._capacity.copy() if self._owns_capacity else self._capacity
        twin._changes = dict(self._changes)
        twin._room_for = self._room_for
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
        if gpu_type is None and not active.offers:
            if count in active.curve.unit_s:
                return count
        elif gpus is None:
            count = next((offer.requested for offer in active.offers_of(gpu_type)), count)
        if not job.can_run_on(count, gpu_type):
            where = f", gpu_type={gpu_type}" if gpu_type else ""
            sizes = job.sizes_on(gpu_type) if gpu_type else job.sizes
            choices = f"{', '.join(map(str, sizes))} GPUs" if sizes else f"{', '.join(job.gpu_types)} alone"
            raise PolicyError(f"{call}(job {job.id}, gpus={count!r}{where}): it can run on {choices}")
        return count

    def _type_of_placement(self, job: JobView, placement: Placement, gpu_type: str | None) -> str:
        """The type of the GPUs of `placement`."""
        cluster = self._facts.cluster
        try:
            types = list(dict.fromkeys(cluster.type_of(node) for node, _ in placement))
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, on={placement}): {error}") from None
        if len(types) != 1 or gpu_type not in (None, types[0]):
            condition = f", gpu_type={gpu_type}" if gpu_type else ""
            fault = f"the places are on {' and '.join(types) or 'no'} nodes; a job runs on GPUs of one type"
            raise PolicyError(f"start(job {job.id}, on={placement}{condition}): {fault}")
        return types[0]

    def _own_capacity(self) -> Capacity:
        """The free GPUs, of which the draft is the only owner from now on."""
        if not self._owns_capacity:
            self._capacity = self._capacity.copy()
            self._owns_capacity = True
        return self._capacity

    def _place(
        self,
        job: JobView,
        active: ActiveJob,
        gpus: int,
        gpu_type: str | None,
        neighbours: Placement = (),
        until_s: float | None = None,
    ) -> Placement | None:
        """Give a job `gpus` GPUs where it has room: its own if they are free, else if possible on the
        nodes of `neighbours` (on its own nodes if empty).
        """
        held, capacity = active.placement, self._capacity
        if gpus > capacity.free and not active.millionths:
            return None  # most starts in a full cluster end here; a share may lie on a GPU that is not free
        room = self._room_for(job, gpu_type, until_s)
        placement = None
        if held is not None and gpus == active.gpus:
            placement = room.keep(capacity, held)
        if placement is None:
            placement = room.place(capacity, gpus, neighbours or held or ())
        return None if placement is None else self._take(job, gpus, placement, held)

    def _place_on(
        self, job: JobView, active: ActiveJob, gpus: int, request: Placement, gpu_type: str | None
    ) -> Placement:
        """Give a job exactly the GPUs that its policy asks for. PolicyError if the job cannot have them."""
        held, room = active.placement, self._room_for(job, gpu_type)
        placement: Placement
        if not isinstance(room, SharedGpuRoom):
            placement = self._whole_gpus(job, gpus, request)
        elif isinstance(request, SharedPlacement):
            placement = request
        else:
            placement = self._share_of_gpu(job, room, request, held)
        self._check_open(job, room, placement, held or ())
        if active.shape is not None and not active.shape.holds(placement):
            fault = f"it asks for {active.shape}; see `in_shape`"
            raise PolicyError(f"start(job {job.id}, on={placement}): {fault}")
        return self._take(job, gpus, placement, held)

    def _whole_gpus(self, job: JobView, gpus: int, request: Placement) -> Placement:
        """What a policy asks for, in the order of the nodes. The GPUs may be ones that jobs share because
        their policy packs them.
        """
        if not isinstance(request, SharedPlacement):
            placement = tuple(sorted((node, count) for node, count in request))
        elif not self._facts.sharing.allows(request.millionths):
            raise PolicyError(f"start(job {job.id}, on={request}): its policy packs no jobs so small")
        else:
            placement = request
        if sum(count for _, count in placement) != gpus:
            fault = f"the places do not add up to {gpus} GPUs"
            raise PolicyError(f"start(job {job.id}, gpus={gpus}, on={placement}): {fault}")
        return placement

    def _share_of_gpu(
        self, job: JobView, room: SharedGpuRoom, request: Placement, held: Placement | None
    ) -> Placement:
        """The share of one GPU of the node that a policy asks for."""
        node_counts = tuple(request)
        if len(node_counts) != 1 or node_counts[0][1] != 1:
            raise PolicyError(f"start(job {job.id}, on={request}): it needs part of one GPU")
        held_share = (
            room.keep(self._capacity, held) if held is not None and node_counts == tuple(held) else None
        )
        return held_share or room.place_on(self._capacity, node_counts)

    def _take(self, job: JobView, gpus: int, placement: Placement, held: Placement | None) -> Placement:
        """Give a job these GPUs, which must be free. `held`: its placement in reality."""
        try:
            self._own_capacity().take(placement, active_of(job).demand)
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, gpus={gpus}, on={placement}): {error}") from None
        self._note(job, placement, held)
        return placement

    def _check_open(self, job: JobView, room: Room, placement: Placement, held: Placement) -> None:
        """PolicyError for GPUs on nodes that are closed to the job, except those of `held`."""
        closed = room.closed
        for node, count in placement if closed else ():
            if closed >> node & 1 and (node, count) not in held:
                fault = (
                    f"node {node} is closed to it: it is reserved for other jobs, or about to be reclaimed"
                )
                raise PolicyError(f"start(job {job.id}, on={placement}): {fault}")

    def _note(self, job: JobView, placement: Placement | None, held: Placement | None) -> None:
        """`held`: the job's placement in reality."""
        if placement == held:
            self._changes.pop(job, None)
        else:
            self._changes[job] = placement
