"""Groups of different sizes for weights, gradients and optimizer states."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, evaluate, load_model, load_system, predict
from itertime.costs.exchange.gradients import exchange
from itertime.costs.exchange.groups import Shards
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.costs.partition import Workload
from itertime.spec import PlanOptions, load_profile

H100 = load_system("dgx-h100")
PROFILE = load_profile(H100.profile)
LLAMA = load_model("llama2-7b")
PARO = {  # weights, gradients, states of 64 ranks: none (1), those of a node (8), all
    "NNI": (1, 1, 8), "NNG": (1, 1, 64), "NII": (1, 8, 8), "NIG": (1, 8, 64), "NGG": (1, 64, 64),
    "III": (8, 8, 8), "IIG": (8, 8, 64), "IGG": (8, 64, 64), "GGG": (64, 64, 64),
}  # fmt: skip


def shared_by(weights: int, gradients: int, optimizer: int) -> PlanOptions:
    return PlanOptions(weight_shards=weights, gradient_shards=gradients, optimizer_shards=optimizer)


def of(name: str, **change: object) -> Plan:
    plan = Plan(1, 1, 64, 1, 128, recompute="none", grad_overlap=False, prefetch=False)
    return replace(plan, options=shared_by(*PARO[name]), **change)


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b", "deepseek-v2-lite", "llama2-70b-lora"])
@pytest.mark.parametrize("group", [1, 2, 8, 16, 64, None])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_and_hybrid_sharding_are_special_cases(model: str, group: int | None, stage: int) -> None:
    """ZeRO-1, -2, -3 over all ranks, and in groups: MiCS, and FSDP's hybrid sharding. Every part is the same
    number, not nearly so.
    """
    name, ranks = load_model(model), 64
    system = replace(H100, site=replace(H100.site, zero_broadcast_s=1e-3))
    usual = Plan(1, 1, ranks, 1, 128, zero_stage=stage, zero_group=group, ep=4 if name.experts > 1 else 1)
    count = group or ranks
    shards = [count if stage >= least else 1 for least in (3, 2, 1)]
    stated = replace(usual, zero_stage=0, zero_group=None, options=shared_by(*shards))
    for change in ({}, {"grad_overlap": True}, {"fp32_gradients": True, "precision": "fp8"}):
        if count == 1 and stage == 3:
            continue  # ZeRO-3 over one rank holds two layers' weights; one rank that shares nothing does not
        plans = [replace(plan, **change).check(name) for plan in (usual, stated)]
        found = [evaluate(name, PlanBatch.of([plan]), system) for plan in plans]
        assert found[0].breakdown == found[1].breakdown
        if count > 1:
            assert found[0].memory.parts == found[1].memory.parts


@pytest.mark.parametrize("name", PARO)
def test_memory_is_divided_by_the_ranks_that_share_it(name: str) -> None:
    weights, gradients, optimizer = PARO[name]
    whole = predict(LLAMA, replace(of("NNI"), options=PlanOptions()), H100).memory_parts
    parts = predict(LLAMA, of(name), H100).memory_parts
    gathered = 2 * 2.0 * LLAMA.layer_parameters if weights > 1 else 0.0
    assert parts["weights"] == pytest.approx(whole["weights"] / weights + gathered)
    assert parts["gradients"] == pytest.approx(whole["gradients"] / gradients)
    assert parts["optimizer"] == pytest.approx(whole["optimizer"] / optimizer)


def collective(operation, nbytes: float, ranks: int, local: int, sharers: int, stride: int) -> float:
    """Seconds of a group of `ranks`, `local` of them in a node, `sharers` such groups beside each other."""
    group = Group(np.array([ranks]), np.array([local]), sharers, stride)
    return float(operation(np.array([nbytes]), group, Fabric(H100, PROFILE))[0])


def test_states_over_all_ranks_are_reached_between_the_nodes() -> None:
    """PaRO-IIG on 8 nodes of 8: gradients summed in the node are scattered between the nodes, and updated
    weights come back; the eight groups of a node share its NICs.
    """
    parts = predict(LLAMA, of("IIG"), H100).breakdown
    layer = LLAMA.layers * LLAMA.layer_parameters
    tables = 2 * 32_000 * LLAMA.hidden
    own = 2.0 * (layer + tables) / 8
    expected = sum(collective(each, own, 8, 1, 8, 1) for each in (reduce_scatter_s, all_gather_s))
    assert parts["dp_comm"] == pytest.approx(expected, rel=1e-6)


def test_groups_that_each_need_the_whole_sum_all_reduce_between_the_nodes() -> None:
    """PaRO-III, which is MiCS: what is left after the scatter in the node is one all-reduce of its parts."""
    parts = predict(LLAMA, of("III"), H100).breakdown
    own = 2.0 * (LLAMA.layers * LLAMA.layer_parameters + 2 * 32_000 * LLAMA.hidden) / 8
    assert parts["dp_comm"] == pytest.approx(collective(all_reduce_s, own, 8, 1, 8, 1), rel=1e-6)


def test_every_micro_batch_scatters_in_the_group_of_the_gradients() -> None:
    """PaRO-NIG: no weights travel in a pass, and gradients only within the node."""
    parts = {name: predict(LLAMA, of(name), H100).breakdown["fsdp_comm"] for name in PARO}
    assert parts["NNI"] == parts["NNG"] == 0
    assert parts["NII"] == parts["NIG"] < parts["NGG"]
    assert parts["III"] == parts["IIG"] < parts["IGG"] < parts["GGG"]
    scattered = collective(reduce_scatter_s, 2.0 * LLAMA.layer_parameters, 8, 8, 1, 1)
    assert parts["NIG"] == pytest.approx(2 * LLAMA.layers * scattered, rel=1e-6)  # of two micro-batches


NODES, ALL, ROUNDS = 7 / 8, 63 / 64, 2  # shares of a ring of 8 nodes and of 64 ranks; micro-batches


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("NNI", 2 * ALL),  # all-reduce; weights come from the node
        ("NNG", ALL + ALL),  # reduce-scatter, all-gather
        ("NII", 2 * NODES),  # all-reduce of shards between the nodes
        ("NIG", NODES + ALL),  # reduce-scatter between the nodes, gather from all
        ("NGG", ROUNDS * ALL + ALL),
        ("III", 2 * NODES),
        ("IIG", NODES + NODES),
        ("IGG", ROUNDS * ALL + NODES),
        ("GGG", 3 * ROUNDS * ALL),  # every pass gathers, every backward pass scatters
    ],
)
def test_what_crosses_the_network_in_copies_of_the_model(name: str, copies: float) -> None:
    """On NICs so slow that nothing else counts, an iteration lasts as long as their bytes. Scatters of the
    last layer after the last backward pass are charged apart from those of the passes, 1/32 of a round.
    """
    model = replace(LLAMA, vocab=128, vocab_multiple=1)
    seconds = []
    for slower in (2.0**24, 2.0**25):
        slow = replace(H100, nic_bytes_per_s=H100.nic_bytes_per_s / slower)
        seconds.append(predict(model, replace(of(name), global_batch=ROUNDS * 64), slow).iteration_s)
    sent = (seconds[1] - seconds[0]) / 2**24 * H100.nic_bytes_per_s * H100.achieved_network
    assert sent / (2 * model.parameters) == pytest.approx(copies, rel=0.02)


def test_groups_that_nest_are_taken() -> None:
    for name in PARO:
        assert of(name).broken_rules(LLAMA) == []
    assert Plan(1, 2, 8, 1, 8, options=PlanOptions(optimizer_shards=4)).broken_rules(LLAMA) == []
    assert Plan(1, 1, 8, 1, 8, zero_stage=2, options=PlanOptions(weight_shards=4)).broken_rules(LLAMA) == []
    diloco = PlanOptions(workers=4, local_steps=500, outer="diloco")
    assert Plan(1, 1, 64, 1, 256, zero_stage=1, zero_group=16, options=diloco).broken_rules(LLAMA) == []
    assert Plan(1, 1, 16, 1, 64, ep=4, options=diloco).broken_rules(load_model("mixtral-8x7b")) == []


def test_gradients_of_experts_that_nothing_shards_are_summed_over_all_copies() -> None:
    """With `etp` below `tp`, an expert has several copies in one data-parallel rank: here 4 on 8 GPUs."""
    mixture = load_model("mixtral-8x7b")
    plan = Plan(4, 1, 2, 1, 8, ep=2, etp=1, zero_stage=1, sequence_parallel=True, recompute="none")
    plans = PlanBatch.of([plan.check(mixture)])
    experts = Shards.of(plans).of_experts(plans)
    assert (experts.weights, experts.gradients, experts.optimizer) == (1, 1, 4)
    workload = Workload.of(mixture, plans, H100, PROFILE)
    none, one = np.zeros(1), np.full(1, 1e9)
    found = exchange(workload, np.full(1, 32), none, one)
    scattered = reduce_scatter_s(2e9, Group(4, 4, 2), Fabric(H100, PROFILE))
    assert found.reduce_s == pytest.approx(scattered, rel=1e-12)


def test_nothing_is_hidden_without_prefetch() -> None:
    """Sums in another order once left -1e-19 s of contention."""
    plan = Plan(1, 1, 8, 3, 96, zero_stage=3, grad_overlap=True, schedule="gpipe", prefetch=False)
    plan = replace(plan, sequence_parallel=True, recompute="selective", fp32_gradients=True)
    system = replace(load_system("a100-80gb-800g"), framework="te", collective_algorithms=("sharp",))
    for name in ("gpt2-small", "llama2-7b", "gemma2-2b"):
        for dp in (2, 8, 13, 32):
            parts = predict(load_model(name), replace(plan, dp=dp, global_batch=dp * 12), system).breakdown
            assert parts["contention"] == pytest.approx(0, abs=1e-15)
            assert min(parts.values()) >= 0
