"""The page of an iteration: what it draws is what the task graph ran, and it asks no network for anything."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.cli import main
from itertime.timeline import iteration_graph, write_timeline_page
from itertime.timeline.page import timeline_page

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
