"""Advance reservations: which nodes a job may use in a span of time.

Source: Slurm's page "Advanced Resource Reservation Guide". A job may not use the nodes of a reservation that
begins before its time limit ends, from the moment at which the reservation is made. A job that names a
reservation runs in its nodes and in its time alone.
"""

from __future__ import annotations

from math import inf

from .records import JobRecord
from .rules import ReservedNodes, Rules

__all__ = ["Reservations"]


class Reservations:
    """The reservations of a site."""

    def __init__(self, rules: Rules):
        self._entries = rules.reservations

    def changes_s(self) -> list[float]:
        """When a reservation is made, begins or ends."""
        return sorted(
            time_s
            for entry in self._entries
            for time_s in (entry.known_s, entry.start_s, entry.end_s)
            if -inf < time_s < inf
        )

    def open_nodes(self, job: JobRecord, nodes: int, start_s: float, now: float) -> tuple[int, float]:
        """Those of `nodes` that a job may use if it starts at `start_s` and runs to its limit, and the time
        at which the first of the reservations ends that keep it from others; infinite if none does.
        """
        if not self._entries:
            return nodes, inf
        end_s = start_s + job.limit_s
        if job.reservation is not None:
            entry = next((entry for entry in self._entries if entry.rule.name == job.reservation), None)
            if entry is not None:
                is_open = entry.start_s <= start_s and end_s <= entry.end_s and now >= entry.known_s
                return (nodes & entry.nodes if is_open else 0), inf
        freed_s = inf
        for entry in self._entries:
            if now >= entry.known_s and start_s < entry.end_s and end_s > entry.start_s:
                if self._admits(entry, job):
                    continue
                nodes &= ~entry.nodes
                freed_s = min(freed_s, entry.end_s)
        return nodes, freed_s

    def begin_s(self, job: JobRecord, now: float) -> float:
        """The first time at which the reservation that a job names is open; `now` without one."""
        for entry in self._entries:
            if entry.rule.name == job.reservation:
                return max(now, entry.start_s)
        return now

    @staticmethod
    def _admits(entry: ReservedNodes, job: JobRecord) -> bool:
        """Whether jobs that name no reservation use this one: only if it is MAGNETIC and for them."""
        if not any(flag.upper() == "MAGNETIC" for flag in entry.rule.Flags):
            return False
        return job.user in entry.rule.users or job.account in entry.rule.accounts
