"""Compressed exchanges against their volumes, kernels counted one by one, and published ratios."""

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from itertime import ModelSpec, Plan, PlanBatch, evaluate, load_model, load_system, predict
from itertime.costs import Workload, stage_costs
from itertime.costs.exchange.compression import INDEX_BYTES, SENT_BITS
from itertime.costs.exchange.compression_kernels import COMPRESSED, STEP_BYTES, SUMMED, UNPACKED
from itertime.costs.exchange.groups import Shards
from itertime.costs.exchange.power_sgd import power_factors
from itertime.costs.exchange.quantised_zero import WEIGHT_BYTES, moved_s
from itertime.spec import Collective, PlanOptions, System, load_profile, parse_options

PROFILE = load_profile("a100-80gb")
A100 = load_system("dgx-a100-80gb")
NIC = 1e9
ALONE = replace(
    A100,
    gpus_per_node=1,
    nics_per_node=1,
    nic_bytes_per_s=NIC,
    gpu_nic_bytes_per_s=NIC,
    network_latency_s=0.0,
    network_bulk_latency_s=0.0,
    network_efficiency=1.0,
    collective_algorithms=("ring",),
)
"""One GPU a node: nothing but bytes through a NIC of 1 GB/s takes time."""
BERT = replace(load_model("bert-large"), seq_len=128, attention="core")
ALONE_BY_4 = replace(ALONE, gpus_per_node=4)
SMALL = ModelSpec(name="small", layers=3, hidden=64, heads=4, vocab=1024, seq_len=32)
LAMB = ("onebit-lamb",)
COMPRESSIONS = (
    *("fp16", "fp8", "int8", "int4", "topk", "powersgd", "onebit-adam", "onebit-lamb"),
    "zeroone-adam",
)


def options_of(compression: str, **more: Any) -> PlanOptions:
    optimizer = "lamb" if compression in LAMB else "adam"
    return PlanOptions(compression=compression, optimizer=optimizer, **more)  # type: ignore[arg-type]


def plan_of(options: PlanOptions, dp: int = 16, **more: Any) -> Plan:
    fields = {"recompute": "none", **more}
    return Plan(tp=1, pp=1, dp=dp, micro_batch=1, global_batch=dp, options=options, **fields)


def workload_of(model: ModelSpec, plan: Plan, system: System) -> Workload:
    return Workload.of(model, PlanBatch.of([plan]), system, PROFILE)


def parameters_of(workload: Workload) -> float:
    partition = workload.partition
    return float(partition.layers[-1, 0] * partition.shared[0, 0] + partition.tables[0])


def sent_bytes(options: PlanOptions, ranks: float, gradient: float = 2.0) -> float:
    """Bytes that each of `ranks` ranks sends for one parameter in an iteration that is not in the warm-up,
    scales and PowerSGD apart. `gradient`: bytes of a gradient that is not compressed.

    Raises ValueError for PowerSGD, whose volume depends on the shapes of the model's matrices.
    """
    compression, peers = options.compression, ranks - 1
    if compression == "powersgd":
        raise ValueError("compression='powersgd': its volume depends on the shapes of matrices")
    if compression == "topk":
        return peers * options.compression_density * (gradient + INDEX_BYTES)
    gap = options.local_steps if compression == "zeroone-adam" else 1
    return 2 * peers / ranks * (SENT_BITS.get(compression, 8 * gradient) / 8) / gap


@pytest.mark.parametrize("ranks", [2, 16, 128])
@pytest.mark.parametrize("compression", ["none", *(each for each in COMPRESSIONS if each != "powersgd")])
def test_seconds_are_those_of_the_bytes_that_each_rank_sends(compression: str, ranks: int) -> None:
    plan = plan_of(options_of(compression), ranks, fp32_gradients=True)
    workload = workload_of(BERT, plan, ALONE)
    sent = sent_bytes(plan.options, ranks, 4.0) * parameters_of(workload)
    if compression in ("int8", "int4"):  # and a scale of 4 bytes for 1,024 of them
        bits = 8 if compression == "int8" else 4
        sent *= 1 + 4 / 1024 / (bits / 8)
    if compression == "fp8":  # and one scale
        sent += 2 * (ranks - 1) / ranks * 4
    found = stage_costs(workload).exchange.reduce_s[0]
    assert found == pytest.approx(sent / NIC, rel=1e-9)


def test_volumes_are_the_published_ones() -> None:
    """DeepSpeed's figures: 16 times less after the warm-up of 1-bit Adam, 1 / (w + (1-w)/16) with it, which
    is 4.9 for 15 %; 0/1 Adam's local steps multiply the first.
    """
    full = sent_bytes(PlanOptions(), 64)
    assert full / sent_bytes(options_of("onebit-adam"), 64) == 16
    assert full / sent_bytes(options_of("zeroone-adam", local_steps=16), 64) == 256
    plan = plan_of(options_of("onebit-adam", warmup_share=0.15))
    mixed = stage_costs(workload_of(BERT, plan, ALONE)).exchange.total_s
    whole = stage_costs(workload_of(BERT, plan_of(PlanOptions()), ALONE)).exchange.total_s
    assert whole / mixed == pytest.approx(4.92, abs=0.005)


def test_power_sgd_sends_the_factors_of_every_matrix_and_the_vectors() -> None:
    """Three layers of 64: matrices of 192, 64 and 256 rows by 64, and 64 by 256; a table of 1,024 rows."""
    workload = workload_of(SMALL, plan_of(options_of("powersgd", compression_rank=2)), ALONE)
    rows = 3 * (192 + 64 + 256 + 64) + 1024
    columns = 3 * (64 + 64 + 64 + 256) + 64
    elements = 3 * (192 * 64 + 64 * 64 + 2 * 256 * 64) + 1024 * 64
    whole = parameters_of(workload)
    left, right, vectors = (float(share[0]) * whole for share in power_factors(workload).shares)
    assert (left, right) == pytest.approx((2 * rows, 2 * columns))
    assert vectors == pytest.approx(whole - elements)
    found = stage_costs(workload).exchange.reduce_s[0]
    assert found == pytest.approx(2 * 15 / 16 * 2 * (left + right + vectors) / NIC, rel=1e-9)
    highest = workload_of(SMALL, plan_of(options_of("powersgd", compression_rank=10_000)), ALONE)
    assert power_factors(highest).shares[0][0] * whole == pytest.approx(64 * rows)  # a matrix's own rank


def test_integers_cross_nodes_after_the_sum_in_the_node() -> None:
    """Two nodes of 8 on ZeRO-2: every GPU sends an eighth of 4-bit gradients, half of them to the other node,
    and all 8 share the NICs.
    """
    plan = plan_of(options_of("int4"), 16, zero_stage=2)
    slow = replace(A100, nic_bytes_per_s=1e8, network_latency_s=0.0, network_efficiency=1.0)
    workload = workload_of(BERT, plan, slow)
    found = moved_s(workload, np.array([1e9]), Shards.of(workload.plans), workload.plans.tp).scatter
    nbytes = 1e9 * (0.5 + 4 / 1024)
    inside = PROFILE.seconds(Collective("all_to_all", nbytes, 8))
    assert found == pytest.approx(nbytes / 8 / 2 * 8 / 1e8 + inside, rel=1e-9)


def test_zero_plus_plus_sends_a_quarter_between_nodes() -> None:
    """3 M of ZeRO-3 become 0.75 M: 0.5 M forward, nothing backward, 0.25 M of gradients (Wang et al. 2023,
    table 1), apart from scales and from what a rank keeps.
    """
    slow = replace(
        A100, nic_bytes_per_s=1e6, network_latency_s=0.0, network_bulk_latency_s=0.0, network_efficiency=1.0
    )
    each = {}
    for text in ("", "quantized_weights=true,secondary_shards=8,compression=int4"):
        workload = workload_of(BERT, plan_of(parse_options(text), 1024, zero_stage=3), slow)
        moved = moved_s(workload, np.array([1e8]), Shards.of(workload.plans), workload.plans.tp)
        each[text] = [float(seconds[0]) * 1e6 / 2e8 for seconds in dataclasses.astuple(moved)]
    plain, less = each.values()
    assert plain == pytest.approx([1, 1, 1], rel=0.01)
    assert less[0] == pytest.approx(WEIGHT_BYTES / 2, rel=0.01)
    assert less[1] < 1e-4  # within the node
    assert less[2] == pytest.approx(0.25, rel=0.02)
    assert sum(plain) / sum(less) == pytest.approx(4, rel=0.01)


def test_the_kernels_of_a_bit_are_those_of_the_program_one_by_one() -> None:
    """`Compressed_Allreduce` of DeepSpeed 0.3.1: bytes read and written, 4 for a float, 1 for a bool, 1/8 for
    a bit.
    """
    add, multiply, to_bool, to_float, pack = 4 + 4 + 4, 4 + 4, 4 + 1, 1 + 4, 1 + 1 / 8
    sign = norm = 4
    signs = (sign + 4) + multiply + to_bool + to_float + multiply + multiply
    error = multiply + add  # scale x signs, and what that lacks
    worker = add + norm + signs + error + (sign + 4) + multiply + to_bool + pack
    assert worker == COMPRESSED
    assert pack + to_float + multiply + multiply + multiply + 4 == SUMMED
    assert pack + to_float + multiply + multiply + multiply == UNPACKED


def test_the_steps_are_those_of_the_programs_one_by_one() -> None:
    """`FP16_Optimizer.step` and `OnebitAdam.step` of DeepSpeed 0.3.1."""
    in_place, three = 4 + 4, 4 + 4 + 4
    wrapper = (2 + 4) + 4 + (2 + 4) + in_place + 4 + in_place + (4 + 2)
    update = in_place + in_place + three + in_place + three + in_place + three  # sqrt, eps, /, decay, lr
    first_moment = second_moment = in_place + three
    assert STEP_BYTES["onebit-adam"] == (
        wrapper + first_moment + second_moment + update,
        wrapper + first_moment + update,
        0.0,
    )
    accumulated = in_place + three
    assert STEP_BYTES["zeroone-adam"][1] == wrapper + first_moment + update + accumulated


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_warm_up_is_the_mean_of_both_stages(compression: str, overlap: bool) -> None:
    system = load_system("v100-pcie-qdr")
    runs = [
        predict(
            BERT, plan_of(options_of(compression, warmup_share=share), grad_overlap=overlap), system
        ).iteration_s
        for share in (0.0, 0.3, 1.0)
    ]
    assert runs[1] == pytest.approx(0.7 * runs[0] + 0.3 * runs[2], rel=1e-12)
    if compression == "fp8" and overlap:  # a hook, whose warm-up is the plain plan
        plain = predict(BERT, plan_of(PlanOptions(), grad_overlap=True), system)
        assert runs[2] == pytest.approx(plain.iteration_s, rel=1e-12)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_only_hooks_on_buckets_hide_behind_the_backward_pass(compression: str) -> None:
    exposed = [
        predict(BERT, plan_of(options_of(compression), 8, grad_overlap=overlap), A100).breakdown["dp_comm"]
        for overlap in (False, True)
    ]
    one_bit = compression.startswith(("onebit", "zeroone"))
    assert (exposed[1] == exposed[0]) if one_bit else (exposed[1] < exposed[0])


def test_exchanges_of_zero_one_adam_are_as_rare_as_its_local_steps() -> None:
    runs = [
        predict(BERT, plan_of(options_of("zeroone-adam", local_steps=steps)), A100).breakdown
        for steps in (1, 16)
    ]
    for part in ("dp_comm", "compression_once"):
        assert runs[1][part] == pytest.approx(runs[0][part] / 16, rel=1e-9)


@pytest.mark.parametrize(
    ("compression", "each"),
    [("int8", 0.0), ("topk", 2.0), ("powersgd", 2.0), ("onebit-adam", 4.25), ("zeroone-adam", 8.25)],
)
def test_errors_that_were_not_sent_stay_in_memory(compression: str, each: float) -> None:
    """Of every parameter; the error of a server is that of a chunk, 4 bytes over 16 ranks."""
    plan = plan_of(options_of(compression))
    run = predict(BERT, plan, A100)
    expected = each * parameters_of(workload_of(BERT, plan, A100))
    assert run.memory_parts["compression_errors"] == pytest.approx(expected, rel=1e-12)
    plain = predict(BERT, plan_of(PlanOptions()), A100)
    assert run.memory_bytes - plain.memory_bytes == pytest.approx(expected, abs=1)


def test_a_second_copy_of_the_weights_costs_memory() -> None:
    """2 bytes of each of 16 ranks' parameters in 4 parts; the backward pass gathers from 4 ranks."""
    runs = [
        predict(BERT, plan_of(PlanOptions(secondary_shards=shards), zero_stage=3, prefetch=False), ALONE_BY_4)
        for shards in (None, 4)
    ]
    whole = parameters_of(workload_of(BERT, plan_of(PlanOptions()), A100))
    assert runs[1].memory_parts["secondary_weights"] == pytest.approx(2 * whole / 4, rel=1e-9)
    assert "secondary_weights" not in runs[0].memory_parts
    assert runs[1].iteration_s < runs[0].iteration_s


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_rank_alone_exchanges_nothing_beside_others_that_do(compression: str) -> None:
    both = [plan_of(options_of(compression), ranks) for ranks in (1, 8)]
    together = stage_costs(Workload.of(BERT, PlanBatch.of(both), A100, PROFILE)).once
    alone = stage_costs(workload_of(BERT, both[1], A100)).once
    for part in ("dp_comm", "compression_once"):
        assert together[part][0] == 0
        assert together[part][1] == pytest.approx(alone[part][0], rel=1e-12)
    assert together["dp_comm"][1] > 0


def test_zero_plus_plus_pays_on_slow_networks_alone() -> None:
    """Up to 2.16 times the throughput on 384 V100s (Wang et al. 2023, abstract), of models near 18B."""
    model = load_model("megatron-18.4b")
    gains = {}
    for gbps in (100, 200, 400):
        system = load_system(f"dgx-v100,nic_gbps={gbps}")
        plain, less = (
            predict(model, replace(plan_of(parse_options(text), 384, zero_stage=3), recompute="full"), system)
            for text in ("", "quantized_weights=true,secondary_shards=8,compression=int4")
        )
        gains[gbps] = plain.iteration_s / less.iteration_s
    assert gains[100] == pytest.approx(2.16, abs=0.15)
    assert 1 < gains[200] < gains[100]
    assert gains[400] < 1


def test_a_stage_without_experts_agrees_on_no_scale_for_them() -> None:
    """The first stage holds the dense layer alone; a plan with experts beside it changes nothing."""
    mixture = replace(load_model("deepseek-v2-lite"), layers=4)
    options = parse_options("compression=fp8")
    plan = Plan(4, 4, 4, 1, 8, sequence_parallel=True, rank_order="tp-cp-pp-dp", options=options)
    system = load_system("dgx-a100-80gb")
    together = evaluate(mixture, PlanBatch.of([plan, replace(plan, pp=1)]), system).prediction(0)
    assert together.breakdown["dp_comm"] == pytest.approx(predict(mixture, plan, system).breakdown["dp_comm"])
