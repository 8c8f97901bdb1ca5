"""The memory headroom: every way to ask for plans keeps it, and measured runs need none."""

from __future__ import annotations

from pathlib import Path

import pytest

from itertime import PLANNERS, Plan, load_model, load_profile, load_system, make_planner, predict, search
from itertime.calibration import validate
from itertime.commands.options import MEMORY_HEADROOM
from itertime.costs import MEMORY_HEADROOM as SHIPPED
from itertime.planning import WHOLE
from itertime.planning.curve_cache import CurveCache
from tests.iteration_table import table_of

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")
CAPACITY = load_profile(SYSTEM.profile).memory_bytes
TIGHT = Plan(tp=4, pp=2, dp=2, micro_batch=2, global_batch=128, recompute="none")


def test_the_commands_name_the_default_of_the_library() -> None:
    assert MEMORY_HEADROOM == SHIPPED == 0.1


def test_search_finds_the_fastest_plan_that_leaves_the_headroom() -> None:
    """Brute force: of all plans of the space, those below the limit."""
    everything = search(MODEL, 64, SYSTEM, 8, space=WHOLE, top=10**6, memory_headroom=0.0)
    assert all(one.prediction.memory_bytes <= CAPACITY for one in everything.plans)
    for headroom in (0.1, 0.4):
        found = search(MODEL, 64, SYSTEM, 8, space=WHOLE, top=10**6, memory_headroom=headroom)
        limit = (1 - headroom) * CAPACITY
        expected = [one.plan for one in everything.plans if one.prediction.memory_bytes <= limit]
        assert [one.plan for one in found.plans] == expected
        assert found.feasible == len(expected)
        assert all(one.prediction.fits for one in found.plans)


@pytest.mark.parametrize("name", PLANNERS)
def test_planners_leave_the_headroom(name: str) -> None:
    for headroom in (0.0, 0.1, 0.3):
        curve = make_planner(name, SYSTEM, memory_headroom=headroom).scaling_curve(MODEL, 128, 64)
        assert curve
        assert max(run.memory_bytes for run in curve.values()) <= (1 - headroom) * CAPACITY


def test_more_headroom_is_never_faster() -> None:
    """Of the planner that takes the best of all plans; the others pick by rules that memory steers."""
    curves = [
        make_planner("3d", SYSTEM, memory_headroom=headroom).scaling_curve(MODEL, 128, 64)
        for headroom in (0.0, 0.1, 0.3, 0.6)
    ]
    for more, less in zip(curves[1:], curves, strict=False):
        assert set(more) <= set(less)
        assert all(more[count].iteration_s >= less[count].iteration_s for count in more)
    assert curves[-1] != curves[0]


def test_curves_are_kept_by_headroom(tmp_path: Path) -> None:
    cache = CurveCache(tmp_path)
    kept = {
        headroom: make_planner("3d", SYSTEM, cache=cache, memory_headroom=headroom).curve(
            MODEL, 128, [16, 64]
        )
        for headroom in (0.0, 0.3)
    }
    assert len(list(tmp_path.iterdir())) == 2
    for headroom, curve in kept.items():
        again = make_planner("3d", SYSTEM, cache=cache, memory_headroom=headroom)
        assert again.curve(MODEL, 128, [16, 64]) == curve


def test_a_measured_run_needs_no_headroom(tmp_path: Path) -> None:
    """It ran, so the micro-batch that `validate` infers may fill the memory."""
    row = {
        "id": "full", "gpu": "A100-SXM-80GB", "gpus": 16, "gpus_per_node": 8, "node_nic_gbps": 1600,
        "layers": MODEL.layers, "hidden": MODEL.hidden, "heads": MODEL.heads, "vocab": MODEL.vocab,
        "seq_len": MODEL.seq_len, "attention": MODEL.attention, "tp": 4, "pp": 2, "dp": 2,
        "micro_batch": 2, "global_batch": 128, "recompute": "none", "iteration_s": 20,
    }  # fmt: skip
    (found,) = validate(table_of(row, tmp_path)).predicted
    assert found.prediction.fits
    assert found.prediction.memory_bytes > 0.9 * CAPACITY
    assert not predict(MODEL, TIGHT, SYSTEM).fits
