"""A job inside the system: the engine's mutable side (`ActiveJob`) and what a policy may see of it
(`JobView`).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from itertime.errors import UnknownName
from traces.job import Job

from .cluster import Placement
from .errors import PolicyError

if TYPE_CHECKING:
    from .overheads import Overheads
    from .scheduler import State
    from .speed import Curve, Offer

__all__ = ["ActiveJob", "JobView"]


class ActiveJob:
    """One submitted job and its progress, which is integrated only when its speed changes.

    Work is counted in units: iterations, or seconds of logged duration. Between two changes the job holds
    `placement`, pays overhead until `ready_s`, then does one unit every `unit_s` seconds.
    """

    __slots__ = (
        "curve", "finish_s", "generation", "gpu_seconds", "gpus", "job", "lost_s", "migrations", "note",
        "offers", "order", "overhead_gpu_s", "placement", "preemptions", "ready_s", "requested", "resizes",
        "restarts", "since_s", "start_s", "states_work", "unit_s", "view", "wait_s", "work", "work_left",
    )  # fmt: skip

    # What only failures change (see `clustersim.fallible`).
    interruptions: int = 0
    lost_work_s: float = 0.0
    lost_work_gpu_s: float = 0.0
    fate: str = ""

    def __init__(self, job: Job, order: int, curve: Curve, requested: int, note: str, state: State):
        self.job, self.order, self.curve, self.requested, self.note = job, order, curve, requested, note
        self.offers: tuple[Offer, ...] = ()  # by GPU type, the best first, where there are several
        self.states_work = job.kind == "iterations"  # else the work is the logged duration, a secret
        work = job.iterations if self.states_work else job.duration_s
        assert work is not None
        self.work = self.work_left = float(work)
        self.placement: Placement | None = None
        self.gpus = 0
        self.unit_s = 0.0
        self.since_s = job.submit_s  # when the present allocation, or the present wait, began
        self.ready_s = 0.0
        self.start_s: float | None = None
        self.finish_s: float | None = None
        self.generation = (
            0  # counts allocations, so that the completion of an earlier one is recognised as stale
        )
        self.gpu_seconds = self.overhead_gpu_s = self.lost_s = self.wait_s = 0.0
        self.preemptions = self.resizes = self.restarts = self.migrations = 0
        self.view = JobView(self, state)

    def forget_view(self) -> None:
        """The job has left the system: it and its view must not keep each other alive until the garbage
        collector finds them.
        """
        del self.view

    def work_left_at(self, now: float) -> float:
        """Units still to do at `now`."""
        began_s = self.ready_s
        if self.placement is None or now <= began_s:
            return self.work_left
        if began_s < self.since_s:
            began_s = self.since_s
        left = self.work_left - (now - began_s) / self.unit_s
        return left if left > 0.0 else 0.0

    def settle(self, now: float) -> None:
        """Close the present allocation or wait at `now`: book its progress, GPU-seconds and overhead."""
        spent = now - self.since_s
        if self.placement is None:
            self.wait_s += spent
        else:
            self.work_left = self.work_left_at(now)
            self.gpu_seconds += spent * self.gpus
            if self.ready_s > self.since_s:
                overhead = min(self.ready_s - self.since_s, spent)
                self.overhead_gpu_s += overhead * self.gpus
                self.lost_s += overhead
        self.since_s = now

    def hold(self, placement: Placement, gpus: int, unit_s: float, now: float, overhead_s: float) -> float:
        """Take `placement` at `now`, paying `overhead_s` first; returns the time at which the job will be
        done.
        """
        self.placement, self.gpus, self.unit_s = placement, gpus, unit_s
        self.since_s, self.ready_s = now, now + overhead_s
        self.generation += 1
        return self.ready_s + self.work_left * unit_s

    def change_speed(self, unit_s: float, now: float) -> float:
        """Go on with `unit_s` seconds per unit of work from `now` on, on the same GPUs; what is left of an
        overhead is still to be paid. Returns the time at which the job will be done.
        """
        self.settle(now)
        self.unit_s = unit_s
        self.generation += 1
        return max(now, self.ready_s) + self.work_left * unit_s

    def overhead_s(self, overheads: Overheads, kind: str, gpus: int, nodes: int) -> float:
        """Seconds that it pays for getting `gpus` GPUs on `nodes` nodes by a start, restart, resize or
        migration.
        """
        if kind == "start":
            return overheads.start_s(gpus)
        return overheads.restart_s(self.curve.parameters, nodes, gpus, kind)

    def paying_s(self, now: float) -> float:
        """Seconds of overhead still to pay on the GPUs that it holds."""
        return max(0.0, self.ready_s - now)

    def offers_of(self, gpu_type: str | None) -> tuple[Offer, ...]:
        """What GPUs of a type offer it; all types, the best first, if None."""
        return tuple(offer for offer in self.offers if gpu_type in (None, offer.gpu_type))

    def curve_at(self, placement: Placement) -> Curve:
        """Its curve on GPUs of the type of `placement`."""
        if not self.offers:
            return self.curve
        return self.offers_of(self.view._state.cluster.type_of(placement[0][0]))[0].curve

    def unit_s_on(self, gpus: int, gpu_type: str | None) -> float | None:
        """Seconds per unit of work on `gpus` GPUs of a type, the fastest of all if None; None if it cannot
        run there.
        """
        if not self.offers:
            return self.curve.unit_s.get(gpus)
        found = (offer.curve.unit_s.get(gpus) for offer in self.offers_of(gpu_type))
        return min((unit_s for unit_s in found if unit_s is not None), default=None)

    def let_go(self) -> None:
        self.placement, self.gpus = None, 0
        self.generation += 1


class JobView:
    """What a policy sees of a job: what a real scheduler could know, always as of now. Read-only.

    GPU counts are numbers of GPUs, times seconds, rates units per second. The view of a job stays the same
    object for all its life, so views can be compared, hashed and kept in dictionaries.
    """

    __slots__ = ("_job", "_state")

    def __init__(self, job: ActiveJob, state: State):
        self._job, self._state = job, state

    def __repr__(self) -> str:
        return f"<job {self.id}: {self.gpus or 'no'} GPUs>"

    @property
    def id(self) -> str:
        return self._job.job.job_id

    @property
    def order(self) -> int:
        """Position in the order of submission, the last resort of every tie."""
        return self._job.order

    @property
    def tenant(self) -> str:
        return self._job.job.tenant

    @property
    def model(self) -> str | None:
        return self._job.job.model

    @property
    def priority(self) -> int:
        return self._job.job.priority

    @property
    def submit_s(self) -> float:
        return self._job.job.submit_s

    @property
    def deadline_s(self) -> float | None:
        """Absolute, on the trace's clock; None if the job has none."""
        return self._job.job.deadline_s

    @property
    def requested(self) -> int:
        """The GPUs its user asked for (raised to what the model needs)."""
        return self._job.requested

    @property
    def sizes(self) -> tuple[int, ...]:
        """The GPU counts worth giving it, ascending, each strictly faster than the one before. On a cluster
        of several GPU types, those of the best type; see `sizes_on`.
        """
        return self._job.curve.sizes

    def sizes_on(self, gpu_type: str) -> tuple[int, ...]:
        """The same on GPUs of one type; none if it cannot run there."""
        self._check_type(gpu_type)
        if not self._job.offers:
            return self._job.curve.sizes
        return next((offer.curve.sizes for offer in self._job.offers_of(gpu_type)), ())

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """The GPU types that can run it: those that need the fewest GPUs for its request first, then the
        fastest.
        """
        if not self._job.offers:
            return self._state.cluster.gpu_types
        return tuple(offer.gpu_type for offer in self._job.offers)

    @property
    def gpu_type(self) -> str | None:
        """The type of the GPUs it holds now; None while it waits."""
        placement = self._job.placement
        return None if placement is None else self._state.cluster.type_of(placement[0][0])

    @property
    def gpus(self) -> int:
        """The GPUs it holds now; 0 while it waits."""
        return self._job.gpus

    @property
    def running(self) -> bool:
        return self._job.placement is not None

    @property
    def started(self) -> bool:
        """Whether it has ever held GPUs: its next start is then a restart."""
        return self._job.start_s is not None

    @property
    def attained(self) -> float:
        """GPU-seconds it has held so far."""
        job = self._job
        return job.gpu_seconds + (self._state.now - job.since_s) * job.gpus

    @property
    def paying_s(self) -> float:
        """Seconds of overhead still to pay on its present allocation."""
        job = self._job
        return 0.0 if job.placement is None else job.paying_s(self._state._now)

    @property
    def productive_s(self) -> float:
        """Seconds since it had paid the overhead of its present allocation; 0 before, and while it waits."""
        job = self._job
        if job.placement is None:
            return 0.0
        productive_s = self._state._now - job.ready_s
        return productive_s if productive_s > 0.0 else 0.0

    def can_run_on(self, gpus: int, gpu_type: str | None = None) -> bool:
        """Whether it can run on `gpus` GPUs of that type (of some type if None)."""
        if gpu_type is not None:
            self._check_type(gpu_type)
        return self._job.unit_s_on(gpus, gpu_type) is not None

    def rate(self, gpus: int, gpu_type: str | None = None) -> float:
        """Units of work per second on `gpus` GPUs of that type (of the fastest if None), 0 where it cannot
        run. As if packed and alone: what its placement and other jobs' traffic cost it is not known before.

        Comparable between counts and types of one job, not between jobs.
        """
        if gpu_type is not None:
            self._check_type(gpu_type)
        unit_s = self._job.unit_s_on(gpus, gpu_type)
        return 1.0 / unit_s if unit_s else 0.0

    def _check_type(self, gpu_type: str) -> None:
        if gpu_type not in self._state.cluster.gpu_types:
            raise PolicyError(str(UnknownName("GPU type", gpu_type, self._state.cluster.gpu_types)))

    def remaining(self, gpus: int | None = None, gpu_type: str | None = None) -> float:
        """Seconds of work left on `gpus` GPUs (its request if None) of that type (of the fastest if None),
        overheads apart; infinite where it cannot run.

        Known because the user stated the iterations. A job known only by its logged duration raises
        PolicyError: no real scheduler knows that.
        """
        if not self._job.states_work:
            raise PolicyError(
                f"job {self.id} does not state its work; a policy may ask job.oracle_remaining() instead"
            )
        return self._remaining(gpus, gpu_type)

    def oracle_remaining(self, gpus: int | None = None, gpu_type: str | None = None) -> float:
        """As `remaining`, but true for every job, from the log where the user stated nothing.

        Such use is noted in the records (`oracle_used`).
        """
        job = self._job
        if not job.states_work:
            self._state._oracle_used = True
        if gpus is None or job.offers or (unit_s := job.curve.unit_s.get(gpus)) is None:
            return self._remaining(gpus, gpu_type)
        return job.work_left_at(self._state._now) * unit_s

    def _remaining(self, gpus: int | None, gpu_type: str | None) -> float:
        job = self._job
        count = job.requested if gpus is None else gpus
        unit_s = (job.unit_s_on(count, gpu_type) if job.offers else job.curve.unit_s.get(count)) or inf
        return job.work_left_at(self._state._now) * unit_s

    def restart_s(self, gpus: int) -> float:
        """Seconds the engine would charge for a restart or a resize onto `gpus` GPUs, packed.

        A first start costs no more.
        """
        return self._state._restart_s(self._job, gpus)

    def start_cost_s(self, gpus: int) -> float:
        """Seconds the engine would charge a job that waits for getting `gpus` GPUs, packed: a launch if it
        never ran, else a restart.
        """
        return self.restart_s(gpus) if self.started else self._state._launch_s(gpus)
