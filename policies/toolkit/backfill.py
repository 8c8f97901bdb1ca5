"""How long users say that their jobs take: all that backfilling knows."""

from __future__ import annotations

from clustersim.scheduler import JobView, PolicyError, State

from .parameters import number

__all__ = ["Estimates"]


class Estimates:
    """Run times at the requested GPUs, in seconds, as users would estimate them.

    A job that states its work is estimated exactly. For one of which only the logged duration is known the
    estimate is `factor` times that (from the oracle, noted in the records): the f-model of Mu'alem and
    Feitelson, IEEE TPDS 2001. Estimates are upper bounds (`factor` >= 1), since batch systems end jobs that
    exceed theirs.
    """

    def __init__(self, factor: float):
        self.factor = number("estimate_factor", factor, least=1)
        self._excess_s: dict[JobView, float] = {}

    def keep_up(self, state: State) -> None:
        """First thing in every decision: by how much a job's estimate exceeds the truth depends on all its
        work, so that is noted before some of it is done.
        """
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                self._excess(event.job)
            elif event.kind == "finished" and event.job is not None:
                self._excess_s.pop(event.job, None)

    def run_s(self, job: JobView) -> float:
        """Seconds that a job which waits will hold GPUs once it gets them, its start included."""
        return job.start_cost_s(job.requested) + job.oracle_remaining() + self._excess(job)

    def end_s(self, job: JobView, now: float) -> float:
        """When a job will be done: one that runs, or one that would start now."""
        if not job.running:
            return now + self.run_s(job)
        return now + job.paying_s + job.oracle_remaining() + self._excess(job)

    def _note_excess(self, job: JobView) -> None:
        whole_s = 0.0 if _states_work(job) else job.oracle_remaining() + job.productive_s
        self._excess_s[job] = (self.factor - 1) * whole_s

    def _excess(self, job: JobView) -> float:
        if self.factor == 1.0:
            return 0.0
        if job not in self._excess_s:  # it ran before the first decision, as in a scene for `decide`
            self._note_excess(job)
        return self._excess_s[job]


def _states_work(job: JobView) -> bool:
    try:
        job.remaining()
    except PolicyError:
        return False
    return True
