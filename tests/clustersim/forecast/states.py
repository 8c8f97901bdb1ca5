"""States and histories of jobs, made up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from clustersim.backtest import SiteFacts
from clustersim.cluster import Cluster
from clustersim.forecast import LiveState, Options, SitePolicy
from clustersim.forecast.state import state_at
from traces.logs.log import Log, LoggedJob

NOW_S = 10_000.0


def running(job_id: str, gpus: int, elapsed_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that has run for so long, and was submitted as it started."""
    start_s = NOW_S - elapsed_s
    return LoggedJob(
        1, job_id, start_s, gpus, None, estimate_s=limit_s, logged_start_s=start_s, state="RUNNING", **more
    )


def waiting(job_id: str, gpus: int, waited_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that has waited for so long."""
    return LoggedJob(2, job_id, NOW_S - waited_s, gpus, None, estimate_s=limit_s, state="PENDING", **more)


def ended(job_id: str, gpus: int, run_s: float, limit_s: float | None, **more: Any) -> LoggedJob:
    """A job that started at 0, when it was submitted, and ended."""
    return LoggedJob(3, job_id, 0.0, gpus, run_s, estimate_s=limit_s, logged_start_s=0.0, **more)


def state_of(*jobs: LoggedJob, now_s: float = NOW_S, log_format: str = "squeue") -> LiveState:
    log = Log(log_format, (), False, jobs, (), ())
    return state_at(log, now_s, UTC, {"file": "state.txt", "sha256": ""})


def options_of(cluster: str = "n4g1", policy: str = "fifo", **more: Any) -> Options:
    """Options with a stated cluster."""
    order = more.pop("order", "auto")
    settings: Sequence[str] = more.pop("settings", ())
    site_facts = more.pop("site_facts", SiteFacts(clusters={"": Cluster.parse(cluster)}))
    return Options(policy=SitePolicy(policy, settings, order), site_facts=site_facts, **more)
