"""Why a forecast may be too early: a limit that the simulation does not know, or a start now that the
scheduler of the site has not made.
"""

from __future__ import annotations

from typing import Any

from itertime.io import shown
from traces.logs.log import LoggedJob

from .state import is_limited

__all__ = ["caveat_of"]

_AT_ONCE_S = 1.0

_WHY = {
    "Resources": "cores, memory or whole nodes may be short, which the state does not show",
    "Priority": "nodes may be kept for jobs ahead of it",
    "JobArrayTaskLimit": "as many tasks of its array run as its limit allows",
}
"""What Slurm's reasons of waiting jobs mean beyond GPUs (slurm.schedmd.com/job_reason_codes.html)."""


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
