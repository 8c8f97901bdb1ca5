"""Sia: a configuration for every job, by integer programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.assignment import Choice, assign
from policies.toolkit.parameters import number
from policies.toolkit.rounds import Rounds

__all__ = ["Sia"]


class _Offer(NamedTuple):
    """A job's configurations: normalised speeds by (number of the GPU type, GPUs), and its choice while it
    has no GPUs.
    """

    speeds: dict[tuple[int, int], float]
    idle: Choice


_KEEPING = 0.01
"""By how much a job's present configuration is cheaper: otherwise equal jobs would swap GPUs for no gain."""


class Sia(Scheduler):
    """Sia: in rounds of `round_s` seconds, the assignment of configurations (a number of GPUs of one type) to
    jobs with the smallest sum of normalised speeds to the negative `power`; changes are discounted by their
    cost.

    Jayaram Subramanya et al., "Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling", SOSP 2023.
    `power`, from -5 to -0.01, is the paper's p: the smaller, the fairer. `waiting_cost`, from 1 to 100, is
    its lambda, the cost of a job without GPUs. With several GPU types the solver stops when its solution is
    within the relative `gap`, from 0 to 0.5, of the optimum, or after `search_nodes` nodes of its tree, at
    least 1.
    """

    elastic = True

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
        self._offers: dict[JobView, _Offer] = {}
        self._changes: dict[JobView, int] = {}  # of configurations, by job
        self._settled = -1  # the stamp after a round in which all jobs could move

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._offers.pop(event.job, None)
                self._changes.pop(event.job, None)
        if not self._rounds.begins(state):
            return self._rounds.until_end(state.proposal(), state)
        if state.stamp == self._settled:
            return self._rounds.until_end(state.proposal(), state)
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        unsettled = state.unsettled()
        movable = [job for job in jobs if job not in unsettled]
        requests = self._assigned(state, movable, unsettled)
        if requests is None:
            return self._rounds.until_end(state.proposal(), state)
        proposal = state.proposal()
        proposal.run(requests, let_settle=True)
        for job in proposal.changes:
            held_before, held_after = (job.gpu_type, job.gpus), (proposal.gpu_type(job), proposal.gpus(job))
            if job.running and proposal.gpus(job) and held_before != held_after:
                self._changes[job] = self._changes.get(job, 0) + 1
        self._settled = -1 if unsettled else proposal.stamp
        return self._rounds.until_end(proposal, state)

    def _assigned(
        self, state: State, movable: Sequence[JobView], settling: Iterable[JobView]
    ) -> dict[JobView, tuple[int, str | None]] | None:
        """The jobs that get a configuration beside those that are settling, with it; None if the solver found
        no solution.
        """
        free = state.in_service_by_type()
        types = list(free)
        for job in settling:
            assert job.gpu_type is not None
            free[job.gpu_type] -= job.gpus
        choices = [self._choice(job, types, state.now) for job in movable]
        assignments = assign(choices, list(free.values()), gap=self.gap, search_nodes=self.search_nodes)
        if assignments is None:
            return None
        return {
            job: (configuration[1], types[configuration[0]] if state.cluster.mixed else None)
            for job, configuration in zip(movable, assignments, strict=True)
            if configuration is not None
        }

    def _choice(self, job: JobView, types: Sequence[str], now: float) -> Choice:
        """The cost of each configuration: its normalised speed to the power p, less the cost of waiting.

        A speed that needs a restart is multiplied by the fraction of the job's life not spent on restarts:
        (age - changes x restart) / (age + restart). That of a job younger than one restart is not.
        """
        offer = self._offers.get(job)
        if offer is None:
            speeds = _normalised(job, types)
            idle = tuple((*where, speed**self.power - self.waiting_cost) for where, speed in speeds.items())
            offer = self._offers[job] = _Offer(speeds, idle)
        if job.gpu_type is None:
            return offer.idle
        held, speeds = (types.index(job.gpu_type), job.gpus), offer.speeds
        if held not in speeds:  # a count that is not on offer now
            speeds = {**speeds, held: job.rate(job.gpus, job.gpu_type) / _slowest(job, types)}
        age_s, changes, costs = now - job.submit_s, self._changes.get(job, 0), []
        power, waiting_cost = self.power, self.waiting_cost
        for where, speed in speeds.items() if held in offer.speeds else sorted(speeds.items()):
            factor = _KEEPING
            if where != held:
                restart_s, factor = job.restart_s(where[1]), 0.0
                if age_s >= restart_s:
                    speed *= max(0.0, age_s - changes * restart_s) / max(age_s + restart_s, 1e-9)
            if speed > 0:
                costs.append((*where, speed**power - waiting_cost - factor))
        return tuple(costs)


def _slowest(job: JobView, types: Sequence[str]) -> float:
    """The lowest speed of a job in any configuration."""
    return min(job.rate(size, name) for name in types for size in job.sizes_on(name))


def _normalised(job: JobView, types: Sequence[str]) -> dict[tuple[int, int], float]:
    """A job's speed by (number of the GPU type, GPUs), divided by its lowest speed."""
    slowest_rate = _slowest(job, types)
    return {
        (i, size): job.rate(size, name) / slowest_rate
        for i, name in enumerate(types)
        for size in job.sizes_on(name)
    }
