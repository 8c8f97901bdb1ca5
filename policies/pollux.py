"""Pollux: GPUs and batches together, for the largest mean speedup of jobs in goodput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobCurve, JobView, Proposal, Scheduler, State
from policies.solvers.divisions import Options, priced_division
from policies.toolkit.parameters import number, switch
from policies.toolkit.rounds import Rounds

__all__ = ["Pollux"]


class _Goodput(NamedTuple):
    """What each GPU count gives a job with its best batch there; counts ascending, each strictly faster than
    the one before. `batches`: of every count that the job can use; empty where the batch is no choice.
    """

    sizes: tuple[int, ...]
    rates: NDArray[np.float64]  # units of work per second
    batches: Mapping[int, int]

    def at(self, gpus: float) -> float:
        """The goodput of a share of the cluster: between two counts in proportion, and below the smallest
        that of a share of time.
        """
        return float(np.interp(gpus, (0, *self.sizes), (0.0, *self.rates)))


class Pollux(Scheduler):
    """In rounds of `round_s` seconds: the numbers of GPUs with the largest generalised mean, of exponent
    `power`, of the jobs' speedups over a fair share. Each job trains with the batch of the largest goodput.

    Qiao et al., "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021.
    `power`, from -10 to 1, is the paper's p: the smaller, the fairer. Other GPUs than now count less, by the
    share of the job's life that changes would have taken. A job without GPUs counts as one with the speedup
    `waiting_speedup`. With `apart` no node has two jobs that span nodes, even where a job loses GPUs for it
    that stay free. With `batches` off all jobs keep the batch of their trace.
    """

    one_gpu_type = True
    elastic = True
    leaves_idle = True

    def __init__(
        self, round_s: float = 60.0, power: float = -1.0, waiting_speedup: float = 0.01, apart: bool = True,
        batches: bool = True,
    ):  # fmt: skip
        self.round_s = number("round_s", round_s, 1.0, 1e7)
        self.power = number("power", power, -10.0, 1.0)
        self.waiting_speedup = number("waiting_speedup", waiting_speedup, 1e-6, 1.0)
        self.apart, self.batches = switch("apart", apart), switch("batches", batches)
        self._rounds = Rounds(self.round_s)
        self._goodputs: dict[JobView, _Goodput] = {}
        self._known: dict[tuple[object, ...], _Goodput] = {}
        self._restart_s: dict[tuple[JobCurve, tuple[int, ...]], NDArray[np.float64]] = {}
        self._changes: dict[JobView, int] = {}  # of its GPUs, by job
        self._settled = -1  # the stamp after a round in which all jobs could move

    def schedule(self, state: State) -> Proposal:
        entered = self._follow(state)
        proposal = state.proposal()
        if not self._rounds.begins(state):
            self._tune(entered, proposal)
            return self._rounds.until_end(proposal, state)
        if state.stamp != self._settled:
            jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
            unsettled = state.unsettled()
            movable = [job for job in jobs if job not in unsettled]
            settling_gpus = sum(job.gpus for job in unsettled)
            proposal.run(self._divided(state, movable, len(jobs), settling_gpus), let_settle=True)
            if self.apart:
                _keep_apart(proposal)
            for job in proposal.changes:
                if job.running and job.gpus != proposal.gpus(job):
                    self._changes[job] = self._changes.get(job, 0) + 1
            self._tune(proposal.running(), proposal)
            self._settled = -1 if unsettled else proposal.stamp
        return self._rounds.until_end(proposal, state)

    def _follow(self, state: State) -> list[JobView]:
        """Bring what is known up to date. Returns the running jobs that entered a phase."""
        entered = []
        for event in state.events:
            job = event.job
            if job is None or event.kind not in ("finished", "phase", "interrupted"):
                continue
            self._goodputs.pop(job, None)
            if event.kind == "finished":
                self._changes.pop(job, None)
            elif event.kind == "phase" and job.running:
                entered.append(job)
        return entered

    # GPUs

    def _divided(
        self, state: State, movable: Sequence[JobView], jobs: int, settling_gpus: int
    ) -> dict[JobView, int]:
        """The GPUs of the jobs that get some. `jobs`: in the system. `settling_gpus`: those of the others."""
        gpus = state.in_service - settling_gpus
        fair = max(1, state.in_service) / max(1, jobs)
        fair_goodputs: dict[int, float] = {}
        waiting: dict[tuple[int, float], Options] = {}  # by goodput and weight
        room: dict[tuple[int, float], int] = {}  # how many more of such jobs there is room for
        served, options = [], []
        for job in movable:
            goodput = self._goodput(job)
            if id(goodput) not in fair_goodputs:
                fair_goodputs[id(goodput)] = goodput.at(fair)
            if job.running:
                served.append(job)
                options.append(self._options(job, goodput, fair_goodputs[id(goodput)], state.now))
                continue
            kind = id(goodput), job.weight
            if kind not in waiting:
                waiting[kind] = self._options(job, goodput, fair_goodputs[id(goodput)], state.now)
                room[kind] = gpus // goodput.sizes[0]
            if room[kind] > 0:  # of jobs that are alike the first are served
                room[kind] -= 1
                served.append(job)
                options.append(waiting[kind])
        option_indices = priced_division(options, gpus)
        counts = {job: of[0][k] for job, of, k in zip(served, options, option_indices, strict=True)}
        return {job: n for job, n in counts.items() if n}

    def _options(self, job: JobView, goodput: _Goodput, fair_goodput: float, now: float) -> Options:
        """The GPU counts of a job, 0 first, and what each adds to the sum that the mean is a function of.

        SPEEDUP(n) = goodput(n) / goodput(fair share) (the paper, equation 15). On other GPUs than now it is
        multiplied by the paper's REALLOC_FACTOR, (age - changes x restart) / (age + restart).
        """
        sizes, rates = goodput.sizes, goodput.rates
        if job.running:
            if job.gpus not in sizes:
                rate = job.rate(job.gpus)
                size_index = int(np.searchsorted(sizes, job.gpus))
                sizes = (*sizes[:size_index], job.gpus, *sizes[size_index:])
                rates = np.insert(rates, size_index, rate)
            age_s, changes = now - job.submit_s, self._changes.get(job, 0)
            restart_s = self._restarts(job, sizes)
            spent = np.maximum(age_s - changes * restart_s, 0.0) / np.maximum(age_s + restart_s, 1e-9)
            spent[sizes.index(job.gpus)] = 1.0
            rates = rates * spent
        speedups = np.empty(len(sizes) + 1)
        speedups[0] = self.waiting_speedup
        np.maximum(rates / fair_goodput, self.waiting_speedup, out=speedups[1:])
        return (0, *sizes), job.weight * self._worth(speedups)

    def _restarts(self, job: JobView, sizes: tuple[int, ...]) -> NDArray[np.float64]:
        """Seconds of a restart of a job on each of its sizes. Jobs of a kind share one array."""
        key = job.curve, sizes
        restarts = self._restart_s.get(key)
        if restarts is None:
            restarts = self._restart_s[key] = np.array([job.restart_s(n) for n in sizes])
        return restarts

    def _worth(self, speedup: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where this has the largest sum over jobs, the generalised mean of their speedups is largest."""
        if self.power == 0.0:
            return np.log(speedup)
        worth: NDArray[np.float64] = np.sign(self.power) * speedup**self.power
        return worth

    # Batches

    def _goodput(self, job: JobView) -> _Goodput:
        """The goodput of a job in its present phase. Jobs of a kind share one object."""
        goodput = self._goodputs.get(job)
        if goodput is None:
            curves = job.batches if self.batches else {}
            by_batch = curves or {0: job.curve}
            key = tuple(by_batch.values())
            goodput = self._known.get(key)
            if goodput is None:
                best: dict[int, tuple[float, int]] = {}
                for batch, curve in by_batch.items():
                    for n, rate in zip(curve.sizes, curve.rates, strict=True):
                        if rate > best.get(n, (0.0, 0))[0]:
                            best[n] = rate, batch
                sizes: list[int] = []
                for n in sorted(best):
                    if not sizes or best[n][0] > best[sizes[-1]][0]:
                        sizes.append(n)
                rates = np.array([best[n][0] for n in sizes])
                goodput = _Goodput(tuple(sizes), rates, {n: best[n][1] for n in sizes} if curves else {})
                self._known[key] = goodput
            self._goodputs[job] = goodput
        return goodput

    def _tune(self, jobs: Iterable[JobView], proposal: Proposal) -> None:
        """Let jobs train with the batch that is best on their GPUs."""
        for job in jobs:
            batch = self._goodput(job).batches.get(proposal.gpus(job))
            if batch is not None and batch != job.batch:
                proposal.train_with(job, batch)


def _keep_apart(proposal: Proposal) -> None:
    """Take GPUs from jobs that span nodes until no two of them share a node: first those that would move."""
    users: dict[int, JobView] = {}

    def conflicts(job: JobView) -> bool:
        placement = proposal.placement(job) or ()
        return len(placement) > 1 and any(node in users for node, _ in placement)

    def span_or_stop(job: JobView) -> None:
        if conflicts(job):
            proposal.stop(job)
        placement = proposal.placement(job) or ()
        if len(placement) > 1:
            users.update((node, job) for node, _ in placement)

    changed = proposal.changes
    for job in sorted(proposal.running(), key=lambda job: (job in changed, job.order)):
        if len(proposal.placement(job) or ()) == 1:
            continue
        if conflicts(job):
            smaller = [n for n in job.sizes if n < proposal.gpus(job)]
            while smaller and conflicts(job):
                proposal.resize(job, smaller.pop())
            if conflicts(job):
                proposal.stop(job)
                proposal.keep(job)
        span_or_stop(job)
    for job in sorted((job for job in changed if job.running), key=lambda job: job.order):
        if not proposal.placement(job) and proposal.keep(job):  # the job that got its GPUs has left them
            span_or_stop(job)
