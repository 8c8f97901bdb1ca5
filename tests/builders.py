"""Jobs, policies and set-ups that many tests make in the same way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.engine import RunSetup, Simulation
from clustersim.failures import Failures, outages
from clustersim.failures.failures import Fault
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.speed import Curve, Speed, SpeedByType, SpeedOnOneType
from clustersim.testing import Case, Outcome
from traces.job import Job, submission_order

__all__ = [
    "Acts",
    "Bench",
    "MixedBench",
    "Restless",
    "Script",
    "Step",
    "acting",
    "drawn_jobs",
    "elastic",
    "failing",
    "finishes",
    "free_setup",
    "gpt3",
    "mean_jct_s",
    "rigid",
    "starts",
    "stated_speed",
    "states",
    "times",
]

Step = Callable[[Proposal, Mapping[str, JobView]], object]


def rigid(
    job_id: str, submit_s: float, gpus: int, run_s: float, deadline_s: float | None = None, **more: Any
) -> Job:
    """A job with a duration. `more`: other columns of the trace."""
    return Job(job_id, submit_s, gpus=gpus, duration_s=run_s, deadline_s=deadline_s, **more)


def elastic(
    job_id: str, submit_s: float, gpus: int, iterations: float, deadline_s: float | None = None, **more: Any
) -> Job:
    """A job with iterations, of the model `m` with a global batch of 8 unless `more` says otherwise."""
    columns: dict[str, Any] = {"model": "m", "global_batch": 8, **more}
    return Job(job_id, submit_s, gpus=gpus, iterations=iterations, deadline_s=deadline_s, **columns)


def drawn_jobs(
    seed: int, count: int, gap_s: int, gpus: Sequence[int], run_s: tuple[int, int],
    slack: tuple[float, float] | None = None, from_s: int = 0, **columns: Sequence[Any],
) -> list[Job]:  # fmt: skip
    """Rigid jobs in whole seconds from `from_s` on, full of ties. Half of them come with the job before, the
    others up to `gap_s` later. `run_s`: the shortest and the longest run time. Four in five have a deadline,
    a multiple of their run time after their submission, if `slack` says from which to which. `columns`: the
    values of other columns, of which each job has one.
    """
    random, submit_s, jobs = Random(seed), from_s, []
    for i in range(count):
        submit_s += random.choice((0, random.randint(1, gap_s)))
        seconds, job_columns = (
            random.randint(*run_s),
            {key: random.choice(values) for key, values in columns.items()},
        )
        if slack and random.random() < 0.8:
            job_columns["deadline_s"] = submit_s + seconds * random.uniform(*slack)
        jobs.append(rigid(f"j{i:02}", float(submit_s), random.choice(gpus), float(seconds), **job_columns))
    return jobs


def gpt3(job_id: str, submit_s: float, gpus: int, iterations: float) -> Job:
    """A job that trains the model gpt3-6.7b, with a global batch of 512."""
    return elastic(job_id, submit_s, gpus, iterations, model="gpt3-6.7b", global_batch=512)


def starts(outcome: Outcome) -> dict[str, float | None]:
    """First start by job."""
    return {record.job_id: record.start_s for record in outcome.records}


def finishes(outcome: Outcome) -> dict[str, float | None]:
    """Finish by job."""
    return {record.job_id: record.finish_s for record in outcome.records}


def times(outcome: Outcome) -> dict[str, tuple[float | None, float | None]]:
    """First start and finish by job."""
    return {record.job_id: (record.start_s, record.finish_s) for record in outcome.records}


def states(outcome: Outcome) -> dict[str, str]:
    """State at the end by job."""
    return {record.job_id: record.state for record in outcome.records}


def mean_jct_s(outcome: Outcome) -> float:
    """Mean time from submission to finish, in seconds; unfinished jobs count as 0."""
    return sum(record.jct_s or 0.0 for record in outcome.records) / len(outcome.records)


def free_setup(cluster: Cluster, scheduler: Scheduler, table: Any = None, **settings: Any) -> RunSetup:
    """A run with the speeds of the trace and the throughput table, without overheads unless `settings` say
    otherwise.
    """
    plain: dict[str, Any] = {"speed": SpeedOnOneType(cluster, None, table), "overheads": Overheads.none()}
    return RunSetup(cluster=cluster, scheduler=scheduler, **plain | settings)


@contextmanager
def failing(faults: Mapping[int, Sequence[Sequence[float]]]) -> Iterator[None]:
    """Nodes fail at the times of `faults` alone, of which each has its time and the seconds of its repair."""

    class Told:
        def __init__(self, parameters: Failures, seed: int, number: int):
            self.ahead, self.now, self.repair_s = list(faults.get(number, [])), 0.0, 0.0

        def life_s(self, mean_s: float) -> float:
            if not self.ahead:
                return 1e12
            at_s, self.repair_s = self.ahead.pop(0)
            life_s, self.now = at_s - self.now, at_s + self.repair_s
            return life_s

        first_life_s = life_s

        def fault(self) -> Fault:
            return Fault("gpu", self.repair_s)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outages, "Machine", Told)
        yield


class Acts(Scheduler):
    """Lets a function fill each proposal."""

    def __init__(self, act: Callable[[State, Proposal], object]):
        self.act = act

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        self.act(state, proposal)
        return proposal


def acting(act: Callable[[State, Proposal], object], packs: int = 1) -> type[Scheduler]:
    """A class of such policies, for `clustersim.run`. `packs`: the jobs that may share a GPU."""

    class Acting(Acts):
        def __init__(self) -> None:
            super().__init__(act)

    Acting.packs = packs
    return Acting


class Script(Scheduler):
    """At the times of `steps` calls a step with a fresh proposal and all jobs by id, else changes nothing."""

    def __init__(self, steps: Mapping[float, Step], declines: tuple[str, ...] = ()):
        self.steps, self.declines = steps, declines
        self.seen: list[tuple[float, list[tuple[str, str | None]]]] = []
        self.known: dict[str, JobView] = {}

    def admit(self, job: JobView, state: State) -> bool:
        self.known[job.id] = job
        return job.id not in self.declines

    def schedule(self, state: State) -> Proposal:
        self.seen.append((state.now, [(e.kind, e.job.id if e.job else None) for e in state.events]))
        proposal = state.proposal()
        if state.now in self.steps:
            self.steps[state.now](proposal, self.known)
        return proposal


class Restless(Scheduler):
    """Starts, stops, resizes and moves jobs at random."""

    def __init__(self, seed: int):
        self.random = Random(seed)

    def schedule(self, state: State) -> Proposal:
        proposal, random = state.proposal(), self.random
        for job in list(state.running):
            choice = random.random()
            if choice < 0.2:
                proposal.stop(job)
            elif choice < 0.6:
                proposal.resize(job, random.choice(job.sizes))
        for job in list(state.pending):
            if random.random() < 0.7:
                proposal.start(job, random.choice(job.sizes))
        if state.pending or state.running:
            proposal.wake_at = state.now + random.choice((0.3, 5.0, 40.0))
        return proposal


class StatedSpeed(SpeedOnOneType):
    """A throughput table, and the number of parameters of each model, which makes restarts slow."""

    def __init__(self, cluster: Cluster, table: Any, parameters: Mapping[str, float]):
        super().__init__(cluster, None, table)
        self.parameters = parameters

    def curve(self, job: Job) -> Curve:
        return replace(super().curve(job), parameters=self.parameters.get(job.model or "", 0.0))


def stated_speed(cluster: Cluster, table: Any, parameters: Mapping[str, float]) -> Speed:
    """The speeds of a throughput table; on a cluster of several types of a table by GPU type."""
    if not cluster.mixed:
        return StatedSpeed(cluster, table.get(cluster.gpu_types[0], table), parameters)
    by_type = {
        pool.gpu_type: StatedSpeed(
            Cluster(pool.nodes, pool.gpus_per_node), table.get(pool.gpu_type, {}), parameters
        )
        for pool in cluster.pools
    }
    for name, speed in by_type.items():
        speed.gpu_type = name
    return SpeedByType(by_type)


class Bench:
    """A cluster, the models that run on it, and what restarts cost."""

    def __init__(
        self,
        cluster: str | Cluster,
        table: Any,
        parameters: Mapping[str, float] | None = None,
        overheads: Overheads | None = None,
        placement: str = "pack",
    ):
        self.cluster = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
        self.table, self.parameters = table, parameters or {}
        self.overheads, self.placement = overheads or Overheads.none(), placement

    def run(self, jobs: Sequence[Job], scheduler: Scheduler, until_s: float | None = None) -> Outcome:
        speed = stated_speed(self.cluster, self.table, self.parameters)
        settings = {"overheads": self.overheads, "placement": self.placement, "until_s": until_s}
        setup = free_setup(self.cluster, scheduler, speed=speed, **settings)
        recorder = Simulation(submission_order(jobs), setup).run()
        case = Case("bench", tuple(jobs), self.cluster, self.table, self.overheads, self.placement)
        return Outcome(case, tuple(recorder.events), tuple(recorder.jobs), speed)


class MixedBench(Bench):
    """Nodes of several GPU types, (type, nodes, GPUs per node) each, and the throughput table of each."""

    def __init__(
        self, groups: Sequence[tuple[str, int, int]], tables: Mapping[str, Any], *more: Any, **named: Any
    ):
        pools = [NodeGroup(name=name, nodes=n, gpus_per_node=g, gpu_type=name) for name, n, g in groups]
        super().__init__(Cluster.of(pools), tables, *more, **named)
