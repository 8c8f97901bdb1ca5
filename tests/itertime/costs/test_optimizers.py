"""The optimizer's step and gradient clipping: bytes, launches, states, and what they exchange."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import Plan, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange import state_bytes
from itertime.costs.exchange.clipping import clipping_s
from itertime.costs.exchange.gradients import exchanges, exposed_s
from itertime.costs.exchange.optimizer import optimizer_s
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s, reduce_scatter_s
from itertime.spec import ModelSpec, PlanBatch, PlanOptions, Site, System, load_profile, parse_options
from itertime.spec.kernels import ElementwiseModel
from tests.effort import examples

BERT, GPT = load_model("bert-large"), load_model("megatron-1.7b")
A100, PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
H100 = load_system("dgx-h100")
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
        workload = Workload.of(GPT, batch, A100, PROFILE)
        found[name] = exchanges(workload, layers, np.array([1e9]), np.zeros(1)).division(np.array([0]))
    assert found["lamb"].reduce_s == found["adam"].reduce_s
    assert found["lamb"].gather_s == found["adam"].gather_s


def test_distributed_lamb_in_nodes_sends_one_shard_of_each_gpu_between_them() -> None:
    """128 nodes of 8: a reduce-scatter in the node, then all-reduces of an eighth, 8 of them at a time."""
    plan = Plan(1, 1, 1024, 1, 1024, zero_stage=1, zero_group=8, options=PlanOptions(optimizer="lamb"))
    workload = Workload.of(BERT, PlanBatch.of([plan]), A100, PROFILE)
    found = exchanges(workload, np.array([24]), np.array([3e8]), np.zeros(1)).division(np.array([0]))
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
    ("text", "states"),
    [
        *(("optimizer=adam", 12), ("optimizer=adamw", 12), ("optimizer=fused-adam", 12)),
        *(("optimizer=lamb", 12), ("optimizer=sgd", 8), ("moments=bf16", 8), ("master_weights=false", 8)),
        *(("optimizer=adam8bit", 4 + 2 + 8 / 256), ("moments=bf16,master_weights=false", 4)),
        ("optimizer=sgd,moments=int8,master_weights=false", 1 + 4 / 256),
    ],
)
def test_the_states_are_the_master_weight_and_the_moments(text: str, states: float) -> None:
    options = parse_options(text)
    assert state_bytes(BERT, options) == states
    found = predict(BERT, replace(Plan(1, 1, 8, 4, 32), options=options), A100)
    usual = predict(BERT, Plan(1, 1, 8, 4, 32), A100)
    ratio = found.memory_parts["optimizer"] / usual.memory_parts["optimizer"]
    assert ratio == pytest.approx(states / 12, rel=1e-12)


def test_came_factors_the_second_moment_and_the_confidence() -> None:
    """Of BERT-large's matrices, four of 1,024 x 1,024 and two of 1,024 x 4,096: 8 (n + m) bytes each."""
    factors = 8 * (4 * 2048 + 2 * 5120) / (4 * 1024**2 + 2 * 1024 * 4096)
    assert state_bytes(BERT, PlanOptions(optimizer="came")) == pytest.approx(8 + factors, rel=1e-12)


def test_muon_keeps_one_moment_of_matrices_and_makes_them_orthogonal() -> None:
    """Of 8 bytes a parameter, 4 more of what stays under Adam; 4 n n m + 2 n n n FLOPs a matrix and step."""
    model, h, f = load_model("llama2-7b"), 4096, 11008
    plan = Plan(1, 1, 1, 1, 1, options=parse_options("optimizer=muon"))
    matrices, parameters = 32 * (4 * h * h + 3 * h * f), model.parameters - h  # the final norm is left out
    found = predict(model, plan, H100)
    states = 8 * parameters + 4 * (parameters - matrices)
    assert found.memory_parts["optimizer"] == pytest.approx(states, rel=1e-12)
    flops = 32 * (4 * 6 * h**3 + 3 * (4 * h * h * f + 2 * h**3))
    steps = [
        predict(model, replace(plan, options=replace(plan.options, newton_schulz_steps=count)), H100)
        for count in (5, 6, 10)
    ]
    once, five = (each.breakdown["optimizer"] - steps[0].breakdown["optimizer"] for each in steps[1:])
    assert five == pytest.approx(5 * once, rel=1e-9)
    assert 0.5 < flops / once / 989e12 < 0.9
    shared = predict(model, replace(plan, dp=8, global_batch=8, zero_stage=1), H100)
    assert shared.memory_parts["optimizer"] == pytest.approx(states / 8, rel=1e-12)
    assert shared.breakdown["optimizer"] == pytest.approx(steps[0].breakdown["optimizer"] / 8, rel=0.05)


def test_muon_of_experts_is_divided_over_their_copies_alone() -> None:
    """A rank with experts of its own makes all of these orthogonal, and an eighth of the other matrices."""
    model = load_model("deepseek-v2-lite")
    plan = Plan(1, 1, 8, 1, 8, zero_stage=1, ep=8, options=parse_options("optimizer=muon"))
    own, copied = (predict(model, replace(plan, ep=ep), H100).breakdown["optimizer"] for ep in (8, 1))
    assert own == pytest.approx(copied, rel=0.1)
    one = predict(model, replace(plan, dp=1, ep=1, global_batch=1), H100).breakdown["optimizer"]
    assert own == pytest.approx(one / 8, rel=0.1)


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
def clipped_plans(draw: st.DrawFn) -> Plan:
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


@given(clipped_plans(), st.sampled_from(["adam", "fused-adam", "lamb"]))
@settings(max_examples=examples(60), deadline=None)
def test_before_costs_no_less_than_bucket_which_costs_no_less_than_none(plan: Plan, optimizer: str) -> None:
    none, bucket, before, after = (
        predict(GPT, _with(plan, clipping=clipping, optimizer=optimizer), A100).iteration_s
        for clipping in ("none", "bucket", "before", "after")
    )
    assert none <= bucket * (1 + 1e-12)
    assert bucket <= before * (1 + 1e-12)
    assert none < after


@given(clipped_plans())
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


@given(clipped_plans())
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
