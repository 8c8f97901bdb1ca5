"""The jobs of a trace, taken one by one as time gets to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from traces.job import Job

__all__ = ["Submissions"]


class Submissions:
    """Jobs in order of submission (see `traces.submission_order`), each with its position in that order.

    `next`: the job that comes next, None when all have come.
    """

    def __init__(self, jobs: Iterable[Job]):
        self._to_come = iter(jobs)
        self.next = next(self._to_come, None)
        self._order = 0

    def until(self, now: float) -> Iterator[tuple[Job, int]]:
        """Those that are submitted at `now` or before; each has come when the one after it is asked for."""
        job = self.next
        while job is not None and job.submit_s <= now:
            yield job, self._order
            self.next = job = next(self._to_come, None)
            self._order += 1
