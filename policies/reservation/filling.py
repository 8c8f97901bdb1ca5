"""How a job's work is reserved before its deadline.

Times are seconds on the trace's clock. Work is counted in iterations and done at a rate that depends on the
number of GPUs. Every change of that number or of the address costs the job a restart, during which it holds
its GPUs and makes no progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from .calendar import WHOLE, NodeCalendar, Slot
from .demand import Demand

__all__ = ["Filled", "fill", "search", "shorten", "yield_of"]


class Filled(NamedTuple):
    """Slots that finish a demand by its deadline, and the time before which they do not depend on what is
    free, nor on where the job runs; -inf if they may depend on all of it. `nodes`: those of their level.
    """

    slots: list[Slot]
    since: float
    nodes: int


def fill(calendar: NodeCalendar, demand: Demand, now: float, home: int | None = None) -> list[Slot] | None:
    """The slots that `search` finds."""
    found = search(calendar, demand, now, home)
    return None if found is None else found.slots


def search(
    calendar: NodeCalendar, demand: Demand, now: float, home: int | None = None, full_s: float = 0.0
) -> Filled | None:
    """Slots in `calendar` that finish `demand` by its deadline at the lowest level, or None. Nothing is
    reserved yet.

    A level is a reservable size. At level n the job takes n GPUs, or its largest size that is free where
    fewer are, from its deadline backwards until its work is done. The reservation is thus as late as possible
    and leaves the near future to other jobs (ElasticFlow, ASPLOS 2023, section 4.1: the lowest such level is
    the job's minimum satisfactory share).

    Every slot is charged a restart at its start, with two exceptions. A job that runs at the address `home`
    may go on there without one. The first slot of a job that counts on a launch is charged the launch.

    `full_s`: if known, for how many seconds before the deadline no whole node is free. It may be too low.
    """
    span = demand.deadline_s - now
    whole = demand.reservable[0] >= calendar.gpus_per_node
    failed, most = False, inf  # whether a level has failed; if so, the most nodes that are ever free
    for level, nodes in zip(demand.reservable, demand.nodes, strict=True):
        if demand.rates[level] * span < demand.work:
            continue
        if nodes > most:
            return None  # this level is never free, so it fails as the one before has
        if whole:
            slots = _fill_whole(calendar, demand, level, now, home, full_s)
        else:
            slots = _fill_shared(calendar, demand, level, now, home)
        if slots is not None:
            start = slots[0].start
            return Filled(slots, start if whole and not failed and start > now else -inf, nodes)
        if whole and not failed:
            most = calendar.whole.most(demand.deadline_s)
        failed = True
    return None


def _fill_whole(
    calendar: NodeCalendar, demand: Demand, level: int, now: float, home: int | None, full_s: float
) -> list[Slot] | None:
    """`fill` for a job with sizes of a node or more only: free nodes are counted.

    The search ends where the work left would take too long even without restarts: longer than the time in
    which a node is free, between `now` and the time looked at.
    """
    rates, restarts, size_on = demand.rates, demand.restarts, demand.size_on
    enough = demand.nodes[demand.reservable.index(level)]
    fastest, counts_on_launch = demand.kind.fastest_up_to[level], demand.counts_on_launch
    need = demand.work
    begin = now + full_s  # as if all the time without a free node that is still ahead came first
    if fastest * (demand.deadline_s - begin) < need:
        return None
    later: list[tuple[float, float, int]] = []  # slots after the one in progress, the last one first
    end = upper = demand.deadline_s  # of the slot in progress, of the time looked at
    gpus, rate, restart_s = 0, 0.0, 0.0  # of the slot in progress
    start = -inf  # with which it would do the rest of the work
    for lower, count in calendar.whole.backwards(upper, now):
        here = level if count >= enough else size_on[count]
        if here != gpus:
            if gpus:
                done = (end - upper - restart_s) * rate
                if done > 0:
                    later.append((upper, end, gpus))
                    need -= done
            else:
                begin = max(now, begin - (end - upper))
            if fastest * (upper - begin) < need:
                return None
            gpus, end, start = here, upper, -inf
            if gpus:
                rate, restart_s = rates[gpus], restarts[gpus]
                opening_s = demand.opening_s(gpus) if counts_on_launch else restart_s
                start = end - opening_s - need / rate
        if start >= lower:
            break
        upper = lower
    else:
        if not gpus or home != WHOLE or not _goes_on(demand, gpus, end - now, need / rate):
            return None
        start = now
    return [Slot(start, end, gpus), *(Slot(*slot) for slot in reversed(later))]


def _fill_shared(
    calendar: NodeCalendar, demand: Demand, level: int, now: float, home: int | None
) -> list[Slot] | None:
    """`fill` for a job that also runs on less than a node: such slots are on a virtual node."""
    need, end = demand.work, demand.deadline_s
    slots: list[Slot] = []
    while end > now:
        gpus = calendar.largest(demand.reservable, level, end)
        larger = _above(demand.reservable, gpus)
        change = now if gpus == level else max(now, calendar.last(larger, end))
        if not gpus:
            end = change
            continue
        whole = need / demand.rates[gpus]
        start = end - demand.opening_s(gpus) - whole
        node, since = calendar.address_before(gpus, end, max(start, change), home)
        lower = max(since, change)
        if start >= lower:
            slots.append(Slot(start, end, gpus, node))
            return slots[::-1]
        if lower == now and node == home and _goes_on(demand, gpus, end - now, whole):
            slots.append(Slot(now, end, gpus, node))
            return slots[::-1]
        done = (end - lower - demand.restarts[gpus]) * demand.rates[gpus]
        if done > 0:
            slots.append(Slot(lower, end, gpus, node))
            need -= done
        end = lower
    return None


def _above(sizes: Sequence[int], gpus: int) -> int:
    """The next size above `gpus`; the largest if there is none."""
    return next((size for size in sizes if size > gpus), sizes[-1])


def _goes_on(demand: Demand, gpus: int, span_s: float, work_s: float) -> bool:
    """Whether the job is done within `span_s` seconds if it goes on without a restart on the `gpus` GPUs that
    it holds.
    """
    return gpus == demand.gpus and span_s - demand.paying_s >= work_s


def yield_of(slots: Sequence[Slot], demand: Demand, now: float) -> float:
    """The work that the rest of a reservation does from `now` on, if the job follows it."""
    total, first = 0.0, True
    for start, end, gpus, _ in slots:
        begin = max(start, now)
        if end <= begin:
            continue
        pays = demand.opening_s(gpus) if first else demand.restarts[gpus]
        if demand.in_place and start <= now:
            pays = demand.paying_s
        total += max(0.0, end - begin - pays) * demand.rates[gpus]
        first = False
    return total


def shorten(slots: list[Slot], demand: Demand, now: float) -> list[Slot]:
    """The latest part of a reservation that still does the job's remaining work: `slots` itself if all of it
    is needed, apart from the time before `now`. The part no longer needed is cut off at the front.
    """
    need, i = demand.work, len(slots)
    for start, end, gpus, node in reversed(slots):
        i -= 1
        begin = start if start > now else now
        if need <= 0 or end <= begin:
            return [slot._replace(start=max(slot.start, now)) for slot in slots[i + 1 :]]
        rate, restart = demand.rates[gpus], demand.restarts[gpus]
        opening_s = demand.opening_s(gpus) if demand.counts_on_launch else restart
        latest = end - opening_s - need / rate
        if latest > begin:
            return [Slot(latest, end, gpus, node), *slots[i + 1 :]]
        need -= max(0.0, end - begin - restart) * rate
    return slots
