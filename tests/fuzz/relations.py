"""Relations between runs: what the schedule of one scene says about that of another.

| relation | what is changed | what is the same |
|---|---|---|
| order of rows | the rows of the trace are shuffled | the log |
| last arrivals | the last jobs are not submitted | the log before the first of them |
| other names | jobs, tenants and users have other names, in the same order | the log, but for the names |
| times doubled | all seconds of trace, settings and policy are twice as many | the log, with times doubled |

Multiplying by two is exact in floating point, so doubled times are compared to the last digit. The relations
hold for all policies, as none looks ahead, with the exceptions that each states.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from inspect import signature
from itertools import zip_longest
from random import Random
from typing import Any

from clustersim.cluster import SharedPlacement
from clustersim.engine import RunSetup, Simulation
from clustersim.engine.fleet import FleetSimulation, Routing
from clustersim.failures import Failures, Maintenance, Reservation, Spot
from clustersim.overheads import Overheads
from clustersim.records import EventRecord, MemoryRecorder
from clustersim.runs import RunConfig, Trace, find_policy, setup_of
from traces.job import Job

from .stamps import watch_state

__all__ = ["RELATIONS", "Scheduled", "first_difference", "shuffled"]


@dataclass(frozen=True)
class Scheduled:
    """A run in memory: its jobs, policy and settings, and its log with exact times."""

    jobs: Sequence[Job]
    policy: str
    settings: dict[str, Any]
    events: Sequence[EventRecord]


Change = Callable[[RunSetup], RunSetup]


def scheduled(jobs: Sequence[Job], policy: str, settings: dict[str, Any], change: Change) -> Scheduled:
    """Simulate in memory. `change`: of the set-up, and of those of the clusters of which it is made."""
    config, trace = RunConfig.make(policy=policy, **settings), Trace.of(list(jobs))
    setup = setup_of(config, models=trace.models)
    setup = change(replace(setup, parts=tuple(map(change, setup.parts))))
    recorder = MemoryRecorder(setup.cluster)
    if config.routing is None:
        Simulation(trace.jobs, setup, recorder).run()
    else:
        FleetSimulation(trace.jobs, setup, Routing.of(config.routing), recorder).run()
    return Scheduled(jobs, policy, settings, recorder.events)


def shuffled(jobs: Sequence[Job], policy: str, settings: dict[str, Any]) -> Scheduled:
    """The run of the jobs in another order of rows, in which keys of policies are looked up after every
    decision, too, and the state is held to tell of all that changes (`watch_state`).
    """

    def watched(setup: RunSetup) -> RunSetup:
        watch_state(setup.scheduler)
        return replace(setup, check_all_keys=True)

    rows = Random(1).sample(jobs, len(jobs))
    return scheduled(rows, policy, settings, watched)


def _as_it_is(setup: RunSetup) -> RunSetup:
    return setup


def first_difference(expected: Iterable[EventRecord], events: Iterable[EventRecord]) -> str:
    """Empty if the logs are equal."""
    for ours, theirs in zip_longest(expected, events):
        if ours != theirs or _shares(ours) != _shares(theirs):
            return f"{theirs}, not {ours}"
    return ""


def _shares(event: EventRecord) -> tuple[int, int] | None:
    """What a placement states beside its nodes, which comparing placements leaves out."""
    placement = event.placement
    return (placement.number, placement.millionths) if isinstance(placement, SharedPlacement) else None


# Each relation gives the log that is expected of the changed run, and the log that it has; nothing where it
# does not hold for a run.

Logs = Sequence[Sequence[EventRecord]]


def last_arrivals(run: Scheduled) -> Logs | None:
    times = sorted({job.submit_s for job in run.jobs})
    if len(times) < 2:
        return None
    first_s = times[Random(len(run.jobs)).randrange((len(times) + 1) // 2, len(times))]
    jobs = [job for job in run.jobs if job.submit_s < first_s]
    events = [
        event
        for event in scheduled(jobs, run.policy, run.settings, _as_it_is).events
        if event.time_s < first_s
    ]
    end_s = (
        events[-1].time_s if events else 0.0
    )  # without jobs, the run ends, and nodes have no further events
    return [
        event for event in run.events if event.time_s < first_s and (event.job_id or event.time_s <= end_s)
    ], events


def other_names(run: Scheduled) -> Logs | None:
    if run.settings.get("step_time") or (run.settings.get("estimates") or {}).get("sigma"):
        return None  # what is wrong with a job is drawn by its id

    def named(text: str) -> str:
        return text if text == "default" else text[0] + text

    jobs = [
        replace(
            job,
            job_id=f"x{job.job_id}",
            tenant=named(job.tenant),
            user=job.user and named(job.user),
            depends=job.depends and re.sub(r"\bj(\d)", r"xj\1", job.depends),
        )
        for job in run.jobs
    ]
    settings = dict(run.settings)
    settings["params"] = {
        name: {named(tenant): number for tenant, number in value.items()}
        if isinstance(value, dict)
        else value
        for name, value in settings.get("params", {}).items()
    }
    if "quotas" in settings:
        settings["quotas"] = {named(tenant): gpus for tenant, gpus in settings["quotas"].items()}
    if "reservations" in settings:
        entries = settings["reservations"]
        settings["reservations"] = [
            {**entry, "tenants": [*map(named, entry["tenants"])]} for entry in entries
        ]
    if "homes" in settings.get("routing", {}):
        homes = {named(tenant): cluster for tenant, cluster in settings["routing"]["homes"].items()}
        settings["routing"] = {**settings["routing"], "homes": homes}
    events = [
        event._replace(job_id=event.job_id[1:], detail=re.sub(r"\bxj(\d)", r"j\1", event.detail))
        for event in scheduled(jobs, run.policy, settings, _as_it_is).events
    ]
    return run.events, events


def times_doubled(run: Scheduled) -> Logs | None:
    if _has_fixed_seconds(run):
        return None

    def twice(value: Any) -> Any:
        return value if value is None or isinstance(value, str | bool) else 2 * value

    jobs = [
        replace(
            job,
            attempts=job.attempts
            and re.sub(r"[0-9.]+", lambda number: f"{2 * float(number[0])}", job.attempts),
            **{name: twice(getattr(job, name)) for name in TIMES_OF_JOBS},
        )
        for job in run.jobs
    ]
    settings = {name: twice(value) if name in TIMES else value for name, value in run.settings.items()}
    parameters = signature(find_policy(run.policy)).parameters
    stated = run.settings.get("params", {})
    values = {**{name: parameter.default for name, parameter in parameters.items()}, **stated}
    settings["params"] = stated | {
        name: [*map(twice, value)] if isinstance(value, tuple | list) else twice(value)
        for name, value in values.items()
        if name.endswith("_s") and value
    }
    again = scheduled(jobs, run.policy, settings, _doubled_setup)
    return [
        [
            event._replace(
                time_s=factor * event.time_s,
                overhead_s=factor * event.overhead_s,
                detail=re.sub("[0-9.]+", "", event.detail),
            )
            for event in events
        ]
        for factor, events in ((2, run.events), (1, again.events))
    ]


def _has_fixed_seconds(run: Scheduled) -> bool:
    """Whether something of the run does not double with its times."""
    stated = [job.stated_iterations for job in run.jobs if job.stated_iterations is not None]
    if stated and (max(stated) > 5e11 or min(stated) < 1e-9):
        return True  # a trace states no more than twice as much, and policies round work to an instant
    if run.policy == "edf-admission" and any(job.deadline_s for job in run.jobs):
        return True  # it reserves a second more than a job needs
    if run.policy == "pal" and run.settings.get("params", {}).get("order") == "las":
        return True  # its queue has a quantum that no parameter states
    if run.policy == "slurm":
        return True  # its timers go off every second
    if run.policy == "shockwave":
        return True  # its program has seconds, and is solved to within a gap
    predicts = "predictor" in (run.settings.get("estimates") or {}) or run.policy in PREDICT
    return predicts or run.policy in EXTEND or run.settings.get("routing", {}).get("by") in GUESS


PREDICT = ("qssf", "lucid")
"""Policies that predict run times from means of logarithms, which rounds them; so does the setting
`estimates.predictor`.
"""
EXTEND = ("conservative", "easy", "multifactor")
"""Policies that extend an estimate that has run out by a minute, then by five, and so on."""
GUESS = ("least-wait", "fastest", "soonest")
"""Rules of routing for which a job whose run time is unknown takes an hour."""
TIMES = ("decision_interval_s", "until_s", "warmup_s", "measure_s")
TIMES_OF_JOBS = (
    "submit_s", "duration_s", "iterations", "stated_iterations", "deadline_s", "estimate_s", "begin_s",
    "eligible_s", "cancel_s", "time_limit_s", "suspended_s",
)  # fmt: skip
"""With them the work doubles, whose speed stays as it is."""


def _doubled_setup(setup: RunSetup) -> RunSetup:
    changes: dict[str, Any] = {
        name: double(value) for name, double in DOUBLED.items() if (value := getattr(setup, name)) is not None
    }
    return replace(setup, **changes)


def _doubled_overheads(overheads: Overheads) -> Overheads:
    values: dict[str, Any] = {}
    for field in fields(overheads):
        value = getattr(overheads, field.name)
        if field.name in ("launch_steps", "launch_points"):
            values[field.name] = [(gpus, 2 * seconds) for gpus, seconds in value]
        elif field.name.endswith("bytes_per_s"):
            values[field.name] = value / 2
        elif not isinstance(value, str | bool) and field.name.endswith("_s"):
            values[field.name] = 2 * value
    values["launch_gpu_s"], values["launch_log2_s"] = 2 * overheads.launch_gpu_s, 2 * overheads.launch_log2_s
    return replace(overheads, **values)


def _doubled_failures(failures: Failures) -> Failures:
    kinds = {name: (share, 2 * hours) for name, (share, hours) in failures.kinds.items()}
    mtbf_gpu_h = failures.mtbf_gpu_h and 2 * failures.mtbf_gpu_h
    return replace(failures, kinds=kinds, mtbf_gpu_h=mtbf_gpu_h, spare_swap_s=2 * failures.spare_swap_s)


def _doubled_maintenance(maintenance: Maintenance) -> Maintenance:
    changes = (
        change._replace(time_s=2 * change.time_s, notice_s=2 * change.notice_s)
        for change in maintenance.changes
    )
    return replace(maintenance, changes=tuple(changes))


def _doubled_spot(spot: Spot) -> Spot:
    return replace(
        spot, mean_up_h=2 * spot.mean_up_h, mean_down_h=2 * spot.mean_down_h, notice_s=2 * spot.notice_s
    )


def _doubled_reservations(reservations: Sequence[Reservation]) -> tuple[Reservation, ...]:
    return tuple(replace(entry, start_s=2 * entry.start_s, end_s=2 * entry.end_s) for entry in reservations)


DOUBLED: dict[str, Callable[[Any], Any]] = {
    "overheads": _doubled_overheads,
    "failures": _doubled_failures,
    "maintenance": _doubled_maintenance,
    "spot": _doubled_spot,
    "reservations": _doubled_reservations,
}

RELATIONS: dict[str, Callable[[Scheduled], Logs | None]] = {
    relation.__name__.replace("_", " "): relation for relation in (last_arrivals, other_names, times_doubled)
}
