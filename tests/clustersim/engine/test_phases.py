"""Jobs whose speed changes with their progress: exact ends, across preemptions, failures and shared GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import strategies as st

import clustersim
from clustersim.audit import check_run_folder
from clustersim.testing import simulate
from tests.builders import Script, elastic, rigid
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 2.0, 4: 3.0, 8: 4.0}, ("m", 16): {1: 0.75, 2: 1.5, 4: 3.0, 8: 5.0}}


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


def test_a_forged_phase_is_found(tmp_path: Path) -> None:
    out = tmp_path / "run"
    clustersim.run([rigid("a", 0, 1, 100.0, phases="0.5:1 0.5:3")], "fifo", cluster="n1g1", out=out)
    events = out / "events.csv"
    text = events.read_text()
    assert "phase 2 of 2" in text
    events.write_text(text.replace("phase 2 of 2", "phase 1 of 2"))
    rules = {f.rule for f in check_run_folder(out) if f.violations}
    assert "phases" in rules
