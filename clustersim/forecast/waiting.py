"""What a job waits for: the jobs that hold GPUs, the jobs ahead of it, and its wait in the median draw. Why a
forecast may be too early: a limit that the simulation does not know, or a start now that the scheduler of the
site has not made.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clustersim.analysis import Wait, explain
from clustersim.records import MemoryRecorder, Run, Snapshot
from itertime.io import shown
from traces.logs.log import LoggedJob

from .scene import PoolScene
from .state import is_limited
from .summary import quantile

__all__ = ["caveat_of", "wait_in", "waits_for"]

_MOST = 20  # jobs that are listed
_AT_ONCE_S = 1.0
_ALLOCATIONS = ("start", "restart", "resize", "migrate")  # events that give a job GPUs
_RELEASES = ("preempt", "interrupt", "requeue", "fail", "finish")

_WHY = {
    "Resources": "cores, memory or whole nodes may be short, which the state does not show",
    "Priority": "nodes may be kept for jobs ahead of it",
    "JobArrayTaskLimit": "as many tasks of its array run as its limit allows",
}
"""What Slurm's reasons of waiting jobs mean beyond GPUs (slurm.schedmd.com/job_reason_codes.html)."""


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
        "free": scene.running.free(scene.pools[part.pool], part.places),
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
    story = explain(_with_closed_gpus(_from_now(run, scene.now_s), scene.running.draining), part.target)
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


def _with_closed_gpus(run: Run, draining: Sequence[int]) -> Run:
    """The run with the free GPUs of nodes that drain among those out of service, as no job may have them."""
    if not draining:
        return run
    nodes = frozenset(draining)
    free = sum(run.cluster.sizes[node] for node in nodes)
    held_by_job = dict[str, int]()
    events, snapshots = deque(run.events), list[Snapshot]()
    for row in run.snapshots:
        while events and events[0].time_s <= row.time_s:
            event = events.popleft()
            if event.event in _ALLOCATIONS:
                held_by_job[event.job_id] = sum(count for node, count in event.placement if node in nodes)
            elif event.event in _RELEASES:
                held_by_job.pop(event.job_id, None)
        snapshots.append(row._replace(down=row.down + free - sum(held_by_job.values())))
    return replace(run, snapshots=snapshots)


def caveat_of(job: LoggedJob, p10_s: float | None, waits: dict[str, Any], knows_limits: bool) -> str:
    """A sentence on a job that waits; empty if there is nothing to say. `p10_s`: an early start, in seconds
    from now. `knows_limits`: whether the simulation knows the limits of the site.
    """
    reason = (job.reason or "").partition(",")[0]
    if job.line == 0:  # the job is not in the state
        return ""
    if is_limited(job) and not knows_limits:
        return (
            f"{shown(reason)} is a limit that this simulation does not know, so that the times are those "
            "without it; --site states the limits of a site"
        )
    if p10_s is None or p10_s > _AT_ONCE_S:
        return ""
    room = f"{waits['free']} GPUs are free and nothing here keeps it waiting"
    if not reason or reason == "None":
        return f"it would start now, as {room}; the scheduler may not have looked at it yet"
    meaning = _WHY.get(reason, "what that means here, the state does not say")
    return f"it would start now, as {room}; but the scheduler says {shown(reason)}: {meaning}"
