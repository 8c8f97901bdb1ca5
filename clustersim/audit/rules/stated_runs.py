"""The rules that jobs begin, end and begin anew when their trace says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from operator import attrgetter

from clustersim.audit.evidence import RESOLUTION_S, agrees, slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.engine import NEVER, Links, links_of
from clustersim.jobs import AS_LOGGED, earlier_runs_of, eligible_from_s, stops_at_limit
from clustersim.records import (
    ALLOCATES,
    CANCELLED,
    ELIGIBLE,
    ENDS,
    FAIL,
    FINISH,
    HOLD,
    NEVER_ELIGIBLE,
    OVER_LIMIT,
    REQUEUE,
    RESTART,
    SERVED,
    START,
    SUBMIT,
    WAITS_AFTER,
    EventRecord,
)
from clustersim.runs import Trace
from traces.job import Job

__all__ = ["RunsAsStated", "ServicesLeave", "states_runs"]

_COLUMNS = (
    "begin_s", "eligible_s", "cancel_s", "time_limit_s", "depends", "array_limit", "attempts",
)  # fmt: skip
_BY_USER = f"{CANCELLED} its user"


def states_runs(trace: Trace) -> bool:
    """Whether any job of a trace states when, where or how often it may run."""
    statement, nothing = attrgetter(*_COLUMNS), (None,) * len(_COLUMNS)
    return any(statement(job) != nothing for job in trace.jobs)


class ServicesLeave(Rule):
    name = "services"
    text = "an instance of a service leaves when its time is over, with GPUs or without"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (SERVED, FINISH)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        record = None if job is None else job.record
        if record is None:
            return
        if (event.event == SERVED) != bool(record.service):
            problem = (
                f"is an instance of {record.service}" if record.service else "is no instance of a service"
            )
            self.report_at(i, event, f"{event.event} of job {event.job_id}, which {problem}")
        elif record.service and record.isolated_s is not None:
            expected_s = record.submit_s + record.isolated_s
            if not agrees(event.time_s, expected_s, slack_s(expected_s, 3 * self.evidence.resolution_s)):
                self.report_at(i, event, f"job {event.job_id} leaves; its time is over at t={expected_s:g}")


class _Statement:
    """A job in the system of which the trace states more than its work. `order`: of its submission.
    `waits_since_s`: when it last began to wait. `requeues`: how often it began anew as logged.
    """

    __slots__ = ("is_eligible", "job", "order", "requeues", "waits_since_s")

    def __init__(self, job: Job, order: int):
        self.job, self.order = job, order
        self.waits_since_s, self.is_eligible, self.requeues = job.submit_s, False, 0


class RunsAsStated(Rule):
    """Reads the trace beside the log, and keeps what it states of jobs in the system, how far the jobs are
    that dependencies name, and the tasks of arrays that may run.
    """

    name = "stated runs"
    text = (
        "no job is eligible ahead of its begin time and its dependencies, or beyond the limit of its array; "
        "limits stop jobs, cancelled ones never start, and jobs begin anew as logged"
    )

    def __init__(self, history: ClusterHistory, trace: Trace):
        super().__init__(history)
        self._jobs: Iterator[Job] = iter(trace.jobs)
        self._links: Links | None = links_of(trace.jobs)
        self._passed: dict[str, Job] = {}  # jobs that the log submits later than the trace
        self._statements: dict[str, _Statement] = {}
        self._new: dict[str, tuple[int, EventRecord]] = {}  # submitted at this instant, and not held so far
        self._tasks: dict[str, set[str]] = {}  # of arrays, those that may run
        self._submitted = 0
        self.kinds = (*ALLOCATES, *WAITS_AFTER, *ENDS, HOLD)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            return
        kind, job_id, links = event.event, event.job_id, self._links
        if kind == SUBMIT:
            self._submit(i, event)
        statement = self._statements.get(job_id)
        if statement is not None:
            self._check(i, event, job, statement)
        if links is not None:
            if kind == START:
                links.start(job_id, event.time_s)
            elif kind in ENDS:
                links.end(job_id, event.time_s, well=kind in (FINISH, SERVED))
                links.end_namesake(job_id)

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        """Jobs submitted now that are not held are eligible now."""
        for job_id, (i, event) in self._new.items():
            statement = self._statements.get(job_id)
            if statement is not None and not statement.is_eligible:
                self._become_eligible(i, event, statement)
        self._new.clear()

    def _submit(self, i: int, event: EventRecord) -> None:
        job = self._job_of(event.job_id)
        self._submitted += 1
        if job is None or job.service is not None:
            return
        if self._links is not None:
            self._links.add_namesake(job, self._submitted)
        if any(getattr(job, column) is not None for column in _COLUMNS):
            self._statements[event.job_id] = _Statement(job, self._submitted)
            self._new[event.job_id] = i, event

    def _job_of(self, job_id: str) -> Job | None:
        """The job of the trace with this id; both are in order of submission."""
        if job_id in self._passed:
            return self._passed.pop(job_id)
        for job in self._jobs:
            if job.job_id == job_id:
                return job
            self._passed[job.job_id] = job
        return None

    def _check(self, i: int, event: EventRecord, history: JobHistory, statement: _Statement) -> None:
        kind, job_id = event.event, event.job_id
        wrong = ""
        if kind in WAITS_AFTER:
            statement.waits_since_s = event.time_s
        if kind == HOLD:
            self._new.pop(job_id, None)
        elif kind == ELIGIBLE and not statement.is_eligible:
            self._become_eligible(i, event, statement)
        elif kind in ALLOCATES:
            wrong = self._wrong_start(event, statement)
        elif kind == REQUEUE and event.detail.endswith(AS_LOGGED):
            wrong = self._wrong_requeue(history, statement)
        elif kind in ENDS:
            wrong = self._wrong_end(event, history, statement)
            del self._statements[job_id]
            self._new.pop(job_id, None)
            if statement.job.array_limit is not None:
                self._tasks.get(statement.job.array_id or "", set()).discard(job_id)
        if wrong:
            self.report_at(i, event, f"{kind} of job {job_id}, {wrong}")

    def _become_eligible(self, i: int, event: EventRecord, statement: _Statement) -> None:
        """Check that a job may run now."""
        job, now, wrong = statement.job, event.time_s, ""
        statement.is_eligible = True
        if eligible_from_s(job) > now + self._slack_s(now):
            wrong = f"which is not eligible before t={eligible_from_s(job):g}"
        elif job.depends is not None and (status := self._status(statement, now)) != "fulfilled":
            wrong = f"whose dependency {job.depends} is {status}"
        if job.array_limit is not None:
            tasks = self._tasks.setdefault(job.array_id or "", set())
            tasks.add(job.job_id)
            if len(tasks) > job.array_limit:
                wrong = f"beside {len(tasks) - 1} tasks of array {job.array_id} of at most {job.array_limit}"
        if wrong:
            self.report_at(i, event, f"{event.event} of job {job.job_id}, {wrong}")

    def _status(self, statement: _Statement, now: float) -> str:
        assert self._links is not None
        dependencies, is_any, _ = self._links.dependencies_of(statement.job)
        if not dependencies:
            return "fulfilled"
        later = now + self._slack_s(now)
        return self._links.status_of_all(dependencies, is_any, statement.job, statement.order, later)[0]

    def _wrong_start(self, event: EventRecord, statement: _Statement) -> str:
        """What is wrong with the GPUs that a job gets, if anything."""
        slack = self._slack_s(event.time_s)
        cancel_s = inf if statement.job.cancel_s is None else statement.job.cancel_s
        waited = event.event in (START, RESTART) and statement.waits_since_s < cancel_s - slack
        if waited and event.time_s > cancel_s + slack:
            return f"which its user cancelled at t={cancel_s:g}"
        return ""

    def _wrong_requeue(self, history: JobHistory, statement: _Statement) -> str:
        """What is wrong with a beginning anew as logged, if anything. A policy may leave out the runs that a
        preemption ended.
        """
        number, totals = statement.requeues, history.totals
        statement.requeues += 1
        choices = [earlier_runs_of(statement.job, replays) for replays in (True, False)]
        due_s = [runs[number].run_s for runs in choices if number < len(runs)]
        if not due_s:
            return f"whose log has {len(choices[0])} runs ahead of its last one"
        error = RESOLUTION_S + totals.work_error
        if totals.work is not None and not any(agrees(totals.work, run_s, error) for run_s in due_s):
            return f"after {totals.work:g} s of work; the run took {due_s[0]:g} s in its log"
        return ""

    def _wrong_end(self, event: EventRecord, history: JobHistory, statement: _Statement) -> str:
        """What is wrong with the end of a job, if anything."""
        job, detail = statement.job, event.detail
        if event.event == FINISH:
            counts = [len(earlier_runs_of(job, replays)) for replays in (True, False)]
            if statement.requeues not in counts:
                return (
                    f"after {statement.requeues} runs of {counts[0]} that its log has ahead of its last one"
                )
            return self._wrong_run(history, statement, is_stopped=False)
        if event.event != FAIL:
            return ""
        if detail.startswith(OVER_LIMIT):
            return self._wrong_run(history, statement, is_stopped=True)
        if detail.startswith(_BY_USER):
            if job.cancel_s is None or not agrees(event.time_s, job.cancel_s, self._slack_s(event.time_s)):
                return "which its user does not cancel now"
            return "which holds GPUs" if history.allocation is not None else ""
        if detail.startswith(NEVER_ELIGIBLE) and (
            job.depends is None or self._status(statement, event.time_s) != NEVER
        ):
            return "which may still become eligible"
        return ""

    def _wrong_run(self, history: JobHistory, statement: _Statement, *, is_stopped: bool) -> str:
        """What is wrong with the last run of a job that has a time limit, if anything. The limit is the run
        time on the requested GPUs; phases of other speeds are not counted.
        """
        job, record, facts = statement.job, history.record, history.facts
        if is_stopped and not stops_at_limit(job):
            return "which no time limit stops"
        work, done = facts.work, history.totals.work
        if (
            not stops_at_limit(job)
            or record is None
            or work is None
            or done is None
            or job.phases is not None
        ):
            return ""
        assert job.time_limit_s is not None
        if not record.isolated_s:
            return ""
        due_work = min(1.0, job.time_limit_s / record.isolated_s) * work
        error = RESOLUTION_S + history.totals.work_error + 2 * facts.work_error
        if not agrees(done, due_work, error):
            return f"after {done:g} units of work; its time limit is over after {due_work:g}"
        return ""

    def _slack_s(self, now: float) -> float:
        return slack_s(now, 3 * self.evidence.resolution_s)
