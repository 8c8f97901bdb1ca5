"""A cluster in which every job is looked at in every second: plain, slow, and no part of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Now", "Plain", "Rule", "Runs", "schedule", "served"]

Runs = list[list[float]]
"""[from, to] for every time that a job held its GPUs."""


@dataclass(eq=False)
class Plain:
    """A job: `left` seconds to do, `service` GPU-seconds held; `since`, `stopped`: of its last run.
    `estimate`: the seconds that its user expects, 0 if unknown.
    """

    order: int
    submit: int
    gpus: int
    run: int
    tenant: str = ""
    deadline: float | None = None
    estimate: int = 0
    left: int = 0
    service: int = 0
    since: int = 0
    stopped: int = 0
    runs: Runs = field(default_factory=list)


@dataclass
class Now:
    """What a rule sees: the second, the jobs that run (in order of start) and wait (in order of submission),
    and those that just came or ended.
    """

    t: int
    gpus: int
    running: list[Plain]
    waiting: list[Plain]
    came: list[Plain]
    ended: list[Plain]

    @property
    def jobs(self) -> list[Plain]:
        return self.running + self.waiting

    @property
    def free(self) -> int:
        return self.gpus - sum(job.gpus for job in self.running)


class Rule:
    """A policy: which jobs hold GPUs in the coming second."""

    def admits(self, job: Plain, now: Now) -> bool:
        return True

    def chosen(self, now: Now) -> list[Plain]:
        raise NotImplementedError


def schedule(jobs: Sequence[Plain], gpus: int, rule: Rule) -> list[Runs | None]:
    """The runs of each job, None for those declined. `jobs` in order of submission."""
    now = Now(0, gpus, [], [], [], [])
    todo, declined = list(jobs), []
    while todo or now.jobs:
        now.ended = [job for job in now.running if not job.left]
        now.running = [job for job in now.running if job.left]
        now.came = []
        while todo and todo[0].submit == now.t:
            job = todo.pop(0)
            job.left = job.run
            (now.came if rule.admits(job, now) else declined).append(job)
            now.waiting += now.came[-1:] if job not in declined else []
        chosen, before = rule.chosen(now), now.running
        assert sum(job.gpus for job in chosen) <= gpus
        for job in [*now.ended, *(job for job in before if job not in chosen)]:
            job.runs[-1].append(now.t)
            job.stopped = now.t
        for job in [job for job in chosen if job not in before]:
            job.runs.append([now.t])
            job.since = now.t
        waiting = [job for job in now.jobs if job not in chosen]
        now.waiting = sorted(waiting, key=lambda job: job.order)
        now.running = [job for job in before if job in chosen] + [job for job in chosen if job not in before]
        for job in now.running:
            job.left -= 1
            job.service += job.gpus
        now.t += 1
    return [None if job in declined else job.runs for job in jobs]


def served(jobs: Sequence[Plain], key: Callable[[Plain], Any], gpus: int) -> list[Plain]:
    """Strictly by key, then order of submission; a job that does not fit is skipped."""
    out = []
    for job in sorted(jobs, key=lambda job: (key(job), job.order)):
        if job.gpus <= gpus:
            out.append(job)
            gpus -= job.gpus
    return out
