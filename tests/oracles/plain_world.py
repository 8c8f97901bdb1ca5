"""A cluster in which every job is looked at in every second: plain, slow, and no part of the simulator; and
the schedules of random traces of rigid jobs in whole seconds under a policy, without overheads.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.scheduler import Scheduler
from tests.builders import free_setup
from traces.job import Job

__all__ = ["Now", "Plain", "Rule", "Runs", "random_trace", "schedule", "served", "simulated"]

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


def random_trace(random: Random) -> tuple[int, list[Plain]]:
    """Up to 14 jobs on 3 to 8 GPUs, or of one GPU on one."""
    gpus, longest, gap = (
        random.choice((1, 3, 4, 6, 8)),
        random.choice((3, 12, 40)),
        random.choice((0, 1, 4, 15)),
    )
    sizes = [size for size in (1, 1, 1, 2, 2, 3, 4, 6, 8) if size <= gpus]
    now, jobs = 0, []
    for i in range(random.randint(1, 14)):
        now += random.randint(0, gap)
        run = random.randint(1, longest)
        deadline = now + random.randint(run, 6 * run + 3) if random.random() < 0.8 else None
        jobs.append(Plain(i, now, random.choice(sizes), run, random.choice("abc"), deadline))
    return gpus, jobs


def simulated(
    jobs: list[Plain], gpus: int, policy: Scheduler, quotas: Mapping[str, int] | None = None
) -> list[Runs | None]:
    """When every job runs under the policy on one node of `gpus` GPUs; None for jobs that it declines."""
    trace = [
        Job(
            f"{j.order:02}",
            j.submit,
            j.tenant,
            gpus=j.gpus,
            duration_s=j.run,
            deadline_s=j.deadline,
            estimate_s=j.estimate or None,
        )
        for j in jobs
    ]
    cluster = Cluster(1, gpus)
    recorder = Simulation(trace, free_setup(cluster, policy, quotas=quotas or {})).run()
    runs: dict[str, Runs] = {job.job_id: [] for job in trace}
    for event in recorder.events:
        if event.event in ("start", "restart"):
            runs[event.job_id].append([event.time_s])
        elif event.event in ("preempt", "finish"):
            runs[event.job_id][-1].append(round(event.time_s, 6))
    declined = {job.job_id for job in recorder.jobs if job.state == "rejected"}
    return [None if name in declined else stretches for name, stretches in runs.items()]
