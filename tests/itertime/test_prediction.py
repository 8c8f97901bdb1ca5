"""Predictions: sums, published times, limits of CPU time, and what hardware of these years can do.

The measured figures are in docs/itertime.md; `benchmarks/bench_itertime.py` prints them. Bounds of what is
plausible are wide and assumed: they catch a broken profile, or a part that is missing or counted twice.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.mt_nlg_cost import study
from itertime import (
    ModelSpec,
    Plan,
    evaluate,
    load_model,
    load_profile,
    load_system,
    make_planner,
    predict,
    search,
)
from itertime.accuracy import WatchedProfile
from itertime.planning import WHOLE
from itertime.planning.space import candidates
from itertime.spec import Attention, Collective, Elementwise, Gemm, PlanBatch, Query, profile_of
from tests.tables import TABLES, table_rows

SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-39.1b")


@pytest.mark.parametrize(
    ("name", "tp", "pp", "dp", "batch", "seconds"), table_rows("iteration times of SC'21")
)
def test_published_iteration_times_within_ten_percent(name, tp, pp, dp, batch, seconds):
    assert predict(load_model(name), Plan(tp, pp, dp, 1, batch), SYSTEM).iteration_s == pytest.approx(
        seconds, rel=0.10
    )


PROFILE = load_profile(SYSTEM.profile)


def seconds(work: Callable[[], object], rounds: int = 4) -> float:
    """The fastest of some rounds: what others do to the machine only ever adds."""
    times = []
    for _ in range(rounds):
        started = process_time()
        work()
        times.append(process_time() - started)
    return min(times)


def test_the_mt_nlg_study_takes_less_than_50_ms():
    assert len(study().plans) >= 295
    assert seconds(study) < 0.050


def test_more_than_150_000_exact_evaluations_a_second_on_mixed_plans():
    plans = candidates(MODEL, 1536, SYSTEM, WHOLE, range(1, 1025))
    plans = plans.take(np.random.default_rng(1).choice(len(plans), 10_000, replace=False))
    assert {int(stage) for stage in plans.zero_stage} == {0, 1, 2, 3}
    assert 0.2 < (plans.interleave > 1).mean() < 0.95
    assert seconds(lambda: evaluate(MODEL, plans, SYSTEM, PROFILE)) < 10_000 / 150_000


def test_a_curve_over_the_whole_space_takes_about_a_tenth_of_a_second():
    """100 ms on an idle core."""
    assert seconds(lambda: make_planner("best", SYSTEM).scaling_curve(MODEL, 1536, 1024)) < 0.25


def test_models_in_which_closed_forms_fail_are_searched_quickly_too():
    """Their schedules are stepped through, with thousands of micro-batches."""
    small = load_model("bert-large")
    assert seconds(lambda: search(small, 4096, SYSTEM, max_gpus=128, space=WHOLE), 2) < 1.0


class Counting(WatchedProfile):
    """A profile that counts its answers by the kind of query."""

    def __init__(self) -> None:
        super().__init__(PROFILE)
        self.calls: Counter[type[Query]] = Counter()

    def seconds(self, query: Query) -> NDArray[np.float64]:
        self.calls[type(query)] += 1
        return super().seconds(query)


def calls(model: ModelSpec) -> Counter[type[Query]]:
    plan = Plan(1, 1, 64, 1, 64, recompute="none", zero_stage=1, ep=64)
    profile = Counting()
    evaluate(model, PlanBatch.of([plan]), SYSTEM, profile)
    return profile.calls


def test_dense_layers_of_a_mixture_need_no_products_and_attention_of_their_own():
    """The profile answers for both kinds of layers at once."""
    both = load_model("deepseek-v3")
    one = replace(both, dense_layers=0, dense_ffn_hidden=0)
    found, expected = calls(both), calls(one)
    for kind in (Gemm, Attention, Elementwise, Collective):
        assert found[kind] == expected[kind] > 0


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
