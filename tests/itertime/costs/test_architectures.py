"""Widths of heads, norms and shared experts: the costs that follow from them, and what stays as it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import ModelSpec, Plan, PlanBatch, load_profile, load_system
from itertime.costs import Workload, memory
from itertime.costs.layer import LayerCosts, kernel_counts, layer_costs
from itertime.spec import Elementwise, Gemm

SYSTEM, PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
PLANS = PlanBatch.of([Plan(4, 1, 1, 2, 8, recompute="none", sequence_parallel=True)])
DENSE = ModelSpec(
    name="dense", layers=8, hidden=4096, heads=32, kv_heads=8, vocab=32000, seq_len=2048, ffn_hidden=8192,
    gated_mlp=True, attention="flash", norm="rmsnorm", positions="rotary", biases=False, dropout=False,
)  # fmt: skip
MIXTURE = replace(DENSE, experts=8, experts_per_token=2)
TOKENS = 2 * 2048


def costs(model: ModelSpec) -> LayerCosts:
    return layer_costs(Workload.of(model, PLANS, SYSTEM, PROFILE), np.zeros(1))[0]


def test_a_head_dim_that_follows_from_the_width_changes_nothing() -> None:
    stated = replace(DENSE, head_dim=128)
    assert stated.parameters == DENSE.parameters
    assert stated.flops_per_iteration(8) == DENSE.flops_per_iteration(8)
    assert costs(stated) == costs(DENSE)


def test_wider_heads_widen_the_matrices_of_the_attention() -> None:
    wide, narrow = replace(DENSE, head_dim=256), DENSE
    assert wide.parameters - narrow.parameters == 8 * 2 * 4096 * (32 + 8) * 128
    qkv = {
        model: PROFILE.seconds(Gemm(TOKENS, (32 + 16) * model.head_width / 4, 4096))
        for model in (wide, narrow)
    }
    out = {model: PROFILE.seconds(Gemm(TOKENS, 4096, 32 * model.head_width / 4)) for model in (wide, narrow)}
    more = qkv[wide] + out[wide] - qkv[narrow] - out[narrow]
    assert costs(wide).forward["gemm"] - costs(narrow).forward["gemm"] == pytest.approx(more, rel=1e-9)
    assert costs(wide).forward["attention"] > 1.5 * costs(narrow).forward["attention"]
    kept = 8 * TOKENS * 2 * (2 * 32 + 2 * 8) * 128 / 4  # Q, K, V and the output, eight layers
    parts = [memory(Workload.of(model, PLANS, SYSTEM, PROFILE)).parts for model in (wide, narrow)]
    assert parts[0]["activations"] - parts[1]["activations"] == pytest.approx(kept)


def test_norms_of_outputs_are_charged_and_keep_their_input() -> None:
    four = replace(DENSE, norms_per_layer=4)
    elements = TOKENS * 4096 / 4
    norm = PROFILE.seconds(Elementwise(np.array([4 * elements, 6 * elements]), "rmsnorm", 4096))
    for number, part in enumerate(("forward", "backward")):
        more = getattr(costs(four), part)["elementwise"] - getattr(costs(DENSE), part)["elementwise"]
        # Backward, the gradients of two more norms' weights are added to their sums.
        assert more == pytest.approx(2 * norm[number], rel=1e-3)
    kept = [
        memory(Workload.of(model, PLANS, SYSTEM, PROFILE)).parts["activations"] for model in (four, DENSE)
    ]
    assert kept[0] - kept[1] == pytest.approx(8 * 2 * 2 * elements)
    counts = [kernel_counts(model, PLANS) for model in (four, DENSE)]
    assert [int((four - two)[0]) for four, two in zip(*counts, strict=True)] == [2, 2]


def test_early_stop_repeats_the_last_gemm_before_a_norm() -> None:
    early = PlanBatch.of([Plan(1, 1, 1, 2, 8, recompute="early-stop")])
    repeated = [
        layer_costs(Workload.of(model, early, SYSTEM, PROFILE), np.zeros(1))[0].backward["recompute"]
        for model in (replace(DENSE, norms_per_layer=4), DENSE)
    ]
    assert repeated[0] - repeated[1] > PROFILE.seconds(Gemm(TOKENS, 4096, 8192))


def test_a_shared_expert_is_an_mlp_that_every_token_passes() -> None:
    shared = replace(MIXTURE, shared_ffn_hidden=2048)
    weights = 3 * 4096 * 2048
    assert shared.layer_parameters - MIXTURE.layer_parameters == weights
    assert shared.layer_matmul_parameters - MIXTURE.layer_matmul_parameters == weights
    assert shared.active_parameters - MIXTURE.active_parameters == 8 * weights
    up, down = PROFILE.seconds(Gemm(TOKENS, 512, 4096)), PROFILE.seconds(Gemm(TOKENS, 4096, 512))
    more = costs(shared).forward["gemm"] - costs(MIXTURE).forward["gemm"]
    assert more == pytest.approx(2 * up + down, rel=1e-9)
    counts = [kernel_counts(model, PLANS) for model in (shared, MIXTURE)]
    # Its input is gathered and its output scattered; backward the same, and the input gathered again.
    assert [int((more - less)[0]) for more, less in zip(*counts, strict=True)] == [5 + 2, 11 + 3]
    parts = [Workload.of(model, PLANS, SYSTEM, PROFILE).partition for model in (shared, MIXTURE)]
    assert parts[0].shared - parts[1].shared == pytest.approx(weights / 4)
    assert parts[0].experts == parts[1].experts
