"""The page of an iteration draws what the task graph ran; kernels of a layer sum to what is predicted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.cli import main
from itertime.spec import profile_of
from itertime.timeline import LayerKernel, iteration_graph, layer_kernels, write_timeline_page
from itertime.timeline.page import timeline_page
from tests.itertime.tables import table_rows

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")
PLANS = [
    Plan(8, 4, 2, 1, 24, zero_stage=1, grad_overlap=True),
    Plan(8, 4, 2, 1, 16, interleave=2, recompute="selective", sequence_parallel=True),
    Plan(8, 1, 4, 2, 32, zero_stage=3, recompute="none"),
    Plan(8, 2, 1, 1, 8, schedule="gpipe"),
]


def data_of(page):
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
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


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.label)
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
    write_timeline_page(replace(MODEL, name=name), PLANS[0], SYSTEM, tmp_path / "t.html")
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
