"""The checks of a policy: its parameters, and runs over `CASES`, each audited from its event log."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.failures import Failures, Maintenance
from clustersim.overheads import Overheads
from clustersim.records import MemoryRecorder
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from itertime.errors import UserError
from traces.estimates import Estimates
from traces.job import Job, submission_order

from .outcome import BrokenCase, Case, Outcome, Table, TableSpeed, check_idle_stops, check_outcome

__all__ = ["CASES", "check_case", "check_parameters", "check_scheduler", "simulate"]

_MOST_DECISIONS = 20_000


def simulate(
    jobs: Sequence[Job],
    scheduler: Scheduler,
    cluster: str | Cluster = "n1g8",
    *,
    table: Table | None = None,
    overheads: Overheads | None = None,
    placement: str = "pack",
    until_s: float | None = None,
    failures: Failures | None = None,
    calendar: Sequence[Mapping[str, Any]] = (),
    seed: int = 0,
) -> Outcome:
    """Run `jobs` under `scheduler`, by default without overheads and failures.

    Raises PolicyError if the policy breaks a rule.

    >>> from clustersim.testing import simulate
    >>> from policies.fifo import Fifo
    >>> simulate([Job("a", 0.0, gpus=8, duration_s=60.0)], Fifo()).of("a").finish_s
    60.0
    """
    shape = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    case = Case(
        name="trace",
        jobs=tuple(jobs),
        cluster=shape,
        table=table or {},
        overheads=overheads or Overheads.none(),
        placement=placement,
        failures=failures,
        calendar=tuple(calendar),
        seed=seed,
    )
    return _run(case, scheduler, until_s)


def check_scheduler(factory: Callable[[], Scheduler], cases: Sequence[Case] | None = None) -> None:
    """Run a policy over every case and check each run; `factory` makes a new policy for each. AssertionError
    states the broken rule, the case and the time.

    Apart from the rules of the audit: a second run has the same result, and so has a run with the rows of the
    trace in another order; every run ends; parameters are stored under their own names; at every decision the
    keys of `run_by` and `pending_by` are what the jobs are sorted by, and no job loses its GPUs to one that
    `run` was told is less important; at last, no job loses GPUs that then stay free, unless the policy states
    `leaves_idle`.
    """
    check_parameters(factory())
    outcomes = [_checked(factory, case) for case in (CASES if cases is None else cases)]
    for outcome in outcomes:
        check_idle_stops(outcome)


def check_case(factory: Callable[[], Scheduler], case: Case) -> None:
    """One case of `check_scheduler`."""
    check_idle_stops(_checked(factory, case))


def _checked(factory: Callable[[], Scheduler], case: Case) -> Outcome:
    """The outcome of a case, with every check but that of idle stops."""
    outcome = _guarded(case, factory)
    check_outcome(outcome)
    again = _guarded(case, factory)
    _check_same(outcome, again, "a second run differs: the policy is not deterministic")
    rows = list(case.jobs)
    Random(1).shuffle(rows)
    shuffled = _guarded(replace(case, jobs=tuple(rows)), factory)
    _check_same(outcome, shuffled, "the result depends on the order of the trace's rows")
    return outcome


def _run(
    case: Case, scheduler: Scheduler, until_s: float | None = None, recorder: MemoryRecorder | None = None
) -> Outcome:
    recorder = recorder or MemoryRecorder(case.cluster)
    speed = TableSpeed(case.cluster, case.table)
    setup = RunSetup(
        cluster=case.cluster,
        scheduler=scheduler,
        speed=speed,
        overheads=case.overheads,
        placement=case.placement,
        failures=case.failures,
        maintenance=Maintenance.of(case.calendar, case.cluster.nodes),
        until_s=until_s,
        seed=case.seed,
        check_all_keys=True,
    )
    Simulation(submission_order(case.jobs), setup, recorder).run()
    events, records = tuple(recorder.events), tuple(recorder.jobs)
    return Outcome(case, events, records, speed, scheduler.packs, scheduler.leaves_idle is True)


class _Counted(Scheduler):
    """The policy under test, with an error after `_MOST_DECISIONS` decisions."""

    def __init__(self, inner: Scheduler):
        self.inner, self.planner, self.remaining = inner, inner.planner, _MOST_DECISIONS
        self.packs, self.leaves_idle = inner.packs, inner.leaves_idle

    def admit(self, job: JobView, state: State) -> bool:
        return self.inner.admit(job, state)

    def refusal(self, job: JobView) -> str:
        return self.inner.refusal(job)

    def schedule(self, state: State) -> Proposal:
        self.remaining -= 1
        if not self.remaining:
            raise UserError(f"livelock: {_MOST_DECISIONS} decisions, and the jobs are still not done")
        return self.inner.schedule(state)


def _guarded(case: Case, factory: Callable[[], Scheduler]) -> Outcome:
    scheduler = factory()
    counted = type(type(scheduler).__name__, (_Counted,), {})  # so that errors name the policy itself
    recorder = MemoryRecorder(case.cluster)
    try:
        return _run(case, counted(scheduler), recorder=recorder)
    except UserError as error:
        raise BrokenCase(f"{case.name}: {error}", case, recorder.events) from error


def _check_same(one: Outcome, two: Outcome, text: str) -> None:
    for a, b in zip(one.events, two.events, strict=False):
        if a != b:
            text = f"{text}: at t={a.time_s:g} s first {a}, then {b}"
            break
    if one.events != two.events or one.records != two.records:
        raise BrokenCase(f"{one.case.name}: {text}", two.case, one.events, two.events)


def check_parameters(scheduler: Scheduler) -> None:
    """AssertionError names a parameter of the policy that is not stored under its own name."""
    name = type(scheduler).__name__
    for parameter in inspect.signature(type(scheduler)).parameters:
        if not hasattr(scheduler, parameter):
            raise AssertionError(f"{name}: parameter {parameter} is not stored as self.{parameter}")


# The traces of the cases, from fixed seeds


def _rigid(seed: int, count: int, sizes: Sequence[int], mean_gap_s: int) -> tuple[Job, ...]:
    """Rigid jobs with times in whole seconds, so that submissions and completions often coincide."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.choice((0, 0, random.randint(1, 4 * mean_gap_s)))
        run_s = float(random.randint(1, 600))
        deadline_s = now + run_s * random.choice((1, 2, 5)) if i % 3 == 0 else None
        gpus = random.choice(sizes)
        jobs.append(Job(str(i), now, f"tenant{i % 3}", gpus=gpus, duration_s=run_s, deadline_s=deadline_s))
    return tuple(jobs)


_TABLE: Table = {
    (model, 64): {n: 0.1 * n**power for n in (1, 2, 4, 8, 16, 32) if n >= least}
    for model, least, power in (("small", 1, 0.8), ("medium", 2, 0.9), ("large", 8, 0.95))
}


def _elastic(seed: int, deadlines: bool) -> tuple[Job, ...]:
    """Elastic jobs whose models have different smallest sizes. With `deadlines`, four in five have one."""
    random, now, jobs = Random(seed), 0.0, []
    for i in range(30):
        now += random.choice((0.0, random.expovariate(1 / 120)))
        model = random.choice(("small", "small", "medium", "large"))
        rates = _TABLE[model, 64]
        gpus = random.choice([n for n in rates if n <= 16])
        run_s = random.uniform(60, 2000)
        deadline_s = now + run_s * random.uniform(0.5, 4) + 300 if deadlines and i % 5 else None
        work = run_s * rates[gpus]
        jobs.append(
            Job(f"j{i}", now, model=model, gpus=gpus, global_batch=64, iterations=work, deadline_s=deadline_s)
        )
    return tuple(jobs)


_BY_BATCH: Table = {
    **{("small", 8 << k): {n: 6.4 / (8 << k) * n ** (0.6 + 0.1 * k) for n in (1, 2, 4, 8)} for k in range(4)},
    **{("large", 8 << k): {n: 3.2 / (8 << k) * n**0.9 for n in (4, 8, 16)} for k in range(4)},
}


def _in_phases(seed: int) -> tuple[Job, ...]:
    """Jobs whose batch grows, jobs whose batch a policy may choose, and jobs of a run time."""
    random, now, jobs = Random(seed), 0.0, []
    texts = ("0.25:8 0.25:16 0.5:64", "0.5:8..64:16 0.5:8..64:400", "0.3:1 0.7:2.5", None)
    for i in range(16):
        now += random.choice((0.0, random.expovariate(1 / 90)))
        model, gpus = random.choice((("small", 2), ("small", 8), ("large", 8)))
        run_s, phases = random.uniform(100, 900), texts[i % 4]
        if i % 4 == 2:
            jobs.append(Job(f"p{i}", now, gpus=gpus, duration_s=run_s, phases=phases))
            continue
        work = run_s * _BY_BATCH[model, 8][gpus]
        jobs.append(Job(f"p{i}", now, model=model, gpus=gpus, global_batch=8, iterations=work, phases=phases))
    return tuple(jobs)


_MISSTATES = Estimates(1.0)
_SMALL, _TINY = Cluster(4, 4), Cluster(1, 1)
_NEVER = (
    Job("wide", 1.0, gpus=17, duration_s=10.0),
    Job("other-batch", 2.0, model="small", gpus=2, global_batch=7, iterations=5.0),
    Job("other-model", 2.0, model="unheard-of", gpus=2, global_batch=64, iterations=5.0),
)

CASES: tuple[Case, ...] = (
    Case("rigid jobs", _rigid(1, 40, (1, 1, 2, 3, 4, 8, 16), 40), _SMALL),
    Case(
        "rigid jobs with overheads",
        _rigid(2, 40, (1, 2, 4, 8, 16), 60),
        _SMALL,
        overheads=Overheads(),
        placement="any",
    ),
    Case("one GPU", _rigid(3, 25, (1,), 300), _TINY),
    Case("elastic jobs", _elastic(4, deadlines=False), Cluster(4, 8), _TABLE),
    Case(
        "elastic jobs with deadlines and overheads",
        _elastic(6, deadlines=True),
        Cluster(4, 8),
        _TABLE,
        overheads=Overheads(launch_s=10.0),
    ),
    Case(
        "jobs that misstate their work",
        tuple(_MISSTATES.applied_to(job, 0) for job in _elastic(9, deadlines=True)),
        Cluster(4, 8),
        _TABLE,
        overheads=Overheads(launch_s=10.0),
    ),
    Case(
        "jobs in phases, with batches to choose",
        _in_phases(10),
        _SMALL,
        _BY_BATCH,
        overheads=Overheads(launch_s=5.0),
    ),
    Case("jobs that can never run", _rigid(5, 12, (1, 2, 8), 60) + _NEVER, _SMALL, _TABLE),
    Case(
        "nodes that fail",
        _rigid(7, 20, (1, 2, 4, 8, 16), 80) + _elastic(8, deadlines=True),
        _SMALL,
        _TABLE,
        overheads=Overheads(launch_s=4.0, plain_restart_s=6.0, checkpoint_interval_s=60.0),
        failures=Failures(mtbf_gpu_h=3.0, kinds={"short": (1, 0.02), "long": (1, 0.2)}, spare_nodes=1),
        calendar=(
            {"at_s": 400, "maintenance": 0, "for_s": 300},
            {"at_s": 800, "remove": 1},
            {"at_s": 1500, "add": 1},
        ),
        seed=2,
    ),
)
