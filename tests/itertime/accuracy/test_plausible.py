"""Predictions over models, systems, frameworks and precisions stay within what hardware of these years does.

The bounds are wide and assumed: no run is known to lie outside. They are to catch a broken profile or a part
that is missing or counted twice, not to state an accuracy.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.spec import System, profile_of
from tests.effort import rotated
from tests.itertime.tables import TABLES

PEAK_TFLOPS = TABLES["peaks"]
BASE = Plan(1, 1, 8, 1, 128, recompute="none", zero_stage=1, grad_overlap=True)
DENSE, MIXTURES = (
    {model: replace(BASE, **changes) for model, changes in TABLES[f"plans of {kind}"].items()}
    for kind in ("dense models", "mixtures")
)
FRAMEWORKS = ("te", "compile", "eager")


def share_of_peak(model: str, plan: Plan, system: str) -> float:
    """Model FLOPs over the peak of bf16."""
    spec, run = load_model(model), load_system(system)
    seconds = predict(spec, plan, run).iteration_s
    peak = PEAK_TFLOPS[system.partition(",")[0]] * 1e12
    return spec.flops_per_iteration(plan.global_batch) / plan.gpus / seconds / peak


def seconds(model: str, plan: Plan, system: System) -> float:
    found = predict(load_model(model), plan, system)
    assert math.isfinite(found.iteration_s)
    assert min(found.breakdown.values()) >= 0
    return found.iteration_s


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("system", PEAK_TFLOPS)
@pytest.mark.parametrize("model", DENSE)
def test_dense_models_take_a_likely_share_of_the_peak(model: str, system: str, framework: str) -> None:
    plan, name = DENSE[model], f"{system},framework={framework}"
    share = share_of_peak(model, plan, name)
    assert 0.30 < share < 0.70
    for precision in ("fp8", "fp8_block"):
        assert 1.1 < share_of_peak(model, replace(plan, precision=precision), name) / share < 1.9
    if "nvfp4" in profile_of(load_system(name)).precisions:
        fp8, fp4 = (
            share_of_peak(model, replace(plan, precision=each), name) / share for each in ("mxfp8", "nvfp4")
        )
        assert 1.1 < fp8 < fp4 < 2.2


@pytest.mark.parametrize("system", PEAK_TFLOPS)
@pytest.mark.parametrize("model", MIXTURES)
def test_mixtures_take_a_likely_share_of_the_peak(model: str, system: str) -> None:
    assert 0.05 < share_of_peak(model, MIXTURES[model], f"{system},framework=te") < 0.45


RUNS = (
    *DENSE.items(),
    *MIXTURES.items(),
    ("llama3-8b", replace(BASE, dp=64, zero_stage=3)),
    ("llama3-70b", replace(BASE, tp=16, dp=8, sequence_parallel=True)),  # across nodes
    ("llama3-8b", replace(BASE, cp=8, dp=2, global_batch=8)),
    ("gpt2-small", BASE),
)


@pytest.mark.parametrize(
    ("run", "precision", "framework", "system"),
    rotated(RUNS, ["bf16", "fp8"], FRAMEWORKS, ["dgx-h100", "dgx-b200", "gb200-nvl72"]),
)
def test_more_of_anything_is_never_slower(
    run: tuple[str, Plan], system: str, framework: str, precision: str
) -> None:
    model, plan = run
    usual, plan = load_system(f"{system},framework={framework}"), replace(plan, precision=precision)
    profile = profile_of(usual)
    assert profile.power_w is not None
    better = {
        "NICs": [usual.with_nic(gbps) for gbps in (400, 800, 1600, 3200, 6400)],
        "power": [replace(usual, power_w=profile.power_w * share) for share in (0.5, 0.7, 1.0)],
        "memory": [
            replace(usual, hbm_bytes_per_s=profile.hbm_bytes_per_s * share) for share in (0.6, 0.8, 1.0)
        ],
        "launches": [
            replace(usual, site=replace(usual.site, launch_s=launch_s)) for launch_s in (4e-5, 2e-5, 1e-5)
        ],
    }
    for what, systems in better.items():
        times = [seconds(model, plan, each) for each in systems]
        for slower, faster in itertools.pairwise(times):
            assert faster <= slower * (1 + 1e-9), what
