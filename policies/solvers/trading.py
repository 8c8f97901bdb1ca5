"""Shares of GPUs by tenant and GPU type: fair by tickets, then traded where tenants differ in speed-up.

Chaudhary, Ramjee, Sivathanu, Kwatra and Viswanatha, "Balancing Efficiency and Fairness in Heterogeneous GPU
Clusters for Deep Learning" (Gandiva_fair), EuroSys 2020. All tables are (tenants, types), in GPUs; fractions
are shares of time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

__all__ = ["TenantDemand", "Trade", "filled", "ticket_shares", "trade"]

Array = NDArray[np.float64]
_LEAST = 1e-9  # of GPUs that are traded


@dataclass(frozen=True)
class TenantDemand:
    """`speeds` (tenants, types): the mean speed of a tenant's jobs on a type, each relative to its best type,
    0 to 1; over those that can run there, 0 if none can. `most` (tenants, types): GPUs of a type that its
    jobs can hold. `total` (tenants,): GPUs that they can hold together.
    """

    speeds: Array
    most: Array
    total: Array

    def worth(self, held: Array) -> Array:
        """What GPUs are worth to each tenant (tenants,), in GPUs of its best type."""
        return (held * self.speeds).sum(axis=1)


@dataclass(frozen=True)
class Trade:
    """`gpus` of type `fast` go from `seller` to `buyer`, and `price` times as many of type `slow` back."""

    buyer: int
    seller: int
    fast: int
    slow: int
    gpus: float
    price: float


def filled(limits: Array, weights: Array, amount: float) -> Array:
    """Weighted max-min: `amount` divided so that each gets the same multiple of its weight, or its limit.

    >>> filled(np.array([1.0, 9.0, 9.0]), np.array([1.0, 1.0, 2.0]), 7.0)
    array([1., 2., 4.])
    """
    got, amount_left, open_ = np.zeros(len(limits)), amount, limits > 0
    while open_.any():
        part = np.where(open_, weights * amount_left / weights[open_].sum(), 0.0)
        full = open_ & (part >= limits)
        if not full.any():
            return np.where(open_, part, got)
        got[full] = limits[full]
        amount_left, open_ = max(0.0, amount_left - float(limits[full].sum())), open_ & ~full
    return got


def ticket_shares(capacity: Array, tickets: Array, demand: TenantDemand) -> Array:
    """The shares before any trade. `capacity` (types,) in GPUs, `tickets` (tenants,).

    A tenant's part of each type is that of its tickets. It takes its fastest types first, until it has as
    many GPUs as its jobs can hold. What is left replaces slower GPUs, for the largest speed-up first, and
    then goes to tenants that can hold more, by tickets.
    """
    parts = np.outer(tickets / tickets.sum(), capacity)
    held = np.zeros_like(parts)
    for u, speeds in enumerate(demand.speeds):
        for j in np.argsort(-speeds, kind="stable"):
            if speeds[j] > 0:
                demand_left = demand.total[u] - held[u].sum()
                held[u, j] = max(0.0, min(parts[u, j], demand.most[u, j], demand_left))
    for fast, slow in permutations(_fastest_first(demand), 2):
        for u in _by_speed_up(demand, fast, slow):
            if demand.speeds[u, fast] > demand.speeds[u, slow]:
                spare = capacity[fast] - held[:, fast].sum()
                gpus = max(0.0, min(spare, held[u, slow], demand.most[u, fast] - held[u, fast]))
                held[u, fast] += gpus
                held[u, slow] -= gpus
    for j in _fastest_first(demand):
        room = np.minimum(demand.most[:, j] - held[:, j], demand.total - held.sum(axis=1))
        room = np.where(demand.speeds[:, j] > 0, np.maximum(room, 0.0), 0.0)
        held[:, j] += filled(room, tickets, max(0.0, float(capacity[j] - held[:, j].sum())))
    return held


def trade(
    shares: Array, demand: TenantDemand, margin: float, absent: Collection[int] = ()
) -> tuple[Array, list[Trade]]:
    """The shares after all trades, and the trades. Tenants of `absent` do not trade.

    For each pair of types, the tenant with the largest speed-up from the slow one to the fast one buys fast
    GPUs from the one with the smallest, then from the next; then the tenant with the second largest buys. The
    price of a fast GPU, in slow ones, is the second largest speed-up of those that have not bought yet, the
    buyer included. It is no more than a fast GPU is worth to the buyer and no less than it is to the seller,
    so that no trade makes a tenant worse off. Speed-ups that differ by less than `margin` (a fraction) are no
    reason to trade.
    """
    held, trades = shares.copy(), []
    for fast, slow in combinations(_fastest_first(demand), 2):
        order = [u for u in _by_speed_up(demand, fast, slow) if u not in absent]
        speed_up = demand.speeds[:, fast] / np.maximum(demand.speeds[:, slow], 1e-12)
        for place, buyer in enumerate(order[:-1]):
            price = float(speed_up[order[place + 1]])
            for seller in reversed(order[place + 1 :]):
                if speed_up[buyer] <= speed_up[seller] * (1 + margin):
                    break
                gpus = _most(held, demand, buyer, seller, fast, slow, price)
                if gpus > _LEAST:
                    held[buyer, fast] += gpus
                    held[seller, fast] -= gpus
                    held[buyer, slow] -= price * gpus
                    held[seller, slow] += price * gpus
                    trades.append(Trade(buyer, seller, fast, slow, gpus, price))
    return np.maximum(held, 0.0), trades


def _most(
    held: Array, demand: TenantDemand, buyer: int, seller: int, fast: int, slow: int, price: float
) -> float:
    """The fast GPUs that can be traded: both sides have theirs, and can use what they get."""
    demand_left = demand.total - held.sum(axis=1)
    limits = [
        held[seller, fast],
        held[buyer, slow] / price,
        demand.most[buyer, fast] - held[buyer, fast],
        (demand.most[seller, slow] - held[seller, slow]) / price,
    ]
    if price > 1:
        limits.append(demand_left[seller] / (price - 1))
    elif price < 1:
        limits.append(demand_left[buyer] / (1 - price))
    return float(min(limits))


def _by_speed_up(demand: TenantDemand, fast: int, slow: int) -> Sequence[int]:
    """The tenants that can use both types, by speed-up from slow to fast, the largest first."""
    tenants = np.flatnonzero((demand.speeds[:, fast] > 0) & (demand.speeds[:, slow] > 0))
    ratio = demand.speeds[tenants, fast] / demand.speeds[tenants, slow]
    return [int(u) for u in tenants[np.argsort(-ratio, kind="stable")]]


def _fastest_first(demand: TenantDemand) -> Sequence[int]:
    """Types by the mean speed of the jobs that can run there."""
    mean = (demand.speeds * demand.most).sum(axis=0) / np.maximum(demand.most.sum(axis=0), 1e-12)
    return [int(j) for j in np.argsort(-mean, kind="stable")]
