"""Whether a state tells of everything that changes: its stamp, its changed jobs, its table."""

from collections.abc import Hashable
from typing import NamedTuple

import pytest

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.internal import active_of

__all__ = ["watch_state"]

ROUNDING_S = 1e-6


def watch_state(scheduler: Scheduler) -> None:
    """Let a policy that is yet to be called fail if it sees another state under the same stamp, a job that
    did not go on as before and is not among the changed ones, or a table that differs from the views.
    """
    schedule, seen = scheduler.schedule, dict[int, Hashable]()
    lines: dict[JobView, Line] = {}

    def watched(state: State) -> Proposal:
        facts = summary_of(state)
        assert seen.setdefault(state.stamp, facts) == facts, f"t={state.now:g}: the stamp has not moved"
        changed_jobs = set(state.changed_jobs)
        jobs = (*state.running, *state.pending)
        assert {job for job in lines if not job.in_system} <= changed_jobs
        for job in jobs:
            assert job in changed_jobs or lines[job].reaches(job, state.now), (state.now, job)
        if len(seen) % 3:
            check_table(state)
        lines.clear()
        lines.update((job, Line.of(job, state.now)) for job in jobs)
        return schedule(state)

    scheduler.schedule = watched  # type: ignore[method-assign]


class Line(NamedTuple):
    """How a job goes on from a time on, if nothing changes."""

    now_s: float
    gpus: int
    speed: float
    curve: object
    work_left: float
    paying_s: float

    @classmethod
    def of(cls, job: JobView, now_s: float) -> "Line":
        return cls(now_s, job.gpus, job.speed, job.curve, units_of(job), job.paying_s)

    def reaches(self, job: JobView, now_s: float) -> bool:
        """Whether the job is there by `now_s`, or bends without an event."""
        elapsed_s = now_s - self.now_s
        paying_s = max(0.0, self.paying_s - elapsed_s)
        work_left = self.work_left - max(0.0, elapsed_s - self.paying_s) * self.speed
        held = self.gpus, self.speed, self.curve, pytest.approx(paying_s, abs=ROUNDING_S)
        same_work = units_of(job) == pytest.approx(work_left, rel=1e-9, abs=ROUNDING_S * (1.0 + self.speed))
        saves = active_of(job).checkpoints is not None
        bends = saves or (active_of(job).misstated and units_of(job) <= active_of(job).least_left)
        return held == (job.gpus, job.speed, job.curve, job.paying_s) and (same_work or bool(bends))


def units_of(job: JobView) -> float:
    """As `oracle_work_left`, which would be noted."""
    active = active_of(job)
    return active.as_stated(active.work_left_at(job._facts.now_s))


def check_table(state: State) -> None:
    """The table says what the views say, to the last bit."""
    table, oracle_used = state.table, state._facts.oracle_used
    jobs = table.jobs
    assert sorted(jobs, key=id) == sorted(state.running, key=id)
    assert [table.row(job) for job in jobs] == list(range(len(jobs)))
    names = ["order", "gpus", "work_left", "oracle_work_left", "speed", "paying_s", "productive_s"]
    for name in (*names, "attained", "productive_gpu_s"):
        assert getattr(table, name).tolist() == [getattr(job, name) for job in jobs], name
    assert table.restart_s.tolist() == [job.restart_s(job.gpus) for job in jobs]
    assert table.of(smallest_rate).tolist() == [smallest_rate(job) for job in jobs]
    state._facts.oracle_used = oracle_used


def smallest_rate(job: JobView) -> float:
    return job.rate(job.sizes[0])


def summary_of(state: State) -> Hashable:
    """What a policy sees apart from the progress of jobs and the time."""
    facts = state._facts
    nodes, capacity = facts.nodes, facts.capacity
    jobs = [active_of(view) for view in (*state.running, *state.pending)]
    return (
        tuple((job.job.job_id, job.placement, job.unit_s, job.curve.sizes, job.phases and job.phases.present)
              for job in jobs),
        tuple(job.phases.batch for job in jobs if job.phases is not None and job.phases.batch is not None),
        tuple(nodes.closed_to(view).reserved for view in (*state.running, *state.pending)),
        tuple(sorted(nodes.leaving.items())),
        (state.in_service, state.free, capacity.closed, capacity.idle_millionths, nodes.serving),
        (tuple(sorted(nodes.gpus_serving.items())), tuple(sorted(nodes.removed_by(state.now)))),
    )  # fmt: skip
