"""Experts, long contexts, rank order, gradient buckets, encoders: what each changes, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from itertime import Plan, PlanBatch, load_model, load_profile, load_system, predict
from itertime.costs import Workload, memory
from itertime.costs.layer import layer_costs
from itertime.costs.network import Fabric, Group, all_gather_s, all_to_all_s, p2p_s, reduce_scatter_s
from itertime.costs.parallel_comm import activation_all_reduce_s
from itertime.costs.partition import Partition

SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)
LLAMA = load_model("llama2-7b")  # 32 layers, h 4096, f 11008, s 4096
MIXTURE = replace(LLAMA, name="mixture", experts=8, experts_per_token=2)
PLAN = Plan(1, 1, 16, 1, 16, recompute="none")


def layer(model, plan, system=SYSTEM):
    plans = PlanBatch.of([plan])
    workload = Workload.of(model, plans, system, PROFILE)
    costs = layer_costs(workload, activation_all_reduce_s(workload))[0]
    return {k: v[0] for k, v in costs.forward.items()}, {k: v[0] for k, v in costs.backward.items()}


def parts(model, plan, system=SYSTEM):
    return predict(model, plan, system).breakdown


def memory_parts(model, plan):
    return {
        k: v[0] for k, v in memory(Workload.of(model, PlanBatch.of([plan]), SYSTEM, PROFILE)).parts.items()
    }


def test_a_token_pays_for_the_experts_it_passes_and_memory_for_all():
    dense, mixture = layer(LLAMA, PLAN)[0], layer(MIXTURE, PLAN)[0]
    mlp_share = LLAMA.mlp_matmul_parameters / LLAMA.layer_matmul_parameters
    assert mixture["gemm"] / dense["gemm"] == pytest.approx(1 + mlp_share, rel=0.1)
    more = memory_parts(MIXTURE, PLAN)["weights"] - memory_parts(LLAMA, PLAN)["weights"]
    router = 32 * 2 * MIXTURE.router_parameters
    assert more == pytest.approx(32 * 2 * 7 * LLAMA.mlp_matmul_parameters + router, rel=1e-9)


def test_tokens_travel_to_their_experts_and_back_in_two_all_to_alls_each_way():
    plan = replace(PLAN, ep=8)
    forward, backward = layer(MIXTURE, plan)
    nbytes = 2 * 2 * 4096 * 4096  # two experts, 16 bit, s h
    assert forward["ep_comm"] == pytest.approx(2 * all_to_all_s(nbytes, Group(8, 8), Fabric(SYSTEM, PROFILE)))
    assert backward["ep_comm"] == forward["ep_comm"]
    assert layer(MIXTURE, PLAN)[0]["ep_comm"] == 0
    again = layer(MIXTURE, replace(plan, recompute="full"))[1]["recompute"]
    assert again == pytest.approx(sum(forward.values()))


def test_expert_parallelism_divides_the_experts_but_not_the_rest():
    partition = Partition.of(MIXTURE, PlanBatch.of([PLAN, replace(PLAN, ep=8)]))
    shared, experts = partition.shared, partition.experts
    assert shared[0] == shared[1] == MIXTURE.layer_parameters - 8 * MIXTURE.expert_parameters
    assert experts.tolist() == [8 * MIXTURE.expert_parameters, MIXTURE.expert_parameters]
    # Gradients of experts on one rank each have no other rank to be summed with.
    alone, copied = (parts(replace(MIXTURE, experts=16), replace(PLAN, ep=ep)) for ep in (16, 1))
    assert alone["dp_comm"] < 0.1 * copied["dp_comm"]
    owned = memory_parts(MIXTURE, replace(PLAN, ep=8, zero_stage=1))["optimizer"]
    rest = 32 * (MIXTURE.layer_parameters - 8 * MIXTURE.expert_parameters) + 2 * 32000 * 4096
    assert owned == pytest.approx(12 * (rest / 16 + 32 * MIXTURE.expert_parameters / 2), rel=1e-3)


def test_context_parallelism_divides_the_tokens_and_gathers_keys_and_values():
    plan = replace(PLAN, dp=4, global_batch=4, cp=4, cp_exchange="gather")
    long = LLAMA.with_seq_len(4 * 4096)
    whole, quarter = layer(long, PLAN), layer(long, plan)
    for name in ("gemm", "attention"):
        assert quarter[0][name] == pytest.approx(whole[0][name] / 4, rel=0.15)
    nbytes = 2 * 2 * 4 * 4096 * 4096  # keys and values of the whole sequence
    gathered = all_gather_s(nbytes, Group(4, 4, 2), Fabric(SYSTEM, PROFILE))
    assert quarter[0]["cp_comm"] == pytest.approx(gathered)
    scattered = reduce_scatter_s(nbytes, Group(4, 4, 2), Fabric(SYSTEM, PROFILE))
    assert quarter[1]["cp_comm"] == pytest.approx(gathered + scattered)
    activations = [predict(long, each, SYSTEM).memory_parts["activations"] for each in (PLAN, plan)]
    assert activations[1] == pytest.approx(activations[0] / 4)


def test_a_ring_of_keys_and_values_exposes_what_attention_does_not_cover():
    ring = Plan(1, 1, 1, 1, 1, recompute="none", cp=16)
    long = LLAMA.with_seq_len(1 << 20)
    assert layer(long, ring)[0]["cp_comm"] == 0
    short = layer(LLAMA, ring)[0]
    block = 2 * 2 * 4096 / 16 * 4096
    step = p2p_s(block, True, Fabric(SYSTEM, PROFILE)) - short["attention"] / 16
    assert short["cp_comm"] == pytest.approx(15 * step)


def test_ranks_that_share_a_sequence_sum_their_gradients_too():
    split = replace(PLAN, dp=4, global_batch=4, cp=4, zero_stage=1)
    alike = replace(PLAN, dp=16, global_batch=16, zero_stage=1)
    assert parts(LLAMA, split)["dp_comm"] == pytest.approx(parts(LLAMA, alike)["dp_comm"])
    assert memory_parts(LLAMA, split)["optimizer"] == memory_parts(LLAMA, alike)["optimizer"]


def test_stages_next_to_each_other_send_in_the_node_and_sum_gradients_across_nodes():
    model = load_model("megatron-18.4b")
    plan = Plan(2, 4, 16, 2, 128)
    usual, near = parts(model, plan), parts(model, replace(plan, rank_order="tp-cp-pp-dp"))
    assert near["p2p"] < usual["p2p"]
    assert near["dp_comm"] > usual["dp_comm"]
    within = replace(plan, dp=1, global_batch=8)  # one node: the order makes no difference
    assert parts(model, within) == parts(model, replace(within, rank_order="tp-cp-pp-dp"))


def test_buckets_pay_a_latency_each_and_hide_behind_the_backward_pass():
    plan = replace(PLAN, dp=64, global_batch=64)
    nbytes = 2 * (32 * LLAMA.layer_parameters + 2 * 32000 * 4096)
    whole = parts(LLAMA, plan)["dp_comm"]
    assert parts(LLAMA, replace(plan, bucket_bytes=nbytes))["dp_comm"] == pytest.approx(whole)
    small = parts(LLAMA, replace(plan, bucket_bytes=1_000_000))["dp_comm"]
    assert small > 1.5 * whole
    hidden = [
        parts(LLAMA, replace(plan, bucket_bytes=size, grad_overlap=True))["dp_comm"]
        for size in (25_000_000, 500_000_000, nbytes)
    ]
    assert hidden == sorted(hidden)
    assert hidden[0] < 0.1 * whole
    assert hidden[2] == pytest.approx(whole)  # a single bucket is ready when the pass ends


def test_one_key_head_is_copied_to_every_tensor_parallel_rank():
    multi_query = replace(LLAMA, kv_heads=1)
    partition = Partition.of(multi_query, PlanBatch.of([Plan(8, 1, 1, 1, 1)]))
    shared, experts = partition.shared, partition.experts
    keys_and_values = 2 * 4096 * 128
    assert shared[0] == pytest.approx((multi_query.layer_parameters + 7 * keys_and_values) / 8)
    assert experts[0] == 0
