"""Gandiva_fair: tickets of tenants, and trades between GPU types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView
from policies.solvers.trading import TenantDemand, filled, ticket_shares, trade
from policies.toolkit.gavel import Gavel
from policies.toolkit.parameters import by_tenant, number

__all__ = ["GandivaFair"]

Array = NDArray[np.float64]


class GandivaFair(Gavel):
    """Tenants share each GPU type by their tickets; tenants with a large speed-up on fast GPUs buy them from
    tenants with a small one for more slow GPUs, at the second largest speed-up; in rounds of `round_s`
    seconds.

    Chaudhary et al., "Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep Learning",
    EuroSys 2020. `tickets` by tenant; 1 where none is given. The tickets of a tenant are divided among its
    jobs by their weights. Trades need speed-ups that differ by more than the fraction `margin`, 0 to 10. A
    tenant whose jobs would do less work after its trades does not trade. Jobs take turns as in stride
    scheduling, the one with the least time for its share first.
    """

    def __init__(
        self, round_s: float = 600.0, tickets: Mapping[str, float] | None = None, margin: float = 0.1
    ):
        super().__init__(round_s)
        self.tickets = by_tenant("tickets", tickets, minimum=1e-6)
        self.margin = number("margin", margin, 0.0, 10.0)

    def time_shares(
        self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float
    ) -> Array:
        gpus = np.array([job.requested for job in jobs], dtype=float)
        able = (rates > 0) & (gpus[:, None] <= np.array(capacity)[None, :])
        best = rates.max(axis=1, where=able, initial=0.0)
        speeds = np.where(able, rates, 0.0) / np.where(best > 0, best, 1.0)[:, None]
        names = list(dict.fromkeys(job.tenant for job in jobs))
        tickets = np.array([self.tickets.get(name, 1.0) for name in names])
        row = np.array([names.index(job.tenant) for job in jobs])
        demand = _demand(speeds, gpus, row, len(names))
        fair = ticket_shares(np.array(capacity, float), tickets, demand)
        weights = np.array([job.weight for job in jobs])
        rates_before = _of_jobs(fair, speeds, gpus, weights, row)
        absent: set[int] = set()
        while True:
            held, _ = trade(fair, demand, self.margin, absent)
            rates_after = _of_jobs(held, speeds, gpus, weights, row)
            gains = np.bincount(row, gpus * ((rates_after - rates_before) * speeds).sum(axis=1), len(names))
            worse = set(np.flatnonzero(gains < -1e-6).tolist()) - absent
            if not worse:
                return rates_after
            absent |= worse


def _demand(speeds: Array, gpus: Array, row: NDArray[np.int64], tenants: int) -> TenantDemand:
    """What the jobs of each tenant can use. `speeds` (jobs, types) relative to a job's best type, `gpus` and
    `row` (the tenant) by job.
    """
    total = np.bincount(row, gpus * (speeds.max(axis=1) > 0), tenants).astype(float)
    sums = np.array([np.bincount(row, gpus * column, tenants) for column in speeds.T]).T
    demand = np.array([np.bincount(row, gpus * (column > 0), tenants) for column in speeds.T]).T
    return TenantDemand(sums / np.maximum(demand, 1.0), demand, total)


def _of_jobs(held: Array, speeds: Array, gpus: Array, weights: Array, row: NDArray[np.int64]) -> Array:
    """Shares of time X (jobs, types), where each tenant divides what it holds among its jobs."""
    shares = np.zeros_like(speeds)
    for u, gpus_of_types in enumerate(held):
        mine = np.flatnonzero(row == u)
        shares[mine] = divided(gpus_of_types, speeds[mine], gpus[mine], weights[mine])
    return shares


def divided(held: Array, speeds: Array, gpus: Array, weights: Array) -> Array:
    """Shares of time X (jobs, types) of a tenant's jobs on its GPUs `held` (types,).

    GPU time is equal by weight, as far as a job can use it. Jobs with the largest speed-up get their time on
    the fastest type, the next ones on the next; of equal ones the first.
    """
    budget = filled(np.where(speeds.max(axis=1) > 0, gpus, 0.0), weights, float(held.sum()))
    shares = np.zeros_like(speeds)
    order = np.argsort(-(speeds.T @ gpus), kind="stable")
    for place, j in enumerate(order):
        later = speeds[:, order[place + 1 :]].max(axis=1, initial=1e-12)
        share_left = float(held[j])
        for job in np.argsort(-speeds[:, j] / later, kind="stable"):
            if speeds[job, j] > 0:
                job_share = min(float(budget[job]), share_left)
                shares[job, j] = job_share / gpus[job]
                budget[job] -= job_share
                share_left -= job_share
    return shares
