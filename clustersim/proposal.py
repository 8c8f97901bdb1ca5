"""A draft of who runs where from now on, in which an illegal state cannot be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from itertime.errors import UnknownName

from .capacity import Capacity, Room
from .cluster import Placement
from .compaction import compact
from .errors import PolicyError
from .job_view import JobView
from .preemption import run_by
from .ranking import Key

if TYPE_CHECKING:
    from .scheduler import State

__all__ = ["Proposal"]


class Proposal:
    """A draft of who runs where from now on. It starts as reality; each call changes the draft only.

    Every call checks the rules, so a draft is always possible: no GPU twice, all GPUs of a job at once,
    only counts that the job can run on, placed by the run's placer.
    """

    __slots__ = ("_capacity", "_changes", "_decision", "_owns_capacity", "_state", "wake_at")

    def __init__(self, state: State):
        self._state, self._decision = state, state._decision
        self._capacity = state._capacity
        self._owns_capacity = False
        self._changes: dict[JobView, Placement | None] = {}
        self.wake_at: float | None = None
        """Ask to be called at this time even if nothing happens; replaces an earlier request."""

    @property
    def free(self) -> int:
        """GPUs that nobody holds in this draft."""
        return self._capacity.free

    def free_on(self, node: int) -> int:
        """GPUs of a node that nobody holds in this draft; 0 on a node that is out of service."""
        return self._capacity.free_on(node)

    def placement(self, job: JobView) -> Placement | None:
        """Where `job` runs in this draft, None if it does not."""
        return self._changes.get(job, job._job.placement)

    def gpus(self, job: JobView) -> int:
        """The GPUs that `job` holds in this draft."""
        if job not in self._changes:
            return job.gpus
        return sum(count for _, count in self._changes[job] or ())

    def running(self) -> list[JobView]:
        """The jobs that hold GPUs in this draft, in order of submission."""
        jobs = {**self._state._running, **self._changes}
        return sorted((job for job in jobs if self.placement(job)), key=lambda job: job.order)

    def free_of(self, gpu_type: str) -> int:
        """GPUs of that type that nobody holds in this draft."""
        return self._room(gpu_type).free

    def gpu_type(self, job: JobView) -> str | None:
        """The type of the GPUs that `job` holds in this draft, None if it holds none."""
        placement = self.placement(job)
        return None if not placement else self._state.cluster.type_of(placement[0][0])

    def fits(self, gpus: int, gpu_type: str | None = None) -> bool:
        """Whether the draft has room for a job of `gpus` GPUs of that type (of any one type if None)."""
        placer, cluster = self._state._placer, self._state.cluster
        if gpu_type is not None:
            return placer.fits(self._room(gpu_type), gpus)
        if cluster.mixed:
            return any(placer.fits(self._room(name), gpus) for name in cluster.gpu_types)
        return placer.fits(self._capacity, gpus)

    def start(
        self, job: JobView, gpus: int | None = None, on: Placement | None = None,
        gpu_type: str | None = None,
    ) -> Placement | None:  # fmt: skip
        """Give a job that has none `gpus` GPUs (its request if None); returns where, or None if there is no
        room.

        `gpu_type` asks for GPUs of that type; if None the job gets the first of its `gpu_types` with room.
        `on` asks for these places and no others. A job that was stopped in this draft gets its own GPUs
        back if they are still free; then nothing happens to it in reality.
        """
        if self._changes.get(job, job._job.placement) is not None:
            raise PolicyError(f"start(job {job.id}): it already runs in this proposal; use resize")
        if on is not None and self._state.cluster.mixed:
            gpu_type = self._type_of_places(job, on, gpu_type)
        count = self._count(job, "start", gpus, gpu_type)
        if on is not None or not job._job.offers:
            return self._place(job, count, on, gpu_type=gpu_type)
        for offer in job._job.offers_of(gpu_type):
            count = offer.requested if gpus is None else gpus
            if count in offer.curve.unit_s:
                placement = self._place(job, count, None, gpu_type=offer.gpu_type)
                if placement is not None:
                    return placement
        return None

    def stop(self, job: JobView) -> None:
        """Take its GPUs from a job; it keeps its progress and waits again."""
        placement = self.placement(job)
        if placement is None:
            raise PolicyError(f"stop(job {job.id}): it does not run in this proposal")
        self._own().release(placement)
        self._note(job, None)

    def resize(self, job: JobView, gpus: int, gpu_type: str | None = None) -> Placement | None:
        """Give a job that runs in the draft another number of GPUs, or GPUs of another type (of the same if
        None); returns where, or None (and no change) if there is no room.
        """
        before = self.placement(job)
        if before is None:
            raise PolicyError(f"resize(job {job.id}): it does not run in this proposal; use start")
        now_on = self.gpu_type(job) if self._state.cluster.mixed else gpu_type
        wanted = gpu_type or now_on
        count = self._count(job, "resize", gpus, wanted)
        if count == self.gpus(job) and wanted == now_on:
            return before
        self._own().release(before)
        after = self._place(job, count, None, prefer=before, gpu_type=wanted)
        if after is None:
            self._capacity.take(before)
        return after

    def run_by(self, key: Key, falling: bool = False) -> None:
        """Make the draft what a preemptive scheduler runs that serves jobs strictly by `key` and skips
        those without room.

        All active jobs are walked in the order of (key, submission). A job runs if its request fits into
        what earlier jobs of the walk leave; what later jobs hold counts as free and is taken from the last
        of them first. A job that keeps running keeps its GPUs.

        `falling` promises that the key of a job never grows while the job runs (remaining time, a deadline,
        a size): the keys of running jobs are then not all looked up at every decision.
        """
        run_by(self, key, falling)

    def compact(self, wanted: Mapping[JobView, int]) -> None:
        """Move jobs smaller than a node closer together, as far as it takes to give the jobs of `wanted`
        that many GPUs.

        If the blocks of `wanted` (`compaction.block`) add up to no more than the cluster, each of them finds
        its place. So does everybody else if that is true of all jobs, as it is for counts that are powers of
        two; otherwise others may lose their GPUs. Among equal blocks jobs of `wanted` choose first, in its
        order, and a job stays where it is if it can; whole nodes come last, on those that became free.
        """
        if self._state.cluster.mixed:
            raise PolicyError("compact: works on clusters of one GPU type only")
        compact(self, {job: self._count(job, "compact", gpus) for job, gpus in wanted.items()})

    def copy(self) -> Proposal:
        """An independent draft that starts as this one, for looking ahead."""
        twin = Proposal(self._state)
        twin._decision = self._decision
        twin._capacity, twin._owns_capacity = self._capacity.copy(), True
        twin._changes, twin.wake_at = dict(self._changes), self.wake_at
        return twin

    def _put_back(self, job: JobView, placement: Placement) -> None:
        """Undo `stop`."""
        self._capacity.take(placement)
        self._note(job, placement)

    def _count(self, job: JobView, call: str, gpus: int | None, gpu_type: str | None = None) -> int:
        count = job._job.requested if gpus is None else gpus
        if job not in self._state._pending and job not in self._state._running:
            raise PolicyError(f"{call}(job {job.id}): it is no longer in the system")
        if gpus is None and gpu_type is None:
            return count
        if gpus is None:
            count = next((offer.requested for offer in job._job.offers_of(gpu_type)), count)
        if not job.can_run_on(count, gpu_type):
            where = f", gpu_type={gpu_type}" if gpu_type else ""
            sizes = job.sizes_on(gpu_type) if gpu_type else job.sizes
            what = (
                f"on {', '.join(map(str, sizes))} GPUs" if sizes else f"on {', '.join(job.gpu_types)} alone"
            )
            raise PolicyError(f"{call}(job {job.id}, gpus={count!r}{where}): it can run {what}")
        return count

    def _type_of_places(self, job: JobView, on: Placement, gpu_type: str | None) -> str:
        """The type of the GPUs of the places `on`."""
        cluster = self._state.cluster
        try:
            types = list(dict.fromkeys(cluster.type_of(node) for node, _ in on))
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, on={on}): {error}") from None
        if len(types) != 1 or gpu_type not in (None, types[0]):
            asked = f", gpu_type={gpu_type}" if gpu_type else ""
            what = f"the places are on {' and '.join(types) or 'no'} nodes; a job runs on GPUs of one type"
            raise PolicyError(f"start(job {job.id}, on={on}{asked}): {what}")
        return types[0]

    def _room(self, gpu_type: str | None) -> Room:
        """What a placer may look at."""
        if gpu_type is None:
            return self._capacity
        try:
            return self._capacity.pool(gpu_type)
        except UnknownName as error:
            raise PolicyError(str(error)) from None

    def _unit(self, job: JobView, gpus: int, gpu_type: str | None) -> int:
        """GPUs of the job that must not be parted: a tensor-parallel group, as far as nodes can hold them.
        Where the network is ideal, nothing depends on that.
        """
        if self._state.cluster.network == "ideal":
            return 1
        active = job._job
        curve = active.offers_of(gpu_type)[0].curve if active.offers else active.curve
        plan = curve.training.get(gpus)
        room = self._room(gpu_type)
        unit = 1 if plan is None else min(plan.tp, room.gpus_per_node)
        fits = gpus // unit <= room.nodes * (room.gpus_per_node // unit)
        return unit if fits else 1  # groups of 2 on nodes of 3: some have to be parted, or it would never run

    def _own(self) -> Capacity:
        if not self._owns_capacity:
            self._capacity, self._owns_capacity = self._capacity.copy(), True
        return self._capacity

    def _place(
        self, job: JobView, gpus: int, on: Placement | None, prefer: Placement = (),
        gpu_type: str | None = None,
    ) -> Placement | None:  # fmt: skip
        own = job._job.placement
        if on is None:
            if gpus > self._capacity.free:
                return None
            if own is not None and self._could_keep(job, own, gpus, gpu_type):
                on = own
            else:
                near = prefer or own
                on = self._state._placer.place(
                    self._capacity if gpu_type is None else self._room(gpu_type), gpus,
                    [node for node, _ in near] if near else (), self._unit(job, gpus, gpu_type),
                )  # fmt: skip
            if on is None:
                return None
        else:
            on = tuple(
                sorted((node, count) for node, count in on)
            )  # equal places are equal, in whatever order
            if sum(count for _, count in on) != gpus:
                raise PolicyError(
                    f"start(job {job.id}, gpus={gpus}, on={on}): the places do not add up to {gpus} GPUs"
                )
        try:
            self._own().take(on)
        except ValueError as error:
            raise PolicyError(f"start(job {job.id}, gpus={gpus}, on={on}): {error}") from None
        self._note(job, on)
        return on

    def _could_keep(self, job: JobView, own: Placement, gpus: int, gpu_type: str | None) -> bool:
        """Whether `own`, which it holds in reality, is what it is to get, and still free in this draft."""
        if gpus != job.gpus or (gpu_type is not None and gpu_type != job.gpu_type):
            return False
        return all(self._capacity.free_on(n) >= c for n, c in own)

    def _note(self, job: JobView, placement: Placement | None) -> None:
        if placement == job._job.placement:
            self._changes.pop(job, None)
        else:
            self._changes[job] = placement
