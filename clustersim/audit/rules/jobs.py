"""The rules about jobs that an event log alone can prove.

The log counts the GPUs of a node and numbers only those that jobs share. If no node gives more GPUs than it
has, and the parts of a shared one add up to at most a GPU, no part of a GPU serves two jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import inf, prod
from operator import attrgetter

from clustersim.audit.evidence import RELATIVE, RESOLUTION_S, Evidence, agrees
from clustersim.audit.history import (
    GONE,
    HELD,
    NEW,
    RUNNING,
    STOPPED,
    UNKNOWN,
    ClusterHistory,
    JobHistory,
    Rule,
)
from clustersim.audit.log_pass import repeated
from clustersim.audit.phases import factor_of, stated_phases
from clustersim.cluster import MILLION, Placement, SharedPlacement, millionths_of
from clustersim.records import (
    ALLOCATES,
    ELIGIBLE,
    FAIL,
    FINISH,
    FINISHED,
    HOLD,
    INTERRUPT,
    LOADED,
    MIGRATE,
    NODE_EVENTS,
    NOTE,
    PREEMPT,
    RATE,
    REJECT,
    REPLAN,
    REQUEUE,
    RESIZE,
    RESTART,
    SERVED,
    START,
    SUBMIT,
    EventRecord,
    batch_of,
    phase_of,
    phase_words,
)
from traces.phases import ends_of

__all__ = ["JOB_RULES"]

_DEGREES = re.compile(r"\b(?:tp|pp|dp|cp)(\d{1,9})\b")  # in a plan's label: their product is its GPUs
_OF_RUNNING_JOBS = (RESIZE, MIGRATE, REPLAN, RATE, LOADED, PREEMPT, INTERRUPT, REQUEUE, FINISH)
_STATES_BEFORE = {
    SUBMIT: (UNKNOWN,), REJECT: (NEW,), START: (NEW,), RESTART: (STOPPED,),
    HOLD: (NEW, STOPPED), ELIGIBLE: (HELD,), FAIL: (RUNNING, NEW, STOPPED, HELD),
    NOTE: (NEW, RUNNING, STOPPED), SERVED: (NEW, RUNNING, STOPPED),
    **dict.fromkeys(_OF_RUNNING_JOBS, (RUNNING,)),
}  # fmt: skip
_LOSSES = (LOADED, INTERRUPT, REQUEUE)
"""The events whose seconds are no charge: of a load that has ended, or of work that is lost."""


class EventsInOrder(Rule):
    name = "causality"
    text = "time never runs back; a job is submitted, starts, moves and ends, in this order"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._now = -inf

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if event.time_s < self._now:
            text = f"the log goes back in time, from {self._now:g} s to {event}"
            self.report(text, i, event.time_s, event.job_id)
        self._now = event.time_s
        if job is None:
            return
        if job.state not in _STATES_BEFORE.get(event.event, ()):
            self._report_state(i, event, job.state)

    def _report_state(self, i: int, event: EventRecord, state: str) -> None:
        if state == UNKNOWN and not self.more and self.history.submitted_before(event.job_id):
            state = GONE
        self.report_at(i, event, f"{event.event} of job {event.job_id}, which is {state}")

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        """Find ids that are submitted again after their job has left the system."""
        ids = (event.job_id for event in self.evidence.events if event.event == SUBMIT)
        again = repeated(self.history.submitted, lambda: ids)
        if not again:
            return
        seen = set[str]()
        reported = {violation.event for violation in self.violations}
        for i, event in enumerate(self.evidence.events):
            if event.event == SUBMIT and event.job_id in again:
                if event.job_id in seen and i not in reported:
                    self.report_at(i, event, f"submit of job {event.job_id}, which was submitted before")
                seen.add(event.job_id)


class NoOversubscription(Rule):
    name = "capacity"
    text = "no node gives more GPUs than it has, and no GPU more than all of it"

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        """Check after all events of an instant: a decision may swap the GPUs of two jobs."""
        history, in_use, size_of = self.history, self.history.in_use, self.history.cluster.size_of
        touched: dict[int, int] = {}
        for i, event in enumerate(batch, first_index):
            for node, _ in event.placement:
                touched[node] = i
        for node, i in touched.items():
            count = in_use.get(node, 0)
            if not 0 <= node < history.cluster.nodes or count > size_of(node):
                problem = f"jobs {', '.join(history.holders(node))} hold {count} GPUs of node {node}"
                self.report_at(i, batch[i - first_index], f"{problem}, on a cluster {history.cluster.shape}")
        for i, event in enumerate(batch, first_index) if history.shared else ():
            placement = event.placement
            if isinstance(placement, SharedPlacement):
                held = history.shared.get(placement.key, 0)
                if held > MILLION:
                    problem = f"jobs hold {held / MILLION:g} of shared GPU {placement.number}"
                    self.report_at(i, event, f"{problem} of node {placement[0][0]}")


class GangAllocation(Rule):
    name = "gang"
    text = "a job gets all GPUs of its size at once, of one type, enough for its plan, each node once"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._wrong_placement = lru_cache(10_000)(self._find_wrong_placement)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        wrong = ""
        if event.event in ALLOCATES and job is not None:
            wrong = self._wrong_placement(event.placement, event.gpus) or _wrong_part(
                event, job, self.evidence.packs
            )
            if not wrong and job.facts.only_known_sizes and event.gpus not in job.facts.unit_s:
                wrong = f"it can run on {sorted(job.facts.unit_s)} GPUs"
            if not wrong and event.plan and _gpus_of(event.plan) > event.gpus:
                # A plan may leave GPUs idle, because not every count has a plan.
                wrong = f"its plan {event.plan} is one for {_gpus_of(event.plan)} GPUs"
        elif event.event in NODE_EVENTS:
            wrong = "" if len(event.placement) == 1 and not event.gpus else "names not one node"
            if event.job_id:
                wrong = "names a job"
        elif event.gpus or event.placement:
            wrong = "gives no GPUs"
        if event.plan and event.event not in ALLOCATES:
            wrong = f"names the plan {event.plan}, and gives no GPUs"
        if wrong:
            problem = f"{event.event} of job {event.job_id}, {event.gpus} GPUs at {event.placement}"
            self.report_at(i, event, f"{problem}: {wrong}")

    def _find_wrong_placement(self, placement: Placement, gpus: int) -> str:
        cluster, counts = self.history.cluster, [count for _, count in placement]
        if sum(counts) != gpus:
            return "the GPUs by node do not add up"
        if min(counts, default=0) < 1:
            return "a node without GPUs"
        if len({node for node, _ in placement}) != len(counts):
            return "names a node twice"
        if cluster.mixed:
            types = dict.fromkeys(cluster.type_of(n) for n, _ in placement if 0 <= n < cluster.nodes)
            if len(types) > 1:
                return f"GPUs of different types, {' and '.join(types)}"
        return ""


def _wrong_part(event: EventRecord, job: JobHistory, packs: int) -> str:
    """What is wrong with the part of GPUs that a job gets, if anything. `packs`: jobs that may share GPUs."""
    requested = None if job.record is None else job.record.gpu_fraction
    shares = isinstance(event.placement, SharedPlacement)
    if requested is None and packs > 1 and isinstance(event.placement, SharedPlacement):
        enough = (event.placement.millionths + 1) * packs >= MILLION
        return "" if enough else f"its part is so small that more than {packs} jobs could share its GPUs"
    if requested is None:
        return "shares a GPU, and its record states no part" if shares and job.record is not None else ""
    if not isinstance(event.placement, SharedPlacement):
        return f"its record states {requested:g} of a GPU, the log whole ones"
    if event.gpus != 1 or event.placement.millionths != millionths_of(requested):
        return f"it is to hold {requested:g} of 1 GPU"
    return ""


@lru_cache(1000)
def _gpus_of(plan: str) -> int:
    return prod(int(n) for n in _DEGREES.findall(plan))


class WorkDone(Rule):
    name = "progress"
    text = "a finished job has done all its work: the integral of its speed over time"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._finished = self._unknown = 0

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        wrong = _wrong_speed(event, job, self.evidence)
        if wrong:
            problem = f"{event.event} of job {event.job_id} at {event.unit_s!r} s per unit"
            self.report_at(i, event, f"{problem}: {wrong}")

    def on_departure(self, job: JobHistory) -> None:
        record, work, totals = job.record, job.facts.work, job.totals
        if record is None or record.state != FINISHED:
            return
        self._finished += 1
        self._unknown += work is None
        if work is None or totals.work is None:
            return
        if not agrees(totals.work, work, RESOLUTION_S + totals.work_error + job.facts.work_error):
            text = f"job {job.job_id} finished after {totals.work:g} of {work:g} units of work"
            self.report(text, time_s=record.finish_s, job_id=job.job_id)

    def unproved(self) -> str:
        if not self._unknown:
            return ""
        return f"the work of {self._unknown:,} of {self._finished:,} finished jobs is unknown"


def _wrong_speed(event: EventRecord, job: JobHistory | None, evidence: Evidence) -> str:
    kind, unit_s = event.event, event.unit_s
    if job is None:
        return "nothing runs" if unit_s else ""
    predicted_unit_s = job.facts.unit_s
    if kind in ALLOCATES or kind == RATE:
        predicted = predicted_unit_s.get(event.gpus)
        if predicted is not None and not isinstance(event.placement, SharedPlacement):  # see `SharersAsSlow`
            factor, expected = factor_of(job.record, event), predicted
            if job.record is None or not job.record.service:  # the time of an instance is the same anywhere
                model = job.record.model if job.record is not None else ""
                expected = evidence.in_truth(predicted * factor, event, model)
            exact = evidence.as_predicted and factor == 1.0
            if unit_s != expected and (exact or not agrees(unit_s, expected)):
                return f"it takes {expected!r} s there"
        return "" if unit_s > 0 else "must be positive"
    if kind == SUBMIT:
        fits = unit_s > 0 and (not predicted_unit_s or unit_s in predicted_unit_s.values())
        return "" if fits or unit_s == 0 else "not its speed on any number of GPUs"
    return "nothing runs" if unit_s else ""


class PhasesAsStated(Rule):
    name = "phases"
    text = "the phases of a job change when the work of each is done, and its batch is one of its phase"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (*ALLOCATES, PREEMPT, INTERRUPT, REQUEUE, FINISH, FAIL)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None or job.record is None:
            return
        if not job.record.phases:
            if event.event == REPLAN:
                self.report_at(i, event, f"replan of job {event.job_id}, which states no phases")
            return
        wrong = self._wrong_allocation(event, job) if event.event in ALLOCATES else ""
        allocation = event if event.event in ALLOCATES else job.allocation
        if not wrong and allocation is not None:
            wrong = self._wrong_work(event, job, allocation)
        if wrong:
            self.report_at(i, event, f"{event.event} of job {event.job_id}: {wrong}")

    def _wrong_allocation(self, event: EventRecord, job: JobHistory) -> str:
        """What is wrong with the phase that an allocation states, if anything."""
        phases, phase = stated_phases(job.record), phase_of(event)
        if phase is None or not 0 <= phase < len(phases):
            return f"its phase is {event.detail!r:.100}, of {len(phases)} by its record"
        batch, batches = batch_of(event), phases[phase].batches
        if batch is not None and batch not in batches:
            batch = batches[0]
        if event.detail != (expected := phase_words(phase, len(phases), batch, phases[phase].layers)):
            return f"it states {event.detail!r:.100}, not {expected!r}"
        if event.event == REPLAN and job.allocation is not None:
            if phase_of(job.allocation) not in (phase - 1, phase):
                return f"phase {phase + 1} follows {job.allocation.detail!r:.100}"
            if event.detail == job.allocation.detail:
                return f"neither its phase nor its batch changes from {event.detail!r:.100}"
            if event.placement != job.allocation.placement:
                return "it gets other GPUs"
        return ""

    def _wrong_work(self, event: EventRecord, job: JobHistory, allocation: EventRecord) -> str:
        """What is wrong with the work done so far, in the phase of the allocation `allocation`, if
        anything.
        """
        work, totals, phase = job.facts.work, job.totals, phase_of(allocation)
        if not work or totals.work is None or phase is None:
            return ""
        ends = (0.0, *ends_of(stated_phases(job.record)))
        if phase + 1 >= len(ends):
            return ""
        begin, end = ends[phase] * work, ends[phase + 1] * work
        error = RESOLUTION_S + totals.work_error + job.facts.work_error + RELATIVE * work
        if totals.work < begin - error or totals.work > end + error:
            return f"it has done {totals.work:g} units, and its phase has those from {begin:g} to {end:g}"
        begins = job.allocation is not None and phase_of(job.allocation) == phase - 1
        if event.event == REPLAN and begins and totals.work > begin + error:
            return f"it has done {totals.work:g} units, and its phase begins after {begin:g}"
        return ""


class TotalsMatchRecords(Rule):
    name = "conservation"
    text = "GPU-seconds, overheads, waits and times of the records are those of the event log"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._open = 0

    def on_departure(self, job: JobHistory) -> None:
        record, totals = job.record, job.totals
        if not totals.closed:
            self._open += 1
            return
        for logged, recorded, name in zip(_compared(totals), _compared(record), _COMPARED, strict=True):
            if logged == recorded:
                continue
            error = totals.gpu_error if name in _GPU_SUMS else totals.seconds_error
            if name == "cost_usd":
                error = totals.cost_error
            if not agrees(logged, recorded, RESOLUTION_S + error):
                problem = f"{name} is {recorded} in its record, {logged} by the event log"
                self.report(f"job {job.job_id}: {problem}", job_id=job.job_id)

    def unproved(self) -> str:
        if not self._open:
            return ""
        return f"{self._open:,} jobs were in the system when the run ended, at an unknown time"


_GPU_SUMS = ("gpu_seconds", "overhead_gpu_s", "lost_work_gpu_s")
_COMPARED = (*_GPU_SUMS, "start_s", "finish_s", "lost_s", "lost_work_s", "wait_s", "held_s", "cost_usd")
_compared = attrgetter(*_COMPARED)


class OverheadsCharged(Rule):
    name = "overheads"
    text = (
        "every start, restart, resize and migration pays what the overheads say, and each save is paid once; "
        "every failure costs the work since the last checkpoint, and every requeue all of it"
    )

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self._unsized = 0

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        kind = event.event
        if kind == REPLAN and job is not None:
            self._compare(i, event, job.totals.owed_s if job.totals.owed_s < inf else 0.0)
        elif kind in ALLOCATES and job is not None:
            terms = job.terms
            if terms.due_s is None:
                self._unsized += 1
            elif event.overhead_s != terms.due_s:
                self._compare(i, event, terms.due_s, job.totals.save_error * terms.save_s)
        elif event.overhead_s and kind not in _LOSSES:  # see `LoadsShareStorage`, `on_interrupt`
            self._compare(i, event, 0.0)

    def on_interrupt(self, i: int, event: EventRecord, job: JobHistory) -> None:
        if job.facts.parameters is not None:
            error = job.totals.seconds_error if event.event == REQUEUE else 0.0
            self._compare(i, event, job.totals.crash_s, error)

    def _compare(self, i: int, event: EventRecord, expected: float, error: float = 0.0) -> None:
        if not agrees(event.overhead_s, expected, RESOLUTION_S + 3 * self.evidence.resolution_s + error):
            text = f"{event.event} of job {event.job_id} paid {event.overhead_s:g} s, due {expected:g} s"
            self.report_at(i, event, text)

    def unproved(self) -> str:
        unknown = self._unsized
        return f"{unknown:,} events belong to models of unknown size" if unknown else ""


JOB_RULES = (
    EventsInOrder,
    NoOversubscription,
    GangAllocation,
    WorkDone,
    PhasesAsStated,
    TotalsMatchRecords,
    OverheadsCharged,
)
"""The rules about jobs. A broken rule makes the findings of the rules after it hard to interpret."""
