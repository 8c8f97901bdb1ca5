"""Experts, compressed keys, windows, widths of heads: what is conserved, known limits, and sums by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, PlanBatch, load_model, load_profile, load_system, predict
from itertime.costs import Workload, memory
from itertime.costs.layer import LayerCosts, kernel_counts, layer_costs
from itertime.costs.linear import linear_s
from itertime.costs.mixture import (
    arriving_tokens,
    expert_kernels,
    expert_parallel_s,
    experts_s,
    overlapped_s,
)
from itertime.costs.network import Fabric, Group, all_gather_s, all_to_all_s, reduce_scatter_s
from itertime.costs.parallel_comm import activation_all_reduce_s
from itertime.costs.partition import Partition
from itertime.spec import Attention, AttentionKernel, Elementwise, Gemm, load_framework
from tests.effort import examples

SYSTEM = load_system("dgx-h100,framework=megatron")  # kernels as the profile has them
PROFILE = load_profile(SYSTEM.profile)
MIXTURE = ModelSpec(
    name="mixture", layers=8, hidden=4096, heads=32, kv_heads=8, vocab=32000, seq_len=4096, ffn_hidden=8192,
    gated_mlp=True, attention="flash", norm="rmsnorm", positions="rotary", biases=False, dropout=False,
    experts=16, experts_per_token=2,
)  # fmt: skip
PLAN = Plan(1, 1, 16, 1, 64, recompute="none", zero_stage=1)


def work(model: ModelSpec, *plans: Plan) -> Workload:
    return Workload.of(model, PlanBatch.of(plans), SYSTEM, PROFILE)


def layer(model: ModelSpec, plan: Plan) -> LayerCosts:
    found = work(model, plan)
    return layer_costs(found, activation_all_reduce_s(found))[0]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    tp = draw(st.sampled_from([1, 2, 4]))
    etp = draw(st.sampled_from([each for each in (1, 2, 4) if each <= tp]))
    dp, cp = draw(st.sampled_from([4, 16])), draw(st.sampled_from([1, 2]))
    ep = draw(st.sampled_from([each for each in (1, 2, 4, 8, 16) if (dp * cp * tp) % (each * etp) == 0]))
    return Plan(
        tp, 1, dp, draw(st.sampled_from([1, 2])), 64, recompute="none", sequence_parallel=True, cp=cp, ep=ep,
        etp=etp, dispatcher=draw(st.sampled_from(["alltoall", "deepep", "hybridep"])),
    )  # fmt: skip


@settings(max_examples=examples(60), deadline=None)
@given(plans())
def test_every_copy_of_a_token_arrives_at_one_group_of_ranks(plan: Plan) -> None:
    """All ranks of ep x etp together hold their tokens once, and send each to k experts."""
    assert not plan.broken_rules(MIXTURE)
    entering = plan.micro_batch * 4096 / plan.cp / plan.tp * plan.ep * plan.etp
    arriving = arriving_tokens(work(MIXTURE, plan))[0]
    assert arriving * plan.ep == pytest.approx(2 * entering)
    # Every rank activates the same elements, however the matrices are split.
    activation = expert_kernels(work(MIXTURE, plan))[0]
    tokens = plan.micro_batch * 4096 / plan.cp / plan.tp
    assert activation.forward[0] == pytest.approx(10 * tokens * 2 * 8192)


@settings(max_examples=examples(60), deadline=None)
@given(plans())
def test_copies_of_an_expert_and_its_parts_make_up_the_stage(plan: Plan) -> None:
    partition = Partition.of(MIXTURE, PlanBatch.of([plan]))
    copies = plan.tp * plan.cp * plan.dp / (plan.ep * plan.etp)
    held = partition.experts[0, 0] * plan.tp * plan.cp * plan.dp
    assert held == pytest.approx(copies * 16 * MIXTURE.expert_parameters)
    sharded = memory(work(MIXTURE, replace(plan, zero_stage=1))).parts["optimizer"][0]
    shared = MIXTURE.layers * partition.shared[0, 0] + partition.tables[0]
    experts = MIXTURE.layers * 16 * MIXTURE.expert_parameters / (plan.tp * plan.cp * plan.dp)
    assert sharded == pytest.approx(12 * (shared / (plan.dp * plan.cp) + experts))


def test_experts_all_of_which_are_chosen_do_the_work_of_one_mlp() -> None:
    """Four experts of a quarter of the width that see every token: the products of one whole MLP."""
    dense = replace(MIXTURE, experts=1, experts_per_token=1)
    mixture = replace(MIXTURE, experts=4, experts_per_token=4, ffn_hidden=2048)
    plan = Plan(1, 1, 1, 4, 4, recompute="none")
    whole, parts = layer(dense, plan), layer(mixture, plan)
    for one, other in ((whole.forward, parts.forward), (whole.backward, parts.backward)):
        assert other["gemm"][0] == pytest.approx(one["gemm"][0], rel=0.2)  # grouped products are slower
        assert "ep_comm" not in one
        assert other["ep_comm"][0] == 0
    # What permutation and router add to the memory-bound kernels is all that differs there.
    routes = sum(k.runs * k.forward[0] for k in expert_kernels(work(mixture, plan)) if k.routes)
    assert (
        routes / PROFILE.hbm_bytes_per_s < parts.forward["elementwise"][0] - whole.forward["elementwise"][0]
    )


def test_parts_of_experts_gather_what_arrives_and_scatter_their_sums() -> None:
    split = replace(PLAN, tp=4, sequence_parallel=True, ep=2, etp=4)
    arrived = 2 * 4096 / 4 * 2 * 4 * 4096  # bytes a value, tokens, experts, ranks, width
    group, fabric = Group(4, 4, nic_sharers=2), Fabric(SYSTEM, PROFILE)
    both = all_gather_s(arrived, group, fabric) + reduce_scatter_s(arrived, group, fabric)
    sent = all_to_all_s(2 * 1024 * 2 * 4096, Group(2, 2), fabric)
    assert expert_parallel_s(work(MIXTURE, split))[0] == pytest.approx(both + 2 * sent)
    whole = replace(split, etp=1)
    assert expert_parallel_s(work(MIXTURE, whole))[0] == pytest.approx(2 * sent)


def test_the_busiest_rank_decides() -> None:
    """1.5 times the tokens: that much more to compute and to send, and as much memory for them."""
    plan, busy = replace(PLAN, ep=8), replace(MIXTURE, load_imbalance=1.5)
    even, uneven = experts_s(work(MIXTURE, plan)), experts_s(work(busy, plan))
    assert uneven.forward[0] == pytest.approx(1.5 * even.forward[0], rel=0.1)
    comm = [expert_parallel_s(work(model, plan))[0] for model in (busy, MIXTURE)]
    assert comm[0] == pytest.approx(1.5 * comm[1], rel=0.1)
    parts = [memory(work(model, plan)).parts["activations"][0] for model in (busy, MIXTURE)]
    copies = 2 * 4096 * (6 * 8192 + 2 * 4096)
    assert parts[0] - parts[1] == pytest.approx(8 * 0.5 * copies)
    # All tokens are on the one rank there is.
    alone = [predict(model, PLAN, SYSTEM).iteration_s for model in (busy, MIXTURE)]
    assert alone[0] == alone[1]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 9))
def test_hidden_dispatch_exposes_the_excess_and_both_ends(comm: float, other: float, m: int) -> None:
    shown = float(overlapped_s(np.array([comm]), np.array([other]), np.array([m]))[0])
    assert 0 <= shown <= comm
    # Both passes' dispatch beside both passes' work take as long as the longer of them; alone at each end.
    excess = max(2 * comm, other) - other
    assert 2 * shown == pytest.approx(excess + (2 * comm - excess) / m)


def test_hidden_dispatch_shortens_an_iteration_and_contends_with_the_work() -> None:
    plan, neutral = replace(PLAN, ep=16), load_framework("megatron")
    shown = predict(MIXTURE, plan, SYSTEM)
    hidden = predict(MIXTURE, replace(plan, ep_overlap=True), SYSTEM)
    spared = shown.breakdown["ep_comm"] - hidden.breakdown["ep_comm"]
    assert spared > 0
    assert shown.iteration_s - hidden.iteration_s == pytest.approx(spared)
    slowed = predict(
        MIXTURE, replace(plan, ep_overlap=True), SYSTEM, framework=replace(neutral, contention=0.5)
    )
    assert slowed.iteration_s - hidden.iteration_s == pytest.approx(0.5 * spared, rel=0.05)


def test_latent_attention_by_hand() -> None:
    """The matrices of DeepSeek-V3 on one rank (DeepSeek-V2, 2024, section 2.1), and its kernel."""
    model, tokens = replace(load_model("deepseek-v3"), dense_layers=0, dense_ffn_hidden=0), 4096
    shapes = [
        (512 + 64, 7168), (1536, 7168), (128 * 192, 1536), (128 * 256, 512), (7168, 128 * 128),
        (2048, 7168), (2048, 7168), (7168, 2048),
    ]  # fmt: skip
    alone = sum(float(PROFILE.seconds(Gemm(tokens, n, k))) for n, k in shapes)
    found = work(model, PLAN)
    assert linear_s([found])[0].forward[0] == pytest.approx(found.gemm_factor * alone)
    kernel = AttentionKernel("flash", 128)
    attention = PROFILE.seconds(Attention(1, 128, 128, 192, 4096, 4096, kernel=kernel))
    assert layer(model, PLAN).forward["attention"][0] == pytest.approx(float(attention))


def test_every_tensor_parallel_rank_holds_what_compresses() -> None:
    model = load_model("deepseek-v3")
    one, four = (
        Partition.of(model, PlanBatch.of([replace(PLAN, tp=tp, sequence_parallel=True)])).shared[0]
        for tp in (1, 4)
    )
    compressing = 7168 * (1536 + 512 + 64)
    assert four == pytest.approx(compressing + (one - compressing) / 4)


def test_attention_is_the_mean_of_layers_with_and_without_a_window() -> None:
    model = load_model("gpt-oss-20b")  # every other layer reaches back 128 tokens
    kinds = [
        float(
            PROFILE.seconds(
                Attention(1, 64, 8, 64, 4096, 4096, kernel=AttentionKernel("flash", None, window))
            )
        )
        for window in (0, 128)
    ]
    assert kinds[1] < 0.5 * kinds[0]
    assert layer(model, PLAN).forward["attention"][0] == pytest.approx(sum(kinds) / 2)
    short = replace(model, seq_len=128)
    assert layer(short, PLAN) == layer(replace(short, window=0, full_attention_every=0), PLAN)


def test_norms_of_queries_and_keys_are_charged() -> None:
    plain, normed = MIXTURE, replace(MIXTURE, qk_norm=True)
    more = layer(normed, PLAN).forward["elementwise"][0] - layer(plain, PLAN).forward["elementwise"][0]
    widths = np.array([4096 * 32 * 128, 4096 * 8 * 128])
    assert more == pytest.approx(float(PROFILE.seconds(Elementwise(4.0 * widths, "rmsnorm", 128)).sum()))


def test_a_parallel_block_sums_attention_and_mlp_at_once() -> None:
    dense = replace(MIXTURE, experts=1, experts_per_token=1)
    plan = replace(PLAN, tp=4, sequence_parallel=True)
    both, one = (layer(replace(dense, parallel_block=each), plan) for each in (False, True))
    assert one.forward["tp_comm"][0] == pytest.approx(both.forward["tp_comm"][0] / 2)
    assert one.backward["tp_comm"][0] == pytest.approx(both.backward["tp_comm"][0] / 2)


A100, A100_PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
TENSOR_PLANS = PlanBatch.of([Plan(4, 1, 1, 2, 8, recompute="none", sequence_parallel=True)])
DENSE = replace(MIXTURE, name="dense", seq_len=2048, experts=1, experts_per_token=1)
FEW_EXPERTS = replace(DENSE, experts=8, experts_per_token=2)
TOKENS = 2 * 2048


def costs(model: ModelSpec) -> LayerCosts:
    return layer_costs(Workload.of(model, TENSOR_PLANS, A100, A100_PROFILE), np.zeros(1))[0]


def test_a_head_dim_that_follows_from_the_width_changes_nothing() -> None:
    stated = replace(DENSE, head_dim=128)
    assert stated.parameters == DENSE.parameters
    assert stated.flops_per_iteration(8) == DENSE.flops_per_iteration(8)
    assert costs(stated) == costs(DENSE)


def test_wider_heads_widen_the_matrices_of_the_attention() -> None:
    wide, narrow = replace(DENSE, head_dim=256), DENSE
    assert wide.parameters - narrow.parameters == 8 * 2 * 4096 * (32 + 8) * 128
    qkv = {
        model: A100_PROFILE.seconds(Gemm(TOKENS, (32 + 16) * model.head_width / 4, 4096))
        for model in (wide, narrow)
    }
    out = {
        model: A100_PROFILE.seconds(Gemm(TOKENS, 4096, 32 * model.head_width / 4)) for model in (wide, narrow)
    }
    more = qkv[wide] + out[wide] - qkv[narrow] - out[narrow]
    assert costs(wide).forward["gemm"] - costs(narrow).forward["gemm"] == pytest.approx(more, rel=1e-9)
    assert costs(wide).forward["attention"] > 1.5 * costs(narrow).forward["attention"]
    kept = 8 * TOKENS * 2 * (2 * 32 + 2 * 8) * 128 / 4  # Q, K, V and the output, eight layers
    parts = [memory(Workload.of(model, TENSOR_PLANS, A100, A100_PROFILE)).parts for model in (wide, narrow)]
    assert parts[0]["activations"] - parts[1]["activations"] == pytest.approx(kept)


def test_norms_of_outputs_are_charged_and_keep_their_input() -> None:
    four = replace(DENSE, norms_per_layer=4)
    elements = TOKENS * 4096 / 4
    norm = A100_PROFILE.seconds(Elementwise(np.array([4 * elements, 6 * elements]), "rmsnorm", 4096))
    for number, part in enumerate(("forward", "backward")):
        more = getattr(costs(four), part)["elementwise"] - getattr(costs(DENSE), part)["elementwise"]
        # Backward, the gradients of two more norms' weights are added to their sums.
        assert more == pytest.approx(2 * norm[number], rel=1e-3)
    kept = [
        memory(Workload.of(model, TENSOR_PLANS, A100, A100_PROFILE)).parts["activations"]
        for model in (four, DENSE)
    ]
    assert kept[0] - kept[1] == pytest.approx(8 * 2 * 2 * elements)
    counts = [kernel_counts(model, TENSOR_PLANS) for model in (four, DENSE)]
    assert [int((four - two)[0]) for four, two in zip(*counts, strict=True)] == [2, 2]


def test_early_stop_repeats_the_last_gemm_before_a_norm() -> None:
    early = PlanBatch.of([Plan(1, 1, 1, 2, 8, recompute="early-stop")])
    repeated = [
        layer_costs(Workload.of(model, early, A100, A100_PROFILE), np.zeros(1))[0].backward["recompute"]
        for model in (replace(DENSE, norms_per_layer=4), DENSE)
    ]
    assert repeated[0] - repeated[1] > A100_PROFILE.seconds(Gemm(TOKENS, 4096, 8192))


def test_a_shared_expert_is_an_mlp_that_every_token_passes() -> None:
    shared = replace(FEW_EXPERTS, shared_ffn_hidden=2048)
    weights = 3 * 4096 * 2048
    assert shared.layer_parameters - FEW_EXPERTS.layer_parameters == weights
    assert shared.layer_matmul_parameters - FEW_EXPERTS.layer_matmul_parameters == weights
    assert shared.active_parameters - FEW_EXPERTS.active_parameters == 8 * weights
    up, down = A100_PROFILE.seconds(Gemm(TOKENS, 512, 4096)), A100_PROFILE.seconds(Gemm(TOKENS, 4096, 512))
    more = costs(shared).forward["gemm"] - costs(FEW_EXPERTS).forward["gemm"]
    assert more == pytest.approx(2 * up + down, rel=1e-9)
    counts = [kernel_counts(model, TENSOR_PLANS) for model in (shared, FEW_EXPERTS)]
    # Its input is gathered and its output scattered; backward the same, and the input gathered again.
    assert [int((more - less)[0]) for more, less in zip(*counts, strict=True)] == [5 + 2, 11 + 3]
    parts = [
        Workload.of(model, TENSOR_PLANS, A100, A100_PROFILE).partition for model in (shared, FEW_EXPERTS)
    ]
    assert parts[0].shared - parts[1].shared == pytest.approx(weights / 4)
    assert parts[0].experts == parts[1].experts
