"""Reservations as promises: what triage and the market ask of them, and change."""

from __future__ import annotations

from dataclasses import replace

from clustersim.scheduler import Cluster, JobCurve, JobView
from policies.reservation import Reservations, kernels

from .market import PricedShare

__all__ = ["Promises"]


class Promises(Reservations):
    """Reservations of jobs with a promise. The market shares out spare GPUs between targets and `give`.

    `reserve`: they hold so many times the seconds that saves and failures take from a job in the long run, by
    its `lasting_rates`.
    """

    def __init__(self, cluster: Cluster, guard_s: float, reserve: float = 0.0):
        super().__init__(cluster, guard_s)
        self._reserve = reserve
        self._slower: dict[JobCurve, JobCurve] = {}

    def curve_of(self, job: JobView, gpu_type: str) -> JobCurve:
        curve = super().curve_of(job, gpu_type)
        if not self._reserve or curve.lasting_rates == curve.rates:
            return curve
        if curve not in self._slower:
            rates = zip(curve.rates, curve.lasting_rates, strict=True)
            slower_rates = tuple(
                rate / (1.0 + self._reserve * (rate / lasting - 1.0)) for rate, lasting in rates
            )
            self._slower[curve] = replace(curve, rates=slower_rates)
        return self._slower[curve]

    def try_replace(self, rival: JobView, job: JobView) -> bool:
        """Drop the reservation of `rival` if the best-effort job `job` then gets one. Returns whether it
        does. If not, everything is as before, as in `try_admit`.
        """
        i = self.row[rival]
        row, self.jobs.row[i] = int(self.jobs.row[i]), -1
        if self.reserve(job):
            return True
        self.jobs.row[i] = row
        return False

    def targets(self) -> dict[JobView, PricedShare]:
        """The GPUs that jobs are to hold from now on, as far as that is decided."""
        rows = {job: self.jobs.target[i] for job, i in self.row.items()}
        sizes, types = self.sizes, self.types
        return {
            job: PricedShare(int(sizes.gpus[row]), types[sizes.type[row]])
            for job, row in rows.items()
            if row >= 0
        }

    def give(self, job: JobView, gpus: int, gpu_type: str) -> None:
        """Let a job hold so many GPUs from now on, instead of its target."""
        i, t, spare = self.row[job], self.types.index(gpu_type), self.gpu_pools.spare
        target = self.jobs.target[i]
        if target >= 0:
            spare[self.sizes.type[target]] += self.sizes.gpus[target]
        spare[t] -= gpus
        self.jobs.target[i] = self.kind_of[i].row_of[t, gpus]

    def has(self, job: JobView) -> bool:
        """Whether a job has a reservation."""
        return bool(self.jobs.row[self.row[job]] >= 0)

    def reserved(self) -> list[JobView]:
        """The jobs with a reservation, in order of submission."""
        return sorted([job for job in self.row if self.has(job)], key=lambda job: job.order)

    def least_gpu_s(self, job: JobView) -> float:
        """The least GPU-seconds that the work left of a job takes, by worth."""
        return float(self.call(kernels.least_s, self.row[job])[0])

    def is_hopeless(self, job: JobView) -> bool:
        """Whether a job is too late even on its fastest size."""
        i = self.row[job]
        return bool(self.jobs.deadline_s[i] - self.now_s < self.call(kernels.least_s, i)[1])

    def free_gpu_s(self, until_s: float) -> float:
        """GPU-seconds that are not reserved from now until then, by worth, with all nodes in service."""
        jobs, sizes, now, value = self.jobs, self.sizes, self.now_s, self.gpu_pools.value
        gpus = [pool.nodes * pool.gpus_per_node for pool in self.pools]
        free = sum(value[t] * count * (until_s - now) for t, count in enumerate(gpus))
        for i in self.row.values():
            row, seconds = jobs.row[i], min(jobs.end_s[i], until_s) - max(jobs.start_s[i], now)
            if row >= 0:
                free -= value[sizes.type[row]] * sizes.gpus[row] * max(0.0, seconds)
        return float(free)

    def may_have(self, job: JobView, gpus: int, gpu_type: str) -> bool:
        """Whether a job may hold that many GPUs of that type without danger to its reservation."""
        i, t = self.row[job], self.types.index(gpu_type)
        row = self.kind_of[i].row_of.get((t, gpus), -1)
        return row in self.kind_of[i].rows and bool(self.call(kernels.may_hold, i, row))
