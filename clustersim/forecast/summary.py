"""A forecast as JSON: distributions, gains, the job and what is assumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, isfinite
from typing import Any

import numpy as np

from clustersim.backtest.logged import Floats
from traces.logs.log import LoggedJob

from .run_times import ENOUGH
from .scene import Scene
from .state import LiveState

__all__ = [
    "assumptions_of",
    "distribution",
    "gain",
    "job_document",
    "policy_document",
    "quantile",
    "state_document",
]

QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
_HOUR_S = 3600.0


def quantile(values: Floats, share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed; infinite values are allowed.

    >>> quantile(np.array([3.0, 1.0, np.inf]), 0.5)
    3.0
    """
    return float(np.sort(values)[max(0, ceil(share * len(values) - 1e-9) - 1)])


def distribution(state: LiveState, delays_s: Floats, by_s: float | None) -> dict[str, Any]:
    """Delays from now to the start: quantiles in seconds and as moments (None: never), and chances."""
    figures: dict[str, Any] = {}
    for name, share in QUANTILES.items():
        delay_s = quantile(delays_s, share)
        figures[f"{name}_s"] = delay_s if isfinite(delay_s) else None
        figures[f"{name}_at"] = state.moment(state.now_s + delay_s) if isfinite(delay_s) else None
    figures["within_1h"] = float((delays_s <= _HOUR_S).mean())
    if by_s is not None:
        figures["by"] = state.moment(by_s)
        figures["by_then"] = float((delays_s <= by_s - state.now_s).mean())
    figures["never"] = float(np.isinf(delays_s).mean())
    return figures


def gain(base: Floats, changed: Floats) -> dict[str, Any]:
    """How much earlier the start is than in the same draw of `base`: the median in seconds (None if it is not
    finite), and the shares of draws in which it is earlier and later.
    """
    never = np.isinf(base) & np.isinf(changed)
    earlier_s = np.where(never, 0.0, base - np.where(never, 0.0, changed))
    median_s = quantile(earlier_s, 0.5)
    return {
        "gain_s": median_s if isfinite(median_s) else None,
        "earlier": float((earlier_s > 0).mean()),
        "later": float((earlier_s < 0).mean()),
    }


def state_document(state: LiveState) -> dict[str, Any]:
    """The state as JSON."""
    return {**state.source, "now_s": state.now_s, "now": state.moment(state.now_s)}


def job_document(scene: Scene, job: LoggedJob, pool: str) -> dict[str, Any]:
    """The job and its pool as JSON."""
    cluster = scene.pools[pool].cluster
    return {
        "job_id": job.job_id,
        "new": job.line == 0,
        "gpus": job.gpus,
        "limit_s": scene.run_times.limit_s(job),
        "waited_s": scene.state.now_s - job.submit_s,
        "reason": job.reason,
        "user": job.user,
        "partition": job.partition,
        "pool": pool,
        "pool_gpus": cluster.gpus,
        "pool_shape": cluster.shape,
    }


def policy_document(scene: Scene) -> dict[str, Any]:
    """The policy and the order of its queue as JSON."""
    queue = "priority" if scene.by_priority else "submission"
    return {"name": scene.config.policy, "params": dict(scene.config.params), "queue": queue}


def assumptions_of(
    scene: Scene, history_use: Mapping[str, int], has_history: bool, ratio: float | None
) -> Iterator[str]:
    """What a forecast assumes, a sentence each. `history_use`: jobs by what their run times are
    drawn from.
    """
    state, times = scene.state, scene.run_times
    moment = "as stated" if state.stated_now else "the latest moment in the state; --now states another"
    yield f"now is {state.moment(state.now_s)}: {moment}"
    yield from scene.assumptions
    if has_history:
        with_limit = f"{times.with_limit:,} of {times.jobs:,} past jobs state a limit and show the ratio"
        rule = f"of its user if {ENOUGH} are possible, else of its size, else of all"
        yield f"a job runs for a ratio of its time limit, drawn from past jobs: {rule}; {with_limit}"
        kinds = "; ".join(f"{kind} {n:,}" for kind, n in history_use.items())
        yield f"jobs by whose run times theirs are drawn from: {kinds}"
    else:
        limit_text = "their time limits" if ratio is None else f"{ratio:g} of their time limits, as stated"
        yield f"jobs run for {limit_text}, since there is no --history to draw from"
    unlimited = sum(times.limit_s(job) is None for job in (*state.running, *state.waiting))
    if unlimited:
        yield f"{unlimited:,} jobs state no limit, and the policy knows their drawn run times"
    if scene.by_priority:
        yield "the queue is in the order of the stated priorities, which do not change; a new job is last"
    else:
        yield "the queue is in the order of submission, unless the policy orders it"
    if scene.arrivals:
        yield "later jobs are the submissions of the past again, from a moment on that is drawn"
    else:
        yield "no further job is submitted"
    yield "no node fails or comes back; a job that starts holds its GPUs at once"
    if any(pool.cluster.gpus_per_node > 1 for pool in scene.pools.values()):
        yield from _places(scene)
    if state.held:
        yield f"{len(state.held):,} jobs are held back and stay so"
    if state.limited and scene.config.site is None:
        yield f"{state.limited:,} jobs wait for a limit of an account, QOS or array, which is not simulated"


def _places(scene: Scene) -> Iterator[str]:
    """Where running jobs lie, and which nodes take no further ones, a sentence each."""
    listed, jobs = len(scene.running.listed), len(scene.state.running)
    if listed:
        yield f"{listed:,} of {jobs:,} running jobs lie on the nodes that the state lists"
    if listed < jobs or not jobs:
        rule = scene.config.placement
        subject = "the other" if listed else "running"
        lie = f"lie on nodes as the rule {rule} leaves them if past starts and ends are repeated"
        yield f"{subject} jobs {lie}"
    if scene.running.draining:
        yield f"{len(scene.running.draining):,} nodes drain: their jobs run on, and no job starts there"
