"""ElasticFlow that replans in every slot and does not foresee restarts, as its artifact seems to do.

The policy elasticflow keeps reservations that count on restarts. This program instead fills all jobs anew at
the start of every slot, by deadline, into slots of free GPUs, as if restarts took no time; jobs then pay for
them. So an admitted job has a plan that ends in time, and may still be late. `Rules` holds the other
differences, so that each can be measured alone (experiments/ELASTICFLOW.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf, log2
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Elastic", "Outcome", "Rules", "refilled"]

_ROUNDING = 1e-9


class Elastic(NamedTuple):
    """A job: seconds on the trace's clock, its work in iterations, and iterations/s by GPUs."""

    submit_s: float
    deadline_s: float
    work: float
    speed: Mapping[int, float]


class Outcome(NamedTuple):
    """Admitted jobs, all with a plan that ends in time, and jobs that did end in time."""

    planned: int
    in_time: int


@dataclass(frozen=True)
class Rules:
    """`slot_s`: the length of a slot. `backwards`: plans are filled from the deadline, not from now on.
    `together`: jobs that were submitted at one instant are admitted or declined together. `to_most`: spare
    GPUs go where GPU time grows most, not least. `admission`: jobs without a plan are declined.
    `start_s`, `restart_s`: the cost of a start and of a change of GPUs, plus 2 (log2 n + 1) s.
    """

    slot_s: float = 240.0
    backwards: bool = True
    together: bool = True
    to_most: bool = True
    admission: bool = True
    start_s: float = 4.5
    restart_s: float = 41.5
    per_log2_s: float = 2.0


class _Job:
    def __init__(self, job: Elastic, number: int, gpus: int):
        self.submit_s, self.deadline_s, self.left, self.number = (
            job.submit_s,
            job.deadline_s,
            job.work,
            number,
        )
        self.gpus, self.owes_s, self.ran, self.promised = 0, 0.0, False, False
        self.speed, self.sizes = job.speed, [0]
        for n in sorted(job.speed):
            if n <= gpus and (len(self.sizes) == 1 or job.speed[n] > job.speed[self.sizes[-1]]):
                self.sizes.append(n)
        self.next_size = dict(zip(self.sizes, [*self.sizes[1:], 0], strict=True))
        self.cost = {n: n / job.speed[n] if n else 0.0 for n in self.sizes}  # GPU-seconds of an iteration
        steps = np.searchsorted(self.sizes, np.arange(gpus + 1), side="right") - 1
        self.largest = np.array(self.sizes)[steps]  # the largest size within so many GPUs
        self.rate = np.array([0.0, *(job.speed[n] for n in self.sizes[1:])])[steps]

    def fill(self, free: np.ndarray[Any, Any], now: float, rules: Rules) -> np.ndarray[Any, Any] | None:
        """GPUs by slot from now on, of the `free` ones, at the smallest level that suffices; or None."""
        slots = int((self.deadline_s - now + _ROUNDING) // rules.slot_s)
        for level in self.sizes[1:]:
            per_slot = self.speed[level] * rules.slot_s
            if per_slot * slots < self.left - _ROUNDING:
                continue
            within = np.minimum(free[:slots], level)
            done = self.rate[within] * rules.slot_s
            done = np.cumsum(done[::-1] if rules.backwards else done)
            if done[-1] < self.left - _ROUNDING:
                continue
            used = int(np.searchsorted(done, self.left - _ROUNDING)) + 1
            plan = np.zeros(slots, dtype=int)
            here = slice(slots - used, slots) if rules.backwards else slice(used)
            plan[here] = self.largest[within[here]]
            return plan
        return None


def refilled(jobs: Sequence[Elastic], gpus: int, rules: Rules) -> Outcome:
    """The number of `jobs` admitted on `gpus` GPUs, and the number of all jobs that end in time."""
    coming = [_Job(job, number, gpus) for number, job in enumerate(jobs)]
    coming.sort(key=lambda job: (job.submit_s, job.number), reverse=True)
    slot_s, active, now = rules.slot_s, list[_Job](), 0.0
    horizon = int(max((job.deadline_s for job in coming), default=0.0) // slot_s) + 1
    planned = in_time = 0
    while coming or active:
        if not active:
            now = max(now, slot_s * ceil((coming[-1].submit_s - _ROUNDING) / slot_s))
        arrived: dict[float, list[_Job]] = {}
        while coming and coming[-1].submit_s <= now + _ROUNDING:
            job = coming.pop()
            arrived.setdefault(job.submit_s if rules.together else job.number, []).append(job)
        for batch in arrived.values():
            if not rules.admission or _admit(active, batch, now, gpus, horizon, rules):
                active += batch
                planned += len(batch)
        _allocate(active, now, gpus, horizon, rules)
        now += slot_s
        for job in list(active):
            worked_s = max(0.0, slot_s - job.owes_s) if job.gpus else 0.0
            if job.gpus:
                job.owes_s = max(0.0, job.owes_s - slot_s)
                job.left -= job.speed[job.gpus] * worked_s
            if job.left <= _ROUNDING:
                active.remove(job)
                in_time += now <= job.deadline_s + _ROUNDING
    return Outcome(planned, in_time)


def _plans(
    jobs: Sequence[_Job], now: float, gpus: int, horizon: int, rules: Rules
) -> dict[_Job, np.ndarray[Any, Any]]:
    """The plans of the jobs that have one, filled by deadline."""
    free, plans = np.full(horizon, gpus), {}
    for job in sorted(jobs, key=lambda job: (job.deadline_s, job.number)):
        plan = job.fill(free, now, rules)
        if plan is not None:
            free[: len(plan)] -= plan
            plans[job] = plan
    return plans


def _admit(active: list[_Job], batch: list[_Job], now: float, gpus: int, horizon: int, rules: Rules) -> bool:
    """Whether the whole batch has plans beside the promised jobs that still have one."""
    promised = [job for job in active if job.promised]
    kept = _plans(promised, now, gpus, horizon, rules)
    for job in promised:
        job.promised = job in kept
    wanted = [*kept, *batch]
    if len(_plans(wanted, now, gpus, horizon, rules)) < len(wanted):
        return False
    for job in batch:
        job.promised = True
    return True


def _allocate(active: list[_Job], now: float, gpus: int, horizon: int, rules: Rules) -> None:
    """Give jobs the GPUs that their plans state for this slot, then spare GPUs step by step."""
    plans = _plans(active, now, gpus, horizon, rules)
    target = {job: int(plans[job][0]) if job in plans else 0 for job in active}
    left = gpus - sum(target.values())
    steps = [_step(job, target[job], rules) for job in active]
    heapify(steps)
    while left and steps:
        *_, size, job = heappop(steps)
        if size and size - target[job] <= left:
            left -= size - target[job]
            target[job] = size
            heappush(steps, _step(job, size, rules))
    for job, size in target.items():
        if size != job.gpus:
            job.gpus = size
            if size:
                fixed_s = rules.restart_s if job.ran else rules.start_s
                job.owes_s, job.ran = fixed_s + rules.per_log2_s * (log2(size) + 1), True


def _step(job: _Job, held: int, rules: Rules) -> tuple[float, float, int, int, _Job]:
    """The next size of a job (0 if there is none), after its rank: the growth of its GPU time."""
    size = job.next_size[held]
    if not size:
        return inf, inf, job.number, 0, job
    growth = job.left * (job.cost[size] - job.cost[held])
    return -growth if rules.to_most else growth, job.deadline_s, job.number, size, job
