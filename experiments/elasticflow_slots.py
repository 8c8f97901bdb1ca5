"""A small simulator of clusters that decide in slots, to test hypotheses about ElasticFlow's artifact.

Time advances in slots of `slot_s` seconds. Submitted jobs wait for the next slot, and GPUs that become free
in a slot stay free until its end. Jobs keep their GPU count. The program does not use the engine, so that a
setting takes a fraction of a second; `experiments.elasticflow_campaign` tries many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf
from typing import NamedTuple

__all__ = ["ORDERS", "PLACEMENTS", "Request", "Setting", "jobs_in_time"]

_ROUNDING_S = 1e-6


class Request(NamedTuple):
    """A job: times in seconds on the trace's clock; `run_s` is the run time on its `gpus` GPUs."""

    submit_s: float
    deadline_s: float
    gpus: int
    run_s: float


@dataclass(frozen=True)
class Setting:
    """One way to schedule.

    `order`: the order of jobs, of `ORDERS`. `placement`: where GPUs are taken, of `PLACEMENTS`. `preemptive`:
    running jobs queue with the others, not before them. `passing`: jobs that do not fit are passed. `late`:
    whether jobs that have missed their deadline stay in line ("stay"), come after all others ("last") or
    leave the line ("leave"). `waits_slots`: slots that a job waits beyond its first. `noticed`: a job ends at
    the end of its slot. `start_s`: the cost of a start or restart; `all_pay`: every running job pays it when
    any job starts or stops.
    """

    order: str
    slot_s: float
    placement: str = "anywhere"
    preemptive: bool = False
    passing: bool = False
    late: str = "stay"
    waits_slots: int = 0
    noticed: bool = False
    start_s: float = 0.0
    all_pay: bool = False


@dataclass(eq=False)
class _Job:
    request: Request
    number: int
    left_s: float
    attained_s: float = 0.0
    owes_s: float = 0.0
    place: dict[int, int] = field(default_factory=dict)


ORDERS: Mapping[str, Callable[[_Job], float]] = {
    "deadline": lambda job: job.request.deadline_s,
    "arrival": lambda job: job.request.submit_s,
    "turns": lambda job: job.attained_s,
    "attained": lambda job: job.attained_s * job.request.gpus,
}
"""Earliest deadline, first come first served, least time on GPUs (round-robin), least GPU time."""


def _fullest(free: Sequence[int], node: int) -> tuple[int, int]:
    return free[node], node


def _emptiest(free: Sequence[int], node: int) -> tuple[int, int]:
    return -free[node], node


def _first(free: Sequence[int], node: int) -> tuple[int, int]:
    return 0, node


PLACEMENTS: Mapping[str, Callable[[Sequence[int], int], tuple[int, int]] | None] = {
    "anywhere": None,
    "first node": _first,
    "fullest node": _fullest,
    "emptiest node": _emptiest,
}
"""Any free GPUs, or the order in which nodes are tried for the GPUs of one node or of whole nodes."""


def _place(free: list[int], gpus: int, per_node: int, placement: str) -> dict[int, int] | None:
    """Take `gpus` of the `free` GPUs by node; return them by node, or None if they do not fit."""
    key = PLACEMENTS[placement]
    if key is None:
        if sum(free) < gpus:
            return None
        nodes, part = range(len(free)), gpus
    else:
        part, count = min(gpus, per_node), -(-gpus // per_node)
        able = [node for node in range(len(free)) if free[node] >= part]
        if len(able) < count:
            return None
        nodes = sorted(able, key=lambda node: key(free, node))[:count]  # type: ignore[assignment]
    place, left = {}, gpus
    for node in nodes:
        taken = min(left, part, free[node])
        if taken:
            place[node] = taken
            free[node] -= taken
            left -= taken
    return place


def jobs_in_time(requests: Sequence[Request], nodes: int, per_node: int, setting: Setting) -> int:
    """The number of requests that finish by their deadline; all of them fit the cluster."""
    coming = sorted(
        (_Job(request, number, request.run_s) for number, request in enumerate(requests)),
        key=lambda job: (job.request.submit_s, job.number),
        reverse=True,
    )
    slot_s, wait_s = setting.slot_s, setting.waits_slots * setting.slot_s
    active: list[_Job] = []
    met, now = 0, 0.0

    def boundary(time_s: float) -> float:
        return slot_s * ceil((time_s - _ROUNDING_S) / slot_s)

    while coming or active:
        if not active:
            now = max(now, boundary(coming[-1].request.submit_s) + wait_s)
        while coming and coming[-1].request.submit_s + wait_s <= now + _ROUNDING_S:
            active.append(coming.pop())
        if setting.late == "leave":
            kept = {job for job in active if job.place and not setting.preemptive}
            active = [job for job in active if job in kept or job.request.deadline_s > now]
            if not active:
                continue
        all_run = _choose(active, now, nodes, per_node, setting)
        ends_s = min((now + job.owes_s + job.left_s for job in active if job.place), default=inf)
        until = now + slot_s
        if all_run or (not setting.preemptive and setting.late == "stay"):
            comes_s = coming[-1].request.submit_s + wait_s if coming else inf
            until = max(until, boundary(min(ends_s, comes_s)))  # nothing changes before
        for job in [job for job in active if job.place]:
            end_s = now + job.owes_s + job.left_s
            if end_s <= until + _ROUNDING_S:
                met += (until if setting.noticed else end_s) <= job.request.deadline_s + _ROUNDING_S
                active.remove(job)
                continue
            paid_s = min(job.owes_s, until - now)
            job.owes_s -= paid_s
            job.left_s -= until - now - paid_s
            job.attained_s += until - now
        now = until
    return met


def _choose(active: list[_Job], now: float, nodes: int, per_node: int, setting: Setting) -> bool:
    """Assign GPUs for the slot that begins; return whether every job has some."""
    before = {job: bool(job.place) for job in active}

    def rank(job: _Job) -> tuple[bool, bool, float, int]:
        stays = not setting.preemptive and before[job]
        late = setting.late == "last" and job.request.deadline_s <= now
        return not stays, late, ORDERS[setting.order](job), job.number

    free = [per_node] * nodes
    if setting.preemptive:
        for job in active:
            job.place = {}
    for job in active:
        for node, gpus in job.place.items():
            free[node] -= gpus
    for job in sorted(active, key=rank):
        if job.place:
            continue
        job.place = _place(free, job.request.gpus, per_node, setting.placement) or {}
        if not job.place and not setting.passing:
            break
    changed = any(bool(job.place) != before[job] for job in active)
    for job in active:
        if job.place and (not before[job] or (setting.all_pay and changed)):
            job.owes_s = setting.start_s
    return all(job.place for job in active)
