"""Batches that a policy chooses: exact ends by statistical efficiency, across waits and overheads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path

import pytest
from typer.testing import CliRunner

import clustersim
from clustersim.audit import check_run_folder
from clustersim.cli import app
from clustersim.errors import PolicyError
from clustersim.overheads import Overheads
from clustersim.scheduler import JobView, Proposal
from clustersim.testing import check_outcome, simulate
from tests.builders import Script, elastic, finishes
from traces.job import Job
from traces.phases import seconds_factor

TABLE = {("m", 8): {1: 1.0, 2: 1.5}, ("m", 16): {1: 0.6, 2: 1.1}, ("m", 32): {1: 0.25, 2: 0.5, 4: 1.0}}


def tick(at_s: float) -> Job:
    """A job that makes the policy decide at this time; it runs at once, on a node of its own."""
    return Job(f"tick{at_s:g}", at_s, gpus=8, duration_s=1.0)


def also(at_s: float, call: Callable[..., object]) -> dict[float, Callable[..., None]]:
    """The step of a script at this time, which also starts the tick of that time."""

    def step(p: Proposal, jobs: Mapping[str, JobView]) -> None:
        call(p, jobs)
        p.start(jobs[f"tick{at_s:g}"])

    return {at_s: step}


def test_a_larger_batch_does_less_work_per_sequence() -> None:
    """Noise 24, batch 16 for 8: an iteration does 2 x 32 / 40 = 1.6 units. 100 units take 62.5 iterations."""
    job = elastic("a", 0, 1, 100, phases="1:8..32:24")

    def begin(p, jobs) -> None:  # type: ignore[no-untyped-def]
        p.train_with(jobs["a"], 16)
        p.start(jobs["a"], 2)

    outcome = simulate([job], Script({0.0: begin}), "n1g8", table=TABLE)
    assert finishes(outcome)["a"] == pytest.approx(62.5 / 1.1)
    assert [(e.event, e.detail) for e in outcome.events if e.gpus] == [
        ("start", "phase 1 of 1: global batch 16")
    ]
    check_outcome(outcome)


def test_a_batch_can_change_while_a_job_runs_and_holds_across_phases_and_waits() -> None:
    """Noise infinite: a unit is 8 sequences. 20 s with batch 8, 50 with 16, 10 waiting, then 16 again."""
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"]),
        **also(20.0, lambda p, jobs: p.train_with(jobs["a"], 16)),
        **also(70.0, lambda p, jobs: p.stop(jobs["a"])),
        **also(80.0, lambda p, jobs: p.start(jobs["a"])),
    }
    job = elastic("a", 0, 1, 200, phases="0.2:8..16 0.3:8..32 0.5:8")
    outcome = simulate([job, *map(tick, (20.0, 70.0, 80.0))], Script(steps), "n2g8", table=TABLE)
    log = [(e.time_s, e.event, e.detail[6:]) for e in outcome.events if e.job_id == "a" and e.detail]
    first = 20 + 20 / 1.2  # 20 units are left of the first phase
    second = first + 60 / 1.2 + 10
    assert log == [
        (0.0, "start", "1 of 3: global batch 8"),
        (20.0, "replan", "1 of 3: global batch 16"),
        (pytest.approx(first), "replan", "2 of 3: global batch 16"),
        (80.0, "restart", "2 of 3: global batch 16"),
        (pytest.approx(second), "replan", "3 of 3: global batch 8"),
    ]
    assert finishes(outcome)["a"] == pytest.approx(second + 100)
    check_outcome(outcome)


def test_a_change_of_the_batch_during_a_start_leaves_the_rest_of_it_to_be_paid() -> None:
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"]),
        **also(4.0, lambda p, jobs: p.train_with(jobs["a"], 16)),
    }
    job = elastic("a", 0, 1, 12, phases="1:8..16")
    outcome = simulate(
        [job, tick(4.0)], Script(steps), "n2g8", table=TABLE, overheads=Overheads(launch_s=10.0)
    )
    started_s = outcome.of("a").lost_s
    assert started_s >= 10
    assert finishes(outcome)["a"] == pytest.approx(started_s + 12 / 1.2)
    check_outcome(outcome)


def test_a_policy_sees_goodput_by_batch() -> None:
    seen = []

    def look(p, jobs) -> None:  # type: ignore[no-untyped-def]
        job = jobs["a"]
        seen.append({batch: dict(zip(c.sizes, c.rates, strict=True)) for batch, c in job.batches.items()})
        seen.append((job.batch, job.phases[0].batch, jobs["b"].batches, jobs["b"].batch))

    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    simulate(jobs, Script({0.0: look}), "n1g8", table=TABLE)
    rate = {batch: pytest.approx(TABLE["m", batch][1] / seconds_factor(8, batch, 8)) for batch in (8, 16, 32)}
    assert {batch: speeds[1] for batch, speeds in seen[0].items()} == rate  # no row has batch 64
    assert seen[1] == (8, 8, {}, 8)


@pytest.mark.parametrize(("name", "batch"), [("a", 64), ("a", 12), ("b", 8)])
def test_other_batches_are_refused(name: str, batch: int) -> None:
    jobs = [elastic("a", 0, 1, 100, phases="1:8..64:8"), elastic("b", 0, 1, 100)]
    with pytest.raises(PolicyError, match=rf"train_with\(job {name}, {batch}\): it can train with"):
        simulate(jobs, Script({0.0: lambda p, j: p.train_with(j[name], batch)}), "n1g8", table=TABLE)


def test_statistical_efficiency() -> None:
    """Pollux, equation 7: EFFICIENCY(m) = (noise + m0) / (noise + m)."""
    for noise in (0.0, 3.0, 800.0):
        for batch in (8, 16, 1024):
            efficiency = (noise + 8) / (noise + batch)
            assert 1 / seconds_factor(noise, batch, 8) == pytest.approx(batch / 8 * efficiency)
    assert seconds_factor(inf, 1024, 8) == 8 / 1024
    assert seconds_factor(5.0, 8, 8) == 1.0


@pytest.mark.parametrize("policy", ["las", "sia"])
def test_under_other_policies_a_choice_changes_nothing(policy: str) -> None:
    """The only difference is an event at the end of a phase."""

    def made(phases: str | None) -> list[Job]:
        return [
            Job(
                f"j{i}",
                400.0 * i,
                model="gpt3-1.3b",
                gpus=8,
                global_batch=64,
                iterations=500.0,
                phases=phases,
            )
            for i in range(5)
        ]

    plain, noisy = (clustersim.run(made(text), policy, cluster="n2g8") for text in (None, "1:64..512:100"))
    assert [job.finish_s for job in plain.jobs] == [job.finish_s for job in noisy.jobs]


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [("global batch 512", "global batch 513", "phases"), ("global batch 512", "global batch 256", "plans")],
)
def test_a_forged_batch_is_found(tmp_path: Path, old: str, new: str, rule: str) -> None:
    out = tmp_path / "run"
    job = Job("a", 0.0, model="gpt3-1.3b", gpus=16, global_batch=64, iterations=5e3, phases="1:64..512")
    clustersim.run([job], "pollux", cluster="n4g8", out=out)
    events = out / "events.csv"
    text = events.read_text()
    assert old in text
    events.write_text(text.replace(old, new))
    assert rule in {f.rule for f in check_run_folder(out) if f.violations}


def test_unequal_nodes_multiply_the_seconds_of_every_batch() -> None:
    job = Job("a", 0.0, model="gpt3-1.3b", gpus=8, global_batch=64, iterations=900.0, phases="1:64..512:300")
    slow, fast = (
        clustersim.run([job], "pollux", cluster="n1g8", variability=variability)
        for variability in ({"sigma": 0.2}, None)
    )
    factor = slow.events[1].unit_s / fast.events[1].unit_s
    assert factor > 1.0
    assert slow.events[1].detail == fast.events[1].detail == "phase 1 of 1: global batch 64"
    launch_s = fast.events[1].overhead_s
    assert slow.jobs[0].jct_s == pytest.approx(launch_s + (fast.jobs[0].jct_s - launch_s) * factor)


def test_the_story_of_a_job_tells_its_batches(tmp_path: Path) -> None:
    job = Job(
        "a", 0.0, model="gpt3-1.3b", gpus=16, global_batch=64, iterations=5e3, phases="0.5:64:1 0.5:64..512"
    )
    clustersim.run([job], "pollux", cluster="n4g8", out=tmp_path / "run")
    told = CliRunner().invoke(app, ["explain", str(tmp_path / "run"), "--job", "a"])
    assert told.exit_code == 0, told.output
    assert "went on with 32 GPUs" in told.output
    assert "phase 2 of 2: global batch 512" in told.output
