"""The whole iteration: formulas against the task graph, with every feature and option on; the trace."""

import itertools
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, PlanBatch, evaluate, load_model, load_system, predict
from itertime.cli import main
from itertime.errors import UserError
from itertime.schedule import SPLIT_SCHEDULES
from itertime.spec import RECOMPUTE, PlanOptions, Site, System, parse_options, profile_of
from itertime.spec.plans import CUDA_GRAPHS, DISPATCHERS
from itertime.spec.plans.plan import CP_EXCHANGES, RANK_ORDERS
from itertime.timeline import (
    LayerKernel,
    iteration_graph,
    layer_kernels,
    write_chrome_trace,
    write_timeline_page,
)
from itertime.timeline.iteration import chrome_trace
from itertime.timeline.page import timeline_page
from tests.effort import examples
from tests.oracles.task_graph import predicted_as_the_graph
from tests.tables import table_rows

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
VALUES["plan"] |= {
    "recompute": (*RECOMPUTE, "layernorm,mlp", "moe_act,shared_experts"),
    "dispatcher": DISPATCHERS,
    "cuda_graphs": CUDA_GRAPHS,
}
VALUES["plan"] |= {"cp_exchange": CP_EXCHANGES, "rank_order": RANK_ORDERS}
MODELS, PLANS = (
    st.fixed_dictionaries({field: st.sampled_from(values) for field, values in VALUES[kind].items()})
    for kind in ("model", "plan")
)


@st.composite
def with_encoder(draw, decoder):
    """An encoder beside a decoder, in as many layers, on one stage or on stages of their own."""
    half = decoder.layers // 2
    model = replace(
        decoder,
        dense_layers=0,
        dense_ffn_hidden=0,
        lora_rank=(rank := draw(st.sampled_from([0, 0, 8]))),
        encoder_seq_len=draw(st.sampled_from([0, 1024])),
        kinds={"encoder": {"encoder": True, "window": 0}, "decoder": {"cross_attention": True}},
        stack=(f"{half} encoder", f"{half} decoder"),
        frozen=() if rank else draw(st.sampled_from([(), ("encoder",), ("encoder", "embedding", "head")])),
    )
    values, pp = draw(PLANS), draw(st.sampled_from([1, 2, 4]))
    sizes = {1: "even", 2: f"{half},{half}", 4: f"1,{half - 1},{half - 1},1"}[pp]
    values |= {"pp": pp, "split": sizes, "cp": 1, "interleave": 1, "ep": 1, "etp": None, "offload_layers": 0}
    values |= {"schedule": draw(st.sampled_from(["1f1b", "gpipe"])), "zero_stage": draw(st.integers(0, 3))}
    values |= {"global_batch": values["dp"] * 4 * pp * draw(st.integers(1, 3))}
    if model.experts > 1:
        values["sequence_parallel"] = True
    return model, Plan(**values), SYSTEMS[draw(st.sampled_from(sorted(SYSTEMS)))]


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
        windows = [0] if model.encoder else [0, 128]
        model = replace(model, window=draw(st.sampled_from(windows)), qk_norm=draw(st.booleans()))
        if draw(st.integers(0, 3)) == 0:
            model = replace(model, lora_rank=8, lora_targets=draw(st.sampled_from(["attention", "linear"])))
        elif draw(st.booleans()):
            latent = {"kv_heads": 16, "latent_kv": 64, "latent_q": draw(st.sampled_from([0, 128]))}
            model = replace(model, **latent, rope_head_dim=16)
    if not (model.dense_layers or model.lora_rank) and draw(st.integers(0, 3)) == 0:
        half = model.layers // 2
        model = replace(model, kinds={"front": {}, "later": {}}, stack=(f"{half} front", f"{half} later"))
        frozen = draw(st.sampled_from([("front",), ("front", "embedding", "head"), ("layers",), ("head",)]))
        model = replace(model, frozen=frozen, tied_embeddings="head" in frozen and len(frozen) > 1)
    elif model.attention == "flash" and not (model.encoder or model.latent_kv) and draw(st.booleans()):
        return draw(with_encoder(model))
    if model.attention == "flash" and draw(st.integers(0, 3)) == 0:
        tower = {"layers": 4, "hidden": 512, "heads": 16, "tokens": 256, "merged": 4, "patch_width": 588}
        tower |= {"window": draw(st.sampled_from([0, 64])), "projector": (1024, model.hidden)}
        model = replace(model, towers={"vision": tower}, images=draw(st.sampled_from([1, 3])))
        frozen = draw(st.sampled_from([(), ("vision",), ("vision", "projector")]))
        model = replace(model, frozen=() if model.lora_rank else (*model.frozen, *frozen))
    values = draw(PLANS)
    pp, dp, interleave = values["pp"], values["dp"], values["interleave"]
    even = "even" if model.layers % (pp * interleave) == 0 else "balanced"
    values |= {
        "global_batch": dp * 4 * pp * draw(st.integers(1, 3)),
        "zero_stage": draw(st.sampled_from([0, 1, 2, 3])),
        "split": draw(st.sampled_from([even, "ends", "remainder"] + ["compute"] * (interleave == 1))),
    }
    if values["schedule"] == "zb-v" and model.layers % (2 * pp) == 0:
        values |= {"interleave": 2, "split": "even"}
    elif interleave > 1:
        values["schedule"] = "1f1b"
    elif pp * interleave <= model.layers and draw(st.integers(0, 3)) == 0:
        chunks = pp * interleave
        borders = draw(st.sets(st.integers(1, model.layers - 1), min_size=chunks - 1, max_size=chunks - 1))
        ends = [0, *sorted(borders), model.layers]
        sizes = [str(end - start) for start, end in itertools.pairwise(ends)]
        values |= {"split": ",".join(sizes), "offload_layers": 0}
    if values["schedule"] in SPLIT_SCHEDULES:
        values |= {"zero_stage": min(values["zero_stage"], 1), "offload_layers": 0}
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
    assume(not plan.broken_rules(model))
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


@given(runs(), st.sampled_from(["none", "full"]))
@settings(max_examples=examples(40), deadline=None)
def test_the_rules_of_the_paper_equal_the_task_graph(run, recompute):
    model, plan, system = run
    degrees = (plan.tp, plan.pp if model.layers % plan.pp == 0 else 2, plan.dp)
    plan = Plan(*degrees, plan.micro_batch, plan.global_batch, recompute=recompute, rules="vtrain")
    assume(not plan.broken_rules(model))
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


OPTIONED_SYSTEMS = [
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
        "optimizer": draw(st.sampled_from(["adam", "adamw", "fused-adam", "lamb", "came", "sgd", "muon"])),
        "loss_chunks": draw(st.sampled_from([1, 4])),
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
    if found["optimizer"] in ("adam", "sgd", "muon") and found["compression"] not in ONE_BIT:
        found["moments"] = draw(st.sampled_from(["fp32", "bf16", "int8"]))
        found["master_weights"] = draw(st.booleans())
    found["quantized_weights"] = draw(st.booleans())
    found["secondary_shards"] = draw(st.sampled_from([None, 2]))
    found["attention_precision"] = draw(st.sampled_from(["bf16", "bf16", "fp8"]))
    found["activation_inputs"] = found["attention_precision"]
    return PlanOptions(**found)  # type: ignore[arg-type]


@st.composite
def optioned_runs(draw) -> tuple[ModelSpec, Plan, System]:
    chosen = draw(options())
    gathers = chosen.weight_shards is None or chosen.weight_shards > 1
    whole = chosen.compression in (*ONE_BIT, "topk", "powersgd")
    wide_states = chosen.moments == "fp32" and chosen.master_weights
    stage = 0 if whole else draw(st.sampled_from([0, 1, 2, 3]))
    if not (gathers and (stage == 3 or chosen.weight_shards)):
        chosen = replace(chosen, quantized_weights=False, secondary_shards=None)
    if stage > 1 or chosen.gradient_shards:
        chosen = replace(chosen, warmup_share=0.0)
    model = load_model(draw(st.sampled_from(["bert-large", "gpt3-1.3b", "olmoe-1b-7b"])))
    model = replace(model, seq_len=512, lengths="wikipedia-512", attention="flash", layers=4)
    pp = draw(st.sampled_from([1, 2])) if chosen.batching in ("padded", "packed") else 1
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
        offload_optimizer=draw(st.booleans()) and chosen.optimizer == "adam" and not whole and wide_states,
        cuda_graphs=draw(st.sampled_from(["none", "full"])),
        cp=draw(st.sampled_from([1, 1, 2])) if chosen.batching == "padded" else 1,
        prefetch=draw(st.booleans()),
        zero_group=draw(st.sampled_from([None, 1, 4])) if 0 < stage < 3 else None,
        rank_order=draw(st.sampled_from(["tp-cp-dp-pp", "tp-cp-pp-dp"])),
        ep=draw(st.sampled_from([1, 2])) if model.experts > 1 else 1,
        sequence_parallel=True,
        precision=chosen.attention_precision,
        options=chosen,
    )
    return model, plan, draw(st.sampled_from(OPTIONED_SYSTEMS))


@given(optioned_runs())
@settings(max_examples=examples(200), deadline=None)
def test_prediction_with_options_equals_the_task_graph(run: tuple[ModelSpec, Plan, System]) -> None:
    model, plan, system = run
    assume(not plan.broken_rules(model))
    found, _ = predicted_as_the_graph(model, plan, system)
    assert all(seconds >= 0 for seconds in found.breakdown.values())
    assert sum(found.memory_parts.values()) == pytest.approx(found.memory_bytes)


def test_no_option_is_missing_here() -> None:
    """An option that is added has to be drawn above; ranks and densities of a compression are numbers."""
    numbers = {"compression_rank", "compression_density", "momentum_steps", "variance_steps"}
    numbers |= {"newton_schulz_steps"}
    drawn = {"clipping", "optimizer", "batching", "balance", "workers", "local_steps", "outer", "compression"}
    drawn |= {"warmup_share", "quantized_weights", "secondary_shards", *SHARDS}
    drawn |= {"attention_precision", "activation_inputs", "loss_chunks", "moments", "master_weights"}
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
    for system in OPTIONED_SYSTEMS:
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


# The page of an iteration


SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")
DRAWN_PLANS = [
    Plan(8, 4, 2, 1, 24, zero_stage=1, grad_overlap=True),
    Plan(8, 4, 2, 1, 16, interleave=2, recompute="selective", sequence_parallel=True),
    Plan(8, 1, 4, 2, 32, zero_stage=3, recompute="none"),
    Plan(8, 2, 1, 1, 8, schedule="gpipe"),
]


def data_of(page):
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.mark.parametrize(
    "plan", [*DRAWN_PLANS, Plan(8, 4, 2, 1, 24, rules="vtrain")], ids=lambda plan: plan.label
)
def test_every_task_is_a_bar_where_the_graph_ran_it(plan):
    data = data_of(timeline_page(MODEL, plan, SYSTEM))
    graph = iteration_graph(MODEL, plan, SYSTEM)
    drawn = sorted((stage["stage"], bar[1], bar[2]) for stage in data["stages"] for bar in _bars(stage))
    ran = sorted(
        (graph.tasks[name].stage, start, end - start)
        for name, (start, end) in graph.run().items()
        if graph.tasks[name].seconds > 0
    )
    assert drawn == ran
    end = max(start + seconds for _, start, seconds in drawn)
    assert end == pytest.approx(data["seconds"], rel=1e-9)
    kinds = [bar[0] for stage in data["stages"] for bar in _bars(stage) if " piece " not in bar[5]]
    assert kinds.count("forward") >= plan.microbatches * plan.pp * plan.interleave
    for stage in data["stages"]:
        for lane in ("compute", "network"):
            starts = [bar[1] for bar in stage[lane]]
            assert starts == sorted(starts)


def _bars(stage):
    return [*stage["compute"], *stage["network"]]


@pytest.mark.parametrize("plan", DRAWN_PLANS, ids=lambda plan: plan.label)
def test_shares_of_the_slowest_stage_add_up_to_the_prediction(plan):
    """Recomputation and collectives of the passes, summed over one stage, against the breakdown."""
    data, found = data_of(timeline_page(MODEL, plan, SYSTEM)), predict(MODEL, plan, SYSTEM)
    stage = data["stages"][-1]  # the last one, with the projection
    seconds = {
        kind: sum(bar[2] for bar in stage["compute"] if bar[0] == kind) for kind in ("forward", "backward")
    }
    if plan.pp == 1:  # there the exchange of the first forward is in the passes
        assert 0 < stage["forward_collective"] < 1
    again = seconds["backward"] * stage["recompute"]
    assert again == pytest.approx(found.breakdown["recompute"], rel=1e-9)
    comm = sum(seconds[kind] * stage[f"{kind}_collective"] for kind in seconds)
    assert comm == pytest.approx(found.breakdown["tp_comm"] + found.breakdown["fsdp_comm"], rel=1e-9)


def test_the_page_stands_alone_and_cannot_be_broken_by_a_name(tmp_path):
    name = "<img src=x onerror=alert(1)></script>&\"'"
    write_timeline_page(replace(MODEL, name=name), DRAWN_PLANS[0], SYSTEM, tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "http:" not in page
    assert "https:" not in page
    assert "{{" not in page
    assert "default-src 'none'" in page
    assert [path.name for path in tmp_path.iterdir()] == ["t.html"]


def test_the_suffix_chooses_page_or_trace(tmp_path, capsys):
    arguments = ["timeline", "--model", "megatron-18.4b", "--system", "dgx-a100-80gb", "--global-batch", "4"]
    for name in ("t.html", "t.json"):
        assert main([*arguments, "-o", str(tmp_path / name)]) == 0
        assert name in capsys.readouterr().out
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


A100 = load_system("dgx-a100-80gb")
PARTS = ("gemm", "attention", "elementwise", "tp_comm", "recompute", "overhead", "cp_comm", "ep_comm")


def listed(
    model: str, system: Any = A100, **changes: Any
) -> tuple[Plan, list[LayerKernel], dict[str, float]]:
    values: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 1, "micro_batch": 1, "global_batch": 4}
    plan = Plan(**values | {"recompute": "none"} | changes)
    return plan, *layer_kernels(load_model(model), plan, system, profile_of(system))


@pytest.mark.parametrize(("model", "changes"), table_rows("plans of a layer"))
def test_the_rows_sum_to_what_predict_charges(model: str, changes: dict[str, Any]) -> None:
    plan, rows, parts = listed(model, **changes)
    assert sum(row.seconds for row in rows) == pytest.approx(sum(parts.values()), rel=1e-8)
    for part, seconds in parts.items():
        own = sum(row.seconds for row in rows if row.part == part)
        assert own == pytest.approx(seconds, rel=1e-7, abs=1e-9 * sum(parts.values())), part
    charged = predict(load_model(model), plan, A100).breakdown
    layers = load_model(model).layers * plan.microbatches
    for part in PARTS:
        if part in charged:
            assert charged[part] / layers == pytest.approx(parts.get(part, 0.0), rel=1e-9, abs=1e-15), part


def test_a_dense_layer_on_one_gpu_is_all_kernels() -> None:
    _, rows, _ = listed("llama2-7b")
    assert not [row for row in rows if row.limit == "not a kernel"]
    gemms = [row for row in rows if row.kernel == "gemm bf16"]
    # QKV, projection, two up, down; forward once, backward twice.
    for pass_, count in (("forward", 5), ("backward", 10)):
        runs = sum(row.runs for row in gemms if row.pass_ == pass_)
        assert runs == pytest.approx(count, rel=1e-6)
    assert all(0 < row.rate * 1e12 < profile_of(A100).peak_flops for row in gemms)
    assert {row.limit for row in gemms} == {"arithmetic"}
    norms = [row for row in rows if row.kernel == "rmsnorm" and row.pass_ == "forward"]
    assert [round(row.runs, 6) for row in norms] == [2]
    assert norms[0].limit == "memory"


def test_recomputation_repeats_the_forward_pass() -> None:
    _, rows, parts = listed("llama2-7b", recompute="full")
    forward, again = (
        sorted((row.kernel, row.shape, row.seconds) for row in rows if row.pass_ == pass_)
        for pass_ in ("forward", "recompute")
    )
    assert [one[:2] for one in again] == [one[:2] for one in forward]
    assert sum(one[2] for one in again) == pytest.approx(parts["recompute"], rel=1e-8)


def test_what_is_no_kernel_is_a_row_of_its_own() -> None:
    system = replace(A100, site=replace(A100.site, layer_overhead_s=3e-4))
    _, rows, _ = listed("llama2-7b", system)
    others = {(row.kernel, row.pass_): row.seconds for row in rows if row.limit == "not a kernel"}
    assert others == {
        ("framework and site", "forward"): pytest.approx(1e-4),
        ("framework and site", "backward"): pytest.approx(2e-4),
    }
    _, rows, _ = listed("llama2-7b", tp=16)  # beyond a node of 8
    assert {row.kernel for row in rows if row.limit == "not a kernel"} >= {"between nodes, latency"}
    _, rows, _ = listed("gpt2-small")  # so small that the GPU waits for the CPU
    assert "wait for launches" in {row.kernel for row in rows}
