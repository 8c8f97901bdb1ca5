"""Gradient clipping: the flow of buckets over two machines, and what each way of clipping costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import Plan, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange.clipping import clipping_s
from itertime.costs.exchange.gradients import exposed_s
from itertime.spec import PlanBatch, PlanOptions, load_profile
from itertime.spec.kernels import ElementwiseModel
from tests.effort import examples

BERT, GPT = load_model("bert-large"), load_model("megatron-1.7b")
A100, PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
MANY = Plan(1, 1, 1024, 4, 4096, grad_overlap=True, bucket_bytes=25_000_000)
seconds = st.floats(0, 10)


def _with(plan: Plan, **options: object) -> Plan:
    return replace(plan, options=PlanOptions(**options))


@given(seconds, seconds, seconds, st.integers(1, 40))
def test_buckets_flow_over_two_machines_as_a_simulation_says(
    piece: float, kernels: float, sent: float, count: int
) -> None:
    """Every bucket passes the compute stream, then the network; the formula against the recurrence."""
    computed = network = 0.0
    for _ in range(count):
        computed += piece + kernels
        network = max(network, computed) + sent
    along = np.array([count * (piece + kernels)])
    shown = exposed_s(np.array([count * sent]), along, np.array([count]), np.array([True]))
    assert along[0] + shown[0] == pytest.approx(network, rel=1e-12)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Plans of `GPT` whose buckets have a size, so that no way of clipping changes their number."""
    pp, interleave = draw(st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (4, 3)]))
    dp = draw(st.sampled_from([1, 2, 16, 64]))
    plan = Plan(
        tp=draw(st.sampled_from([1, 2, 8])),
        pp=pp,
        dp=dp,
        micro_batch=1,
        global_batch=dp * pp * draw(st.integers(1, 3)),
        interleave=interleave,
        zero_stage=draw(st.sampled_from([0, 1])),
        grad_overlap=draw(st.booleans()),
        fp32_gradients=draw(st.booleans()),
        bucket_bytes=draw(st.sampled_from([25_000_000, 100_000_000])),
    )
    return plan.check(GPT)


@given(plans(), st.sampled_from(["adam", "fused-adam", "lamb"]))
@settings(max_examples=examples(60), deadline=None)
def test_before_costs_no_less_than_bucket_which_costs_no_less_than_none(plan: Plan, optimizer: str) -> None:
    none, bucket, before, after = (
        predict(GPT, _with(plan, clipping=clipping, optimizer=optimizer), A100).iteration_s
        for clipping in ("none", "bucket", "before", "after")
    )
    assert none <= bucket * (1 + 1e-12)
    assert bucket <= before * (1 + 1e-12)
    assert none < after


@given(plans())
@settings(max_examples=examples(40), deadline=None)
def test_clipping_buckets_by_kernels_that_take_no_time_is_no_clipping(plan: Plan) -> None:
    free = replace(
        PROFILE, elementwise=PROFILE.elementwise | {"elementwise": ElementwiseModel(1e24, launch_s=0.0)}
    )
    none, bucket = (
        predict(GPT, _with(plan, clipping=clipping), A100, free).iteration_s
        for clipping in ("none", "bucket")
    )
    assert bucket == pytest.approx(none, rel=1e-12)


@given(plans())
@settings(max_examples=examples(40), deadline=None)
def test_clipping_before_is_the_exchange_without_overlap_and_the_norm(plan: Plan) -> None:
    plan = replace(plan, zero_stage=0)  # whose gathers of weights would overlap the forward pass still
    before = predict(GPT, _with(plan, clipping="before"), A100)
    plain = predict(GPT, _with(replace(plan, grad_overlap=False), clipping="none"), A100)
    clipping = before.breakdown["clipping"]
    assert clipping > 0
    assert before.iteration_s == pytest.approx(plain.iteration_s + clipping, rel=1e-12)


@pytest.mark.parametrize("fp32", [False, True])
@pytest.mark.parametrize("clipping", ["before", "bucket"])
def test_norm_and_scaling_read_and_write_the_gradients_three_times(clipping: str, fp32: bool) -> None:
    """On one GPU of pure data parallelism no rank holds other parameters: no norm travels."""
    plan = _with(replace(MANY, fp32_gradients=fp32), clipping=clipping)
    workload = Workload.of(BERT, PlanBatch.of([plan]), A100, PROFILE)
    count, calls = np.array([3e8]), np.array([12])
    found = clipping_s(workload, count, np.zeros(1), calls, np.zeros(1))
    assert found is not None
    kind = PROFILE.elementwise["elementwise"]
    width = 4 if fp32 else 2
    expected = 3 * width * 3e8 / kind.bytes_per_s + 2 * 12 * kind.launch_s
    assert found.seconds(calls) == pytest.approx(expected, rel=1e-12)
    assert found.norm_s == 0


def test_the_norm_of_sums_is_one_of_shards_under_zero_and_travels() -> None:
    """4 bytes for each parameter that a rank owns, and an all-reduce of one number."""
    alone, shared = (
        clipping_s(
            Workload.of(
                BERT, PlanBatch.of([_with(replace(MANY, zero_stage=stage), optimizer="lamb")]), A100, PROFILE
            ),
            np.array([3e8]),
            np.zeros(1),
            np.array([12]),
            np.zeros(1),
        )
        for stage in (0, 1)
    )
    assert alone is not None
    assert shared is not None
    kind = PROFILE.elementwise["elementwise"]
    assert alone.norm_s == pytest.approx(4 * 3e8 / kind.bytes_per_s + kind.launch_s, rel=1e-12)
    of_shard = 4 * 3e8 / 1024 / kind.bytes_per_s + kind.launch_s
    travels = shared.norm_s - of_shard
    assert 2 * 7 * A100.network_latency_s <= travels < 1e-3  # a tree of 128 nodes


def test_kernels_of_buckets_run_while_the_gpu_waits_for_launches() -> None:
    """Eager code leaves them room, and the norm that comes after none; a graph of everything leaves none."""
    model = replace(load_model("bert-large"), attention="flash")
    system = replace(A100, framework="apex-ddp-bert")
    eager, graph = (
        {
            clipping: predict(
                model,
                _with(replace(MANY, cuda_graphs=graphs), clipping=clipping, optimizer="fused-adam"),
                system,
            )
            for clipping in ("none", "bucket", "after", "before")
        }
        for graphs in ("none", "full")
    )
    assert eager["bucket"].iteration_s == pytest.approx(eager["none"].iteration_s, rel=1e-12)
    seconds = [eager[clipping].iteration_s for clipping in ("bucket", "after", "before")]
    assert seconds == sorted(seconds)
    assert seconds[1] - seconds[0] == pytest.approx(eager["after"].breakdown["clipping"], rel=1e-9)
    assert graph["bucket"].breakdown["clipping"] == pytest.approx(graph["before"].breakdown["clipping"])


def test_the_slowest_rank_waits_less_for_launches() -> None:
    """With launches that take little longer than the mean rank's work, more of its kernels show as drawn."""
    bert = replace(load_model("bert-large"), attention="flash", lengths="wikipedia-512")
    system = replace(A100, framework="apex-ddp-bert")

    def shown(samples: int, balance: str) -> float:
        plan = replace(MANY, dp=8, micro_batch=samples, global_batch=8 * samples, recompute="none")
        options = {"batching": "unpadded", "clipping": "bucket", "optimizer": "fused-adam"}
        return predict(bert, _with(plan, balance=balance, **options), system).breakdown["clipping"]

    assert shown(24, "exchanged") == 0
    assert 0 < shown(24, "drawn") < 0.9 * shown(40, "drawn")
    assert shown(40, "exchanged") == shown(40, "drawn")
