"""What jobs request of a cluster: GPUs, and the seconds that they hold them if nothing interferes."""

from __future__ import annotations

from traces.job import Job

from .curve import CannotRun
from .speed import Speed

__all__ = ["Requests"]


class Requests:
    """Requests under the planner of a `Speed`, without overheads and waiting.

    A job that states its work as iterations takes iterations x iteration time on its requested GPUs, of the
    type that it starts on if there are several. A job that names no GPUs, or too few for its model, requests
    the smallest count that holds it. A job that states a duration takes that.

    `refused` is the number of jobs so far that cannot run, and `reason` why the first of them cannot.
    """

    def __init__(self, speed: Speed):
        self._speed = speed
        self.refused, self.reason = 0, ""

    def __call__(self, job: Job) -> tuple[int, float] | None:
        """GPUs and seconds; None for a job that cannot run, which a run rejects."""
        try:
            offer = self._speed.offers(job)[0]
        except CannotRun as reason:
            if not self.refused:
                self.reason = f"job {job.job_id}: {reason}"
            self.refused += 1
            return None
        work = job.duration_s if job.kind == "duration" else job.iterations
        assert work is not None
        return offer.requested, work * offer.curve.work_s(offer.requested)
