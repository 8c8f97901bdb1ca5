"""Shockwave: a market over the rounds to come, for jobs whose speed changes with their progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.nash_window import Bid, falling, rounds_of_window
from policies.toolkit.parameters import number, whole
from policies.toolkit.progress import WorkCourse, course_of
from policies.toolkit.rounds import Rounds

__all__ = ["Shockwave"]

_BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_ORIGIN = 1e-6  # the share at which the logarithm of no progress is taken
_LOGS = np.log(np.maximum(_BASES, _ORIGIN))
_NEWS = ("submitted", "finished", "phase", "interrupted", "eligible")
_STEEPEST = (_LOGS[1] - _LOGS[0]) / _BASES[1]


class _Standing(NamedTuple):
    """What a policy knows of a job until the job runs again, or its phase changes."""

    course: WorkCourse
    first_gain: float  # of the logarithm, for one round
    submit_s: float
    contended_s: float  # the integral of contention at its submission
    gpus: float
    weight: float


class Shockwave(Scheduler):
    """In rounds of `round_s` seconds: the schedule of the next `window` rounds that maximises the Nash social
    welfare over time, the sum over jobs of weight x log(progress), less a penalty on the makespan.

    Zheng et al., "Shockwave: Fair and Efficient Cluster Scheduling for Dynamic Adaptation in Machine
    Learning", NSDI 2023. The weight is the estimated finish-time fairness to the power `fairness_power` (the
    paper's k), times the job's own weight. `makespan_weight` is its lambda. Future phases of a job are
    predicted (`policies.toolkit.progress`), or `foresight` is "present": the speed stays. A program has at
    most `program_jobs` jobs, those that gain most per GPU in one round. HiGHS stops at a relative `gap`, or
    after `search_nodes` nodes of its tree. Run times that users do not state come from the oracle.
    """

    one_gpu_type = True

    def __init__(
        self, round_s: float = 120.0, window: int = 20, fairness_power: float = 5.0,
        makespan_weight: float = 0.1, foresight: str = "predicted", program_jobs: int = 100,
        gap: float = 1e-3, search_nodes: int = 200,
    ):  # fmt: skip
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self.window = whole("window", window, 1, 1000)
        self.fairness_power = number("fairness_power", fairness_power, 0.0, 20.0)
        self.makespan_weight = number("makespan_weight", makespan_weight, 0.0, 1e6)
        if foresight not in ("predicted", "present"):
            raise ValueError(f"foresight={foresight!r:.60}: must be predicted or present")
        self.foresight = foresight
        self.program_jobs = whole("program_jobs", program_jobs, 1, 10_000)
        self.gap = number("gap", gap, 0.0, 0.5)
        self.search_nodes = whole("search_nodes", search_nodes, 1, 10**9)
        self._rounds = Rounds(self.round_s)
        self._standing: dict[JobView, _Standing] = {}
        self._ran: dict[JobView, None] = {}  # since the last round: their progress has changed
        self._contended_s, self._contention, self._since_s = 0.0, 1.0, 0.0
        self._planned: dict[JobView, int] = {}  # rounds that each job is still to get
        self._rounds_left = 0

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.job is not None and event.kind in _NEWS:
                self._rounds_left = 0  # the market has changed: plan anew in the next round
                is_held = event.kind == "interrupted" and event.job not in state.pending
                if event.kind == "finished" or (is_held and not event.job.running):
                    for table in (self._standing, self._planned, self._ran):
                        table.pop(event.job, None)
                else:
                    self._ran[event.job] = None
        if not self._rounds.begins(state):
            return self._rounds.until_end(state.proposal(), state)
        self._look(state)
        proposal = state.proposal()
        if self._standing:
            jobs = list(self._standing)
            order = self._by_gain(jobs, state.now)
            if self._rounds_left <= 0:
                self._plan([jobs[i] for i in order], state)
            self._run([jobs[i] for i in order], proposal, state)
            self._rounds_left -= 1
        return self._rounds.until_end(proposal, state)

    # What is known of jobs

    def _look(self, state: State) -> None:
        """Bring the standing of jobs up to date, and the contention for GPUs."""
        self._contended_s += self._contention * (state.now - self._since_s)
        self._since_s = state.now

        def at_submission(job: JobView) -> float:
            return self._contended_s - self._contention * (state.now - job.submit_s)

        for job in [*self._ran, *state.running]:
            standing = self._standing.get(job)
            course = course_of(job, self.foresight == "predicted")
            self._standing[job] = _Standing(
                course,
                float(np.interp(course.share_after(self.round_s), _BASES, _LOGS) - _log(course.done)),
                job.submit_s,
                at_submission(job) if standing is None else standing.contended_s,
                job.needs,
                job.weight,
            )
        self._ran.clear()
        asked_gpus = sum(entry.gpus for entry in self._standing.values())
        self._contention = max(1.0, asked_gpus / max(1, state.in_service))

    def _weights(self, jobs: Sequence[JobView], now: float) -> np.ndarray:
        """Estimated finish-time fairness to the power k, times own weights; the largest is 1.

        The estimate is (age + remaining time x present contention) / (run time x mean contention so far): how
        much later the job ends than on its fair share of the cluster (the paper, section 5).
        """
        rows = [self._standing[job] for job in jobs]
        age = np.array([now - row.submit_s for row in rows])
        seconds_left, whole_s = (
            np.array([getattr(row.course, name) for row in rows]) for name in ("left_s", "run_s")
        )
        since = np.array([self._contended_s - row.contended_s for row in rows])
        mean = np.where(age > 0, since / np.maximum(age, 1e-9), self._contention)
        fairness = (age + seconds_left * self._contention) / np.maximum(whole_s * np.maximum(mean, 1.0), 1e-9)
        weights = fairness**self.fairness_power * np.array([row.weight for row in rows])
        scaled_weights: np.ndarray = weights / weights.max()
        return scaled_weights

    def _by_gain(self, jobs: Sequence[JobView], now: float) -> list[int]:
        """The jobs, as indices, by what a round of each adds to the objective per GPU; ties by submission."""
        rows = [self._standing[job] for job in jobs]
        gain = self._weights(jobs, now) * np.array([row.first_gain / row.gpus for row in rows])
        order = np.array([job.order for job in jobs])
        return [int(i) for i in np.lexsort((order, -gain))]

    # The plan, and its rounds

    def _plan(self, ranked: Sequence[JobView], state: State) -> None:
        """Decide how many of the next rounds each job gets."""
        self._rounds_left = self.window
        weights = dict(zip(ranked, self._weights(ranked, state.now).tolist(), strict=True))
        bidders = [job for job in ranked if job.requested <= state.in_service][: self.program_jobs]
        bids = [self._bid(job, weights[job]) for job in bidders]
        bidding_jobs = set(bidders)
        other_gpu_s = sum(
            standing.gpus * standing.course.left_s
            for job, standing in self._standing.items()
            if job not in bidding_jobs
        )
        rounds = rounds_of_window(
            bids, state.in_service, self.window, self.round_s,
            makespan_weight=self.makespan_weight * _STEEPEST / (self.window * self.round_s),
            other_gpu_s=other_gpu_s, gap=self.gap, search_nodes=self.search_nodes,
        )  # fmt: skip
        self._planned = dict(zip(bidders, rounds or [], strict=False))

    def _bid(self, job: JobView, weight: float) -> Bid:
        """What rounds add to weight x log(progress). A job that is not running loses its start."""
        course = self._standing[job].course
        lost_s = job.paying_s if job.running else min(job.start_cost_s(job.requested), self.round_s)
        seconds = np.maximum(0.0, self.round_s * np.arange(self.window + 1) - lost_s)
        logs = np.interp(course.shares_after(seconds), _BASES, _LOGS)
        rounds_needed = max(1, int(np.ceil((course.left_s + lost_s) / self.round_s)))
        gains = falling((weight * np.maximum(np.diff(logs), 0.0)).tolist()[:rounds_needed])
        return Bid(job.requested, tuple(gains), course.left_s + lost_s)

    def _run(self, ranked: Sequence[JobView], proposal: Proposal, state: State) -> None:
        """Run the jobs of the plan, then others by gain. Those without a round to spare come first, then
        those that run already: a job gets its rounds in a row, with one restart.
        """
        due_jobs = [job for job, rounds in self._planned.items() if rounds > 0]
        place = {job: i for i, job in enumerate(ranked)}
        due_jobs.sort(key=lambda job: (self._planned[job] < self._rounds_left, not job.running, place[job]))
        next_jobs, asked_gpus = list(due_jobs), sum(job.needs for job in due_jobs)
        scheduled_jobs = set(due_jobs)
        for job in ranked:
            if asked_gpus > 2 * state.in_service:
                break
            if job not in scheduled_jobs:
                next_jobs.append(job)
                asked_gpus += job.needs
        proposal.run(dict.fromkeys(next_jobs), smaller=False, let_settle=True)
        for job in ranked:
            if proposal.full:
                break
            if not proposal.placement(job) and proposal.fits(job.needs, job=job):
                proposal.start(job)
        for job in due_jobs:
            if proposal.placement(job):
                self._planned[job] -= 1


def _log(share: float) -> float:
    return float(np.interp(share, _BASES, _LOGS))
