"""Batches that a policy chooses: exact ends by statistical efficiency, across waits and overheads."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

import clustersim
from clustersim.audit import check_run_folder
from clustersim.errors import PolicyError
from clustersim.testing import simulate
from tests.builders import Script, elastic
from traces.job import Job
from traces.phases import seconds_factor

TABLE = {("m", 8): {1: 1.0, 2: 1.5}, ("m", 16): {1: 0.6, 2: 1.1}, ("m", 32): {1: 0.25, 2: 0.5, 4: 1.0}}


def tick(at_s: float) -> Job:
    """A job that makes the policy decide at this time; it runs at once, on a node of its own."""
    return Job(f"tick{at_s:g}", at_s, gpus=8, duration_s=1.0)


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
