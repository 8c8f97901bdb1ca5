"""Predictions of plain architectures do not move when the schema of models learns about others."""

from __future__ import annotations

import pytest

from itertime import Plan, load_model, load_system, predict

A100, H100 = "dgx-a100-80gb", "p5-48xlarge"
PREDICTED = [  # seconds of an iteration, bytes, MFU
    ("bert-large", A100, Plan(1, 1, 8, 16, 128), 0.1854366839642787, 12754271232.0, 0.28205290145361334),
    (
        "gpt3-175b", A100, Plan(8, 8, 2, 1, 64, interleave=2, recompute="selective", sequence_parallel=True),
        8.002044147076177, 65832434688.0, 0.4414762942892477,
    ),
    (
        "llama2-70b", H100, Plan(8, 4, 2, 1, 64, zero_stage=1, cp=2, recompute="early-stop"),
        3.5122686428675167, 24215165952.0, 0.2619591965484034,
    ),
    (
        "llama2-7b", A100, Plan(1, 1, 16, 2, 64, zero_stage=3, recompute="none"),
        3.5299037663638093, 56535366656.0, 0.6855849452063311,
    ),
    ("megatron-145.6b", A100, Plan(8, 8, 4, 1, 256), 17.156600931876273, 52875340800.0, 0.34344592914465544),
    (
        "mixtral-8x7b", H100, Plan(2, 4, 8, 1, 64, ep=8, sequence_parallel=True),
        1.7830521642811705, 24762301440.0, 0.19255573765913475,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "system", "plan", "seconds", "size", "mfu"), PREDICTED)
def test_a_prediction_is_what_it_was(
    name: str, system: str, plan: Plan, seconds: float, size: float, mfu: float
) -> None:
    found = predict(load_model(name), plan, load_system(system))
    assert (found.iteration_s, found.memory_bytes, found.mfu) == pytest.approx(
        (seconds, size, mfu), rel=1e-12
    )
