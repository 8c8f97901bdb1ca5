"""Jobs that their trace holds back, cancels, stops or runs more than once."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import cast

from clustersim.engine.clock import Due
from clustersim.engine.enactment import Enactment
from clustersim.engine.links import FULFILLED, NEVER, Links, Namesake, TasksOfArray, namesake_of
from clustersim.engine.world import World
from clustersim.jobs import ActiveJob, earlier_runs_of, eligible_from_s, stops_at_limit
from clustersim.records import (
    CANCELLED,
    FINISHED,
    NEVER_ELIGIBLE,
    OVER_LIMIT,
    SERVED,
    JobRecord,
)
from itertime.errors import UserError, shown
from traces.dependencies import Dependency
from traces.job import Job

__all__ = ["StatedRuns"]

_EARLY_S = 1e-6  # a timer may be this much early: the clock adds up differences
_COLUMNS: tuple[str, ...] = (
    "begin_s", "eligible_s", "cancel_s", "time_limit_s", "depends", "array_limit", "attempts", "suspended_s",
)  # fmt: skip


class _Hold:
    """Why a job is held: until `from_s`, for `dependencies` of which one is enough if `is_any`, and for a
    place among the tasks of its array if `in_array`. `is_queued`: whether it waits for that place alone.
    `asked_s`: when it is looked at again, if that is known.
    """

    __slots__ = ("asked_s", "dependencies", "from_s", "in_array", "is_any", "is_queued")

    def __init__(self, from_s: float, dependencies: tuple[Dependency, ...], is_any: bool, in_array: bool):
        self.from_s, self.dependencies, self.is_any = from_s, dependencies, is_any
        self.in_array, self.is_queued, self.asked_s = in_array, False, inf


class StatedRuns:
    """Holds, cancels, stops and repeats jobs as their trace says. `links`: of its dependencies; None without
    any. `replays_preemptions`: whether logged runs that ended in a preemption are repeated.
    """

    def __init__(self, world: World, enactment: Enactment, links: Links | None, replays_preemptions: bool):
        self.columns = _COLUMNS if links is None or not links.namesakes else (*_COLUMNS, "name")
        self._world, self._held_jobs, self._links = world, enactment.held_jobs, links
        self._replays_preemptions = replays_preemptions
        self._holds: dict[ActiveJob, _Hold] = {}
        self._arrays = world.arrivals.arrays
        world.facts.tasks_held_back = self._tasks_held_back
        self._array_of: dict[str, str] = {}  # of the tasks that have a place
        self._to_check: dict[ActiveJob, None] = {}
        self._checking = False
        self._on_check_due, self._on_cancel_due = [self._on_check], [self._on_cancel]
        if links is not None:
            world.on_start.append(self._on_start)
            world.on_departure.append(self._on_departure)

    def receive(self, active: ActiveJob) -> bool:
        """Hold a job that is not eligible yet. Note when it is cancelled or stopped, and its earlier runs."""
        job, world = active.job, self._world
        links, now = self._links, world.clock.now
        if links is not None and links.namesakes:
            links.add_namesake(job, active.order)
        if job.kind == "duration" and job.suspended_s and job.phases is None:
            active.add_work(job.suspended_s)
        if stops_at_limit(job):
            assert job.time_limit_s is not None
            share = active.work_at(job.time_limit_s) / active.work
            if share < 1.0 and not (active.failure and 1.0 - active.left_at_end / active.work < share):
                active.fail_after(share, f"{OVER_LIMIT} of {job.time_limit_s:g} s")
        if runs := earlier_runs_of(job, self._replays_preemptions):
            active.run_first(runs)
        if job.cancel_s is not None:
            world.clock.after(job.cancel_s - now, self._on_cancel_due, active)
        if active.eligibility is not None and active.eligibility.first_s not in (None, job.submit_s):
            if job.array_limit is not None:
                self._place(self._arrays[job.array_id or ""], job)
            return False  # it was held in another cluster of its fleet
        return self._hold(active, now)

    def _hold(self, active: ActiveJob, now: float) -> bool:
        """Hold a job if it has to wait for anything. Returns whether it does."""
        job = active.job
        dependencies, is_any = self._dependencies_of(active)
        hold = _Hold(eligible_from_s(job), dependencies, is_any, job.array_limit is not None)
        reasons = self._reasons(active, hold, now)
        if not reasons:
            return False
        self._holds[active] = hold
        if self._links is not None:
            for name in self._names_in(active, hold):
                self._links.waiters.setdefault(name, {})[active] = self
        self._held_jobs.hold(active, ", ".join(reasons))
        self._check_later(active)
        return True

    def _dependencies_of(self, active: ActiveJob) -> tuple[tuple[Dependency, ...], bool]:
        """The dependencies of a job on jobs of the trace, and whether one of them is enough. Others count as
        fulfilled, which a note says. UserError if the jobs can be read once, so that none is looked up.
        """
        job, links = active.job, self._links
        if job.depends is None:
            return (), False
        if links is None:
            problem = "the jobs come one by one, so that none can be looked up; give a list of them"
            raise UserError(f"job {shown(job.job_id)}: depends={shown(job.depends)}: {problem}")
        dependencies, is_any, unknown_names = links.dependencies_of(job)
        if unknown_names:
            names = ", ".join(unknown_names[:3]) + (", ..." if len(unknown_names) > 3 else "")
            text = f"depends on what the trace lacks, which counts as fulfilled: {names}"
            self._held_jobs.note(active, text)
        return dependencies, is_any

    def _names_in(self, active: ActiveJob, hold: _Hold) -> list[str | Namesake]:
        """What a held job waits for."""
        names: list[str | Namesake] = [name for d in hold.dependencies for name in d.jobs]
        namesake = namesake_of(active.job)
        if namesake is not None and any(not dependency.jobs for dependency in hold.dependencies):
            names.append(namesake)
        return names

    def _reasons(self, active: ActiveJob, hold: _Hold, now: float) -> list[str]:
        """Why a job has to wait now; empty if it has not. A job that has not takes its place in its array."""
        reasons = [f"not before t={hold.from_s:g} s"] if hold.from_s > now + _EARLY_S else []
        if hold.dependencies and self._status(active, hold, now)[0] != FULFILLED:
            reasons.append(f"depends on {active.job.depends}")
        if hold.in_array and not reasons and not self._takes_place(active, hold):
            reasons.append(f"the limit of its array {active.job.array_id}")
        return reasons

    def _status(self, active: ActiveJob, hold: _Hold, now: float) -> tuple[str, float]:
        """Whether the dependencies of a job are fulfilled, and when to ask again; infinite: at an event."""
        assert self._links is not None
        later_s = now + _EARLY_S
        return self._links.status_of_all(hold.dependencies, hold.is_any, active.job, active.order, later_s)

    # The tasks of arrays, which the clusters of a fleet share

    def _takes_place(self, active: ActiveJob, hold: _Hold) -> bool:
        """Give a task a place among those of its array that may run; False if it has to queue for one."""
        job = active.job
        array = self._arrays.setdefault(job.array_id or "", TasksOfArray())
        if job.job_id not in array.eligible:
            head = self._head(array)
            is_full = len(array.eligible) >= (job.array_limit or 1)
            if is_full or (head is not None and head.order < active.order):
                heappush(array.queue, (active.order, active, self))
                hold.is_queued = True
                return False
        self._place(array, job)
        return True

    def _place(self, array: TasksOfArray, task: Job) -> None:
        array.eligible.add(task.job_id)
        self._array_of[task.job_id] = task.array_id or ""
        if self._on_departure not in self._world.on_departure:
            self._world.on_departure.append(self._on_departure)

    def _tasks_held_back(self, array_id: str) -> int:
        array = self._arrays.get(array_id)
        return 0 if array is None else sum(active in self._holds for _, active, _ in array.queue)

    def _head(self, array: TasksOfArray) -> ActiveJob | None:
        """The first task that queues for a place; those that were cancelled are dropped."""
        while array.queue:
            _, active, of_cluster = array.queue[0]
            if active in of_cluster._holds:
                return active
            heappop(array.queue)
        return None

    def _fill(self, array: TasksOfArray) -> None:
        """Let the tasks that queue for a place have those that are free, in order of submission."""
        while (head := self._head(array)) is not None and len(array.eligible) < (head.job.array_limit or 1):
            of_cluster: StatedRuns = heappop(array.queue)[2]
            of_cluster._place(array, head.job)
            of_cluster._release(head)

    # What may end a hold

    def _on_start(self, active: ActiveJob) -> None:
        assert self._links is not None
        self._wake(self._links.start(active.job.job_id, self._world.clock.now))

    def _on_departure(self, record: JobRecord) -> None:
        links, job_id = self._links, record.job_id
        if links is not None:
            well = record.state in (FINISHED, SERVED)
            self._wake(links.end(job_id, self._world.clock.now, well=well))
            if (namesake := links.end_namesake(job_id)) is not None:
                self._wake((namesake,))
        array_id = self._array_of.pop(job_id, None)
        if array_id is not None:
            array = self._arrays[array_id]
            array.eligible.remove(job_id)
            if (head := self._head(array)) is not None:
                array.queue[0][2]._check_at_once(head)

    def _wake(self, names: tuple[str | Namesake, ...]) -> None:
        assert self._links is not None
        for name in names:
            for active, of_cluster in self._links.waiters.get(name, {}).items():
                of_cluster._check_at_once(active)

    def _check_at_once(self, active: ActiveJob) -> None:
        """Look at a held job again at this instant, behind what is due now."""
        self._to_check[active] = None
        if not self._checking:
            self._checking = True
            self._world.clock.after(0.0, self._on_check_due)

    def _check_later(self, active: ActiveJob) -> None:
        """Look at a job again at a time at which its hold may end, if one is known."""
        clock, hold = self._world.clock, self._holds[active]
        at_s = hold.from_s
        if at_s <= clock.now + _EARLY_S and hold.dependencies:
            status, at_s = self._status(active, hold, clock.now)
            if status == NEVER:
                self._check_at_once(active)
        if clock.now < at_s < inf and at_s != hold.asked_s:
            hold.asked_s = at_s
            clock.after(at_s - clock.now, self._on_check_due, active)

    def _on_check(self, event: Due) -> None:
        if event.value is None:
            self._checking = False
        else:
            self._to_check[cast("ActiveJob", event.value)] = None
        world, now, released = self._world, self._world.clock.now, False
        while self._to_check:
            active = next(iter(self._to_check))
            del self._to_check[active]
            if active in self._holds:
                released |= self._check(active, now)
        if released:
            world.last_event_s, world.wake_ups = now, 0
            world.decide_at_this_instant(now)

    def _check(self, active: ActiveJob, now: float) -> bool:
        """Let a held job go if nothing holds it any more. Returns whether it is eligible, or has left."""
        hold = self._holds[active]
        if hold.is_queued:
            self._fill(self._arrays[active.job.array_id or ""])
            return active not in self._holds
        if hold.dependencies and self._status(active, hold, now)[0] == NEVER:
            self._forget(active)
            depends = active.job.depends
            self._held_jobs.leave(active, f"{NEVER_ELIGIBLE}: its dependency {depends} cannot be fulfilled")
            return True
        if self._reasons(active, hold, now):
            self._check_later(active)
            return False
        self._release(active)
        return True

    def _release(self, active: ActiveJob) -> None:
        self._forget(active)
        self._held_jobs.release(active)

    def _forget(self, active: ActiveJob) -> None:
        names, links = self._names_in(active, self._holds.pop(active)), self._links
        if links is not None:
            for name in names:
                links.waiters[name].pop(active, None)

    def _on_cancel(self, event: Due) -> None:
        """A user cancels a job, which has an effect if it waits."""
        active, world, now = cast("ActiveJob", event.value), self._world, self._world.clock.now
        reason = f"{CANCELLED} its user while it waited"
        if active in self._holds:
            self._forget(active)
        if not self._held_jobs.cancel(active, reason):
            return
        world.last_event_s, world.wake_ups = now, 0
        world.decide_at_this_instant(now)
