"""Packing by trial: two jobs share GPUs for a while, and go on if they do more work so than in turns.

Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018, section 4.2. The paper
measures mini-batches per second. Here it is units of work, relative to what the planner predicts, so that
phases and GPU types of a job compare.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from clustersim.scheduler import JobView, State

__all__ = ["Trials"]

_INSTANT_S = 1e-6  # a trial that ends within this time is over
_LEAST_GAIN = 1e-6  # of the work of a pair over that of a job alone
Models = tuple[str, str]


@dataclass(frozen=True)
class _Trial:
    """`guest` has joined `host`. What each had done by then (`JobView.work_done`), and the seconds for which
    it had worked on the GPUs that it holds since.
    """

    guest: JobView
    host: JobView
    work: dict[JobView, float]
    before_s: dict[JobView, float]

    def seconds(self, job: JobView) -> float:
        """Seconds of work of a job in the trial."""
        return max(job.productive_s - self.before_s[job], 0.0)

    def left_s(self, trial_s: float) -> float:
        """Seconds until both have worked for `trial_s`."""
        return max(
            job.start_cost_s(job.requested) + trial_s
            if not job.running
            else job.paying_s + trial_s - self.seconds(job)
            for job in (self.guest, self.host)
        )


class Trials:
    """What a policy has measured: the speed of jobs alone, and the work of pairs of models.

    `trial_s`: seconds of work in a trial. A pair of models that does no more work together than in turns is
    not tried again, and one that does more needs no other trial.
    """

    def __init__(self, trial_s: float):
        self.trial_s = trial_s
        self.work: dict[Models, float] = {}
        """The work of two jobs of these models on the same GPUs, in jobs alone."""
        self._alone: dict[JobView, float] = {}  # measured speed over predicted speed
        self._at_start: dict[JobView, float] = {}  # work done when the present allocation began
        self._running: dict[JobView, _Trial] = {}  # by guest

    def follow(self, state: State) -> None:
        """Forget jobs that left, and measurements that were interrupted."""
        for event in state.events:
            if event.job is None or event.kind in ("submitted", "woken"):
                continue
            self._at_start.pop(event.job, None)
            if event.kind == "finished":
                self._alone.pop(event.job, None)
            for trial in list(self._running.values()):
                if event.job in (trial.guest, trial.host):
                    del self._running[trial.guest]

    def started(self, jobs: Iterable[JobView]) -> None:
        """Note that these jobs get other GPUs now, alone."""
        for job in jobs:
            self._at_start[job] = job.work_done
            for trial in [t for t in self._running.values() if job in (t.guest, t.host)]:
                del self._running[trial.guest]

    def measure(self, jobs: Iterable[JobView]) -> None:
        """Measure jobs that have been alone on their GPUs since they started there, for `trial_s` seconds."""
        for job in jobs:
            work_at_start, seconds = self._at_start.get(job), job.productive_s
            if job not in self._alone and work_at_start is not None and seconds >= self.trial_s - _INSTANT_S:
                self._alone[job] = self._speed(job, work_at_start, seconds)

    def knows(self, job: JobView) -> bool:
        """Whether a job was measured alone."""
        return job in self._alone

    def host_for(self, job: JobView, hosts: Sequence[JobView]) -> JobView | None:
        """The job beside which `job` is to run: one of untried models first, then the one with which it does
        the most work, if that is more than in turns. Hosts that were not measured alone are left out, and
        `job` must be one that was (`knows`).
        """
        trying = {_models(trial.guest, trial.host) for trial in self._running.values()}
        best, most_work = None, 1.0 + _LEAST_GAIN
        for host in hosts:
            models = _models(job, host)
            if host not in self._alone:
                continue
            if models not in self.work and models not in trying:
                return host
            if self.work.get(models, 0.0) > most_work:
                best, most_work = host, self.work[models]
        return best

    def join(self, guest: JobView, host: JobView, moved: Container[JobView]) -> None:
        """Note that `guest` joins `host` now; jobs of `moved` get other GPUs than they hold. A pair of
        untried models begins a trial.
        """
        pair = guest, host
        for job in pair:
            self._at_start.pop(job, None)
        if _models(guest, host) not in self.work:
            before_s = {job: 0.0 if job in moved else job.productive_s for job in pair}
            self._running[guest] = _Trial(guest, host, {job: job.work_done for job in pair}, before_s)

    def failed(self) -> list[JobView]:
        """Judge the trials that are over. Returns the guests that must leave."""
        leave = []
        for guest, trial in list(self._running.items()):
            if min(map(trial.seconds, trial.work)) >= self.trial_s - _INSTANT_S:
                del self._running[guest]
                work = sum(
                    self._speed(job, done, trial.seconds(job)) / self._alone[job]
                    for job, done in trial.work.items()
                )
                self.work[_models(guest, trial.host)] = work
                if work <= 1.0 + _LEAST_GAIN:
                    leave.append(guest)
        return leave

    def next_end_s(self, now: float) -> float | None:
        """When the first trial ends at the earliest."""
        seconds_left = [trial.left_s(self.trial_s) for trial in self._running.values()]
        return now + max(min(seconds_left), _INSTANT_S) if seconds_left else None

    @staticmethod
    def _speed(job: JobView, work_before: float, seconds: float) -> float:
        return (job.work_done - work_before) / seconds / job.rate(job.requested, job.gpu_type)


def _models(job_a: JobView, job_b: JobView) -> Models:
    a, b = sorted((job_a.model or "", job_b.model or ""))
    return a, b
