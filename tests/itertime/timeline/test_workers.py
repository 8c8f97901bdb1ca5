"""Iterations of workers that exchange seldom, and of shards of different sizes: formulas against the task
graph.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from itertime import Plan, load_model, load_system, predict
from itertime.spec import PlanOptions
from itertime.timeline import iteration_graph
from tests.effort import examples
from tests.oracles.task_graph import predicted_as_the_graph

H100 = load_system("dgx-h100")
SYSTEMS = (H100, replace(H100, site_link_bytes_per_s=5e9), replace(H100, gpus_per_node=4))
WORKERS = st.builds(
    dict,
    workers=st.sampled_from([2, 4, 8, 32]),
    local_steps=st.sampled_from([1, 7, 500]),
    outer=st.sampled_from(["average", "diloco", "des-loc"]),
    compression=st.sampled_from(["none", "int8"]),
)
SHARDS = st.sampled_from([(None, None, None), (1, 1, 4), (1, 2, 4), (2, 2, 8), (4, 4, 4), (1, 8, 8)])


@st.composite
def runs(draw):
    options = draw(st.one_of(st.just({}), WORKERS))
    if options.get("outer") == "des-loc":
        options = options | {"momentum_steps": draw(st.sampled_from([None, 3, 1500]))}
    names = ("weight_shards", "gradient_shards", "optimizer_shards")
    options = options | dict(zip(names, draw(SHARDS), strict=True))
    pp = draw(st.sampled_from([1, 1, 2, 4]))
    plan = Plan(
        tp=draw(st.sampled_from([1, 2])),
        pp=pp,
        dp=32,
        cp=draw(st.sampled_from([1, 2])),
        micro_batch=1,
        global_batch=32 * pp * draw(st.integers(1, 3)),
        interleave=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        zero_stage=draw(st.sampled_from([0, 1] if pp > 1 else [0, 1, 2, 3])),
        zero_group=draw(st.sampled_from([None, 1, 4])),
        grad_overlap=draw(st.booleans()),
        prefetch=draw(st.booleans()),
        fp32_gradients=draw(st.booleans()),
        offload_optimizer=draw(st.booleans()),
        rank_order=draw(st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"])),
        sequence_parallel=True,
        options=PlanOptions(**options),
    )
    model = draw(st.sampled_from(["gpt3-1.3b", "olmoe-1b-7b", "llama2-7b"]))
    if model == "olmoe-1b-7b":
        plan = replace(plan, ep=draw(st.sampled_from([1, 2, 8])))
    if model == "gpt3-1.3b":
        plan = replace(plan, cp=1)
    return load_model(model), plan, draw(st.sampled_from(SYSTEMS))


@given(runs())
@settings(max_examples=examples(150), deadline=None)
def test_prediction_equals_the_task_graph(run):
    model, plan, system = run
    if plan.broken_rules(model):
        return
    predicted_as_the_graph(model, plan, system)


def test_the_exchange_is_the_last_but_the_overheads_and_lasts_its_share_of_an_iteration():
    options = PlanOptions(workers=4, local_steps=500, outer="diloco")
    plan = Plan(1, 2, 32, 1, 64, options=options)
    graph = iteration_graph(load_model("llama2-7b"), plan, SYSTEMS[1])
    task = graph.tasks["exchange between workers (1/500)"]
    found = predict(load_model("llama2-7b"), plan, SYSTEMS[1])
    assert (task.stream, task.predecessors) == ("network", ("optimizer",))
    assert task.seconds == found.breakdown["outer_sync"] > 0
