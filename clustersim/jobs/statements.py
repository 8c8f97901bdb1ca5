"""What a trace states about when a job may run, for how long, and how often it began anew."""

from __future__ import annotations

from itertools import pairwise

from traces.attempts import parse_attempts
from traces.job import Job

from .eligibility import EarlierRun

__all__ = ["AS_LOGGED", "earlier_runs_of", "eligible_from_s", "stops_at_limit"]

AS_LOGGED = ", as logged"
"""The end of the reason for which a job begins anew that did so in its log."""

_SHORTEST_RUN_S = 1e-6  # no table resolves shorter ones
_PREEMPTED = "PREEMPTED"


def eligible_from_s(job: Job) -> float:
    """The time before which a job is not eligible, by its begin time; by its log, where nothing that the
    trace states explains when the job became eligible.
    """
    if job.begin_s is not None:
        return job.begin_s
    if job.eligible_s is None or job.depends is not None or job.array_limit is not None:
        return job.submit_s
    if job.attempts is not None and job.eligible_s > parse_attempts(job.attempts)[0].start_s:
        return job.submit_s  # it is that of a later run
    return job.eligible_s


def stops_at_limit(job: Job) -> bool:
    """Whether the time limit of a job may stop it: not if its state says how it ended in its log, which its
    duration then includes.
    """
    return job.time_limit_s is not None and job.state is None


def earlier_runs_of(job: Job, replays_preemptions: bool) -> list[EarlierRun]:
    """The logged runs of a job ahead of its last one. Only a job of a stated duration has any: those of a job
    that states its work, or phases, are not repeated.
    """
    if job.attempts is None or job.kind != "duration" or job.phases is not None:
        return []
    runs = []
    for attempt, successor in pairwise(parse_attempts(job.attempts)):
        if attempt.run_s < _SHORTEST_RUN_S or (attempt.state == _PREEMPTED and not replays_preemptions):
            continue
        pause_s = 0.0
        if job.eligible_s is not None and attempt.end_s < job.eligible_s <= successor.start_s:
            pause_s = job.eligible_s - attempt.end_s
        runs.append(EarlierRun(attempt.run_s, f"{attempt.state}{AS_LOGGED}", pause_s))
    return runs
