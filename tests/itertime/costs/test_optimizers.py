"""The optimizer's step: bytes, launches and states of each optimizer, and what distributed LAMB exchanges."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import Plan, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange import state_bytes
from itertime.costs.exchange.gradients import exchange
from itertime.costs.exchange.optimizer import optimizer_s
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.spec import ModelSpec, PlanBatch, PlanOptions, Site, System, load_profile
from tests.effort import examples

BERT, GPT = load_model("bert-large"), load_model("megatron-1.7b")
A100, PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
QUICK = replace(A100, site=Site(launch_s=0.0))  # launches never bind
ADAM = PROFILE.elementwise["adam"]


def _step(
    optimizer: str,
    count: float,
    system: System = QUICK,
    model: ModelSpec = BERT,
    plan: Plan | None = None,
    **options: str,
) -> float:
    """Seconds of a step on `count` parameters in all layers of a model."""
    plan = replace(plan or Plan(1, 1, 1, 1, 1), options=PlanOptions(optimizer=optimizer, **options))
    workload = Workload.of(model, PlanBatch.of([plan]), system, PROFILE)
    parts = optimizer_s(workload, np.array([count]), np.zeros(1), np.array([model.layers]))
    return float(parts["optimizer"][0])


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_adam_moves_50_bytes_of_which_the_norm_has_4(optimizer: str) -> None:
    whole, rest = (_step(optimizer, 3e8, clipping=clipping) for clipping in ("after", "none"))
    assert whole == pytest.approx(50 * 3e8 / ADAM.bytes_per_s + ADAM.launch_s, rel=1e-12)
    assert rest == pytest.approx(46 * 3e8 / ADAM.bytes_per_s + ADAM.launch_s, rel=1e-12)


@pytest.mark.parametrize(
    ("optimizer", "update"),
    [
        ("fused-adam", (4 + 3) * 4),  # reads g, p, m, v; writes p, m, v
        ("lamb", (1 + 4 + 3 + 1 + 2 + 1) * 4),  # |p|; g, p, m, v; u, m, v; |u|; p, u; p
        ("sgd", (3 + 2) * 4),  # reads g, p, m; writes p, m
        ("came", 41 * 4),
    ],
)
@pytest.mark.parametrize("fp32", [False, True])
def test_a_step_moves_the_bytes_of_its_kernels(optimizer: str, update: int, fp32: bool) -> None:
    """Of so many parameters that launches are nothing; with unscaling and the copy to 16 bit."""
    count, plan = 1e12, Plan(1, 1, 1, 1, 1, fp32_gradients=fp32)
    moved = (4 if fp32 else 2) + 4 + update + 6
    launched = 10 * count / (320 * 65_536) * ADAM.launch_s
    seconds = _step(optimizer, count, plan=plan, clipping="none")
    assert moved * count / ADAM.bytes_per_s <= seconds <= moved * count / ADAM.bytes_per_s + launched


def test_launches_bind_a_small_step_and_a_graph_of_everything_has_none() -> None:
    """FusedAdam on BERT-large, by hand: 24 layers of 4 matrices, 4 biases and 4 vectors of norms.

    These are 288 tensors; 3e8 parameters are 4,578 chunks of 65,536, and half a chunk more for each tensor.
    Each of the three kernels takes 320 chunks a launch, which is more often than 64 or 36 tensors.
    """
    eager = replace(A100, site=Site(launch_s=1e-3))
    launches = 3 * math.ceil((3e8 / 65_536 + 288 / 2) / 320)
    assert _step("fused-adam", 3e8, eager) == pytest.approx(launches * 1e-3, rel=1e-12)
    few = 2 * math.ceil(288 / 64) + math.ceil(288 / 36)
    assert _step("fused-adam", 1e6, eager) == pytest.approx(few * 1e-3, rel=1e-12)
    graph = Plan(1, 1, 1, 1, 1, cuda_graphs="full")
    free = _step("fused-adam", 1e6, eager, plan=graph)
    assert free == pytest.approx(40 * 1e6 / ADAM.bytes_per_s + few * ADAM.launch_s, rel=1e-12)
    assert _step("adam", 1e6, eager) == _step("adam", 1e6)


def test_an_optimizer_of_plain_kernels_launches_them_for_every_tensor() -> None:
    """42 for each of 96 matrices and 23 for each of 192 vectors, beside unscaling and copying."""
    eager = replace(A100, site=Site(launch_s=1e-3))
    expected = 42 * 96 + 23 * 192 + 2 * math.ceil(288 / 64)
    assert _step("came", 1e6, eager) == pytest.approx(expected * 1e-3, rel=1e-12)


@st.composite
def sharded(draw: st.DrawFn) -> Plan:
    pp = draw(st.sampled_from([1, 2, 4]))
    dp = draw(st.sampled_from([1, 8, 64, 512]))
    return Plan(
        tp=draw(st.sampled_from([1, 2, 8])),
        pp=pp,
        dp=dp,
        micro_batch=1,
        global_batch=2 * dp * pp,
        zero_stage=1,
        grad_overlap=draw(st.booleans()),
        bucket_bytes=draw(st.sampled_from([None, 25_000_000])),
    ).check(GPT)


@given(sharded())
@settings(max_examples=examples(40), deadline=None)
def test_distributed_lamb_exchanges_gradients_and_weights_as_zero_1_does(plan: Plan) -> None:
    found = {}
    for name in ("adam", "lamb"):
        batch = PlanBatch.of([replace(plan, options=PlanOptions(optimizer=name))])
        layers = np.array([GPT.layers // plan.pp])
        found[name] = exchange(Workload.of(GPT, batch, A100, PROFILE), layers, np.array([1e9]), np.zeros(1))
    assert found["lamb"].reduce_s == found["adam"].reduce_s
    assert found["lamb"].gather_s == found["adam"].gather_s


def test_distributed_lamb_in_nodes_sends_one_shard_of_each_gpu_between_them() -> None:
    """128 nodes of 8: a reduce-scatter in the node, then all-reduces of an eighth, 8 of them at a time."""
    plan = Plan(1, 1, 1024, 1, 1024, zero_stage=1, zero_group=8, options=PlanOptions(optimizer="lamb"))
    workload = Workload.of(BERT, PlanBatch.of([plan]), A100, PROFILE)
    found = exchange(workload, np.array([24]), np.array([3e8]), np.zeros(1))
    inside = reduce_scatter_s(6e8, Group(8, 8), Fabric(A100, PROFILE))
    between = all_reduce_s(6e8 / 8, Group(128, 1, 8), Fabric(A100, PROFILE))
    assert found.reduce_s == pytest.approx(inside + between, rel=1e-12)
    assert found.gather_s == pytest.approx(all_gather_s(6e8, Group(8, 8), Fabric(A100, PROFILE)), rel=1e-12)


def test_the_norms_of_layers_travel_only_where_ranks_share_layers() -> None:
    """Two all-reduces among 512 ranks take at least their hops; a rank that has whole layers needs none."""
    parameters = 1e9
    alone = _step("lamb", parameters / 512, clipping="none")
    shards = Plan(1, 1, 512, 1, 512, zero_stage=1)
    shared = _step("lamb", parameters, plan=shards, clipping="none")
    hops = 2 * 2 * math.ceil(math.log2(64)) * A100.network_latency_s
    assert hops <= shared - alone < 2e-3
    whole = Plan(1, 1, 512, 1, 512)
    assert _step("lamb", parameters, plan=whole, clipping="none") == _step(
        "lamb", parameters, clipping="none"
    )


@pytest.mark.parametrize(
    ("optimizer", "states"), [("adam", 12), ("adamw", 12), ("fused-adam", 12), ("lamb", 12), ("sgd", 8)]
)
def test_the_states_are_the_master_weight_and_the_moments(optimizer: str, states: int) -> None:
    assert state_bytes(BERT, PlanOptions(optimizer=optimizer)) == states
    found = predict(BERT, replace(Plan(1, 1, 8, 4, 32), options=PlanOptions(optimizer=optimizer)), A100)
    usual = predict(BERT, Plan(1, 1, 8, 4, 32), A100)
    ratio = found.memory_parts["optimizer"] / usual.memory_parts["optimizer"]
    assert ratio == pytest.approx(states / 12, rel=1e-12)


def test_came_factors_the_second_moment_and_the_confidence() -> None:
    """Of BERT-large's matrices, four of 1,024 x 1,024 and two of 1,024 x 4,096: 8 (n + m) bytes each."""
    factors = 8 * (4 * 2048 + 2 * 5120) / (4 * 1024**2 + 2 * 1024 * 4096)
    assert state_bytes(BERT, PlanOptions(optimizer="came")) == pytest.approx(8 + factors, rel=1e-12)
