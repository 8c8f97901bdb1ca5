"""Unicron: GPUs by weighted throughput, divided anew when nodes fail or return and jobs come or go."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from clustersim.scheduler import JobCurve, JobView, Proposal, Scheduler, State
from policies.solvers.divisions.reallocation import Options, best_division
from policies.toolkit.parameters import number, whole

__all__ = ["Unicron"]

_LEAST_S = 1e-3


class Unicron(Scheduler):
    """The division of the GPUs with the most weighted throughput until the next failure, less what is lost
    while jobs change; at every failure, repair, arrival and end.

    He, Li, Wang, Qian, Xu, Yu and Zhou, "Unicron: Economizing Self-Healing LLM Training at Scale", 2024
    (arXiv:2401.00134), section 5. `horizon_s`: the paper's D_running, the expected time until the cluster
    changes again; the API states no failure rate, so it is a parameter. At most `waiting` waiting jobs, the
    heaviest and then the oldest, take part in a division; the others start on GPUs that remain.
    """

    one_gpu_type = True
    elastic = True

    def __init__(self, horizon_s: float = 3600.0, waiting: int = 64):
        self.horizon_s = number("horizon_s", horizon_s, 1.0, 1e9)
        self.waiting = whole("waiting", waiting, 1, 100_000)
        self._worth: dict[JobView, _Worth] = {}

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._worth.pop(event.job, None)
        proposal = state.proposal()
        if not state.pending and not state.running:
            return proposal
        settling = state.unsettled()
        # Jobs on parts of a GPU may share it, so that settling jobs hold more GPUs in sum than there are.
        room = max(0, state.in_service - sum(job.gpus for job in settling))
        line = state.pending_by(_rank, elastic=True)
        jobs = [job for job in state.running if job not in settling]
        jobs += islice(line.walk(lambda gpus: gpus <= room), self.waiting)
        jobs.sort(key=_place)
        proposal.run(self.division(jobs, room), let_settle=True)
        if proposal.wake_at is None and len(line) > self.waiting:
            _start_more(proposal, state)
        if settling and (state.pending or proposal.free):
            proposal.wake_at = min(settling.values())
        return proposal

    def division(self, jobs: Sequence[JobView], gpus: int) -> dict[JobView, int]:
        """GPUs by job, in the order of `jobs`, without the jobs that get none."""
        options = [self._options(job) for job in jobs]
        option_indices = best_division(options, gpus)
        counts = {job: options[i][0][k] for i, (job, k) in enumerate(zip(jobs, option_indices, strict=True))}
        return {job: count for job, count in counts.items() if count}

    def _options(self, job: JobView) -> Options:
        """The GPU counts of a job, the present one first, and what each is worth: F(n) less, for a change,
        F(present) x D_transition / D_running.
        """
        worth = self._worth.get(job)
        if worth is None:
            worth = self._worth[job] = _Worth(job)
        if not job.running:
            return worth.waiting
        held = job.gpus
        curve = job.curve  # another one in another phase
        present = worth.by_count.get((held, curve))
        if present is None:
            present = worth.by_count[held, curve] = throughput(job, held), job.rate(held), job.restart_s(held)
        now, rate, restart_s = present
        lost = now / max(_LEAST_S, min(self.horizon_s, job.work_left / rate))
        values = np.empty(len(worth.sizes) + 2)
        values[0], values[1] = now, -lost * restart_s
        values[2:] = worth.throughputs - lost * worth.restarts
        return (held, 0, *worth.sizes), values


class _Worth:
    """What does not change while a job is in the system: F at each count, seconds of a change to it, and the
    options of the job while it waits. `by_count`: F, the rate, and the seconds of a restart at the counts
    that the job has held.
    """

    __slots__ = ("by_count", "restarts", "sizes", "throughputs", "waiting")

    def __init__(self, job: JobView):
        self.by_count: dict[tuple[int, JobCurve], tuple[float, float, float]] = {}
        self.sizes = job.sizes
        self.throughputs = np.array([throughput(job, n) for n in job.sizes])
        self.restarts = np.array(job.curve.restarts)
        self.waiting: Options = (0, *job.sizes), np.concatenate(([0.0], self.throughputs))


def throughput(job: JobView, gpus: int) -> float:
    """The weighted achieved throughput of a job on so many GPUs, in GPUs that work as those of its request:
    weight x GPUs requested x rate / rate on the request.
    """
    return job.weight * job.requested * job.rate(gpus) / job.rate(job.requested)


def _rank(job: JobView) -> float:
    return -job.weight


def _place(job: JobView) -> tuple[float, int]:
    return _rank(job), job.order


def _start_more(proposal: Proposal, state: State) -> None:
    """Start waiting jobs that have no GPUs in `proposal`, as far as there is room, on at most their
    request.
    """
    for job in state.pending_by(_rank, elastic=True).walk(proposal.fits):
        if not proposal.placement(job):
            fitting = [n for n in job.sizes if n <= job.requested and proposal.fits(n)]
            if fitting:
                proposal.start(job, fitting[-1])
