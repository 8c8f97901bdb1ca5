"""One plan: sums, determinism, batches; and published iteration times."""

from __future__ import annotations

import pytest

from itertime import Plan, load_model, load_system, predict

SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-39.1b")


def test_the_breakdown_sums_to_the_iteration_and_the_parts_to_the_memory():
    run = predict(MODEL, Plan(4, 8, 4, 2, 256, interleave=2, zero_stage=1, grad_overlap=True), SYSTEM)
    assert sum(run.breakdown.values()) == pytest.approx(run.iteration_s, rel=1e-12)
    assert sum(run.memory_parts.values()) == pytest.approx(run.memory_bytes, rel=1e-12)
    assert 0.2 < run.mfu < 0.6


def test_a_plan_that_does_not_fit_says_why():
    run = predict(load_model("gpt3-175b"), Plan(8, 1, 1, 1, 8), SYSTEM)
    assert not run.fits
    assert "optimizer" in run.reason
    assert predict(MODEL, Plan(8, 8, 1, 1, 8), SYSTEM).reason == ""


PUBLISHED = [  # Narayanan et al. (SC'21), table 1, iteration time by their equation 3; micro-batch 1
    ("megatron-76.1b", 8, 4, 32, 1792, 16.058),
    ("megatron-145.6b", 8, 8, 24, 2304, 24.817),
    ("megatron-310.1b", 8, 16, 15, 2160, 37.614),
    ("megatron-529.6b", 8, 35, 9, 2520, 54.085),
    ("megatron-1008b", 8, 64, 6, 3072, 102.63),
]


@pytest.mark.parametrize(("name", "tp", "pp", "dp", "batch", "seconds"), PUBLISHED)
def test_published_iteration_times_within_ten_percent(name, tp, pp, dp, batch, seconds):
    assert predict(load_model(name), Plan(tp, pp, dp, 1, batch), SYSTEM).iteration_s == pytest.approx(
        seconds, rel=0.10
    )
