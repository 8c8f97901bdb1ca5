"""How jobs are filled where there are several GPU types: each into the calendar of the type that it takes the
least of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobView, State

from .calendar import Addresses, NodeCalendar, Slot
from .filling import Demand, fill

__all__ = ["Refilled", "by_value", "cheapest", "refill"]

_SAME = 1e-9  # relative; two GPU types that cost a job the same differ by rounding


class Refilled(NamedTuple):
    """New reservations, the demands on the types that they are on, and the jobs of which the first slot is
    where they run.
    """

    slots: dict[JobView, list[Slot]]
    demands: dict[JobView, Demand]
    in_place: set[JobView]


def by_value(options: Iterable[Demand], values: Mapping[str, float]) -> list[Demand]:
    """The demands of a job, that on the least valuable GPU type first."""
    return sorted(options, key=lambda option: values[option.gpu_type])


def cheapest(
    options: Sequence[Demand], calendars: Mapping[str, NodeCalendar], values: Mapping[str, float],
    now: float, home: Callable[[Demand], int | None] | None = None,
) -> tuple[Demand, list[Slot]] | None:  # fmt: skip
    """The demand on the GPU type on which a job's reservation takes the least worth of GPU time, and the
    reservation, not yet made; None if the job cannot finish in time on any type. Of types that cost the same,
    the least valuable, so that the others are free for jobs that need them.

    `home`: the address of a type at which the job could go on without a restart, None if there is none.
    """
    best, least = None, inf
    for option in by_value(options, values) if len(options) > 1 else options:
        slots = fill(calendars[option.gpu_type], option, now, home(option) if home else None)
        if slots is None:
            continue
        worth = values[option.gpu_type] * sum((end - start) * gpus for start, end, gpus, _ in slots)
        if best is None or worth < least * (1 - _SAME):
            best, least = (option, slots), worth
    return best


def refill(
    by_deadline: Sequence[Sequence[Demand]], calendars: Mapping[str, NodeCalendar],
    values: Mapping[str, float], addresses: Mapping[str, Addresses], former: Mapping[int, int], state: State,
) -> Refilled | float:  # fmt: skip
    """Reserve for jobs, each on one of its demands, in `calendars`, in their order. If one of them cannot
    finish in time, its deadline.

    A job that goes on where it runs, from now on, claims its nodes in `addresses`, so that no later one
    claims them too. `former`: by node, the virtual node that it served.
    """
    draft = state.proposal()
    refilled = Refilled({}, {}, set())

    def home(demand: Demand) -> int | None:
        placement = draft.placement(demand.job) if demand.gpus else None
        return addresses[demand.gpu_type].home(placement, former) if placement else None

    for options in by_deadline:
        found = cheapest(options, calendars, values, state.now, home)
        if found is None:
            return options[0].deadline_s
        demand, slots = found
        job = demand.job
        calendars[demand.gpu_type].reserve(slots)
        refilled.slots[job], refilled.demands[job] = slots, demand
        start, _, gpus, node = slots[0]
        placement = draft.placement(job) if demand.gpus and start <= state.now else None
        if placement and addresses[demand.gpu_type].fits(placement, gpus, node):
            addresses[demand.gpu_type].add(placement, node)
            refilled.in_place.add(job)
    return refilled
