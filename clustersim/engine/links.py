"""What the dependencies of a trace refer to, and how far those jobs are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from clustersim.failures import ended_badly
from clustersim.jobs import ActiveJob
from traces.dependencies import Dependency, parse_dependencies
from traces.job import Job
from traces.native import StoredJobs

__all__ = ["FULFILLED", "NEVER", "WAITING", "Links", "Namesake", "TasksOfArray", "links_of", "namesake_of"]

WAITING, FULFILLED, NEVER = "waiting", "fulfilled", "never"

Namesake = tuple[str, str]
"""The user and the name of a job, which singletons share."""


def namesake_of(job: Job) -> Namesake | None:
    """The user and the name of a job; None for a job without a name, which has no namesakes."""
    return None if job.name is None else (job.user or job.tenant, job.name)


class _Target:
    """The jobs of one name, which is a job id or an array: those that have not started, and not ended.

    `ended_badly`: whether one has failed, was cancelled, rejected, or failed in its log. `started_s`: when
    the last of them started, or ended without a start.
    """

    __slots__ = ("ended_badly", "started_s", "unended", "unstarted")

    def __init__(self, jobs: int):
        self.unstarted = self.unended = jobs
        self.ended_badly, self.started_s = False, -inf


class TasksOfArray:
    """`eligible`: the ids of those that may run, or run. `queue`: those that wait for their places, as a heap
    by the order of submission, each with the feature of its cluster that holds it.
    """

    __slots__ = ("eligible", "queue")

    def __init__(self) -> None:
        self.eligible: set[str] = set()
        self.queue: list[tuple[int, ActiveJob, Any]] = []


class Links:
    """The jobs of a trace that dependencies name, with what has become of them in a run.

    `namesakes`: the users and names of singletons. `waiters`: the held jobs by what they wait for, each with
    the feature of its cluster that holds it. The clusters of a fleet share one object.
    """

    def __init__(self, jobs: Iterable[Job], dependents: Sequence[Job]):
        """`dependents`: those of `jobs` that depend on others."""
        parsed = [parse_dependencies(job.depends or "")[0] for job in dependents]
        names = {name for dependencies in parsed for d in dependencies for name in d.jobs}
        self.namesakes = {
            namesake
            for job, dependencies in zip(dependents, parsed, strict=True)
            if any(dependency.kind == "singleton" for dependency in dependencies)
            and (namesake := namesake_of(job)) is not None
        }
        self._names_of: dict[str, tuple[str, ...]] = {}
        self._failed_in_log: set[str] = set()
        self._targets: dict[str, _Target] = {}
        self._unstarted: set[str] = set()
        self.waiters: dict[str | Namesake, dict[ActiveJob, Any]] = {}
        self._live: dict[Namesake, dict[str, int]] = {key: {} for key in self.namesakes}
        self._namesake_of: dict[str, Namesake] = {}
        counts: dict[str, int] = {}
        for job in jobs if names else ():
            of_job = tuple(name for name in (job.job_id, job.array_id) if name is not None and name in names)
            if not of_job:
                continue
            self._names_of[job.job_id] = tuple(dict.fromkeys(of_job))
            if ended_badly(job.state):
                self._failed_in_log.add(job.job_id)
            for name in self._names_of[job.job_id]:
                counts[name] = counts.get(name, 0) + 1
        self._unstarted.update(self._names_of)
        self._targets = {name: _Target(count) for name, count in counts.items()}

    def dependencies_of(self, job: Job) -> tuple[tuple[Dependency, ...], bool, list[str]]:
        """The dependencies of a job on jobs of the trace, whether one of them is enough, and the names that
        the trace does not have, of which dependencies count as fulfilled.
        """
        dependencies, is_any = parse_dependencies(job.depends or "")
        unknown_names = [name for d in dependencies for name in d.jobs if name not in self._targets]
        known = tuple(d for d in dependencies if not d.jobs or any(name in self._targets for name in d.jobs))
        return (() if is_any and unknown_names else known), is_any, unknown_names

    def status_of_all(
        self, dependencies: Sequence[Dependency], is_any: bool, job: Job, order: int, now: float
    ) -> tuple[str, float]:
        """Whether the dependencies of a job are fulfilled; if that is to be seen, when to ask again, infinite
        if an event decides. `is_any`: one of them is enough. `order`: of its submission.
        """
        answers = [self.status(dependency, job, order, now) for dependency in dependencies]
        statuses = [status for status, _ in answers]
        decisive, other = (FULFILLED, NEVER) if is_any else (NEVER, FULFILLED)
        if decisive in statuses:
            return decisive, now
        if all(status == other for status in statuses):
            return other, now
        return WAITING, min((at_s for status, at_s in answers if status == WAITING), default=inf)

    def add_namesake(self, job: Job, order: int) -> None:
        """A job is in the system from now on, of which a singleton may be a namesake. `order`: of its
        submission.
        """
        namesake = namesake_of(job)
        if namesake in self._live:
            self._namesake_of[job.job_id] = namesake
            self._live[namesake][job.job_id] = order

    def start(self, job_id: str, now: float) -> tuple[str, ...]:
        """A job has started, or has left without a start. Returns the names under which jobs wait for it."""
        names = self._names_of.get(job_id, ())
        if names and job_id in self._unstarted:
            self._unstarted.remove(job_id)
            for name in names:
                target = self._targets[name]
                target.unstarted -= 1
                target.started_s = now
        return names

    def end(self, job_id: str, now: float, *, well: bool) -> tuple[str, ...]:
        """A job has left the system, well or not. Returns the names under which jobs wait for it."""
        names = self.start(job_id, now)
        for name in names:
            target = self._targets[name]
            target.unended -= 1
            target.ended_badly |= not well or job_id in self._failed_in_log
        return names

    def end_namesake(self, job_id: str) -> Namesake | None:
        """The same of a job of a name of singletons. Returns that name, with its user; else None."""
        key = self._namesake_of.pop(job_id, None)
        if key is not None:
            del self._live[key][job_id]
        return key

    def status(self, dependency: Dependency, job: Job, order: int, now: float) -> tuple[str, float]:
        """Whether a dependency of a job on jobs of the trace is fulfilled, and from which time on, if that is
        known.
        """
        if dependency.kind == "singleton":
            namesake = namesake_of(job)
            live = {} if namesake is None else self._live[namesake]
            waits = any(earlier < order for earlier in live.values())
            return (WAITING, inf) if waits else (FULFILLED, now)
        targets = [self._targets[name] for name in dependency.jobs if name in self._targets]
        if dependency.kind == "after":
            if any(target.unstarted for target in targets):
                return WAITING, inf
            at_s = max((target.started_s for target in targets), default=-inf) + dependency.delay_s
            return (WAITING, at_s) if at_s > now else (FULFILLED, now)
        status = _status_of_ends(dependency.kind, targets)
        return status, inf if status == WAITING else now


def _status_of_ends(kind: str, targets: Sequence[_Target]) -> str:
    """The status of a dependency on the ends of jobs. An array has ended badly if one of its tasks has."""
    if kind == "afterok" and any(target.ended_badly for target in targets):
        return NEVER
    if kind == "afternotok" and any(not target.unended and not target.ended_badly for target in targets):
        return NEVER
    return WAITING if any(target.unended for target in targets) else FULFILLED


def links_of(jobs: Iterable[Job]) -> Links | None:
    """The links between the jobs of a trace; None if none waits for another, or the jobs can be read once."""
    if isinstance(jobs, Iterator) or (isinstance(jobs, StoredJobs) and not jobs.has_dependencies):
        return None
    dependents = [job for job in jobs if job.depends is not None]
    return Links(jobs, dependents) if dependents else None
