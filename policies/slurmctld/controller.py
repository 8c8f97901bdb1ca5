"""The controller: its tables of jobs and nodes, and the timers of its schedulers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import floor, inf
from typing import NamedTuple

from .backfill import Plan, run_backfill
from .limits import Limits
from .main_scheduler import queue_of, run_main
from .outlook import Outlook
from .placement import FreeNodes, place
from .preemption import Preemption
from .priority import Priorities
from .records import JobRecord, Placement
from .reservations import Reservations
from .rules import Rules

__all__ = ["Controller", "Host", "Phases", "phases_of_start"]

MAIN_PERIOD_S, BACKFILL_PERIOD_S = 1.007, 1.003
"""How often the controller looks whether the main scheduler was asked for, and backfill whether anything
changed: their loops sleep for a second and then work. Measured: 1.001 to 1.015 s and 1.001 to 1.006 s.
"""

LIMIT_PERIOD_S = 30.0
"""How often it looks for jobs past their time limits (`PERIODIC_TIMEOUT`)."""

MAIN_DELAY_S, BACKFILL_DELAY_S = 0.28, 1.0
"""How long after the controller's start the loop of the main scheduler begins, with the first look at limits
and the first calculation of priorities; and backfill's. Measured: 0.23 to 0.34 s in 29 of 32 runs, and 1.0 s.
"""

COMPLETION_S, KILL_S = 0.01, 0.05
"""How long after the end of a job its nodes are free for others, and after a job is preempted. Measured:
mostly less than 0.015 s, and 0.03 to 0.1 s.
"""


class Phases(NamedTuple):
    """The seconds, after the trace's clock shows 0, at which the timers of the controller go off first. In
    Slurm that depends on when it was started: `main_s` of the loop, `backfill_s`, `priority_s`, and
    `limits_s` of the look for jobs past their time limits.
    """

    main_s: float = 0.0
    backfill_s: float = 0.0
    priority_s: float = 0.0
    limits_s: float = 0.0


def phases_of_start(start_s: float) -> Phases:
    """The phases of a controller that starts at `start_s`, which may be negative."""
    loop_s = start_s + MAIN_DELAY_S
    return Phases(
        loop_s % MAIN_PERIOD_S,
        (start_s + BACKFILL_DELAY_S) % BACKFILL_PERIOD_S,
        loop_s,
        loop_s % LIMIT_PERIOD_S,
    )


class Host(NamedTuple):
    """What is done outside with the controller's decisions.

    `start(job, placement)`: returns the nodes on which it cannot start there, 0 if it has started.
    `preempt(job, mode)`: REQUEUE or CANCEL. `tasks_held_back(job)`: how many further tasks of its array wait
    for the limit of the array alone.
    """

    start: Callable[[JobRecord, Placement], int]
    preempt: Callable[[JobRecord, str], None]
    tasks_held_back: Callable[[JobRecord], int] = lambda job: 0


class Controller:
    """Slurm's controller. `advance` runs the schedulers whose time has come; `wake_s` says when the next
    one's comes. Between the two, `submit` and `end` tell what happens.

    `free`: the free nodes at the start, all of whose GPUs are free (`sizes`). `totals`: the resources of each
    partition.
    """

    def __init__(
        self,
        rules: Rules,
        free: FreeNodes,
        host: Host,
        totals: Mapping[str, Mapping[str, float]],
        phases: Phases,
    ):
        self.rules, self.free, self.host, self.phases = rules, free, host, phases
        self.limits = Limits(rules)
        self.priorities = Priorities(rules, totals, self.limits)
        self.reservations = Reservations(rules)
        self.preemption = Preemption(rules)
        self.waiting: dict[JobRecord, None] = {}
        self.running: dict[JobRecord, None] = {}
        self.down_nodes = 0
        self.sizes = tuple(free.gpus)
        self.now = -inf
        self.plans: list[Plan] = []
        self._limit_ends: list[tuple[float, tuple[int, ...], JobRecord]] = []  # of running jobs, a heap
        self._ended_jobs: dict[JobRecord, float] = {}  # and when their nodes are free
        # Whether the main scheduler runs now, at the next tick of its loop, or when `sched_interval` is over.
        self._runs_now = self._runs_at_tick = self._reordered = False
        self._changed = False  # since the last cycle of backfill
        self._main_s = self._full_s = -inf
        self._backfill_s = -inf
        self._priority_s = phases.priority_s % max(1.0, rules.settings.PriorityCalcPeriod)
        self._overdue_s, self._looked_s = inf, -inf
        self._outlook: Outlook | None = None
        self._outlook_until_s = -inf
        self._moments_s = self.reservations.changes_s()

    # What happens to jobs.

    def submit(self, job: JobRecord, now: float) -> None:
        """A job enters the queue: it is submitted, or eligible again."""
        if job in self._ended_jobs:
            del self._ended_jobs[job]
            self._release(job, now)
        self.priorities.submit(job, now, self.host.tasks_held_back(job))
        self.waiting[job] = None
        self._runs_at_tick = self._changed = True

    def end(self, job: JobRecord, now: float) -> None:
        """A running job ends. Its nodes are free a moment later."""
        self._ended_jobs.setdefault(job, now + COMPLETION_S)
        self._outlook = None

    def lose(self, job: JobRecord, now: float) -> None:
        """A running job loses its nodes, which is no doing of the controller."""
        self._release(job, now)
        self._changed = True

    def adopt(self, job: JobRecord, placement: Placement, start_s: float) -> None:
        """A waiting job runs already, since `start_s`."""
        self._begin(job, job.partitions[0], placement, start_s)

    def leave(self, job: JobRecord) -> None:
        """A waiting job is cancelled."""
        self.waiting.pop(job, None)
        self._changed = True

    def change_nodes(self) -> None:
        """Nodes went or came back."""
        self._runs_at_tick = self._changed = True

    @property
    def holding(self) -> int:
        """How many jobs run and have not ended; the nodes of others are not free yet."""
        return len(self.running) - len(self._ended_jobs)

    # When it acts.

    def wake_s(self, now: float) -> float:
        """When the next timer has something to do; infinite if none has."""
        times = [job.doomed_s for job in self.running if job.doomed_s < inf]
        times += self._ended_jobs.values()
        if self.waiting:
            times.append(self._next_main_s(now))
            if self.rules.has_backfill and self._changed:
                times.append(self._next_backfill_s(now))
            if self.rules.is_multifactor:
                times.append(self._priority_s)
            times += [time_s for time_s in self._moments_s if time_s > now][:1]
            times.append(self._first_overdue_s(now))
        return min(times, default=inf)

    def advance(self, now: float) -> None:
        """Run what is due at `now`: the calculation of priorities, the main scheduler, backfill."""
        before_s, self.now = self.now, now
        for job in [job for job, free_s in self._ended_jobs.items() if free_s <= now]:
            self._free(job, now)
        for job in [job for job in self.running if job.doomed_s <= now and job not in self._ended_jobs]:
            self._preempt(job)
        while self._priority_s <= now:
            self.priorities.recalculate(self.waiting, self.running, floor(self._priority_s))
            self._priority_s += max(1.0, self.rules.settings.PriorityCalcPeriod)
            self._reordered = self._changed = True
        if any(before_s < time_s <= now for time_s in self._moments_s):
            self._runs_at_tick = self._changed = True
        if self._overdue_s <= now:
            self._changed = True
        self._overdue_s = self._first_overdue_s(now)
        self._stop_overdue(now)
        if not self.waiting:
            self._runs_now = self._runs_at_tick = self._changed = False
            return
        if self._runs_now or self._next_main_s(now) <= now:
            self._run_main(now)
        if self.rules.has_backfill and self._changed and self._next_backfill_s(now) <= now:
            self._backfill_s = now
            self._changed = False
            self.plans = run_backfill(queue_of(self.waiting, self.rules), self, floor(now))

    def _stop_overdue(self, now: float) -> None:
        """Mark the jobs that the last look for jobs past their limits began to stop."""
        settings, phase_s = self.rules.settings, self.phases.limits_s
        looked_s = (now - phase_s) // LIMIT_PERIOD_S * LIMIT_PERIOD_S + phase_s
        if looked_s == self._looked_s:
            return
        self._looked_s = looked_s
        for job in self.running:
            if not job.completing and job.limit_end_s + settings.OverTimeLimit <= looked_s:
                job.completing = self._changed = True
                self._outlook = None

    def _free(self, job: JobRecord, now: float) -> None:
        """The nodes of a job that ended are free. Where they have anything left to do at its end (a program,
        steps to kill), they report that by a message of its own, and the main scheduler runs at once. Else
        they say so as they hear of the end, which is noticed at a tick of the loop.
        """
        own_message = job.completing or self.rules.settings.Epilog
        del self._ended_jobs[job]
        self._release(job, now)
        self._changed = True
        if own_message:
            self._runs_now = True
        else:
            self._runs_at_tick = True

    def _run_main(self, now: float) -> None:
        full = False
        if not self._runs_now or self._next_main_s(now) <= now:
            self._main_s = now
            full = now >= self._full_s + self.rules.number("sched_interval")
            self._runs_at_tick = self._reordered = False
        if full:
            self._full_s = now
        self._runs_now = False
        run_main(queue_of(self.waiting, self.rules), self, now, full)

    def _next_main_s(self, now: float) -> float:
        """The next tick at which the main scheduler runs, `now` if it is one; infinite if nothing changed."""
        if self._runs_at_tick:
            due_s = self._main_s + self.rules.number("batch_sched_delay")
        elif self._reordered:
            due_s = self._full_s + self.rules.number("sched_interval")
        else:
            return inf
        return _tick_at(max(due_s, now), self.phases.main_s, MAIN_PERIOD_S)

    def _next_backfill_s(self, now: float) -> float:
        """The next tick at which a cycle of backfill may begin, `now` if it is one."""
        due_s = self._backfill_s + max(1.0, self.rules.number("bf_interval"))
        return _tick_at(max(due_s, now), self.phases.backfill_s, BACKFILL_PERIOD_S)

    def _first_overdue_s(self, after_s: float) -> float:
        """When a running job next passes its limit: expected starts then change without any event."""
        ends = self._limit_ends
        while ends and (ends[0][2] not in self.running or ends[0][0] <= after_s):
            heappop(ends)
        return ends[0][0] if ends else inf

    # What the schedulers ask and do.

    def limit_reason(self, job: JobRecord, partition: str) -> str:
        reason = self.limits.reason(job, partition, self.now)
        job.over_limit = bool(reason)
        if reason:
            job.reason = reason
        return reason

    def never_starts(self, job: JobRecord) -> bool:
        """Whether a job waits for a budget that is used up and that nothing gives back."""
        if self.running or not self.limits.counts_use or self.limits.forgets_use:
            return False
        return job.reason.endswith(("Minutes", "WallLimit"))

    def usable_nodes(self, partition: str) -> int:
        return self.rules.nodes_of[partition] & ~self.down_nodes

    def preemptable(self, job: JobRecord, partition: str, usable: int) -> Sequence[JobRecord]:
        if not self.preemption.enabled:
            return ()
        running_jobs = [
            running_job
            for running_job in self.running
            if not (running_job.completing or running_job in self._ended_jobs)
            and running_job.start_s < self.now
        ]
        return self.preemption.candidates(job, partition, running_jobs, usable, self.now)

    def tasks_held_back(self, job: JobRecord) -> int:
        return self.host.tasks_held_back(job)

    def outlook(self, now: float) -> Outlook:
        """Expected starts, by those of the last cycle if no job has started, ended or passed its limit. Nodes
        of jobs that have ended count as free: a plan on them keeps others away until they are.
        """
        if self._outlook is None or self._outlook_until_s <= now:
            free, running_jobs = self.free, tuple(self.running)
            if self._ended_jobs:
                free = free.copy()
                for job in self._ended_jobs:
                    free.release(job)
                running_jobs = tuple(job for job in running_jobs if job not in self._ended_jobs)
            self._outlook = Outlook(self.rules, free, running_jobs, now)
            self._outlook_until_s = self._first_overdue_s(now)
        self._outlook.now = now
        return self._outlook

    def start_now(self, job: JobRecord, partition: str, usable: int) -> bool:
        """Start a job on usable nodes that no reservation closes to it. A job that preempts others has to
        wait until they are gone.
        """
        usable, _ = self.reservations.open_nodes(job, usable, self.now, self.now)
        weights = self.rules.weights
        least_loaded = self.rules.partitions[partition].LLN
        while (placement := place(job, self.free, usable, weights, least_loaded)) is not None:
            refused = self.host.start(job, placement)
            if not refused:
                self._begin(job, partition, placement)
                return True
            usable &= ~refused
        if self.now < job.preempts_until_s:
            return False
        candidates = self.preemptable(job, partition, usable)
        victims = self.preemption.victims(job, candidates, self.free, usable, weights) if candidates else None
        if victims is None:
            return False
        grace_s = max(self.preemption.grace_s(victim) for victim in victims.jobs)
        job.preempts_until_s = self.now + grace_s + KILL_S
        for victim in victims.jobs:
            if grace_s:
                victim.doomed_s = min(victim.doomed_s, self.now + self.preemption.grace_s(victim))
            else:
                self._preempt(victim)
        return False

    def _begin(
        self, job: JobRecord, partition: str, placement: Placement, start_s: float | None = None
    ) -> None:
        del self.waiting[job]
        self.running[job] = None
        self._outlook = None
        job.begin(partition, placement, self.now if start_s is None else start_s)
        heappush(self._limit_ends, (job.limit_end_s, job.order, job))
        self.free.take(placement, job.cpus / len(placement))
        self.limits.start(job)
        self._changed = True

    def _preempt(self, job: JobRecord) -> None:
        """Stop a running job. Its nodes are free a moment later."""
        self.host.preempt(job, self.preemption.mode(job))
        job.doomed_s, job.completing = inf, True
        self._ended_jobs[job] = self.now + KILL_S
        self._outlook = None
        self._changed = True

    def _release(self, job: JobRecord, now: float) -> None:
        self.priorities.end(job, now)
        self._outlook = None
        self.limits.end(job)
        self.free.release(job)
        del self.running[job]
        job.placement, job.mask, job.completing, job.doomed_s = (), 0, False, inf


def _tick_at(time_s: float, phase_s: float, period_s: float) -> float:
    """The first tick of a timer at or after a time."""
    ticks = (time_s - phase_s) / period_s
    count = floor(ticks)
    if ticks - count > 1e-9:
        count += 1
    return phase_s + count * period_s
