"""Random traces of rigid jobs in whole seconds, and their schedules under a policy, without overheads."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from clustersim.cluster import Cluster
from clustersim.engine import Simulation
from clustersim.scheduler import Scheduler
from tests.builders import free_setup
from tests.oracles.plain_world import Plain, Runs
from traces.job import Job

__all__ = ["random_trace", "simulated"]


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
