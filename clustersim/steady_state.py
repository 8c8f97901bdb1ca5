"""Metrics of a measurement window: the steady state, without the filling and the draining of the cluster.

Jobs submitted within the window count, however late they finish; the cluster is looked at within the window.
Welch's procedure and warm-up deletion: Law, Simulation Modeling and Analysis, section 9.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from .cluster import Cluster
from .metrics import Usage, Value, summarise
from .records import JobRecord, Snapshot

__all__ = ["window_metrics"]

UNDEFINED = ("makespan_s", "gpu_useful_ratio", "events")
"""Makespan and the length of the event log belong to whole runs; overheads are known for jobs, not times."""


def window_metrics(
    jobs: Sequence[JobRecord], snapshots: Sequence[Snapshot], cluster: Cluster, *,
    warmup_s: float, measure_s: float | None, price_usd_per_gpu_h: float = 5.0,
) -> dict[str, Value]:  # fmt: skip
    """The metrics of `clustersim.metrics.summarise`, over jobs with T0 + warmup_s <= submit_s < the end.

    T0 is the first submission of any job; the end is `measure_s` after the warm-up, or just after the last
    submission. Allocated and fragmentation ratios are time averages over the window, or up to the last
    submission if there is no `measure_s`: what follows is the draining. The metrics of `UNDEFINED` are None.
    """
    first_s = min((job.submit_s for job in jobs), default=0.0)
    last_s = max((job.submit_s for job in jobs), default=0.0)
    from_s = first_s + warmup_s
    end_s = float("inf") if measure_s is None else from_s + measure_s
    inside = [job for job in jobs if from_s <= job.submit_s < end_s]
    run_end_s = max((s.time_s for s in snapshots), default=last_s)
    values = summarise(
        inside, snapshots, cluster, end_s=run_end_s, events=0, price_usd_per_gpu_h=price_usd_per_gpu_h
    )
    values |= dict.fromkeys(UNDEFINED)
    until_s = min(end_s, last_s)
    usage = Usage.of(snapshots, run_end_s)
    available = cluster.gpus * (until_s - from_s)
    for name, gpus in (("gpu_allocated_ratio", usage.allocated), ("fragmentation_ratio", usage.stranded)):
        values[name] = usage.integral(gpus, from_s, until_s) / available if available > 0 else None
    return values
