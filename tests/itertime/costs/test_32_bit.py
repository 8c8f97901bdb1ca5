"""Training in 32 bit with TF32: twice the bytes, half the rate of products, no master weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.spec import Elementwise, Gemm, PlanOptions, load_profile

MODEL = replace(load_model("gpt3-1.3b"), attention="core")
SYSTEM = load_system("dgx-a100-80gb")
A100 = load_profile("a100-80gb")
PLAN = Plan(1, 1, 8, 4, 32, recompute="none")
WIDE = replace(PLAN, precision="tf32")


def test_a_product_takes_twice_the_time_beside_its_launch() -> None:
    """Half the rate, twice the bytes of every matrix: both limits double, and so does any blend of them."""
    m, n, k = np.array([64.0, 4096.0, 8192.0]), 4096.0, 1024.0
    launch = A100.gemm.launch_s
    half, whole = (A100.seconds(Gemm(m, n, k, precision=each)) - launch for each in ("bf16", "tf32"))
    assert whole == pytest.approx(2 * half, rel=1e-12)
    assert A100.peak_flops_of("tf32") == 156e12


def test_a_layer_takes_about_twice_as_long() -> None:
    """Every kernel doubles but for its launch; adding a gradient to its sum moves 12 bytes instead of 6."""
    half, whole = (predict(MODEL, each, SYSTEM).breakdown for each in (PLAN, WIDE))
    for part in ("gemm", "attention", "elementwise"):
        assert whole[part] == pytest.approx(2 * half[part], rel=0.03)
        assert whole[part] < 2 * half[part]


@pytest.mark.parametrize("stage", [0, 1, 3])
def test_gradients_and_weights_travel_in_32_bit(stage: int) -> None:
    """On 64 GPUs the NICs decide: twice the bytes, twice the time, beside the delays of hops."""
    system = replace(SYSTEM, network_latency_s=0.0)
    plans = [
        replace(each, dp=64, global_batch=256, zero_stage=stage, prefetch=False) for each in (PLAN, WIDE)
    ]
    half, whole = (predict(MODEL, each, system).breakdown for each in plans)
    names = ("dp_comm",) if stage < 3 else ("fsdp_comm", "fsdp_last")
    for name in names:
        assert whole[name] == pytest.approx(2 * half[name], rel=1e-6)


def test_activations_travel_in_32_bit() -> None:
    plans = [replace(each, tp=8, pp=2, dp=1, micro_batch=8) for each in (PLAN, WIDE)]
    half, whole = (predict(MODEL, each, SYSTEM).breakdown for each in plans)
    assert whole["tp_comm"] == pytest.approx(2 * half["tp_comm"], rel=0.1)
    assert whole["p2p"] == pytest.approx(2 * half["p2p"], rel=0.1)
    assert whole["embedding_sync"] == pytest.approx(2 * half["embedding_sync"], rel=0.1)


def test_memory_has_sixteen_bytes_a_parameter_and_none_beside_them() -> None:
    """Weights, gradients and two moments of 4 bytes; in 16 bit 2, 2 and 12, and gradients in 32 bit in the
    step.
    """
    half, whole = (predict(MODEL, each, SYSTEM).memory_parts for each in (PLAN, WIDE))
    parameters = half["weights"] / 2
    assert whole["weights"] == whole["gradients"] == 4 * parameters
    assert whole["optimizer"] == 8 * parameters
    assert whole["optimizer_step"] == 0
    assert whole["activations"] == pytest.approx(2 * half["activations"], rel=1e-12)


@pytest.mark.parametrize(("optimizer", "nbytes"), [("adam", 38), ("fused-adam", 28), ("torch-adamw", 92)])
def test_a_step_neither_unscales_nor_copies(optimizer: str, nbytes: float) -> None:
    """Adam has 50 bytes less 6 of unscaling and 6 of the copy, the others neither; launches add a little."""
    options = PlanOptions(optimizer=optimizer, clipping="after")  # type: ignore[arg-type]
    plan = replace(WIDE, options=options, dp=1, micro_batch=1, global_batch=1)
    found = predict(MODEL, plan, SYSTEM)
    owned = found.memory_parts["optimizer"] / 8
    bandwidth = 1e12 / float(A100.seconds(Elementwise(1e12, "adam")))
    assert found.breakdown["optimizer"] == pytest.approx(nbytes * owned / bandwidth, rel=0.02)


def test_an_offloaded_step_moves_32_bit_both_ways() -> None:
    plan = replace(WIDE, offload_optimizer=True)
    slow = replace(SYSTEM, gpu_cpu_bytes_per_s=1e9)
    found = predict(MODEL, plan, slow)
    owned = predict(MODEL, WIDE, slow).memory_parts["optimizer"] / 8
    assert found.breakdown["optimizer_copies"] == pytest.approx(4 * owned / 0.8e9, rel=1e-9)
    assert found.breakdown["optimizer"] == pytest.approx(4 * owned / 0.8e9, rel=1e-9)
