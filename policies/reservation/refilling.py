"""How jobs are filled where there are several GPU types: each into the calendar of the type that it takes the
least of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from math import inf
from typing import NamedTuple

from clustersim.scheduler import JobView, State

from .calendar import Addresses, NodeCalendar, Slot
from .filling import Demand, Filled, fill, search

__all__ = ["Joint", "Refilled", "by_value", "cheapest", "refill"]

_SAME = 1e-9  # relative; two GPU types that cost a job the same differ by rounding


@dataclass(frozen=True)
class Joint:
    """Jobs to fill anew together, prepared once for all attempts to admit one job at one instant.

    `again`: the demands of those with a reservation. `by_deadline`: for each job in its turn, the demands
    among which it may choose. `calendars`: what all other reservations leave free, by GPU type. `found`: what
    the last attempt found for the jobs in `again`, if they had no choice.
    """

    again: list[Demand]
    by_deadline: list[tuple[Demand, ...]]
    calendars: dict[str, NodeCalendar]
    found: dict[JobView, Filled] = field(default_factory=dict)


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
    joint: Joint, new: JobView, calendars: Mapping[str, NodeCalendar], values: Mapping[str, float],
    addresses: Mapping[str, Addresses], former: Mapping[int, int], state: State,
) -> Refilled | float:  # fmt: skip
    """Reserve for the jobs of `joint`, each on one of its demands, in `calendars`, in their order. If one of
    them cannot finish in time, its deadline.

    A job that goes on where it runs, from now on, claims its nodes in `addresses`, so that no later one
    claims them too. `former`: by node, the virtual node that it served.

    From one attempt to the next only the demand of the job `new` changes. A job of which the reservation does
    not depend on the time that this has changed in the calendar gets the one that it got before.
    """
    draft, now = state.proposal(), state.now
    refilled = Refilled({}, {}, set())
    before, changed_until = dict(joint.found), -inf
    joint.found.clear()

    def home(demand: Demand) -> int | None:
        placement = draft.placement(demand.job) if demand.gpus else None
        return addresses[demand.gpu_type].home(placement, former) if placement else None

    for options in joint.by_deadline:
        demand, job = options[0], options[0].job
        if len(options) == 1:
            known = before.get(job)
            if known is not None and known.since >= changed_until and job is not new:
                filled: Filled | None = known
            else:
                filled = search(calendars[demand.gpu_type], demand, now, home(demand))
                if filled is not None and known is not None:
                    changed_until = max(changed_until, _changed_until(known.slots, filled.slots))
            if filled is None:
                return demand.deadline_s
            joint.found[job] = filled
            slots = filled.slots
        else:
            changed_until = inf
            found = cheapest(options, calendars, values, now, home)
            if found is None:
                return demand.deadline_s
            demand, slots = found
        calendars[demand.gpu_type].reserve(slots)
        refilled.slots[job], refilled.demands[job] = slots, demand
        start, _, gpus, node = slots[0]
        placement = draft.placement(job) if demand.gpus and start <= now else None
        if placement and addresses[demand.gpu_type].fits(placement, gpus, node):
            addresses[demand.gpu_type].add(placement, node)
            refilled.in_place.add(job)
    return refilled


def _changed_until(before: Sequence[Slot], after: Sequence[Slot]) -> float:
    """The time from which on two reservations are the same; -inf if they are the same throughout."""
    for one, other in zip_longest(reversed(before), reversed(after)):
        if one is None or other is None:
            return float((one or other).end)
        if one != other:
            same_end = one[1:] == other[1:]
            return max(one.start, other.start) if same_end else max(one.end, other.end)
    return -inf
