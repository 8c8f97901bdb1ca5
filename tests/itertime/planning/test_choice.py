"""The optimism of choosing the best of many plans: closed forms, and choices whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime import Space, evaluate, load_model, load_profile, load_system, search
from itertime.accuracy import errors_on
from itertime.planning import WHOLE, judge
from itertime.planning.choice import Z, choice_among
from itertime.planning.search import fitting_plans
from itertime.planning.space import candidates

SYSTEM, MODEL = load_system("dgx-a100-80gb"), load_model("megatron-18.4b")


def test_one_plan_is_no_choice() -> None:
    choice = choice_among([3.0], 0.1)
    assert (choice.rivals, choice.optimism, choice.regret, choice.tied) == (1, 0.0, 0.0, 0)
    assert choice.margin == pytest.approx(math.exp(1.6449 * 0.1 * math.sqrt(2)) - 1, rel=1e-4)


@pytest.mark.parametrize("count", [2, 10, 200])
def test_equal_plans_have_the_optimism_of_the_largest_of_so_many_errors(count: int) -> None:
    """Theory: the largest of n normal errors; its mean exponential, by numerical integration."""
    sd = 0.05
    choice = choice_among(np.ones(count), sd, draws=20_000)
    at = np.linspace(-8, 8, 20_001)
    density = np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
    below = np.cumsum(density) * (at[1] - at[0])
    largest = count * density * below ** (count - 1)
    expected = float((largest * np.exp(sd * at - sd**2 / 2)).sum() * (at[1] - at[0])) - 1
    assert choice.optimism == pytest.approx(expected, rel=0.03)
    assert choice.regret == 0.0
    assert (choice.rivals, choice.tied) == (count, count - 1)


def test_plans_far_behind_do_not_count() -> None:
    near = choice_among([1.0, 1.01], 0.05)
    assert choice_among([1.0, 1.01, 2.0, 50.0], 0.05) == near
    assert near.rivals == 2


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30), st.floats(0.005, 0.2), st.floats(1e-3, 1e6))
def test_properties(values: list[float], sd: float, scale: float) -> None:
    """No unit and no order changes the choice; nothing is negative; the tied are rivals."""
    choice = choice_among(values, sd, draws=20)
    assert choice == choice_among(sorted(values), sd, draws=20)
    scaled = choice_among([value * scale for value in values], sd, draws=20)
    assert (scaled.rivals, scaled.optimism) == pytest.approx((choice.rivals, choice.optimism), abs=0.2)
    assert choice.regret >= 0
    assert 0 <= choice.tied < choice.rivals <= len(values)
    assert choice.tied == sum(value <= min(values) * math.exp(Z * sd * math.sqrt(2)) for value in values) - 1


UNIVERSES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "a few": lambda random: random.normal(0, 0.2, 10),
    "a bell": lambda random: random.normal(0, 0.3, 100),
    "a long tail": lambda random: -random.exponential(0.2, 300),
    "an edge": lambda random: random.uniform(0, 0.9, 100),
    "many": lambda random: random.normal(0, 0.2, 1000),
}


@pytest.mark.parametrize("name", UNIVERSES)
def test_the_estimate_is_what_choices_with_known_truth_suffer(name: str) -> None:
    """150 sets of plans with known true seconds, predicted with errors of 10 %.

    The estimate sees predictions alone. It lies within two fifths of the optimism and regret that the choices
    have on average, or a percentage point.
    """
    sd, random = 0.1, np.random.default_rng(1)
    happened, estimated = [], []
    for seed in range(150):
        true = UNIVERSES[name](random)
        error = random.normal(0, sd, len(true))
        predicted = true - error
        chosen = predicted.argmin()
        happened.append((np.exp(error[chosen] - sd**2 / 2) - 1, np.exp(true[chosen] - true.min()) - 1))
        choice = choice_among(np.exp(predicted), sd, seed=seed, draws=50)
        estimated.append((choice.optimism, choice.regret))
    for mine, theirs in zip(np.mean(estimated, axis=0), np.mean(happened, axis=0), strict=True):
        assert mine == pytest.approx(theirs, rel=0.4, abs=0.02)


@pytest.mark.parametrize("objective", ["time", "cost"])
def test_a_search_is_judged_by_all_its_plans(objective: str) -> None:
    """The plans that pruning leaves out, because they are slower than those shown, count as rivals."""
    known = errors_on(SYSTEM.profile, SYSTEM.framework)
    assert known is not None
    assert known.beside_sd is not None
    short = search(MODEL, 128, SYSTEM, max_gpus=64, space=WHOLE, objective=objective, top=1)
    plans = fitting_plans(
        MODEL, candidates(MODEL, 128, SYSTEM, WHOLE, range(1, 65)), SYSTEM, load_profile(SYSTEM.profile)
    )
    seconds = evaluate(MODEL, plans, SYSTEM).iteration_s
    judged = judge(MODEL, SYSTEM, short, objective)
    assert judged is not None
    expected = choice_among(seconds * (plans.gpus if objective == "cost" else 1), known.beside_sd)
    assert (judged.rivals, judged.tied, judged.margin) == (expected.rivals, expected.tied, expected.margin)
    assert judged.optimism == pytest.approx(expected.optimism, rel=1e-9)
    assert judged.rivals > 100


def test_nothing_is_said_where_nothing_is_known() -> None:
    v100 = load_system("dgx-h100,profile=v100-32gb")
    assert judge(MODEL, v100, search(MODEL, 128, v100, 64, space=Space())) is None
    huge = load_model("megatron-1008b")
    assert judge(huge, SYSTEM, search(huge, 8, SYSTEM, 8)) is None
