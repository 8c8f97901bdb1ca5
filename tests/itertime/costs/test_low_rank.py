"""Low-rank matrices (LoRA) beside frozen weights: what is trained, and what an iteration saves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, load_model, load_system, predict
from itertime.costs.layer import kernel_counts

SYSTEM = load_system("dgx-h100,framework=te")
WHOLE = load_model("llama2-7b")
LOW = replace(WHOLE, lora_rank=16)
PLAN = Plan(1, 1, 8, 1, 8, recompute="none")


def test_mlperf_trains_44_564_480_parameters_of_llama_2_70b():
    """Rank 16 beside the matrices of attention: 80 x 16 x (8192 + 10240 + 8192 + 8192)."""
    model = load_model("llama2-70b-lora")
    assert model.trained_parameters == 44_564_480
    assert model.parameters == load_model("llama2-70b").parameters


def test_a_rank_of_the_width_on_every_layer_has_weights_of_the_same_order():
    h, f = WHOLE.hidden, WHOLE.ffn_hidden
    model = replace(WHOLE, lora_rank=1, lora_targets="linear")
    assert model.lora_parameters == (h + 3 * h) + (h + h) + (h + 2 * f) + (f + h)


def test_model_flops_are_two_thirds_but_for_attention():
    assert LOW.flops_per_iteration(8) / WHOLE.flops_per_iteration(8) == pytest.approx(0.7, abs=0.04)
    assert replace(LOW, lora_rank=1).flops_per_iteration(8) < LOW.flops_per_iteration(8)


@pytest.mark.parametrize("tp", [1, 4, 8])
def test_states_of_the_optimizer_and_gradients_are_those_of_the_low_rank_matrices(tp):
    found, whole = (predict(model, replace(PLAN, tp=tp), SYSTEM) for model in (LOW, WHOLE))
    owned = LOW.trained_parameters / tp
    assert found.memory_parts["optimizer"] == pytest.approx(12 * owned)
    assert found.memory_parts["gradients"] == pytest.approx(2 * owned)
    assert found.memory_parts["weights"] == pytest.approx(whole.memory_parts["weights"] + 2 * owned)
    assert found.breakdown["dp_comm"] < whole.breakdown["dp_comm"] / 20


def test_inputs_of_frozen_products_are_not_kept():
    """Beside attention alone: neither the MLP's input nor its activation's result, h + f elements."""
    every = replace(LOW, lora_targets="linear")
    kept = [predict(model, PLAN, SYSTEM).memory_parts["activations"] for model in (every, LOW)]
    dropped = 2 * WHOLE.layers * WHOLE.seq_len * (WHOLE.hidden + WHOLE.ffn_hidden)
    assert kept[0] - kept[1] == pytest.approx(dropped)


def test_kernels_are_counted():
    plans = PlanBatch.of([PLAN])
    more, back = np.subtract(kernel_counts(LOW, plans), kernel_counts(WHOLE, plans)).ravel()
    assert (more, back) == (3 * 2, 7 * 2 - 2 * 5)


def test_mlperfs_plan_fits_eight_gpus_in_fp8():
    """NVIDIA ran the benchmark on one DGX H100; with every weight trained no plan of 8 GPUs holds it."""
    plan = Plan(4, 1, 2, 1, 8, sequence_parallel=True, precision="fp8", recompute="none", cp=1)
    model = load_model("llama2-70b-lora")
    assert predict(model, plan, SYSTEM, memory_headroom=0).fits
    assert not predict(replace(model, lora_rank=0), plan, SYSTEM, memory_headroom=0).fits
