"""A calendar of leases: which job holds its GPUs in which term.

Term t lasts from t x `lease_s` to (t + 1) x `lease_s` on the trace's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clustersim.scheduler import JobView

from .gpu_calendar import FreeGpus

__all__ = ["LeaseCalendar"]

_INSTANT_S = 1e-3  # a wake-up may come this much early
_MOST_TERMS = 2000  # how far ahead terms are looked for


class LeaseCalendar:
    """The terms of each job, and the GPUs that they take."""

    def __init__(self, lease_s: float):
        self.lease_s = lease_s
        self._terms: dict[JobView, tuple[int, ...]] = {}
        self._used: dict[int, int] = {}

    def at(self, now: float) -> int:
        """The term of a time; the next one right before it begins."""
        return int((now + _INSTANT_S) // self.lease_s)

    def terms(self, job: JobView) -> tuple[int, ...]:
        """The terms of `job`, ascending; none if it has no leases."""
        return self._terms.get(job, ())

    def used(self, term: int) -> int:
        """GPUs that leases take in `term`."""
        return self._used.get(term, 0)

    def give(self, job: JobView, terms: Iterable[int]) -> None:
        """Replace the terms of `job`."""
        self.drop(job)
        self._terms[job] = tuple(terms)
        for term in self._terms[job]:
            self._used[term] = self._used.get(term, 0) + job.requested

    def drop(self, job: JobView) -> None:
        """Forget the terms of `job`."""
        for term in self._terms.pop(job, ()):
            self._used[term] -= job.requested
            if not self._used[term]:
                del self._used[term]

    def seconds(self, term: int, now: float, due_s: float) -> float:
        """Seconds of `term` between `now` and `due_s`; 0 if there are none."""
        begin_s, end_s = term * self.lease_s, (term + 1) * self.lease_s
        return max(0.0, min(end_s, due_s) - max(begin_s, now))

    def runs(self, gpus: int, capacity: FreeGpus, now: float, due_s: float) -> list[list[int]]:
        """The terms until `due_s` in which `gpus` of the GPUs of `capacity` have no lease, consecutive ones
        together.
        """
        runs: list[list[int]] = []
        first_term = self.at(now)
        last_term = min(self.at(min(due_s, now + _MOST_TERMS * self.lease_s)), first_term + _MOST_TERMS)
        for term in range(first_term, last_term + 1):
            if self.used(term) + gpus > self.in_term(capacity, term) or self.seconds(term, now, due_s) <= 0.0:
                continue
            if runs and runs[-1][-1] == term - 1:
                runs[-1].append(term)
            else:
                runs.append([term])
        return runs

    def in_term(self, capacity: FreeGpus, term: int) -> int:
        """The GPUs of `capacity` that are there during a whole term, or the rest of the present one."""
        if len(capacity.times) == 1:
            return capacity.free[0]
        return capacity.least(max(term * self.lease_s, capacity.times[0]), (term + 1) * self.lease_s)

    def enough(
        self, terms: Sequence[int], need_s: float, again_s: float, holds: bool, now: float, due_s: float
    ) -> tuple[int, ...] | None:
        """The first of `terms` that do `need_s` seconds of work until `due_s`, `again_s` lost at each start;
        None if all do less. `holds`: the job runs now, so its first term is no start.
        """
        first_term = self.at(now)
        total, previous_term = 0.0, first_term - 1 if holds else None
        for i, term in enumerate(terms):
            total += self.seconds(term, now, due_s) - (again_s if term - 1 != previous_term else 0.0)
            previous_term = term
            if total >= need_s:
                return tuple(terms[: i + 1])
        return None
