"""The whole iteration: formulas against the task graph, with every feature switched on in turn; the trace
file.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, load_model, load_system, predict
from itertime.errors import UserError
from itertime.spec import RECOMPUTE, PlanOptions, Site, System
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
VALUES = yaml.safe_load(Path(__file__).with_name("drawn_values.yaml").read_text(encoding="utf-8"))
VALUES["plan"] |= {"recompute": RECOMPUTE, "dispatcher": DISPATCHERS, "cuda_graphs": CUDA_GRAPHS}
VALUES["plan"] |= {"cp_exchange": CP_EXCHANGES, "rank_order": RANK_ORDERS}
MODELS, PLANS = (
    st.fixed_dictionaries({field: st.sampled_from(values) for field, values in VALUES[kind].items()})
    for kind in ("model", "plan")
)


@st.composite
def runs(draw):
    model = ModelSpec(name="random", **draw(MODELS))
    model = replace(model, experts_per_token=min(model.experts, draw(st.integers(1, 2))))
    if model.experts > 1:
        model = replace(
            model,
            load_imbalance=draw(st.sampled_from([1.0, 1.7])),
            shared_ffn_hidden=draw(st.sampled_from([0, 1024])),
        )
        if draw(st.booleans()):
            model = replace(model, dense_layers=draw(st.integers(1, 3)), dense_ffn_hidden=2 * model.hidden)
    if model.attention == "flash":
        model = replace(model, window=draw(st.sampled_from([0, 128])), qk_norm=draw(st.booleans()))
        if model.experts == 1 and draw(st.booleans()):
            model = replace(model, lora_rank=8, lora_targets=draw(st.sampled_from(["attention", "linear"])))
        elif draw(st.booleans()):
            latent = {"kv_heads": 16, "latent_kv": 64, "latent_q": draw(st.sampled_from([0, 128]))}
            model = replace(model, **latent, rope_head_dim=16)
    values = draw(PLANS)
    pp, dp, interleave = values["pp"], values["dp"], values["interleave"]
    even = "even" if model.layers % (pp * interleave) == 0 else "balanced"
    values |= {
        "global_batch": dp * 4 * pp * draw(st.integers(1, 3)),
        "zero_stage": draw(st.sampled_from([0, 1] if pp > 1 else [0, 1, 2, 3])),
        "split": draw(st.sampled_from([even, "ends", "remainder"] + ["compute"] * (interleave == 1))),
    }
    if interleave > 1:
        values["schedule"] = "1f1b"
    if model.attention == "core":
        values["cp"] = 1
    if model.experts == 1 or dp <= 2:
        values["ep"] = 1
    if model.experts == 1:
        values["etp"] = None
    else:
        values["sequence_parallel"] = True
    return model, Plan(**values), SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))]


@pytest.fixture(scope="module")
def hopper(tmp_path_factory: pytest.TempPathFactory) -> System:
    """H100 at 500 W under a framework of which no constant is neutral."""
    path = tmp_path_factory.mktemp("frameworks") / "slow.yaml"
    path.write_text(yaml.safe_dump(VALUES["framework"]))
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


def test_the_exchange_is_the_last_but_the_overheads_and_lasts_its_share_of_an_iteration():
    options = PlanOptions(workers=4, local_steps=500, outer="diloco")
    plan = Plan(1, 2, 32, 1, 64, options=options)
    system = load_system("dgx-h100,site_link_gbps=40")
    task = iteration_graph(load_model("llama2-7b"), plan, system).tasks["exchange between workers (1/500)"]
    found = predict(load_model("llama2-7b"), plan, system)
    assert (task.stream, task.predecessors) == ("network", ("optimizer",))
    assert task.seconds == found.breakdown["outer_sync"] > 0
