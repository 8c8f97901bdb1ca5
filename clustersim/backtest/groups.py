"""Waits by groups of jobs: size, user, tenant, queue, pool and hour of submission."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from clustersim.analysis import size_label

from .errors import times_of
from .logged import LoggedRun, Rows
from .pools import SitePool
from .site import Simulated

__all__ = ["groups_of"]

_MOST_GROUPS = 20  # of one kind; those with the most jobs
_FIELDS = ("tenant", "user", "partition", "qos", "gpu_type")


def groups_of(
    log: LoggedRun, simulated: Simulated, rows: Rows, pools: list[SitePool]
) -> dict[str, list[dict[str, Any]]]:
    """Logged and simulated waits of the jobs in `rows` by kind of group, then by group, as JSON.

    Sizes and hours are in their order, other groups by their number of jobs. A kind in which all jobs are of
    one group, or that groups them as an earlier kind does, is left out; `left_out` counts the jobs of groups
    beyond the first twenty.
    """
    kinds: dict[str, list[str]] = {"size": [size_label(int(log.gpus[i])) for i in rows]}
    if len(pools) > 1:
        pool_of = {int(i): pool.name for pool in pools for i in pool.rows}
        kinds["pool"] = [pool_of[int(i)] for i in rows]
    for name in _FIELDS:
        kinds[name] = [getattr(log.jobs[i], name) or "" for i in rows]
    hours = log.hour()
    kinds["hour"] = [f"{hours[i]:02d}" for i in rows]
    groups: dict[str, list[dict[str, Any]]] = {}
    for kind, labels in kinds.items():
        repeats = len(set(labels)) < 2 or labels in [kinds[name] for name in groups]
        if not repeats:
            groups[kind] = _groups(log, simulated, rows, labels, kind)
    return groups


def _groups(
    log: LoggedRun, simulated: Simulated, rows: Rows, labels: list[str], kind: str
) -> list[dict[str, Any]]:
    counts = Counter(labels)
    by_size = kind in ("size", "hour")
    order = sorted(counts, key=_number if by_size else lambda name: (-counts[name], name))
    largest = order if by_size else order[:_MOST_GROUPS]
    array = np.array(labels, dtype=object)
    groups: list[dict[str, Any]] = [_group(log, simulated, rows[array == name], name) for name in largest]
    if len(order) > len(largest):
        groups.append({"group": None, "left_out": sum(counts[name] for name in order[len(largest) :])})
    return groups


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _group(log: LoggedRun, simulation: Simulated, rows: Rows, name: str) -> dict[str, Any]:
    logged, simulated = (times[rows] for times in times_of(log, simulation, "wait"))
    return {
        "group": name,
        "jobs": len(rows),
        "logged_mean_s": float(logged.mean()),
        "simulated_mean_s": float(simulated.mean()),
        "logged_p90_s": float(np.quantile(logged, 0.9)),
        "simulated_p90_s": float(np.quantile(simulated, 0.9)),
        "absolute_s": float(np.abs(simulated - logged).mean()),
    }
