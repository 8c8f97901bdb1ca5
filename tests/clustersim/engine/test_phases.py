"""Jobs whose speed changes with their progress: exact ends, across preemptions, failures and shared GPUs."""

from __future__ import annotations

from math import fsum
from pathlib import Path

import pytest
from hypothesis import strategies as st

import clustersim
from clustersim.analysis import gpu_time
from clustersim.audit import check_run_folder
from clustersim.testing import simulate
from tests.builders import Script, elastic, finishes, rigid
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0, 8: 4.0}, ("m", 16): {1: 0.75, 2: 1.5, 4: 3.0, 8: 5.0}}
FAILING = {"mtbf_gpu_h": 0.02, "repair_scale": 0.001}


def test_a_job_trains_each_part_of_its_work_at_the_speed_of_its_batch() -> None:
    """30 of 100 iterations of 8 sequences at 1/s; then 70 x 8 sequences in iterations of 16 at 0.75/s."""
    job = elastic("a", 0, 1, 100, phases="0.3:8 0.7:16")
    outcome = simulate([job], Script({0.0: lambda p, jobs: p.start(jobs["a"])}), "n1g8", table=TABLE)
    log = [(e.time_s, e.event, e.gpus, e.detail) for e in outcome.events]
    assert log == [
        (0.0, "submit", 0, ""),
        (0.0, "start", 1, "phase 1 of 2: global batch 8"),
        (pytest.approx(30.0), "replan", 1, "phase 2 of 2: global batch 16"),
        (pytest.approx(30.0 + 35 / 0.75), "finish", 0, ""),
    ]
    record = outcome.of("a")
    assert record.isolated_s == pytest.approx(30.0 + 35 / 0.75) == pytest.approx(record.finish_s)


def test_phases_of_a_logged_run_time_keep_it() -> None:
    job = rigid("a", 0, 2, 100.0, phases="0.5:1 0.5:3")
    outcome = simulate([job], Script({0.0: lambda p, jobs: p.start(jobs["a"])}), "n1g8")
    assert [(e.time_s, e.unit_s) for e in outcome.events] == [
        (0.0, 1.0),
        (0.0, 1.5),
        (75.0, 0.5),
        (100.0, 0.0),
    ]


def test_phases_end_at_the_same_work_on_other_gpus_and_after_a_wait() -> None:
    """20 units on 1 GPU, a wait of 10 s, then 2 GPUs: the other 10 of the first phase take 5 s."""
    steps = {
        0.0: lambda p, jobs: p.start(jobs["a"], 1),
        20.0: lambda p, jobs: p.stop(jobs["a"]),
        30.0: lambda p, jobs: p.start(jobs["a"], 2),
    }
    ticks = [Job(f"tick{t}", t, gpus=8, duration_s=1.0) for t in (20.0, 30.0)]
    job = elastic("a", 0, 1, 100, phases="0.3:8 0.7:16")
    outcome = simulate([job, *ticks], Script(steps), "n2g8", table=TABLE)
    assert [e.time_s for e in outcome.events if e.event == "replan"] == [pytest.approx(35.0)]
    assert finishes(outcome)["a"] == pytest.approx(35.0 + 35 / 1.5)


def test_what_a_policy_sees_of_phases() -> None:
    seen = []

    def look(p: object, jobs: dict) -> None:
        job = jobs["a"]
        shares = [phase.share for phase in job.phases]
        seen.append((job.phase, shares, job.rate(1), job.remaining(1), job.oracle_remaining(1)))
        if not job.running:
            p.start(job)  # type: ignore[attr-defined]

    ticks = [Job("tick", 50.0, gpus=1, duration_s=1.0)]
    job = elastic("a", 0, 1, 100, phases="0.3:8 0.7:16")
    simulate([job, *ticks], Script({0.0: look, 50.0: look}), "n1g8", table=TABLE)
    first, second = seen[0], seen[-1]
    assert first == (0, [None, None], 1.0, 100.0, pytest.approx(30 + 70 / 1.5))
    assert second == (1, [0.3, None], 1.5, pytest.approx(40 / 1.5), pytest.approx(40 / 1.5))


def test_a_crash_takes_a_job_back_to_an_earlier_phase(tmp_path: Path) -> None:
    """Nothing is saved in time: the node fails after 60 s, and all of the work is done again."""
    job = rigid("a", 0, 1, 100.0, phases="0.5:1 0.5:1.5")
    run = clustersim.run(
        [job], "fifo", cluster="n1g1", overheads={"checkpoint_interval_s": "none", "launch_s": 1.0},
        failures=FAILING, seed=3, out=tmp_path / "run", until_s=40_000,
    )  # fmt: skip
    words = [e.detail for e in run.events if e.event in ("start", "restart", "replan")]
    assert "".join(word[6] for word in words).count("21") > 0  # from the second phase back to the first
    assert [str(v) for f in check_run_folder(tmp_path / "run") for v in f.violations] == []


@st.composite
def traces(draw: st.DrawFn) -> list[Job]:
    now, jobs = 0.0, []
    for i in range(draw(st.integers(1, 12))):
        now += draw(st.sampled_from((0.0, 1.0, 30.0)))
        shares = [draw(st.integers(1, 9)) for _ in range(draw(st.integers(1, 4)))]
        values = [draw(st.sampled_from((0.25, 1.0, 1.5, 8.0))) for _ in shares]
        parts = [share / sum(shares) for share in shares]
        text = " ".join(f"{part!r}:{value}" for part, value in zip(parts, values, strict=True))
        phases = text if draw(st.booleans()) else None
        if draw(st.booleans()):
            more = {"gpus": 1, "gpu_fraction": draw(st.sampled_from((0.25, 0.5)))}
        else:
            more = {"gpus": draw(st.sampled_from((1, 2, 4)))}
        jobs.append(
            Job(f"j{i}", now, duration_s=draw(st.sampled_from((3.3, 20.0, 400.0))), phases=phases, **more)
        )
    return jobs


def test_mean_of_all_work_is_the_isolated_run_time() -> None:
    job = elastic("a", 0, 4, 1000, phases="0.25:8 0.5:16 0.25:8")
    outcome = simulate([job], Script({0.0: lambda p, jobs: p.start(jobs["a"])}), "n1g8", table=TABLE)
    assert outcome.of("a").isolated_s == pytest.approx(fsum([500 / 3.0, 500 / 2 / 3.0]))


def ramping(i: int, gpus: int) -> Job:
    return Job(
        f"j{i}", 60.0 * i, model="gpt3-1.3b", gpus=gpus, global_batch=256, iterations=300.0 + i,
        phases="0.2:64 0.3:256 0.5:512",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "cluster", "more"),
    [
        ("srtf", "n4g8", {"network": "contention"}),
        ("elasticflow", "n4g8", {}),
        ("max-min", "n4g8", {"overheads": {"checkpoint_interval_s": 100.0}}),
    ],
)
def test_models_with_a_ramp_of_their_batch(
    tmp_path: Path, policy: str, cluster: str, more: dict[str, object]
) -> None:
    """Each phase has the plan of its batch, in the log and in plans.csv; the GPU time is split by all."""
    out = tmp_path / "run"
    run = clustersim.run([ramping(i, 4 << i % 3) for i in range(6)], policy, cluster=cluster, out=out, **more)
    assert run.summary["finished"] == 6
    assert {plan.global_batch for plan in run.plans} == {64, 256, 512}
    assert [v.text for f in check_run_folder(out) for v in f.violations] == []
    found = gpu_time(run)
    assert found is not None
    assert found.seconds["running"] == 0.0
    assert set(found.by_plan) == {plan.key for plan in run.plans}


def test_a_forged_phase_is_found(tmp_path: Path) -> None:
    out = tmp_path / "run"
    clustersim.run([rigid("a", 0, 1, 100.0, phases="0.5:1 0.5:3")], "fifo", cluster="n1g1", out=out)
    events = out / "events.csv"
    text = events.read_text()
    assert "phase 2 of 2" in text
    events.write_text(text.replace("phase 2 of 2", "phase 1 of 2"))
    rules = {f.rule for f in check_run_folder(out) if f.violations}
    assert "phases" in rules
