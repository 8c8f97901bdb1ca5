"""The rule that the records of a run are those of the jobs of its trace: none missing, none changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clustersim.audit.evidence import RESOLUTION_S, WORK_EPSILON, agrees, as_stated
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.cluster import MILLION, HostDemand, millionths_of
from clustersim.failures import JobFailure, failure_of_job
from clustersim.records import (
    ALLOCATES,
    DECLINED,
    FAIL,
    FAILED,
    FINISHED,
    GIVEN_UP,
    NOTE,
    REJECTED,
    STATED_ENDS,
    UNFINISHED,
    EventRecord,
    JobRecord,
)
from clustersim.runs import Trace, stated_hash
from clustersim.speed import CannotRun
from itertime.io import shown
from traces.job import Job

from .records import Tally

__all__ = ["TraceMatches"]


class TraceMatches(Rule):
    """Compares jobs and records side by side, both in order of submission. A job or a record is kept until
    its counterpart is read.

    `trace`: the trace, or the reason why it cannot be read.
    """

    name = "trace"
    text = "the records are those of the jobs of the trace, as they were submitted, one each"

    def __init__(
        self,
        history: ClusterHistory,
        tally: Tally,
        manifest: Mapping[str, Any],
        trace: Trace | str,
        speeds: Recomputed,
    ):
        super().__init__(history)
        self.kinds = () if isinstance(trace, str) else (*ALLOCATES, NOTE)
        self._limited: dict[str, Job] = {}  # jobs in the system that limit their GPUs
        self._notes: dict[str, str] = {}  # the last one of the policy, by job
        self._unusual: list[tuple[Job, JobRecord]] = []  # finished, with more than its offer's note
        self._failures_due: dict[str, JobFailure] = {}  # of jobs in the system that fail by their records
        self._speeds, self._why_not = speeds, trace if isinstance(trace, str) else ""
        self._jobs: Iterator[Job] = iter(() if isinstance(trace, str) else trace.jobs)
        self._without_job: dict[str, JobRecord] = {}  # records whose job was not read yet
        self._without_record: dict[str, Job] = {}  # jobs whose record was not read yet
        self._disorder = ""  # the first job whose record is not where it is in the trace
        self._incomplete = False  # whether a job or a record has no counterpart: the others are then shifted
        self._unknown = self._other_version = 0
        self._routed = manifest.get("routing") is not None
        seed = manifest.get("seed")
        self._seed = seed if isinstance(seed, int) else 0
        digest = stated_hash(manifest)
        if isinstance(trace, Trace) and digest and trace.sha256 != digest:
            self.report(f"{trace.path} is not the trace whose hash manifest.json states")
        if not self._why_not:
            tally.watch = self._take

    def _take(self, record: JobRecord) -> None:
        """Compare the next record with the next job of the trace, or keep both."""
        job = next(self._jobs, None)
        if job is not None and job.job_id == record.job_id:
            self._compare(job, record)
            return
        if job is not None:
            self._without_record[job.job_id] = job
        self._without_job.setdefault(record.job_id, record)
        for job_id in (record.job_id, *([] if job is None else [job.job_id])):
            if job_id in self._without_record and job_id in self._without_job:
                self._disorder = self._disorder or job_id
                self._compare(self._without_record.pop(job_id), self._without_job.pop(job_id))

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self._why_not:
            return
        for job in (*self._without_record.values(), *self._jobs):
            record = self._without_job.pop(job.job_id, None)
            if record is not None:
                self._compare(job, record)
            else:
                self._incomplete = True
                self.report(f"job {job.job_id} of the trace has no record", job_id=job.job_id)
        for job_id in self._without_job:
            self._incomplete = True
            self.report(f"job {job_id} is not in the trace", job_id=job_id)
        for job, record in self._unusual:
            reason = record.reason.removesuffix(self._notes.get(job.job_id, "")).removesuffix("; ")
            if not self._is_note(job, reason):
                problem = f"it finished, and its record says {shown(record.reason)}"
                self.report(f"job {job.job_id}: {problem}", job_id=job.job_id)
        if self._disorder and not self._incomplete:
            problem = "its record is not in the order of submission, which ids decide at equal times"
            self.report(f"job {self._disorder}: {problem}", job_id=self._disorder)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        """Check that the number of GPUs is within the limits of the job, and keep notes."""
        if event.event == NOTE:
            self._notes[event.job_id] = event.detail
            return
        submitted = self._limited.get(event.job_id)
        if submitted is None or event.gpus == submitted.gpus:
            return
        low, high = submitted.min_gpus or 1, submitted.max_gpus or self.history.cluster.gpus
        if not low <= event.gpus <= high:
            text = f"on {event.gpus} GPUs; its user allows {low} to {high}"
            self.report_at(i, event, f"{event.event} of job {event.job_id} {text}")

    def on_departure(self, job: JobHistory) -> None:
        self._limited.pop(job.job_id, None)
        failure = self._failures_due.pop(job.job_id, None)
        work, done = job.facts.work, job.totals.work
        if failure is None or job.last != FAIL or work is None or done is None:
            return
        expected, error = failure.share * work, job.totals.work_error + job.facts.work_error
        if not agrees(done, expected, WORK_EPSILON + error):
            problem = (
                f"{failure.reason} after {done:g} of {work:g} units of work; it was to be after {expected:g}"
            )
            self.report(f"job {job.job_id}: {problem}", job_id=job.job_id)

    def _compare(self, job: Job, record: JobRecord) -> None:
        if job.kind == "iterations" and (job.min_gpus is not None or job.max_gpus is not None):
            self._limited[job.job_id] = job
        host = HostDemand.of(job.cpus, job.host_memory_gb, job.gpus)
        share = job.gpu_fraction and millionths_of(job.gpu_fraction) / MILLION
        for name, submitted, recorded in (
            ("submit_s", job.submit_s, record.submit_s),
            ("tenant", job.tenant, record.tenant),
            ("model", job.model or "", record.model),
            ("deadline_s", job.deadline_s, record.deadline_s),
            ("global_batch", job.global_batch, record.global_batch),
            ("seq_len", job.seq_len, record.seq_len),
            ("framework", job.framework or "", record.framework),
            ("precision", job.precision or "", record.precision),
            ("plan_options", job.plan_options or "", record.plan_options),
            ("service", job.service or "", record.service),
            ("phases", job.phases or "", record.phases),
            ("gpu_fraction", share, record.gpu_fraction),
            ("cpus_per_gpu", host and host.cpus_per_gpu, record.cpus_per_gpu),
            ("host_gb_per_gpu", host and host.gb_per_gpu, record.host_gb_per_gpu),
        ):
            if not as_stated(recorded, submitted):
                problem = f"job {job.job_id}: {name} is {recorded} in its record"
                self.report(f"{problem}, {submitted} in the trace", job_id=job.job_id)
        for wrong in (self._wrong_request(job, record), self._wrong_end(job, record)):
            if wrong:
                self.report(f"job {job.job_id}: {wrong}", job_id=job.job_id)

    def _wrong_request(self, job: Job, record: JobRecord) -> str:
        """What is wrong with the requested GPUs, the run time on them, or the reason of a rejection, if
        anything.
        """
        if record.isolated_s is None and record.gpus != job.gpus:
            return f"asks for {record.gpus} GPUs in its record, {job.gpus} in the trace"
        if record.isolated_s is None and self._is_not_submitted(record):
            return ""
        offers = self._speeds.offers(job)
        if offers is None:
            self._unknown += 1
            return ""
        if isinstance(offers, CannotRun):
            if record.isolated_s is None and record.reason == str(offers):
                return ""
            wrong = f"it cannot run ({offers}); its record says {record.state}, {shown(record.reason)}"
        else:
            work = job.iterations if job.kind == "iterations" else job.duration_s
            assert work is not None
            if job.kind == "duration" and job.phases is None:
                work += job.suspended_s or 0.0
            # Where jobs are sent to a cluster of a fleet, its own offer counts.
            expected_requests = [
                (n := offer.requested, work * offer.curve.work_s(n))
                for offer in offers[: None if self._routed else 1]
            ]
            if any(
                record.gpus == n and as_stated(record.isolated_s, seconds) for n, seconds in expected_requests
            ):
                return ""
            requested, due_s = expected_requests[0]
            recorded = f"isolated_s is {record.isolated_s} on {record.gpus} GPUs in its record"
            wrong = f"{recorded}, {due_s} on {requested} by the trace"
        if job.kind == "iterations" and not self._speeds.same_code:
            self._other_version += 1
            return ""
        return wrong

    def _is_not_submitted(self, record: JobRecord) -> bool:
        """Whether the run ended before the submission."""
        end_s = self.evidence.end_s
        return record.state == UNFINISHED and (end_s is None or record.submit_s >= end_s - RESOLUTION_S)

    def _wrong_end(self, job: Job, record: JobRecord) -> str:
        """What is wrong with the state or the reason of a record, if anything."""
        failures = self.evidence.failures
        if record.state == FAILED and record.reason.startswith(STATED_ENDS):
            return ""  # see `RunsAsStated`
        if record.state == REJECTED and record.isolated_s is not None:
            declined = record.reason.partition("; ")[0] == DECLINED
            return "" if declined else f"it can run, and is rejected: {shown(record.reason)}"
        if record.state == FINISHED and not self._is_note(job, record.reason):
            self._unusual.append((job, record))
        if failures is None:
            return ""
        failure = failure_of_job(job, failures, self._seed)
        if record.state == FINISHED and failure is not None:
            return f"it finished, and was to end before: {failure.reason}"
        if record.state != FAILED or record.reason.startswith(GIVEN_UP):
            return ""
        if failure is None or not record.reason.startswith(failure.reason):
            return f"nothing says that it fails: {shown(record.reason)}"
        self._failures_due[job.job_id] = failure
        return ""

    def _is_note(self, job: Job, text: str) -> bool:
        """Whether `text` is the note of an offer: how it differs from the request, or empty."""
        offers = self._speeds.offers(job)
        if not isinstance(offers, tuple) or not (job.kind == "duration" or self._speeds.same_code):
            return True
        return text in [offer.note for offer in offers]

    def unproved(self) -> str:
        whys = [self._why_not] if self._why_not else []
        if self._unknown:
            whys.append(f"the speeds of {self._unknown:,} jobs are not known here")
        if self._other_version:
            whys.append(f"another version made the run, and gave {self._other_version:,} jobs another speed")
        return "; ".join(whys)
