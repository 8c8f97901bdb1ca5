"""Sia: a configuration for every job, by integer programs."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .assignment import Choice, assign
from .parameters import number
from .placing import run_elastic, settles
from .rounds import Rounds

__all__ = ["Sia"]

_KEEPING = 0.01  # by which a job's present count is cheaper: else jobs alike change places for nothing


class Sia(Scheduler):
    """Sia: in rounds of `round_s` seconds the assignment of GPU counts to jobs with the least sum of
    normalised speeds to the negative `power`; a change of counts is discounted by the time it costs.

    Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023.
    `power`, from -5 to -0.01, is the paper's p: the smaller, the fairer. `waiting_cost`, from 1 to 100, is
    its lambda, the cost of a job without GPUs. The solver stops when its solution is as close to the optimum
    as `gap`, relatively, from 0 to 0.5, or after `search_nodes` nodes of its tree, at least 1.
    """

    def __init__(
        self, round_s: float = 60.0, power: float = -0.5, waiting_cost: float = 1.1, gap: float = 1e-3,
        search_nodes: int = 1000,
    ):  # fmt: skip
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self.power = number("power", power, -5.0, -0.01)
        self.waiting_cost = number("waiting_cost", waiting_cost, 1.0, 100.0)
        self.gap = number("gap", gap, 0.0, 0.5)
        self.search_nodes = int(number("search_nodes", search_nodes, 1, 1e9))
        self._rounds = Rounds(self.round_s)
        self._changes: dict[JobView, int] = {}  # of counts, by job
        self._done: tuple[int, dict[JobView, int]] | None = None  # GPUs and counts that the last one left

    def schedule(self, state: State) -> Proposal:
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        now = (state.in_service, {job: job.gpus for job in jobs})
        if not self._rounds.begins(state) or now == self._done:
            return self._rounds.until_end(state.proposal(), state)
        movable = [job for job in jobs if not settles(job)]
        free = state.in_service - sum(job.gpus for job in jobs if settles(job))
        choices = [self._choice(job, state.now) for job in movable]
        counts = assign(choices, free, gap=self.gap, search_nodes=self.search_nodes)
        if counts is None:
            return self._rounds.until_end(state.proposal(), state)
        proposal = run_elastic(state, {job: n for job, n in zip(movable, counts, strict=True) if n})
        all_moved = len(movable) == len(jobs)
        self._done = (state.in_service, {job: proposal.gpus(job) for job in jobs}) if all_moved else None
        self._changes = {
            job: self._changes.get(job, 0) + (0 < job.gpus != proposal.gpus(job) > 0) for job in jobs
        }
        return self._rounds.until_end(proposal, state)

    def _choice(self, job: JobView, now: float) -> Choice:
        """The cost of each count: its normalised speed to the power p, less what waiting costs.

        Speeds are divided by the job's lowest one; one that needs a restart is multiplied by the part of its
        life that the job would not have spent on restarts: (age - changes x restart) / (age + restart).
        """
        least = min(job.rate(size) for size in job.sizes)
        costs = []
        for size in dict.fromkeys((*job.sizes, *([job.gpus] if job.gpus else []))):
            speed = job.rate(size) / least
            if job.gpus and size != job.gpus:
                age_s, restart_s = now - job.submit_s, job.restart_s(size)
                lost_s = self._changes.get(job, 0) * restart_s
                speed *= max(0.0, age_s - lost_s) / max(age_s + restart_s, 1e-9)
            if speed > 0:
                kept = _KEEPING if size == job.gpus else 0.0
                costs.append((size, speed**self.power - self.waiting_cost - kept))
        return tuple(sorted(costs))
