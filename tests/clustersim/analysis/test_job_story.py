"""Stories of jobs that no session can show: sums, and what is read. Words: `explain.yaml`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import fsum
from typing import Any

import pytest

from clustersim.analysis import Spell, Wait, explain
from clustersim.records import Run
from clustersim.runs import RunConfig, Trace, run
from traces.job import Job

JOBS = (
    Job("long", 0.0, gpus=16, duration_s=300.0),
    Job("short", 10.0, gpus=8, duration_s=20.0),
    Job("last", 15.0, gpus=8, duration_s=20.5),
)


def simulated(jobs: Sequence[Job], policy: str) -> Run:
    flat = {"launch_gpu_s": 0.0}  # 30 s for a launch
    return run(Trace.of(jobs), config=RunConfig(policy=policy, cluster="n2g8", overheads=flat))


def test_a_job_that_never_had_room_is_not_said_to_have_been_passed_over() -> None:
    """Although the intervals between changes sum to another number in floating point."""
    jobs = [Job(f"j{i:02}", 0.1 * i, gpus=16, duration_s=1 / (i + 3)) for i in range(40)]
    made = simulated(jobs, "fifo")
    for job in jobs[1:]:
        wait = explain(made, job.job_id).spells[0]
        assert isinstance(wait, Wait)
        assert (wait.free, wait.short_s) == ((0, 0), wait.to_s - wait.from_s)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "elasticflow", "vtrain-aware", "edf"])
def test_a_story_adds_up_to_its_record(policy: str) -> None:
    jobs = [
        Job(f"j{i}", 200.0 * i, model="megatron-1.7b", gpus=8, global_batch=64, iterations=2000.0,
            deadline_s=200.0 * i + 40_000)
        for i in range(8)
    ]  # fmt: skip
    made = simulated(jobs, policy)
    for record in made.jobs:
        spells = explain(made, record.job_id).spells
        waits = [spell for spell in spells if isinstance(spell, Wait)]
        held = [spell for spell in spells if isinstance(spell, Spell)]
        assert fsum(wait.to_s - wait.from_s for wait in waits) == pytest.approx(record.wait_s)
        assert fsum(spell.paid_s for spell in held) == pytest.approx(record.lost_s)
        gpu_seconds = fsum((spell.to_s - spell.given.time_s) * spell.given.gpus for spell in held)
        assert gpu_seconds == pytest.approx(record.gpu_seconds)


def test_no_more_is_read_than_the_story_takes() -> None:
    """`short` waits from 10 s on for nothing and is done at 60 s: later events are not read."""

    class UpTo:
        def __init__(self, rows: Sequence[Any], end_s: float):
            self.rows, self.end_s = rows, end_s

        def __iter__(self) -> Iterator[Any]:
            for row in self.rows:
                assert row.time_s <= self.end_s
                yield row

    srtf = simulated(JOBS, "srtf")
    cut = replace(srtf, events=UpTo(srtf.events, 65.5), snapshots=UpTo(srtf.snapshots, 15.0))  # type: ignore[arg-type]
    assert explain(cut, "short") == explain(srtf, "short")
    with pytest.raises(AssertionError):
        explain(cut, "long")
