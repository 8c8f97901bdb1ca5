"""The whole iteration: formulas against the task graph, with every feature switched on in turn; the trace
file.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, load_system, predict
from itertime.errors import UserError
from itertime.spec import RECOMPUTE, Site, System
from itertime.spec.plans import CUDA_GRAPHS, DISPATCHERS
from itertime.spec.plans.plan import CP_EXCHANGES, RANK_ORDERS
from itertime.timeline import iteration_graph, write_chrome_trace
from itertime.timeline.iteration import chrome_trace
from tests.effort import examples
from tests.oracles.task_graph import predicted_as_the_graph

SYSTEMS = {name: load_system(name) for name in ("dgx-a100-80gb", "a100-80gb-800g")}
SYSTEMS["oversubscribed"] = replace(
    SYSTEMS["a100-80gb-800g"],
    nodes_per_leaf=2,
    leaf_oversubscription=4.0,
    collective_algorithms=("ring", "tree", "hierarchical"),
    network_bulk_latency_s=3e-4,
    site=Site(launch_s=1e-4),  # binds in some passes of some plans
)
SLOW = """
extends: te
name: slow
source: a test
gemm_multiplier: 1.1
fp8_multiplier: 1.2
attention_multiplier: 1.1
elementwise_multiplier: 1.2
cast_multiplier: 1.1
expert_multiplier: 1.3
tp_exposed: 0.3
contention: 0.4
kernels: 2
layer_s: 1.0e-3
pipeline_layer_s: 1.0e-3
expert_layer_s: 1.0e-3
micro_batch_s: 1.0e-3
iteration_s: 0.1
"""
SHAPES = st.builds(
    ModelSpec,
    name=st.just("random"),
    layers=st.sampled_from([6, 8, 12, 14, 22, 24]),
    hidden=st.sampled_from([512, 2048, 8192]),
    heads=st.just(16),
    vocab=st.sampled_from([1000, 51200, 250880]),
    seq_len=st.sampled_from([512, 2048]),
    gated_mlp=st.booleans(),
    attention=st.sampled_from(["core", "flash"]),
    positions=st.sampled_from(["learned", "rotary"]),
    tied_embeddings=st.booleans(),
    dropout=st.booleans(),
    kv_heads=st.sampled_from([1, 4, 16]),
    encoder=st.booleans(),
    predicted_share=st.sampled_from([1.0, 0.15]),
    vocab_multiple=st.sampled_from([1, 128]),
    experts=st.sampled_from([1, 1, 4, 8]),
)


@st.composite
def runs(draw):
    model = draw(SHAPES)
    model = replace(model, experts_per_token=min(model.experts, draw(st.integers(1, 2))))
    if model.experts > 1 and draw(st.booleans()):
        model = replace(model, dense_layers=draw(st.integers(1, 3)), dense_ffn_hidden=2 * model.hidden)
    if model.experts > 1:
        model = replace(
            model,
            load_imbalance=draw(st.sampled_from([1.0, 1.7])),
            shared_ffn_hidden=draw(st.sampled_from([0, 1024])),
        )
    if model.attention == "flash":
        model = replace(model, window=draw(st.sampled_from([0, 128])), qk_norm=draw(st.booleans()))
        if model.experts == 1 and draw(st.booleans()):
            model = replace(model, lora_rank=8, lora_targets=draw(st.sampled_from(["attention", "linear"])))
        elif draw(st.booleans()):
            latent = {"kv_heads": 16, "latent_kv": 64, "latent_q": draw(st.sampled_from([0, 128]))}
            model = replace(model, **latent, rope_head_dim=16)
    pp = draw(st.sampled_from([1, 2, 3, 4, 5, 8]))
    dp = draw(st.sampled_from([1, 2, 16]))
    interleave = draw(st.sampled_from([1, 1, 2, 3]))
    plan = Plan(
        tp=draw(st.sampled_from([1, 2, 8, 16])),
        pp=pp,
        dp=dp,
        micro_batch=draw(st.sampled_from([1, 4])),
        global_batch=dp * 4 * pp * draw(st.integers(1, 3)),
        interleave=interleave,
        recompute=draw(st.sampled_from(RECOMPUTE)),
        zero_stage=draw(st.sampled_from([0, 1] if pp > 1 else [0, 1, 2, 3])),
        zero_group=draw(st.sampled_from([None, 1])),
        sequence_parallel=model.experts > 1 or draw(st.booleans()),
        grad_overlap=draw(st.booleans()),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])) if interleave == 1 else "1f1b",
        split=draw(
            st.sampled_from(
                ["even" if model.layers % (pp * interleave) == 0 else "balanced", "ends", "remainder"]
                + ["compute"] * (interleave == 1)
            )
        ),
        fp32_gradients=draw(st.booleans()),
        cp=draw(st.sampled_from([1, 2, 4])) if model.attention == "flash" else 1,
        cp_exchange=draw(st.sampled_from(CP_EXCHANGES)),
        ep=draw(st.sampled_from([1, 2, 4])) if model.experts > 1 and dp > 2 else 1,
        etp=draw(st.sampled_from([None, 1, 2])) if model.experts > 1 else None,
        dispatcher=draw(st.sampled_from(DISPATCHERS)),
        ep_overlap=draw(st.booleans()),
        cuda_graphs=draw(st.sampled_from(CUDA_GRAPHS)),
        rank_order=draw(st.sampled_from(RANK_ORDERS)),
        prefetch=draw(st.booleans()),
        bucket_bytes=draw(st.sampled_from([None, 10_000_000, 25_000_000])),
        offload_layers=draw(st.sampled_from([0, 0, 1, 2])),
        offload_optimizer=draw(st.booleans()),
        tp_overlap=draw(st.sampled_from([None, False, True])),
        recompute_fraction=draw(st.sampled_from([1.0, 0.5, 0.0])),
    )
    return model, plan, SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))]


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> System:
    """H100 at 500 W under a framework of which no constant is neutral."""
    path = tmp_path_factory.mktemp("frameworks") / "slow.yaml"
    path.write_text(SLOW)
    return replace(load_system("dgx-h100"), gpus_per_node=4, power_w=500.0, framework=str(path))


@given(run=runs(), precision=st.sampled_from(["bf16", "fp8", "fp8_block"]))
@settings(max_examples=examples(100), deadline=None)
def test_prediction_equals_the_task_graph_under_any_framework(hopper, run, precision):
    model, plan, _ = run
    plan = replace(plan, precision=precision)
    if plan.broken_rules(model):
        return
    predicted_as_the_graph(model, plan, hopper)


@given(runs())
@settings(max_examples=examples(150), deadline=None)
def test_prediction_equals_the_task_graph(run):
    model, plan, system = run
    if plan.broken_rules(model):
        with pytest.raises(UserError):
            predict(model, plan, system)
        return
    predicted_as_the_graph(model, plan, system)


def test_the_trace_holds_every_pass_and_ends_with_the_iteration(tmp_path):
    model = ModelSpec("small", 8, 1024, 16, 51200, 1024)
    plan = Plan(2, 4, 2, 1, 16, zero_stage=1, grad_overlap=True)
    graph = iteration_graph(model, plan, SYSTEMS["dgx-a100-80gb"])
    write_chrome_trace(graph, tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace == chrome_trace(graph)
    passes = [
        event
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event.get("cat") in ("forward", "backward")
    ]
    whole = [event for event in passes if "piece" not in event["name"]]
    assert len(whole) == 2 * 4 * 8  # passes x stages x micro-batches
    end = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
    assert end / 1e6 == pytest.approx(predict(model, plan, SYSTEMS["dgx-a100-80gb"]).iteration_s, rel=1e-9)
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]
