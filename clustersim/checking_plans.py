"""That jobs ran the plans, at the speeds, that `itertime` gives them, and that plans.csv says so.

Every plan is computed again, once a kind of job. What is not equal is a fault where the installed program is
the one that made the run; where it is another, that it is not proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isclose
from typing import Any

from .checking import Life, Log, Rule
from .checking_speeds import Recomputed
from .plan_records import PARTS, PlanKey, PlanRecord, plan_key, plan_of_label
from .records import ALLOCATES, RATE, SUBMIT, EventRecord, JobRecord
from .speed import Curve

__all__ = ["Plans", "same"]

_SAME, _ROUNDED = 1e-9, 1e-6


class Plans(Rule):
    """Where the network is ideal: a job is as fast as its plan, wherever it runs."""

    name = "plans"
    text = "jobs run the plans, at the speeds, that itertime gives them; plans.csv is what it says of these"

    def __init__(self, log: Log, due: Recomputed, rows: Iterable[PlanRecord], complete: bool):
        super().__init__(log)
        self.due, self._rows, self.complete = due, rows, complete
        self.sees = (*ALLOCATES, SUBMIT, RATE)
        self._used: dict[PlanKey, None] = {}
        self._other = 0  # differences from a run of another version
        self._unknown: dict[str, int] = {}  # why something was not computed again
        self._wrong_plan = lru_cache(10_000)(self._find_wrong_plan)

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        if event.event == RATE:
            self._changed_speed(i, event)
        elif life is None or life.record is None:
            return
        elif not life.record.model:
            if event.plan:
                self.at(i, event, f"{event.event} of job {event.job_id}, which trains no model, by a plan")
        elif event.event == SUBMIT:
            self._submitted(i, event, life.record)
        else:
            self._given(i, event, life, life.record)

    def differs(self, i: int, event: EventRecord, text: str) -> None:
        """What is a fault if the same program made the run."""
        if self.due.same_code:
            self.at(i, event, text)
        else:
            self._other += 1

    def speed_of(self, event: EventRecord, curve: Curve) -> float | None:
        """Seconds per unit that a job has where it is given GPUs; None if that is seen later."""
        return curve.unit_s[event.gpus]

    # What the log says

    def _changed_speed(self, i: int, event: EventRecord) -> None:
        self.at(i, event, f"job {event.job_id} changes its speed, which nothing does on an ideal network")

    def _submitted(self, i: int, event: EventRecord, job: JobRecord) -> None:
        """At the speed on the GPUs it asked for, on GPUs of some type."""
        if event.unit_s in (0.0, 1.0) or job.gpus is None:
            return  # it cannot run, or may be known by its duration: that only its trace says
        stated, curves = float(event.unit_s), list(self._curves(job))
        speeds = [curve.unit_s.get(job.gpus) for curve in curves]
        if not curves or any(same(stated, unit_s) for unit_s in speeds):
            return
        exact = all(self.due.is_exact(kind, job.gpus) for kind in self.log.cluster.gpu_types)
        what = f"on {job.gpus} GPUs it takes {' or '.join(map(repr, speeds))} s per unit, not {stated!r}"
        if exact:
            self.differs(i, event, f"submit of job {event.job_id}: {what}")
        else:
            self._not_known("plans of numbers of GPUs that depend on what the trace allows")

    def _curves(self, job: JobRecord) -> Iterator[Curve]:
        assert job.gpus is not None
        for gpu_type in self.log.cluster.gpu_types:
            curve = self.due.curve(job.model, job.global_batch, job.seq_len, gpu_type, job.gpus)
            if isinstance(curve, str):
                if not self.log.cluster.mixed:
                    self._not_known(curve)
            else:
                yield curve

    def _given(self, i: int, event: EventRecord, life: Life, job: JobRecord) -> None:
        """Its plan, and how fast it is."""
        if not event.plan and event.unit_s == 1.0 and life.first is not None and life.first.unit_s == 1.0:
            return  # known by its duration
        key = plan_key(job.model, job.global_batch, job.seq_len, event, self.log.cluster)
        what = f"{event.event} of job {event.job_id}"
        if event.plan:
            self._used[key] = None
            if wrong := self.due.fault(key):
                self.at(i, event, f"{what}: {wrong}")
                return
        elif not self.due.has_table:
            self.at(i, event, f"{what}: names no plan")
            return
        curve = self.due.curve(*key[:5])
        if isinstance(curve, str):
            self._not_known(curve)
            return
        wrong = self._wrong_plan(key)
        if not wrong:
            unit_s = self.speed_of(event, curve)
            if unit_s is None or same(event.unit_s, unit_s):
                return
            wrong = f"on {event.gpus} GPUs it takes {unit_s!r} s per unit, not {event.unit_s!r}"
        if self.due.is_exact(key.gpu_type, key.gpus):
            self.differs(i, event, f"{what}: {wrong}")
        else:
            self._not_known("plans of numbers of GPUs that depend on what the trace allows")

    def _find_wrong_plan(self, key: PlanKey) -> str:
        curve = self.due.curve(*key[:5])
        assert isinstance(curve, Curve)
        if key.gpus not in curve.unit_s:
            return f"cannot run on {key.gpus} GPUs"
        planned = curve.plans.get(key.gpus, "")
        if planned == key.plan:
            return ""
        if not planned:
            return f"its plan {key.plan} is none of a throughput table"
        ours = f"its plan {key.plan or '(none)'} is not that of planner {self.due.planner}, {planned}"
        return (self.due.unfit(key) if key.plan else "") or ours

    def _not_known(self, why: str) -> None:
        if why in self._unknown or len(self._unknown) < 100:
            self._unknown[why] = self._unknown.get(why, 0) + 1

    # What plans.csv says

    def end(self, unrecorded: Sequence[Life]) -> None:
        seen = set[PlanKey]()
        for row in self._rows:
            key, what = row.key, f"{row.plan} of {row.model} on {row.gpus} GPUs"
            if key not in self._used:
                self.say(f"plans.csv: no job ran {what}")
            elif key in seen:
                self.say(f"plans.csv: has two rows of {what}")
            elif wrong := self._wrong_row(row):
                self.say(f"plans.csv: {wrong[0]} of {what} {wrong[1]}")
            seen.add(key)
        for key in self._used if self.due.same_code else ():
            if key not in seen and not self.due.fault(key) and self.due.row(key) is not None:
                self.say(f"plans.csv: has no row of {key.plan} of {key.model} on {key.gpus} GPUs")

    def _wrong_row(self, row: PlanRecord) -> tuple[str, str] | None:
        """A column, and what is wrong in it."""
        plan = plan_of_label(row.plan, row.global_batch)
        if plan is None or row.plan_gpus != plan.gpus:
            return "plan_gpus", f"is {row.plan_gpus}, {plan.gpus if plan else 'no plan'} by its degrees"
        parts = [getattr(row, part) for part in PARTS]
        if negative := next((name for name, part in zip(PARTS, parts, strict=True) if part < 0), None):
            return negative, "is less than nothing"
        if not isclose(sum(parts), row.iteration_s, rel_tol=_SAME, abs_tol=len(parts) * _ROUNDED):
            return "iteration_s", f"is {row.iteration_s:g}, and its parts sum to {sum(parts):g}"
        again = self.due.row(row.key)
        if again is None:
            return None
        for name, stated, value in zip(row._fields, row, again, strict=True):
            if stated != value and not _near(stated, value):
                if self.due.same_code:
                    return name, f"is {stated}, {value} by itertime"
                self._other += 1
        return None

    def unproved(self) -> str:
        whys = list(self._unknown)
        if self._other:
            differ = f"{self._other:,} plans, speeds or figures differ from what the installed version gives"
            whys.append(f"another version made the run, and {differ}")
        more = f"; and {len(whys) - 3} other reasons" if len(whys) > 3 else ""
        return f"not recomputed: {'; '.join(whys[:3])}{more}" if whys else ""


def same(a: float, b: float | None) -> bool:
    """Whether two speeds differ by rounding at most."""
    return b is not None and isclose(a, b, rel_tol=_SAME)


def _near(stated: Any, value: Any) -> bool:
    """As a table states numbers, which may have been rounded before they were read."""
    numbers = isinstance(stated, float) and isinstance(value, float)
    return numbers and isclose(stated, value, rel_tol=_SAME, abs_tol=_ROUNDED)
