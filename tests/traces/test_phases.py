"""The text of phases: what it says, and what is wrong with it."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from traces.phases import Phase, parse_phases, phases_text, seconds_factor, seconds_factors
from traces.synthetic import Recipe, generate


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.integers(1, 10**6),
            st.none() | st.integers(1, 9),
            st.none() | st.floats(0, 1e12),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_the_text_reads_back_exactly(rows: list[tuple[int, int, int | None, float | None]]) -> None:
    total = sum(share for share, *_ in rows)
    phases = tuple(
        Phase(
            share / total,
            float(batch),
            None if k is None else float(k * batch),
            inf if noise is None else noise,
        )
        for share, batch, k, noise in rows
    )
    assert parse_phases(phases_text(phases)) == phases


def test_choices_are_doubled_up_to_the_largest() -> None:
    assert parse_phases("1:100..799")[0].batches == (100, 200, 400)
    assert parse_phases("1:100")[0].batches == (100,)
    assert parse_phases("1:0.25")[0].batches == (0,)  # a speed, of which no more is asked


def test_a_ramp_with_noise_is_slower_than_one_without() -> None:
    with_noise, without = (seconds_factors(parse_phases(text), 8) for text in ("1:32:8", "1:32"))
    assert without == (0.25,)
    assert with_noise == (pytest.approx(0.25 * 40 / 16),)
    assert seconds_factor(0.0, 32, 8) == pytest.approx(1.0)


def test_generated_noise_grows_and_changes_nothing_else() -> None:
    recipe = Recipe(jobs=20, gpus=256, seed=3)
    plain, _ = generate(recipe)
    noisy, report = generate(Recipe(jobs=20, gpus=256, seed=3, gradient_noise="1:8:4"))
    assert [(a.submit_s, a.model, a.iterations) for a in plain] == [
        (b.submit_s, b.model, b.iterations) for b in noisy
    ]
    assert report["recipe"]["gradient_noise"] == "1:8:4"
    for job in noisy:
        assert job.phases is not None
        assert job.global_batch is not None
        phases = parse_phases(job.phases)
        assert [phase.noise / job.global_batch for phase in phases] == pytest.approx([1, 2, 4, 8], rel=1e-5)
        assert {phase.batches[-1] for phase in phases} == {4 * job.global_batch}
