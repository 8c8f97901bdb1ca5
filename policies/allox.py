"""AlloX: jobs matched with places on GPUs of several types, for the least mean completion time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.positions import lanes, positions
from policies.toolkit.parameters import number, whole

__all__ = ["Allox"]


class Allox(Scheduler):
    """Waiting jobs are matched with positions in the lines of the GPUs of each type at the least total
    completion time. The first ones start, not preemptive; a job may wait for a faster type.

    Le, Sun, Chowdhury and Liu, "AlloX: Compute Allocation in Hybrid Clusters", EuroSys 2020. Tenants are
    matched in groups of a fraction `alpha`, from 0.01 to 1, the least served first; 1 is for the mean
    completion time alone. A matching has at most `window` jobs, from 1 to 2,000, the smallest ones. The
    paper's jobs take one machine; here a job of several GPUs delays others by its GPU time. Run times that
    users do not state come from the oracle.
    """

    def __init__(self, alpha: float = 1.0, window: int = 200):
        self.alpha = number("alpha", alpha, 0.01, 1.0)
        self.window = whole("window", window, 1, 2000)
        self._served = _Served()

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        tenants = list(dict.fromkeys(job.tenant for job in state.pending))
        if self.alpha < 1.0:
            tenants = self._served.ascending(state)
        size = max(1, ceil(self.alpha * len(tenants) - 1e-9))
        for start in range(0, len(tenants), size):
            self._start(tenants[start : start + size], proposal, state)
        if self.alpha < 1.0:
            self._served.note(proposal)
        return proposal

    def _start(self, tenants: Sequence[str], proposal: Proposal, state: State) -> None:
        """Match the waiting jobs of `tenants`, and start those that come first and fit."""
        if proposal.full:
            return
        types, among = state.cluster.gpu_types, set(tenants)
        busy = {proposal.gpu_type(job) for job in proposal.running()}
        jobs: list[JobView] = []
        rows: list[list[float]] = []
        for job in state.pending_by(_area).walk(proposal.fits):
            if job.tenant in among and not proposal.gpus(job):
                able = [name for name in types if name in busy or proposal.fits(job.needs, name, job)]
                row = [_hold_s(job, name) if name in able else inf for name in types]
                if min(row) < inf:
                    jobs.append(job)
                    rows.append(row)
                    if len(jobs) == self.window:
                        break
        if not jobs:
            return
        gpus = np.array([job.requested for job in jobs], dtype=float)
        width = float(gpus.mean())
        machines = [lanes(_releases(name, proposal), width) for name in types]
        behind = (len(state.pending) - len(jobs)) / max(1, sum(map(len, machines)))
        places = positions(np.array(rows), gpus / width, machines, behind)
        for i in sorted(range(len(jobs)), key=lambda i: (places[i][1], jobs[i].order)):
            if rows[i][places[i][0]] < inf:
                proposal.start(jobs[i], gpu_type=types[places[i][0]])


class _Served:
    """What each tenant with jobs in the system has received: GPU-seconds, those of a slower type counted by
    the job's speed there relative to its fastest type. A tenant that comes begins at the least of the others.
    """

    def __init__(self) -> None:
        self._gpu_s: dict[str, float] = {}
        self._speed: dict[str, float] = {}
        self._since_s = 0.0

    def ascending(self, state: State) -> list[str]:
        """The tenants with jobs in the system, the least served first; of equal ones the first to submit."""
        passed_s, self._since_s = state.now - self._since_s, state.now
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        present = dict.fromkeys(job.tenant for job in jobs)
        present_gpu_s = {name: self._gpu_s[name] for name in present if name in self._gpu_s}
        present_gpu_s = {
            name: gpu_s + self._speed.get(name, 0.0) * passed_s for name, gpu_s in present_gpu_s.items()
        }
        least_gpu_s = min(present_gpu_s.values(), default=0.0)
        self._gpu_s = {name: present_gpu_s.get(name, least_gpu_s) for name in present}
        return sorted(present, key=lambda name: self._gpu_s[name])

    def note(self, proposal: Proposal) -> None:
        """The speeds from now on."""
        self._speed = {}
        for job in proposal.running():
            gpus = proposal.gpus(job)
            speed = gpus * job.rate(gpus, proposal.gpu_type(job)) / job.rate(gpus)
            self._speed[job.tenant] = self._speed.get(job.tenant, 0.0) + speed


def _area(job: JobView) -> float:
    """GPU-seconds of work left on the fastest type."""
    return job.oracle_remaining() * job.requested


def _hold_s(job: JobView, gpu_type: str) -> float:
    """Seconds for which a waiting job would hold its GPUs; infinite where it cannot run."""
    if not job.can_run_on(job.requested, gpu_type):
        return inf
    return job.start_cost_s(job.requested) + job.oracle_remaining(job.requested, gpu_type)


def _releases(gpu_type: str, proposal: Proposal) -> NDArray[np.float64]:
    """Seconds until each GPU of a type is free."""
    release_times = [0.0] * proposal.free_of(gpu_type)
    for job in proposal.running():
        if proposal.gpu_type(job) == gpu_type:
            end_s = (
                _hold_s(job, gpu_type)
                if not job.running
                else (job.paying_s + job.oracle_remaining(job.gpus, gpu_type))
            )
            release_times += [end_s] * proposal.gpus(job)
    return np.array(release_times)
