"""The use of each pool of nodes: of a cluster of a fleet, of a GPU type, of its spot nodes."""

from __future__ import annotations

from dataclasses import dataclass, field

from clustersim.cluster import Pool
from clustersim.records import ALLOCATES, FINISH, INTERRUPT, NODE_DOWN, RELEASES, REQUEUE, EventRecord, Run

from .allocations import end_of_run_s

__all__ = ["PoolUse", "by_pool", "has_parts"]

_HOUR_S = 3600.0


@dataclass
class PoolUse:
    """What happened on the nodes of one pool until the end of the run.

    | field | unit | |
    |---|---|---|
    | name, gpus | | of the pool |
    | finished, finished_jobs | jobs | that finished on it: their number, their ids |
    | jct_mean_s, queue_mean_s | s | means of these jobs: completion, time to their first GPUs anywhere |
    | held_gpu_h | GPU-h | that jobs held |
    | allocated_ratio | | of them, of those from the first submission to the end of the run |
    | cost_usd | USD | for the GPU-hours held, at the price of the pool |
    | down, reclaims | | how often a node went out of service; how often because it was reclaimed |
    | interruptions, lost_gpu_h | , GPU-h | jobs that lost their GPUs without a save, and the work lost |

    Means are None where no job finished.
    """

    name: str
    gpus: int
    finished: int = 0
    jct_mean_s: float | None = None
    queue_mean_s: float | None = None
    held_gpu_h: float = 0.0
    allocated_ratio: float | None = None
    cost_usd: float = 0.0
    down: int = 0
    reclaims: int = 0
    interruptions: int = 0
    lost_gpu_h: float = 0.0
    finished_jobs: list[str] = field(default_factory=list, repr=False)


def has_parts(run: Run) -> bool:
    """Whether a run has pools whose use differs in kind: clusters of a fleet, or spot nodes."""
    return bool(run.cluster.members or run.cluster.spot_nodes)


def by_pool(run: Run) -> list[PoolUse]:
    """The use of every pool, in the order of the cluster file, from the event log and the job records."""
    pools = run.cluster.pools
    uses = {pool.gpu_type: PoolUse(pool.gpu_type, pool.gpus) for pool in pools}
    held: dict[str, EventRecord] = {}
    for event in run.events:
        if event.event == NODE_DOWN:
            use = uses[run.cluster.type_of(event.placement[0][0])]
            use.down += 1
            use.reclaims += event.detail == "reclaim"
        elif event.event in ALLOCATES or event.event in RELEASES:
            allocation = held.pop(event.job_id, None)
            if allocation is not None:
                _end_hold(uses[run.cluster.type_of(allocation.placement[0][0])], allocation, event)
            if event.event in ALLOCATES:
                held[event.job_id] = event
    end_s = end_of_run_s(run)
    for allocation in held.values():
        use = uses[run.cluster.type_of(allocation.placement[0][0])]
        use.held_gpu_h += allocation.gpus * (end_s - allocation.time_s) / _HOUR_S
    _finish(run, uses, pools, end_s)
    return list(uses.values())


def _end_hold(use: PoolUse, allocation: EventRecord, event: EventRecord) -> None:
    use.held_gpu_h += allocation.gpus * (event.time_s - allocation.time_s) / _HOUR_S
    if event.event in (INTERRUPT, REQUEUE):
        use.interruptions += event.event == INTERRUPT
        use.lost_gpu_h += allocation.gpus * event.overhead_s / _HOUR_S
    elif event.event == FINISH:
        use.finished += 1
        use.finished_jobs.append(event.job_id)


def _finish(run: Run, uses: dict[str, PoolUse], pools: tuple[Pool, ...], end_s: float) -> None:
    """Fill in means, shares and costs."""
    prices = run.cluster.prices(run.manifest["price_usd_per_gpu_h"]) or {}
    records = {record.job_id: record for record in run.jobs}
    begin_s = min((record.submit_s for record in run.jobs), default=end_s)
    for pool in pools:
        use = uses[pool.gpu_type]
        done = [records[job_id] for job_id in use.finished_jobs]
        if done:
            use.jct_mean_s = sum(record.jct_s or 0.0 for record in done) / len(done)
            use.queue_mean_s = sum(record.queue_s or 0.0 for record in done) / len(done)
        if end_s > begin_s:
            use.allocated_ratio = use.held_gpu_h * _HOUR_S / (use.gpus * (end_s - begin_s))
        use.cost_usd = use.held_gpu_h * prices.get(pool.gpu_type, run.manifest["price_usd_per_gpu_h"])
