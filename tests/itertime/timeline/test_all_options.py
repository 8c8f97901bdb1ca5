"""Every option of a plan at once: formulas against the task graph."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, PlanBatch, evaluate, load_model, load_system, predict
from itertime.spec import PlanOptions, System, parse_options
from tests.effort import examples
from tests.itertime.tables import table_rows
from tests.oracles.task_graph import predicted_as_the_graph

SYSTEMS = [
    replace(load_system("dgx-h100"), framework="megatron", site_link_bytes_per_s=5e9),
    replace(load_system("dgx-h100"), framework="eager", collective_algorithms=("ring", "sharp")),
]
ONE_BIT = ("onebit-adam", "onebit-lamb", "zeroone-adam")
SHARDS = ("weight_shards", "gradient_shards", "optimizer_shards")


@st.composite
def options(draw) -> PlanOptions:
    """Options that keep the rules among themselves; those with the plan are the test's business."""
    found: dict[str, object] = {
        "clipping": draw(st.sampled_from(["after", "none", "before", "bucket"])),
        "optimizer": draw(st.sampled_from(["adam", "adamw", "fused-adam", "lamb", "came", "sgd"])),
    }
    batching = draw(st.sampled_from(["padded", "longest", "unpadded", "packed"]))
    if batching in ("longest", "unpadded"):
        found["balance"] = draw(st.sampled_from(["drawn", "sorted", "exchanged", "stratified-exchanged"]))
    found["batching"] = batching
    workers = draw(st.sampled_from([1, 1, 2, 4]))
    compressions = ["none", "none", "fp16", "fp8", "int8", "int4"]
    if workers > 1:
        found |= {"workers": workers, "local_steps": draw(st.sampled_from([1, 30]))}
        found["outer"] = draw(st.sampled_from(["average", "diloco", "des-loc"]))
    else:
        compressions += ["topk", "powersgd", *ONE_BIT]
    found["compression"] = draw(st.sampled_from(compressions))
    if found["compression"] != "none":
        found["warmup_share"] = draw(st.sampled_from([0.0, 0.2]))
    if found["compression"] in ONE_BIT:
        lamb = found["compression"] == "onebit-lamb"
        found |= {"optimizer": "lamb" if lamb else "adam", "clipping": "none"}
    elif draw(st.booleans()):
        found |= dict(
            zip(SHARDS, draw(st.sampled_from([(1, 1, 4), (1, 2, 8), (2, 2, 4), (4, 4, 4)])), strict=True)
        )
    found["quantized_weights"] = draw(st.booleans())
    found["secondary_shards"] = draw(st.sampled_from([None, 2]))
    return PlanOptions(**found)  # type: ignore[arg-type]


@st.composite
def runs(draw) -> tuple[ModelSpec, Plan, System]:
    chosen = draw(options())
    gathers = chosen.weight_shards is None or chosen.weight_shards > 1
    whole = chosen.compression in (*ONE_BIT, "topk", "powersgd")
    stage = 0 if whole else draw(st.sampled_from([0, 1, 2, 3]))
    if not (gathers and (stage == 3 or chosen.weight_shards)):
        chosen = replace(chosen, quantized_weights=False, secondary_shards=None)
    if stage > 1 or chosen.gradient_shards:
        chosen = replace(chosen, warmup_share=0.0)
    model = load_model(draw(st.sampled_from(["bert-large", "gpt3-1.3b", "olmoe-1b-7b"])))
    model = replace(model, seq_len=512, lengths="wikipedia-512", attention="flash", layers=4)
    pp = draw(st.sampled_from([1, 2])) if chosen.batching in ("padded", "packed") and stage < 2 else 1
    plan = Plan(
        tp=draw(st.sampled_from([1, 2])),
        pp=pp,
        dp=16,
        micro_batch=draw(st.sampled_from([4, 8])),
        global_batch=1024,
        interleave=draw(st.sampled_from([1, 2])) if pp > 1 else 1,
        zero_stage=stage,
        grad_overlap=draw(st.booleans()),
        bucket_bytes=draw(st.sampled_from([None, 25_000_000])),
        fp32_gradients=draw(st.booleans()),
        offload_optimizer=draw(st.booleans()) and chosen.optimizer == "adam" and not whole,
        cuda_graphs=draw(st.sampled_from(["none", "full"])),
        cp=draw(st.sampled_from([1, 1, 2])) if chosen.batching == "padded" else 1,
        prefetch=draw(st.booleans()),
        zero_group=draw(st.sampled_from([None, 1, 4])) if 0 < stage < 3 else None,
        rank_order=draw(st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"])),
        ep=draw(st.sampled_from([1, 2])) if model.experts > 1 else 1,
        sequence_parallel=True,
        options=chosen,
    )
    return model, plan, draw(st.sampled_from(SYSTEMS))


@given(runs())
@settings(max_examples=examples(200), deadline=None)
def test_prediction_equals_the_task_graph(run: tuple[ModelSpec, Plan, System]) -> None:
    model, plan, system = run
    assume(not plan.broken_rules(model))
    found, _ = predicted_as_the_graph(model, plan, system)
    assert all(seconds >= 0 for seconds in found.breakdown.values())
    assert sum(found.memory_parts.values()) == pytest.approx(found.memory_bytes)


def test_no_option_is_missing_here() -> None:
    """An option that is added has to be drawn above; ranks and densities of a compression are numbers."""
    numbers = {"compression_rank", "compression_density", "momentum_steps", "variance_steps"}
    drawn = {"clipping", "optimizer", "batching", "balance", "workers", "local_steps", "outer", "compression"}
    drawn |= {"warmup_share", "quantized_weights", "secondary_shards", *SHARDS}
    assert {field.name for field in fields(PlanOptions)} == drawn | numbers


@pytest.mark.parametrize("text", [text for (text,) in table_rows("options at once")])
def test_many_plans_at_once_equal_each_alone(text: str) -> None:
    model = replace(load_model("bert-large"), seq_len=512, lengths="wikipedia-512", attention="flash")
    plans = [
        Plan(
            tp, pp, dp, 4, 1024, zero_stage=stage, grad_overlap=overlap, offload_optimizer=offload,
            rank_order=order, options=parse_options(text),
        )
        for tp, pp, dp in ((1, 1, 16), (2, 1, 64), (4, 1, 32), (1, 4, 64), (2, 2, 32))
        for stage, order in ((0, "tp-cp-dp-pp"), (1, "tp-cp-pp-dp"), (3, "tp-cp-dp-pp"))
        for overlap, offload in ((True, False), (False, False), (True, True))
    ]  # fmt: skip
    plans = [plan for plan in plans if not plan.broken_rules(model)]
    assert len(plans) > 3
    for system in SYSTEMS:
        together = evaluate(model, PlanBatch.of(plans), system)
        for row, plan in enumerate(plans):
            alone = predict(model, plan, system)
            for found, wanted in (
                (together.prediction(row).breakdown, alone.breakdown),
                (together.prediction(row).memory_parts, alone.memory_parts),
            ):
                assert all(
                    found.get(name, 0.0) == pytest.approx(wanted.get(name, 0.0), rel=1e-9, abs=1e-14)
                    for name in {**found, **wanted}
                )
