"""What a job waits for: the jobs that hold GPUs, the jobs ahead of it, and its wait in the median draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clustersim.analysis import Wait, explain
from clustersim.records import MemoryRecorder, Run
from traces.logs.log import LoggedJob

from .scene import PoolScene
from .summary import quantile

__all__ = ["wait_in", "waits_for"]

_MOST = 20  # jobs that are listed


def waits_for(part: PoolScene, job: LoggedJob, earlier: Sequence[Sequence[str]]) -> dict[str, Any]:
    """What a job waits for, as JSON: GPUs, the jobs that hold them, and those that stand ahead or start
    before it in some draw.

    `earlier`: the jobs that started before it, for each draw.
    """
    scene = part.scene
    state, times = scene.state, scene.run_times
    holding = [other_job for other_job in state.running if scene.pool_of[other_job.job_id] == part.pool]
    holders = []
    for other_job in sorted(
        holding, key=lambda other_job: (-other_job.gpus, other_job.logged_start_s or 0.0)
    ):
        elapsed_s, limit_s = state.now_s - (other_job.logged_start_s or 0.0), times.limit_s(other_job)
        left_s = scene.draws[other_job.job_id] - elapsed_s
        holders.append(
            {
                "job_id": other_job.job_id,
                "gpus": other_job.gpus,
                "user": other_job.user,
                "running_s": elapsed_s,
                "limit_left_s": None if limit_s is None else limit_s - elapsed_s,
                "left_p50_s": max(0.0, quantile(left_s, 0.5)),
                "left_p90_s": max(0.0, quantile(left_s, 0.9)),
            }
        )
    queue = scene.queue(part.pool, job)
    first_starts = Counter(name for names in earlier for name in names)
    place = next(i for i, other_job in enumerate(queue) if other_job.job_id == job.job_id)
    cluster = scene.pools[part.pool].cluster
    jobs_before = [
        {
            "job_id": other_job.job_id,
            "gpus": other_job.gpus,
            "user": other_job.user,
            "limit_s": times.limit_s(other_job),
            "ahead": i < place,
            "before_it": first_starts[other_job.job_id] / len(earlier),
        }
        for i, other_job in enumerate(queue)
        if other_job.job_id != job.job_id and (i < place or first_starts[other_job.job_id])
    ]
    return {
        "needed": job.gpus,
        "free": cluster.gpus - sum(other_job.gpus for other_job in holding),
        "gpus": cluster.gpus,
        "place_in_queue": place + 1,
        "queued": len(queue),
        "holders": holders[:_MOST],
        "holders_left_out": max(0, len(holders) - _MOST),
        "others": jobs_before[:_MOST],
        "others_left_out": max(0, len(jobs_before) - _MOST),
    }


def wait_in(part: PoolScene, draw: int, own_s: float) -> Wait | None:
    """The wait of the job from now on in one draw, in which it runs for `own_s`, on the log's clock; None if
    it starts at once. The jobs ahead are those of the queue.
    """
    scene = part.scene
    recorder = MemoryRecorder(scene.pools[part.pool].cluster)
    part.simulate(draw, own_s, recorder)
    run = recorder.finish(scene.config.policy, "", {}, {"end_s": recorder.end_s}, [])
    story = explain(_from_now(run, scene.now_s), part.target)
    wait = next((spell for spell in story.spells if isinstance(spell, Wait)), None)
    if wait is None:
        return None
    overtakers = tuple(name for name in wait.overtakers if name not in scene.places[part.pool])
    from_s, to_s = wait.from_s + scene.zero_s, wait.to_s + scene.zero_s
    return replace(wait, from_s=from_s, to_s=to_s, overtakers=overtakers)


def _from_now(run: Run, now_s: float) -> Run:
    """The run as if everything before now had happened at once, so that waits begin now."""
    return replace(
        run,
        events=[event._replace(time_s=max(event.time_s, now_s)) for event in run.events],
        snapshots=[row._replace(time_s=max(row.time_s, now_s)) for row in run.snapshots],
    )
