"""Jobs that are not done when a run ends: their records, which say why."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from .job_view import JobView
from .records import JobRecord

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["unfinished"]


def unfinished(simulation: Simulation, now: float) -> Iterator[tuple[JobRecord, int]]:
    """The records of all jobs that are in the system when the run ends at `now`, or never got there, each
    with its position in the order of submission.
    """
    state = simulation.state
    for view in [*state.running, *state.pending]:
        view._job.settle(now)
        yield JobRecord.of(view._job, "unfinished", reason=_why(simulation, view)), view.order
    for active in simulation._submitted:
        yield JobRecord.of(active, "unfinished", reason="the run ended"), active.order
    for job, order in simulation._submissions.until(inf):
        yield JobRecord.not_submitted(job), order


def _why(simulation: Simulation, job: JobView) -> str:
    """Why a job in the system has not finished."""
    if simulation._interrupted:
        return f"still {'running' if job.running else 'waiting'} when the run was interrupted"
    if job.running:
        return "still running when the run ended"
    if not simulation.state.ever_fits(job):
        return f"no place for {job.requested} GPUs on the nodes that were left for good"
    if simulation.until_s is not None:
        return "still waiting when the run ended"
    return "the policy never ran it again, and nothing more was to happen"
