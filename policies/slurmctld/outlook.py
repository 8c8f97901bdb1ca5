"""When and where a waiting job can start, by the time limits of the running jobs.

Source: sched_config, "Backfill Scheduling"; slurm.conf(5), `bf_window_linear`, `KillWait`, `OverTimeLimit`;
what select/cons_tres answers to the backfill scheduler (`SELECT_MODE_WILL_RUN`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from .placement import FreeNodes, place
from .records import JobRecord, Placement
from .rules import Rules

__all__ = ["Outlook"]

FIRST_WINDOW_S = 30.0
"""Ends of running jobs within this time are looked at together; the next window is twice as long, unless
bf_window_linear says otherwise (slurm.conf(5)).
"""


class Outlook:
    """Expected starts while the running jobs stay the same and none of them passes its limit, so that cycles
    of backfill can share one.

    `now`: a whole second.
    """

    def __init__(self, rules: Rules, free: FreeNodes, running_jobs: Sequence[JobRecord], now: float):
        self._rules, self._free, self.now = rules, free, now
        self._running = _by_end(running_jobs)
        self._answers: dict[object, tuple[float, Placement] | None] = {}
        self._groups: dict[object, _Groups] = {}

    def start_of(
        self, job: JobRecord, usable: int, preemptable_jobs: Sequence[JobRecord] = ()
    ) -> tuple[float, Placement] | None:
        """When `job` can start on `usable` nodes, and where; None if it never can.

        It starts now if there is room, or would be without `preemptable_jobs`. Otherwise running jobs are
        left out in groups by the ends of their limits until it fits, and it starts when the last of them
        ends. The first group lasts to the next multiple of 30 seconds and 30 seconds more. The span doubles
        from group to group (or grows by `bf_window_linear`), until it holds the next job. So planned starts
        come late, and are the same for many jobs.
        """
        key = job.shapes, job.cpus, usable, tuple(preemptable_jobs)
        if key not in self._answers:
            self._answers[key] = self._look(job, usable, tuple(preemptable_jobs))
        answer = self._answers[key]
        return None if answer is None else (max(answer[0], self.now), answer[1])

    def _look(
        self, job: JobRecord, usable: int, preemptable_jobs: tuple[JobRecord, ...]
    ) -> tuple[float, Placement] | None:
        weights = self._rules.weights
        placement = place(job, self._free, usable, weights)
        if placement is not None:
            return -inf, placement
        groups = self._groups.get((usable, preemptable_jobs))
        if groups is None:
            groups = self._groups[usable, preemptable_jobs] = self._groups_without(preemptable_jobs, usable)
        if preemptable_jobs:
            placement = place(job, groups.free, usable, weights)
            if placement is not None:
                return -inf, placement
        for last_job, free in groups:
            placement = place(job, free, usable, weights)
            if placement is not None:
                return self._end_of(last_job), placement
        return None

    def _groups_without(self, preemptable_jobs: tuple[JobRecord, ...], usable: int) -> _Groups:
        free, running_jobs = self._free, self._running
        if preemptable_jobs:
            free = free.copy()
            for job in preemptable_jobs:
                free.release(job)
            running_jobs = [job for job in running_jobs if job not in set(preemptable_jobs)]
        return _Groups(self._rules, free, running_jobs, usable)

    def _end_of(self, job: JobRecord) -> float:
        """When a running job is expected to end: at its limit, or some time after now if that has passed."""
        end_s = job.limit_end_s
        if end_s > self.now:
            return end_s
        settings = self._rules.settings
        if settings.OverTimeLimit == inf:
            return self.now + job.limit_s
        return max(end_s + settings.KillWait + settings.OverTimeLimit, self.now + 1)


class _Groups:
    """The running jobs on `usable` nodes in groups by the ends of their limits: after each group the last job
    of it, and the nodes that are then free. A group is made when it is first asked for.
    """

    def __init__(self, rules: Rules, free: FreeNodes, running_jobs: Sequence[JobRecord], usable: int):
        self.free = free
        self._epoch_s, self._linear_s = rules.epoch_s, rules.number("bf_window_linear")
        self._running, self._usable = running_jobs, usable
        self._position = 0
        self._window_s, self._border_s = FIRST_WINDOW_S, -inf
        self._made: list[tuple[JobRecord, FreeNodes]] = []

    def __iter__(self) -> Iterator[tuple[JobRecord, FreeNodes]]:
        place_in_order = 0
        while place_in_order < len(self._made) or self._make_group():
            yield self._made[place_in_order]
            place_in_order += 1

    def _make_group(self) -> bool:
        """Make the next group. Returns whether there is one."""
        running_jobs, last_job = self._running, None
        free = self._made[-1][1] if self._made else self.free
        while self._position < len(running_jobs):
            job = running_jobs[self._position]
            self._position += 1
            if not job.mask & self._usable:
                continue
            if last_job is None:
                free = free.copy()
            if self._border_s == -inf:
                over_s = (job.limit_end_s + self._epoch_s) % self._window_s
                self._border_s = job.limit_end_s + self._window_s - over_s
            free.release(job)
            last_job = job
            if self._next_ends_after_window():
                break
        if last_job is None:
            return False
        self._widen()
        while self._next_ends_after_window():
            self._widen()
        self._made.append((last_job, free))
        return True

    def _next_ends_after_window(self) -> bool:
        if self._position >= len(self._running):
            return False
        return self._running[self._position].limit_end_s > self._border_s + self._window_s

    def _widen(self) -> None:
        self._window_s = self._window_s + self._linear_s if self._linear_s else self._window_s * 2


def _by_end(running_jobs: Sequence[JobRecord]) -> list[JobRecord]:
    """The jobs by the ends of their limits. Those that are being stopped do not count as running any more:
    Slurm expects nothing of their nodes until they are free.
    """
    return sorted(
        (job for job in running_jobs if not job.completing), key=lambda job: (job.limit_end_s, job.order)
    )
