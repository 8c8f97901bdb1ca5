"""Cases and their outcomes, and the audit of an outcome, for which all speeds are known exactly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ulp
from typing import Any

from clustersim.audit import Evidence, JobFacts, Violation, prove
from clustersim.audit.rules import RULES, HostNotExceeded, NoIdleStops, better_than
from clustersim.cluster import Cluster
from clustersim.failures import Failures
from clustersim.overheads import Overheads
from clustersim.records import FINISHED, EventRecord, JobRecord
from clustersim.runs import best_possible
from clustersim.speed import CannotRun, Curve, Interference, Packing, Speed, SpeedOnOneType
from traces.job import Job, submission_order

__all__ = [
    "BrokenCase",
    "Case",
    "Outcome",
    "Table",
    "TableSpeed",
    "check_idle_stops",
    "check_outcome",
    "evidence_of",
]

Table = Mapping[tuple[str, int], Mapping[int, float]]
"""(model, global batch) -> GPUs -> iterations per second."""


class TableSpeed(SpeedOnOneType):
    """Speeds from a throughput table alone, so a check needs no prediction and takes milliseconds."""

    def __init__(self, cluster: Cluster, table: Table):
        super().__init__(cluster, None, table, stretches=cluster.pools[0].stretches if cluster.groups else ())

    def curve(self, job: Job) -> Curve:
        """The curve of `job`. CannotRun, with the reason, if the table has none."""
        if job.kind != "duration" and job.model not in self.tabled_models:
            raise CannotRun(f"the throughput table does not know the model {job.model}")
        return super().curve(job)


@dataclass(frozen=True)
class Case:
    """A small trace, with its cluster, speeds, overheads and failures."""

    name: str
    jobs: tuple[Job, ...]
    cluster: Cluster
    table: Table = field(default_factory=dict)
    overheads: Overheads = field(default_factory=Overheads.none)
    placement: str = "pack"
    failures: Failures | None = None
    calendar: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0


class BrokenCase(AssertionError):
    """A policy broke a rule in a case; the text names both.

    `case`: as it was run. `logs`: its event log, as far as it came, and that of a second run if they differ.
    """

    def __init__(self, text: str, case: Case, *logs: Sequence[EventRecord]):
        super().__init__(text)
        self.case, self.logs = case, logs


@dataclass(frozen=True)
class Outcome:
    """The result of running a case: its event log, in order of time, and a record per job."""

    case: Case
    events: tuple[EventRecord, ...]
    records: tuple[JobRecord, ...]
    speed: Speed
    packs: int = 1
    leaves_idle: bool = False

    def of(self, job_id: str) -> JobRecord:
        """The record of a job."""
        return next(record for record in self.records if record.job_id == job_id)

    def log(self) -> list[tuple[float, str, str, int]]:
        """The event log as short rows: (time, event, job, GPUs)."""
        return [(e.time_s, e.event, e.job_id, e.gpus) for e in self.events]

    def curve(self, job: Job) -> Curve | None:
        """The speeds of a job by number of GPUs; None if the job cannot run here."""
        try:
            return self.speed.curve(job)
        except CannotRun:
            return None


def check_outcome(outcome: Outcome) -> None:
    """Every check of one run. AssertionError names the case, the simulated time and the jobs."""
    rules = (*RULES, HostNotExceeded) if outcome.case.cluster.states_host else RULES
    for finding in prove(evidence_of(outcome), rules):
        if (
            finding.rule == "progress"
        ):  # the rule itself checks finished jobs alone; here every job must finish
            _raise_first(outcome, _check_drained(outcome))
        _raise_first(outcome, finding.violations)
    _raise_first(outcome, map(Violation, _better_than_possible(outcome)))


def check_idle_stops(outcome: Outcome) -> None:
    """AssertionError names the first job that loses GPUs to a policy which no job gets, unless the policy
    means it.
    """
    evidence = evidence_of(outcome)
    for finding in () if evidence.idle_stops is None else prove(evidence, [NoIdleStops]):
        remedy = (
            "; let it keep them, with leaves_idle = False, or say with leaves_idle = True that it is meant"
        )
        _raise_first(outcome, [Violation(broken.text + remedy) for broken in finding.violations])


def _raise_first(outcome: Outcome, broken: Iterable[Violation]) -> None:
    for violation in broken:
        raise BrokenCase(f"{outcome.case.name}: {violation.text}", outcome.case, outcome.events)


def evidence_of(outcome: Outcome) -> Evidence:
    """The evidence of a run for the rules of the audit, with the exact speeds of its jobs; without them on a
    cluster of several GPU types, where a count has a speed on each type.
    """
    case = outcome.case
    known = {job.job_id: _known(job, outcome.curve(job)) for job in case.jobs}
    if case.cluster.mixed:
        known = {name: facts._replace(unit_s={}, only_known_sizes=False) for name, facts in known.items()}

    def facts_of(record: JobRecord | None, first: EventRecord | None, planned: bool) -> JobFacts:
        about = record if first is None else first
        return JobFacts() if about is None else known.get(about.job_id, JobFacts())

    records = sorted(outcome.records, key=lambda record: record.submit_s)
    # The log is in memory and unrounded, but large times have a coarse floating-point resolution.
    last_s = max((abs(event.time_s) for event in outcome.events), default=0.0)
    return Evidence(
        cluster=case.cluster,
        overheads=case.overheads,
        events=outcome.events,
        records=records,
        facts_of=facts_of,
        resolution_s=2 * ulp(last_s),
        failures=case.failures,
        packs=outcome.packs,
        idle_stops=None if outcome.leaves_idle or case.cluster.states_host else 0,
    )


def _known(job: Job, curve: Curve | None) -> JobFacts:
    work = job.duration_s if job.kind == "duration" else job.iterations
    if curve is None:
        return JobFacts(work, only_known_sizes=True, parameters=0.0)
    if curve.phases:
        return JobFacts(work, parameters=curve.parameters)
    return JobFacts(work, 0.0, curve.unit_s, only_known_sizes=True, parameters=curve.parameters)


def _better_than_possible(outcome: Outcome) -> list[str]:
    """The results that no policy can have, by the bound of the case's jobs."""
    case = outcome.case
    jobs = submission_order(case.jobs)
    ended = {record.job_id for record in outcome.records if record.state == FINISHED}
    finished = [job.job_id in ended for job in jobs]
    packing = Packing(outcome.packs, Interference())
    bound = best_possible(jobs, finished, case.cluster, outcome.speed, case.overheads, "auto", None, packing)
    return better_than(bound, outcome.records)


def _check_drained(outcome: Outcome) -> Iterator[Violation]:
    """Every job has one record and is finished or rejected: no job still waits at the end."""
    ids = sorted(record.job_id for record in outcome.records)
    submitted = sorted(job.job_id for job in outcome.case.jobs)
    if ids != submitted:
        yield Violation(f"records of jobs {ids} for the submitted jobs {submitted}")
    for record in outcome.records:
        if record.state not in ("finished", "rejected"):
            yield Violation(f"job {record.job_id} is {record.state}: {record.reason}", job_id=record.job_id)
