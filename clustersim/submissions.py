"""The jobs of a trace, one by one as simulated time reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from traces.job import Job

__all__ = ["Arrivals"]


class Arrivals:
    """Jobs in order of submission (see `traces.submission_order`), each with its position in that order.

    `next`: the next job to be submitted, None after the last.
    """

    def __init__(self, jobs: Iterable[Job]):
        self._jobs = iter(jobs)
        self.next = next(self._jobs, None)
        self._order = 0

    def until(self, now: float) -> Iterator[tuple[Job, int]]:
        """The jobs submitted at `now` or before. `next` moves on when the following one is asked for."""
        job = self.next
        while job is not None and job.submit_s <= now:
            yield job, self._order
            self.next = job = next(self._jobs, None)
            self._order += 1
