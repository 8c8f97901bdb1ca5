"""Jobs that end by themselves: which fail or are cancelled, and how far they get."""

from __future__ import annotations

from typing import NamedTuple

from traces.job import Job

from .failures import Failures, stream

__all__ = ["Fate", "fate_of"]

_FAILED = ("fail", "failed", "failure", "error", "oom", "node_fail", "timeout", "out_of_memory", "boot_fail")
_CANCELLED = ("cancel", "canceled", "cancelled", "kill", "killed", "stop", "stopped", "aborted", "revoked")


class Fate(NamedTuple):
    """How a job ends that does not finish, and the share of its stated work that is done by then."""

    reason: str
    share: float


def fate_of(job: Job, failures: Failures, seed: int) -> Fate | None:
    """The fate of `job`; None: it will finish.

    A job whose trace says that it failed or was cancelled ends so after the work that the trace states, which
    is what it did before (`end_as_logged`). Of the other jobs the stated shares fail or are cancelled, drawn
    by job id from a stream of their own; then at a share of their work that is uniform in (0, 1): an
    assumption, for which no distribution was published.
    """
    if failures.end_as_logged and job.state is not None:
        state = job.state.strip().lower()
        if state in _FAILED:
            return Fate("failed, as logged", 1.0)
        if state in _CANCELLED:
            return Fate("cancelled, as logged", 1.0)
    failed, cancelled = failures.job_failed_share, failures.job_cancelled_share
    if not failed and not cancelled:
        return None
    draws = stream(seed, f"fate of {job.job_id}")
    chosen, share = float(draws.random()), float(1 - draws.random())
    if chosen < failed:
        return Fate("failed, as drawn", share)
    return Fate("cancelled, as drawn", share) if chosen < failed + cancelled else None
