"""Which jobs keep a promise where not all can: few large ones are given up for many small ones."""

from __future__ import annotations

from clustersim.scheduler import JobView, State

from .promises import Promises

__all__ = ["LATE", "NEVER", "TAKEN_BACK", "Triage"]

TAKEN_BACK = "promise taken back"
NEVER = "deadline not promised"
LATE = "deadline promised late"
"""How the notes begin."""

_EASED = 1e-9  # relative; GPU times that differ by rounding count as equal


class Triage:
    """Takes in every job, and promises deadlines: a job has a promise while it has a reservation.

    On submission of job j:

        reserve for j; failing that, for jobs with a promise that are in its way (`short_s`)
            and have more GPU time left than j, the largest first, at most `most`:
            drop that reservation; if j can reserve now, j has the promise instead,
                and the other one reserves again if it still can; if not, put it back;
        failing that, j is best effort

    When a job has finished or lost its promise, the best-effort jobs that can still make their deadline try
    again, the least GPU time left first: a large promise that is taken back may leave room for two small
    ones. So a promise is only taken back for another one, of a job that needs less.

    `give_up` off: no promise is ever taken back. `share`: a job with more GPU time left than this share of
    what is free before its deadline gets no promise. GPU time is the least that the work left takes, by worth
    (`Values`).

    `notes`: what became of promises since the notes were last taken (`take_notes`), by job.
    """

    def __init__(self, reservations: Promises, give_up: bool = True, share: float = 1.0, most: int = 30):
        self.reservations, self.give_up, self.share, self.most = reservations, give_up, share, most
        self._hopeful: dict[JobView, None] = {}  # best-effort jobs that may still make their deadline
        self._notes: dict[JobView, str] = {}
        self._has_taken_back = False  # a promise since the best-effort jobs last tried again

    def enter(self, job: JobView, state: State) -> None:
        """Take in a job that was just submitted."""
        self.reservations.enter(job)
        if job.deadline_s is None or self._promise(job, state) or (self.give_up and self._swap(job, state)):
            return
        if self._is_hopeless(job, state.now):
            self._notes[job] = f"{NEVER}: not enough time on any number of GPUs"
        else:
            self._notes[job] = f"{NEVER}: it did not fit beside other promises at t={state.now:.0f} s"
            self._hopeful[job] = None

    def try_again(self, state: State) -> None:
        """Reserve for best-effort jobs, if a job has finished or lost its promise since the last call."""
        finished = [event.job for event in state.events if event.kind == "finished"]
        for job in finished:
            if job is not None:
                self._hopeful.pop(job, None)
                self._notes.pop(job, None)
        if not finished and not self._has_taken_back:
            return
        self._has_taken_back = False
        for job in list(self._hopeful):
            if self._is_hopeless(job, state.now):
                del self._hopeful[job]
        for job in sorted(self._hopeful, key=lambda job: (self._gpu_s(job), job.order)):
            if self._promise(job, state):
                del self._hopeful[job]
                self._notes[job] = f"{LATE}: at t={state.now:.0f} s"

    def take_notes(self) -> dict[JobView, str]:
        """The notes since the last call."""
        notes, self._notes = self._notes, {}
        return notes

    def _promise(self, job: JobView, state: State) -> bool:
        """Reserve for a best-effort job, if there is room and its GPU time is below the threshold."""
        return self._is_small(job, state.now) and self.reservations.try_admit(job)

    def _swap(self, job: JobView, state: State) -> bool:
        """Give a job the promise of one that has more GPU time left, if that makes room."""
        reservations, now = self.reservations, state.now
        if self._is_hopeless(job, now) or not self._is_small(job, now):
            return False
        least_gpu_s, until_s = self._gpu_s(job) * (1 + _EASED), reservations.short_s
        in_the_way = [rival for rival in reservations.reserved() if (rival.deadline_s or 0.0) <= until_s]
        larger = [
            (-gpu_s, rival.order, rival)
            for rival in in_the_way
            if (gpu_s := self._gpu_s(rival)) > least_gpu_s
        ]
        for *_, rival in sorted(larger)[: self.most]:
            if reservations.try_replace(rival, job):
                if not reservations.try_admit(rival):
                    self._hopeful[rival] = None
                    self._has_taken_back = True
                    self._notes[rival] = f"{TAKEN_BACK}: at t={now:.0f} s, for job {job.id}"
                return True
        return False

    def _is_hopeless(self, job: JobView, now: float) -> bool:
        """Whether a job is too late even on its fastest size."""
        return self.reservations.is_hopeless(job)

    def _is_small(self, job: JobView, now: float) -> bool:
        """Whether a job needs no more than its share of the GPU time that is free before its deadline."""
        if self.share >= 1.0 or job.deadline_s is None:
            return True
        return self._gpu_s(job) <= self.share * self.reservations.free_gpu_s(job.deadline_s)

    def _gpu_s(self, job: JobView) -> float:
        return self.reservations.least_gpu_s(job)
