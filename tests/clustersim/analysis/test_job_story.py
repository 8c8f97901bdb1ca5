"""`clustersim explain`: why a job waited, where it ran, what it cost, from the records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path
from typing import Any

import pytest

from clustersim.analysis import Spell, Wait, explain
from clustersim.cli import main
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import RunConfig, Trace, run
from itertime.errors import UserError
from traces.job import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")

JOBS = (
    Job("long", 0.0, "blue", gpus=16, duration_s=300.0, deadline_s=350.0),
    Job("short", 10.0, gpus=8, duration_s=20.0),
    Job("last", 15.0, gpus=8, duration_s=20.5, deadline_s=1000.0),
    Job("wide", 15.0, gpus=99, duration_s=20.0),
)


def simulated(jobs: tuple[Job, ...], policy: str, until_s: float | None = None) -> Run:
    flat = {"launch_gpu_s": 0.0}  # 30 s for a launch
    return run(
        Trace.of(jobs), config=RunConfig(policy=policy, cluster="n2g8", until_s=until_s, overheads=flat)
    )


@pytest.fixture(scope="module")
def srtf() -> Run:
    return simulated(JOBS, "srtf")


def test_a_job_that_was_preempted(srtf: Run) -> None:
    """`short` takes node 0 at 10 s, `last` node 1 at 15 s; at 65.5 s both are done and `long` restarts."""
    first, wait, second = explain(srtf, "long").spells
    assert isinstance(first, Spell)
    assert (first.given.time_s, first.to_s, first.ended, first.paid_s) == (0.0, 10.0, "preempt", 10.0)
    assert first.takers == ("short",)
    assert isinstance(wait, Wait)
    assert (wait.from_s, wait.to_s, wait.needed, wait.short_s) == (10.0, 65.5, 16, 55.5)
    assert wait.free == (0, 8)
    assert dict(wait.holders) == {"last": 8 * 50.5, "short": 8 * 50.0}
    assert (wait.ahead, wait.overtakers) == ((), ("short", "last"))
    assert isinstance(second, Spell)
    assert (second.given.event, second.to_s, second.ended, second.paid_s) == (
        "restart",
        395.5,
        "finish",
        30.0,  # nothing was saved: it was preempted while it paid its first start
    )


def test_which_jobs_were_ahead_and_what_was_free() -> None:
    """fifo: `c` waits behind `b`, which needs all 16 GPUs, although 8 are free all the time."""
    jobs = (
        Job("a", 0.0, gpus=8, duration_s=70.0), Job("b", 1.0, gpus=16, duration_s=10.0),
        Job("c", 2.0, gpus=8, duration_s=10.0),
    )  # fmt: skip
    wait = explain(simulated(jobs, "fifo"), "c").spells[0]
    assert isinstance(wait, Wait)
    assert (wait.from_s, wait.to_s, wait.ahead, wait.overtakers) == (2.0, 140.0, ("b",), ())
    assert (wait.free, wait.short_s) == ((0, 8), 40.0)  # b holds everything from 100 s on
    assert wait.holders == (("a", 8 * 98.0), ("b", 16 * 40.0))


def test_a_job_that_never_had_room_is_not_said_to_have_been_passed_over() -> None:
    """Although the intervals between changes sum to another number in floating point."""
    jobs = [Job(f"j{i:02}", 0.1 * i, gpus=16, duration_s=1 / (i + 3)) for i in range(40)]
    for job in jobs[1:]:
        wait = explain(simulated(tuple(jobs), "fifo"), job.job_id).spells[0]
        assert isinstance(wait, Wait)
        assert (wait.free, wait.short_s) == ((0, 0), wait.to_s - wait.from_s)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "elasticflow", "vtrain-aware", "edf"])
def test_a_story_adds_up_to_its_record(policy: str) -> None:
    jobs = tuple(
        Job(f"j{i}", 200.0 * i, model="megatron-1.7b", gpus=8, global_batch=64, iterations=2000.0,
            deadline_s=200.0 * i + 40_000)
        for i in range(8)
    )  # fmt: skip
    made = simulated(jobs, policy)
    for record in made.jobs:
        spells = explain(made, record.job_id).spells
        waits = [s for s in spells if isinstance(s, Wait)]
        held = [s for s in spells if isinstance(s, Spell)]
        assert fsum(w.to_s - w.from_s for w in waits) == pytest.approx(record.wait_s)
        assert fsum(s.paid_s for s in held) == pytest.approx(record.lost_s)
        gpu_seconds = fsum((s.to_s - s.given.time_s) * s.given.gpus for s in held)
        assert gpu_seconds == pytest.approx(record.gpu_seconds)


def test_a_job_that_still_waits_or_runs_at_the_end() -> None:
    made = simulated((*JOBS[:2], Job("d", 20.0, gpus=16, duration_s=5.0)), "fifo", until_s=100.0)
    (running,) = explain(made, "long").spells
    assert isinstance(running, Spell)
    assert (running.to_s, running.ended) == (100.0, None)
    (waiting,) = explain(made, "d").spells
    assert isinstance(waiting, Wait)
    assert (waiting.to_s, waiting.needed, waiting.ahead) == (100.0, 16, ("short",))


def test_a_rejected_job_has_no_spells(srtf: Run) -> None:
    assert explain(srtf, "wide").spells == ()


def test_a_job_that_the_run_did_not_live_to_see(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, simulated(JOBS, "fifo", until_s=12.0))
    assert main(["explain", str(tmp_path), "--job", "last"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "job last (8 GPUs, default) under fifo: unfinished, the run ended before its submission",
        "  t=15 s: would have been submitted, to be done by t=1,000 s",
        "  deadline missed",
    ]


def test_an_unknown_job_is_met_with_likely_ones(srtf: Run) -> None:
    with pytest.raises(UserError, match=r"--job shrot: the run has no such job; did you mean short\?"):
        explain(srtf, "shrot")
    with pytest.raises(UserError, match=r"its jobs are long, short, last, \.\.\."):
        explain(srtf, "0")


def test_no_more_is_read_than_the_story_takes(srtf: Run) -> None:
    """`short` waits from 10 s on for nothing and is done at 60 s: later events are not read."""

    class UpTo:
        def __init__(self, rows: Sequence[Any], end_s: float):
            self.rows, self.end_s = rows, end_s

        def __iter__(self) -> Iterator[Any]:
            for row in self.rows:
                assert row.time_s <= self.end_s
                yield row

    whole = explain(srtf, "short")
    cut = replace(srtf, events=UpTo(srtf.events, 65.5), snapshots=UpTo(srtf.snapshots, 15.0))  # type: ignore[arg-type]
    assert explain(cut, "short") == whole
    with pytest.raises(AssertionError):
        explain(cut, "long")


def test_the_command(srtf: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "srtf", srtf)
    write_run(tmp_path / "fifo", simulated(JOBS, "fifo"))
    assert main(["explain", str(tmp_path / "srtf"), "--job", "long"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "job long (16 GPUs, blue) under srtf: finished",
        "  t=0 s: submitted, to be done by t=350 s",
        "  t=0 s: started on 16 GPUs, nodes 0-1x8",
        "      paid 10 s of overhead, 160 GPU-seconds",
        "      t=10 s: preempted after 10 s; its nodes went to short",
        "  t=10 s: waited 55.5 s for 16 GPUs",
        "      lacked GPUs for 55.5 s: 0 to 8 free of 16",
        "      overtaken by jobs submitted later: short, last",
        "      GPUs were held by last (7.3 on average), short (7.2 on average)",
        "  t=65.5 s: restarted on 16 GPUs, nodes 0-1x8",
        "      paid 30 s of overhead, 480 GPU-seconds",
        "      t=395.5 s: finished after 330 s",
        "  in all 395.5 s: 55.5 s of waiting, 40 s of overheads, 300 s of progress",
        "  deadline missed",
        "  cost of 1 start: 10 s, 160 GPU-seconds",
        "  cost of 1 restart: 30 s, 480 GPU-seconds",
        "  cost of 1 preemption: 55.5 s of waiting",
    ]
    assert main(["explain", str(tmp_path), "--job", "wide"]) == 0
    heads = re.findall(r"^job wide .*under (\w+): rejected, (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert [policy for policy, _ in heads] == ["fifo", "srtf"]
    assert all("asks for 99 GPUs" in why for _, why in heads)
