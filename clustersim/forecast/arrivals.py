"""Jobs that are submitted after now: the past again, from a random moment on.

The submissions of the past repeat, shifted so that a moment of the past that is drawn evenly becomes now; the
last one is followed by the first. So later jobs come as often as in the past, in its bursts, with its sizes,
users, limits and run times. The hour of the day is not kept. Run times of jobs that have not ended are those
of the same draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from clustersim.backtest.logged import Floats
from traces.job import Job

__all__ = ["LaterArrivals"]

_RECENT = 0.1  # of the span of a history: one that ended longer ago does not reach up to now
_FEWEST = 2


@dataclass(frozen=True)
class LaterArrivals:
    """Past submissions to repeat: jobs in order of submission, and when that was (s from the first); the
    seconds until the first comes again; where each draw begins, from 0 to 1 of that; and the run times, by
    draw, of the jobs that had not ended.
    """

    jobs: Sequence[Job]
    submit_s: Floats
    span_s: float
    begins: Floats
    draws: Mapping[str, Floats]

    @classmethod
    def of(
        cls,
        past: Sequence[Job],
        present: Sequence[Job],
        now_s: float,
        begins: Floats,
        draws: Mapping[str, Floats],
    ) -> LaterArrivals | None:
        """From jobs that had ended and those that are there at `now_s`; None if there are too few.

        If the last job of the past ended long ago, only the time up to its last submission counts.
        """
        if len(past) < _FEWEST:
            return None
        first_s = min(job.submit_s for job in past)
        last_s = max(job.submit_s + (job.duration_s or 0.0) for job in past)
        reaches = now_s - last_s <= _RECENT * (now_s - first_s)
        until_s = now_s if reaches else max(job.submit_s for job in past)
        if until_s <= first_s:
            return None
        jobs = [*past, *(job for job in present if reaches and job.submit_s >= first_s)]
        jobs = [replace(job, submit_s=job.submit_s - first_s) for job in jobs]
        jobs.sort(key=lambda job: (job.submit_s, job.job_id))
        return cls(jobs, np.array([job.submit_s for job in jobs]), until_s - first_s, begins, draws)

    def after(self, now_s: float, draw: int, goes_on: Callable[[], bool]) -> Iterator[Job]:
        """The jobs of one draw, each once at most, as long as they are wanted, with times from `now_s` on."""
        begin_s = float(self.begins[draw]) * self.span_s
        first_row = int(np.searchsorted(self.submit_s, begin_s, side="right"))
        for k in range(len(self.jobs)):
            if not goes_on():
                return
            job = self.jobs[(first_row + k) % len(self.jobs)]
            later_s = (job.submit_s - begin_s) % self.span_s
            run_s = float(self.draws[job.job_id][draw]) if job.job_id in self.draws else job.duration_s
            yield replace(job, job_id=f"later {k + 1}", submit_s=now_s + later_s, duration_s=run_s)
