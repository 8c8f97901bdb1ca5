"""What `policies/reservation` keeps up to date between decisions, worked out anew from all reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import inf

from policies.reservation import Agenda, Demand, Reservations, Share, Slot, held_on

__all__ = ["plain_agenda", "plain_shorten"]

INSTANT_S, LEAD_RESTARTS = 1e-6, 3  # as docs/policies/elasticflow.md says


def plain_agenda(reservations: Reservations, now: float) -> Agenda:
    """Every reservation is looked at. Nothing is changed."""
    agenda = Agenda({}, {}, [], Counter(), inf)
    wake_at, begun = inf, now + INSTANT_S
    for job in reservations.reserved():
        slots = [slot for slot in reservations.slots(job) if slot.end > begun]
        if not slots:
            continue
        demand, (start, end, gpus, _) = reservations.demands[job], slots[0]
        if start > begun:
            wake_at = min(wake_at, start)
            if start - now <= LEAD_RESTARTS * demand.restarts[gpus]:
                agenda.soon.append((start, job.order, job, gpus))
            continue
        wake_at = min(wake_at, end)
        agenda.due[job], agenda.shares[job] = slots[0], Share(gpus, demand.gpu_type)
        for begins, _, more, _ in slots[1:2]:
            if begins - now <= LEAD_RESTARTS * demand.restarts[more]:
                held = held_on(job, demand.gpu_type)
                agenda.growing[demand.gpu_type] += max(0, more - max(gpus, held))
    return Agenda(agenda.due, agenda.shares, sorted(agenda.soon), agenda.growing, wake_at)


def plain_shorten(slots: Sequence[Slot], demand: Demand, now: float) -> list[Slot]:
    """The latest part of a reservation that still does the job's remaining work, from the back."""
    need, kept = demand.work, list[Slot]()
    for start, end, gpus, node in reversed(slots):
        begin = max(start, now)
        if need <= 0 or end <= begin:
            break
        latest = end - demand.opening_s(gpus) - need / demand.rates[gpus]
        kept.append(Slot(max(latest, begin), end, gpus, node))
        if latest > begin:
            break
        need -= max(0.0, end - begin - demand.restarts[gpus]) * demand.rates[gpus]
    return kept[::-1]
