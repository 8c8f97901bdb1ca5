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
from policies.toolkit.gpu_calendar import FreeGpus

from .calendar import WHOLE, Addresses, NodeCalendar, Slot
from .demand import Demand
from .filling import Filled, fill, search

__all__ = ["Claims", "Joint", "Refilled", "by_value", "cheapest", "refill"]

Claims = tuple[dict[str, Addresses], dict[int, int]]
"""The addresses that nodes of each GPU type serve for jobs that are not refilled; and by node, the virtual
node that it served before.
"""

_SAME = 1e-9  # relative; two GPU types that cost a job the same differ by rounding
_ROUNDING_S = 1e-3  # far more than the rounding of sums of times
_COUNT_EVERY = 6  # reservations


@dataclass
class Joint:
    """Jobs to fill anew together, prepared once for all attempts to admit one job at one instant.

    `again`: the demands of those with a reservation. `by_deadline`: for each job in its turn, the demands
    among which it may choose. `calendars`: what all other reservations leave free, by GPU type. `found`: what
    the last attempt found for the jobs that had no choice. `failed`: one of them for which it found nothing.
    """

    again: list[Demand]
    by_deadline: list[tuple[Demand, ...]]
    calendars: dict[str, NodeCalendar]
    found: dict[JobView, Filled] = field(default_factory=dict)
    failed: JobView | None = None


class Refilled(NamedTuple):
    """New reservations, the demands on the types that they are on, the jobs of which the first slot is where
    they run, and what is free then.
    """

    slots: dict[JobView, list[Slot]]
    demands: dict[JobView, Demand]
    in_place: set[JobView]
    calendars: dict[str, NodeCalendar]


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
    joint: Joint, new: JobView, values: Mapping[str, float], addresses: Callable[[], Claims], state: State
) -> Refilled | float:
    """Reserve for the jobs of `joint`, each on one of its demands, in their order. If one of them cannot
    finish in time, its deadline.

    A job that goes on where it runs, from now on, claims its nodes in the `addresses`, so that no later one
    claims them too. From one attempt to the next only the demand of the job `new` changes.
    """
    return _Attempt(joint, new, values, addresses, state).outcome()


class _Attempt:
    """One attempt to refill jobs.

    A job of which the search cannot end otherwise than in the last attempt gets what it got then. As long as
    that goes on, nothing is reserved: most second attempts fail at the job at which the first one did.

    `_until`: what is free may differ from the last attempt before that time. `_more`: if that is so only
    because the new job begins later, the further nodes that are free between its two starts, at `_begin` and
    `_until`. `_window`: the nodes that were free in between.

    For example, the new job was to hold 2 nodes from 100 s on, and a launch lets it begin at 160 s. Then
    `_begin` is 100, `_until` 160 and `_more` 2. Another job, with sizes of 1, 2 and 4 nodes, got its level of
    4. It gets the same if 4 nodes or more were free in between; if it was 1, two fit now, and it is searched
    for again.
    """

    def __init__(
        self, joint: Joint, new: JobView, values: Mapping[str, float], addresses: Callable[[], Claims],
        state: State,
    ):  # fmt: skip
        self.joint, self.new, self.values, self.now = joint, new, values, state.now
        self._draft = state.proposal()
        self._make_addresses = addresses
        self._claims: Claims | None = None
        self._refilled = Refilled({}, {}, set(), {name: one.copy() for name, one in joint.calendars.items()})
        self._unreserved: list[tuple[Demand, list[Slot]]] = []
        self._begin = self._until = -inf
        self._more = 0
        self._window: FreeGpus | None = None
        self._full_s: dict[str, tuple[float, int]] = {}  # by GPU type; and of how many reservations

    def outcome(self) -> Refilled | float:
        joint, before, failed = self.joint, self.joint.found, self.joint.failed
        joint.found, joint.failed = {}, None
        for options in joint.by_deadline:
            demand, job = options[0], options[0].job
            if len(options) > 1:
                self._reserve_all()
                self._until, self._more, self._window = inf, 0, None
                best = cheapest(options, self._refilled.calendars, self.values, self.now, self._home)
                if best is None:
                    return demand.deadline_s
                self._reserve(*best)
                continue
            known = before.get(job)
            is_known = job is not self.new and (known is not None or job is failed)
            if is_known and not self._differs(demand, known):
                filled = known
            else:
                self._reserve_all()
                calendar, home = self._calendar_of(demand), self._home(demand)
                filled = search(calendar, demand, self.now, home, self._full_before(demand))
            if filled is None:
                joint.failed = job
                return demand.deadline_s
            joint.found[job] = filled
            if filled is known:
                self._keep(demand, filled.slots)
            else:
                self._reserve(demand, filled.slots)
                if known is not None:
                    self._compare(demand, known, filled)
        self._reserve_all()
        return self._refilled

    def _differs(self, demand: Demand, known: Filled | None) -> bool:
        """Whether the search for a job may end otherwise than in the last attempt, with `known`.

        It does not if it looks only at later times. Nor does it if the further nodes in the window make no
        difference: no larger size fits on them, or there were enough for the level on which it ended.
        """
        if (known.since if known else -inf) >= self._until:
            return False
        if self._window is None or demand.reservable[0] < self._calendar_of(demand).gpus_per_node:
            return True
        size_on, more, most = demand.size_on, self._more, known.nodes if known else demand.nodes[-1]
        return any(
            size_on[min(count, most)] != size_on[min(count + more, most)] for count in self._window.free
        )

    def _compare(self, demand: Demand, known: Filled, filled: Filled) -> None:
        """Note what differs from the last attempt, in which a job got `known`, now that it got `filled`."""
        before, after, calendar = known.slots, filled.slots, self._calendar_of(demand)
        if before != after:
            self._more = 0
            if demand.job is self.new and len(self.joint.calendars) == 1 and _is_later(before, after):
                self._begin, self._more = before[0].start, -(-before[0].gpus // calendar.gpus_per_node)
            self._until = max(self._until, _changed_until(before, after))
        self._window = None
        if self._more:
            self._window = calendar.whole.between(self._begin, self._until)
            self._window.take(self._begin, self._until, self._more)

    def _keep(self, demand: Demand, slots: list[Slot]) -> None:
        """Let a job have what it got in the last attempt. Reserved later."""
        self._unreserved.append((demand, slots))
        window = self._window
        if window is not None:
            for start, end, gpus, _ in slots:
                if start < self._until:
                    size = self._calendar_of(demand).gpus_per_node
                    window.take(start, min(end, self._until), -(-gpus // size))

    def _reserve_all(self) -> None:
        for demand, slots in self._unreserved:
            self._reserve(demand, slots)
        self._unreserved.clear()

    def _reserve(self, demand: Demand, slots: list[Slot]) -> None:
        refilled, job = self._refilled, demand.job
        self._calendar_of(demand).reserve(slots)
        refilled.slots[job], refilled.demands[job] = slots, demand
        start, _, gpus, node = slots[0]
        placement = self._draft.placement(job) if demand.gpus and start <= self.now else None
        if placement:
            addresses = self._addresses()[0][demand.gpu_type]
            if addresses.fits(placement, gpus, node):
                addresses.add(placement, node)
                refilled.in_place.add(job)

    def _full_before(self, demand: Demand) -> float:
        """For how many seconds before its deadline no whole node is free, or fewer.

        Calendars only become fuller here, so a number counted a few reservations before is too low at most.
        """
        name, whole = demand.gpu_type, self._calendar_of(demand).whole
        if whole.times[-1] > demand.deadline_s:
            return 0.0
        full_s, reserved = self._full_s.get(name, (0.0, -_COUNT_EVERY))
        if len(self._refilled.slots) - reserved >= _COUNT_EVERY:
            full_s = max(0.0, whole.full_s() - _ROUNDING_S)
            self._full_s[name] = full_s, len(self._refilled.slots)
        return full_s

    def _calendar_of(self, demand: Demand) -> NodeCalendar:
        return self._refilled.calendars[demand.gpu_type]

    def _home(self, demand: Demand) -> int | None:
        """The address at which a job could go on without a restart, None if there is none."""
        placement = self._draft.placement(demand.job) if demand.gpus else None
        if not placement:
            return None
        addresses, former = self._addresses()
        return addresses[demand.gpu_type].home(placement, former)

    def _addresses(self) -> Claims:
        if self._claims is None:
            self._claims = self._make_addresses()
        return self._claims


def _is_later(before: Sequence[Slot], after: Sequence[Slot]) -> bool:
    """Whether each is a single slot of whole nodes, which begins later in `after`, and is else the same."""
    if len(before) > 1 or len(after) > 1 or before[0].node != WHOLE:
        return False
    return before[0][1:] == after[0][1:] and before[0].start < after[0].start


def _changed_until(before: Sequence[Slot], after: Sequence[Slot]) -> float:
    """The time from which on two reservations are the same; -inf if they are the same throughout."""
    for one, other in zip_longest(reversed(before), reversed(after)):
        if one is None or other is None:
            return float((one or other).end)
        if one != other:
            same_end = one[1:] == other[1:]
            return max(one.start, other.start) if same_end else max(one.end, other.end)
    return -inf
