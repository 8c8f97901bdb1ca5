"""Logs of which the truth is known: what a policy did with random jobs on a cluster of ours."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import clustersim
from traces import Job, write_trace

GPUS = 16


def jobs_of(count: int = 120, seed: int = 1, tenants: int = 1) -> list[Job]:
    """Random jobs that keep 16 GPUs busy and wait; whole seconds, as logs have them."""
    draw = np.random.default_rng(seed)
    submit_s = np.cumsum(draw.exponential(400, count)).round()
    return [
        Job(
            f"{i}",
            float(submit_s[i]),
            tenant=f"t{i % tenants}",
            user=f"u{i % 3}",
            gpus=int(draw.choice([1, 2, 4, 8, 12], p=[0.3, 0.2, 0.2, 0.2, 0.1])),
            duration_s=round(draw.exponential(1500)) + 60.0,
        )
        for i in range(count)
    ]


def start_up_of(seconds: float) -> dict[str, float]:
    """Overheads of which each start costs `seconds`, and nothing else costs anything."""
    free = ("launch_s", "launch_gpu_s", "plain_restart_s", "checkpoint_bytes_per_parameter")
    return {**dict.fromkeys(free, 0.0), "scheduling_s": seconds}


def logged(jobs: list[Job], policy: str = "fifo", delay_s: float = 0.0, **settings: Any) -> list[Job]:
    """The jobs with the starts that they had under a policy on 16 GPUs, each `delay_s` after the decision."""
    settings = {"cluster": f"n{GPUS}g1", "overheads": None, "bound": "none", **settings}
    run = clustersim.run(jobs, policy, **settings)
    starts = {record.job_id: record.start_s for record in run.jobs}
    return [replace(job, logged_start_s=starts[job.job_id] + delay_s) for job in jobs]  # type: ignore[operator]


def written(folder: Path, jobs: list[Job]) -> Path:
    """A log of these jobs, as a native trace."""
    path = folder / "log.csv"
    write_trace(jobs, path)
    return path
