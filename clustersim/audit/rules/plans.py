"""The rule that jobs run the plans that `itertime` gives them, at their speeds, and that plans.csv agrees.

Every plan is computed again, once for each kind of job. A difference is a violation if the installed program
made the run; if another version did, the rule is not proved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import fsum

from clustersim.audit.evidence import RESOLUTION_S, agrees, as_stated
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.audit.phases import factor_of, stated_phases
from clustersim.cluster import SharedPlacement
from clustersim.records import (
    ALLOCATES,
    PARTS,
    RATE,
    SUBMIT,
    EventRecord,
    JobRecord,
    PlanKey,
    PlanRecord,
    batch_of,
    plan_key,
    plan_of_label,
)
from clustersim.speed import Curve
from itertime.spec import at_depth
from traces.phases import seconds_factors

__all__ = ["PlansAsPredicted"]

_DEPENDS_ON_TRACE = "plans of numbers of GPUs that depend on what the trace allows"
_MOST_REASONS = 100


def _shares_gpu(job: JobHistory | None) -> bool:
    allocation = None if job is None else job.allocation
    return allocation is not None and isinstance(allocation.placement, SharedPlacement)


class PlansAsPredicted(Rule):
    """For ideal networks: a job is as fast as its plan, on any nodes.

    `complete`: the run ended by itself.
    """

    name = "plans"
    text = "jobs run the plans that itertime gives them, at their speeds; plans.csv agrees"

    def __init__(
        self, history: ClusterHistory, expected: Recomputed, rows: Iterable[PlanRecord], complete: bool
    ):
        super().__init__(history)
        self.due, self._rows, self.complete = expected, rows, complete
        self.kinds = (*ALLOCATES, SUBMIT, RATE)
        self._used: dict[PlanKey, None] = {}
        self._other_version = 0  # differences that another version of the program explains
        self._not_recomputed: dict[str, int] = {}  # by reason
        self._wrong_plan = lru_cache(10_000)(self._find_wrong_plan)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if event.event == RATE:
            if not _shares_gpu(job):  # else see `SharersAsSlow`
                self._check_rate(i, event)
        elif job is None or job.record is None:
            return
        elif not job.record.model:
            if event.plan:
                text = f"{event.event} of job {event.job_id}, which trains no model, by a plan"
                self.report_at(i, event, text)
        elif event.event == SUBMIT:
            self._check_submit(i, event, job.record)
        else:
            self._check_allocation(i, event, job, job.record)

    def report_difference(self, i: int, event: EventRecord, text: str) -> None:
        """Report a violation if the installed program made the run."""
        if self.due.same_code:
            self.report_at(i, event, text)
        else:
            self._other_version += 1

    def speed_of(self, event: EventRecord, curve: Curve) -> float | None:
        """The predicted seconds per unit of the job; None if they are known only after the instant."""
        return self.due.unit_s(curve, event)

    # The events of the log

    def _check_rate(self, i: int, event: EventRecord) -> None:
        text = f"job {event.job_id} changes its speed, which never happens on an ideal network"
        self.report_at(i, event, text)

    def _check_submit(self, i: int, event: EventRecord, job: JobRecord) -> None:
        """The event states the speed on the requested GPUs, on some GPU type."""
        if event.unit_s in (0.0, 1.0) or job.gpus is None:
            return  # the job cannot run, or has a duration, which only the trace states
        recorded, speeds = float(event.unit_s), list(self._submit_speeds(job))
        if not speeds or any(unit_s is not None and agrees(recorded, unit_s) for unit_s in speeds):
            return
        exact = all(self.due.is_exact(kind, job.gpus) for kind in self.history.cluster.gpu_types)
        problem = f"on {job.gpus} GPUs it takes {' or '.join(map(repr, speeds))} s per unit, not {recorded!r}"
        if exact:
            self.report_difference(i, event, f"submit of job {event.job_id}: {problem}")
        else:
            self._skip(_DEPENDS_ON_TRACE)

    def _submit_speeds(self, job: JobRecord) -> Iterator[float | None]:
        """Seconds per unit of work on the requested GPUs, by GPU type; None on types that cannot run it."""
        for gpu_type in self.history.cluster.gpu_types:
            means = [self._seconds(job, gpu_type, job.global_batch)]
            if phases := stated_phases(job):
                factors = seconds_factors(phases, job.global_batch)
                phase_seconds = [
                    self._seconds(job, gpu_type, int(phase.value), phase.layers) for phase in phases
                ]
                finite_seconds = [seconds for seconds in phase_seconds if isinstance(seconds, float)]
                if None in phase_seconds:
                    means = [None]
                elif len(finite_seconds) < len(phase_seconds):
                    continue
                else:
                    parts = zip(phases, finite_seconds, factors, strict=True)
                    means = [fsum(phase.share * seconds * k for phase, seconds, k in parts)]
            yield from (seconds for seconds in means if not isinstance(seconds, str))

    def _seconds(
        self, job: JobRecord, gpu_type: str, batch: int | None, layers: int | None = None
    ) -> float | str | None:
        """The seconds of an iteration with a global batch, or why they are unknown."""
        assert job.gpus is not None
        software = job.framework, job.precision, job.plan_options
        model = at_depth(job.model, layers)
        curve = self.due.curve(model, batch, job.seq_len, *software, gpu_type, job.gpus)
        if not isinstance(curve, str):
            return curve.unit_s.get(job.gpus)
        if not self.history.cluster.mixed:
            self._skip(curve)
        return curve

    def _check_allocation(self, i: int, event: EventRecord, job: JobHistory, record: JobRecord) -> None:
        """The event states the plan and the speed of the job."""
        factor = factor_of(record, event)
        second_s = self.evidence.in_truth(factor, event, record.model)
        shares = isinstance(event.placement, SharedPlacement)  # see `SharersAsSlow`
        as_long = shares or agrees(event.unit_s, second_s)
        has_duration = job.first is not None and job.first.unit_s == 1.0 and batch_of(event) is None
        if not event.plan and has_duration and as_long:
            return
        key = plan_key(record, event, self.history.cluster)
        problem = f"{event.event} of job {event.job_id}"
        if event.plan:
            self._used[key] = None
            if wrong := self.due.fault(key):
                self.report_at(i, event, f"{problem}: {wrong}")
                return
        elif not self.due.has_table:
            self.report_at(i, event, f"{problem}: names no plan")
            return
        curve = self.due.curve(*key[:8])
        if isinstance(curve, str):
            self._skip(curve)
            return
        wrong = self._wrong_plan(key)
        if not wrong:
            unit_s = None if shares else self.speed_of(event, curve)
            if unit_s is None:
                return
            unit_s = self.evidence.in_truth(unit_s * factor, event, record.model)
            if agrees(event.unit_s, unit_s):
                return
            wrong = f"on {event.gpus} GPUs it takes {unit_s!r} s per unit, not {event.unit_s!r}"
        if self.due.is_exact(key.gpu_type, key.gpus):
            self.report_difference(i, event, f"{problem}: {wrong}")
        else:
            self._skip(_DEPENDS_ON_TRACE)

    def _find_wrong_plan(self, key: PlanKey) -> str:
        curve = self.due.curve(*key[:8])
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

    def _skip(self, reason: str) -> None:
        """Count a statement that is not computed again, by reason."""
        if reason in self._not_recomputed or len(self._not_recomputed) < _MOST_REASONS:
            self._not_recomputed[reason] = self._not_recomputed.get(reason, 0) + 1

    # The rows of plans.csv

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        seen = set[PlanKey]()
        for row in self._rows:
            key, plan_words = row.key, f"{row.plan} of {row.model} on {row.gpus} GPUs"
            if key not in self._used:
                self.report(f"plans.csv: no job ran {plan_words}")
            elif key in seen:
                self.report(f"plans.csv: has two rows of {plan_words}")
            elif wrong := self._wrong_row(row):
                self.report(f"plans.csv: {wrong[0]} of {plan_words} {wrong[1]}")
            seen.add(key)
        for key in self._used if self.due.same_code else ():
            if key not in seen and not self.due.fault(key) and self.due.row(key) is not None:
                self.report(f"plans.csv: has no row of {key.plan} of {key.model} on {key.gpus} GPUs")

    def _wrong_row(self, row: PlanRecord) -> tuple[str, str] | None:
        """A column, and what is wrong with it; None if the row is right."""
        plan = plan_of_label(row.plan, row.global_batch)
        if plan is None or row.plan_gpus != plan.gpus:
            return "plan_gpus", f"is {row.plan_gpus}, {plan.gpus if plan else 'no plan'} by its degrees"
        parts = [getattr(row, part) for part in PARTS]
        if negative := next((name for name, part in zip(PARTS, parts, strict=True) if part < 0), None):
            return negative, "is negative"
        if not agrees(sum(parts), row.iteration_s, len(parts) * RESOLUTION_S):
            return "iteration_s", f"is {row.iteration_s:g}, and its parts sum to {sum(parts):g}"
        again = self.due.row(row.key)
        if again is None:
            return None
        for name, recorded, value in zip(row._fields, row, again, strict=True):
            if not as_stated(recorded, value):
                if self.due.same_code:
                    return name, f"is {recorded}, {value} by itertime"
                self._other_version += 1
        return None

    def unproved(self) -> str:
        whys = list(self._not_recomputed)
        if self._other_version:
            differ = (
                f"{self._other_version:,} plans, speeds or figures differ from those of the installed version"
            )
            whys.append(f"another version made the run, and {differ}")
        further_reasons = f"; and {len(whys) - 3} other reasons" if len(whys) > 3 else ""
        return f"not recomputed: {'; '.join(whys[:3])}{further_reasons}" if whys else ""
