import dataclasses
import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from traces import Job, submission_order
from traces.phases import Phase, parse_phases, phases_text, seconds_factor, seconds_factors
from traces.synthetic import Recipe, generate


def test_kind_is_iterations_only_if_all_three_are_stated_and_nothing_changes() -> None:
    rigid = Job("a", 0.0, gpus=8, duration_s=60.0)
    assert rigid.kind == "duration"
    assert dataclasses.replace(rigid, model="gpt3-13b", global_batch=8).kind == "duration"
    both = dataclasses.replace(rigid, model="gpt3-13b", global_batch=8, iterations=5.0)
    assert both.kind == "iterations"
    assert both.duration_s == 60.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        rigid.gpus = 4  # type: ignore[misc]


def test_ties_are_ordered_by_number_then_by_text() -> None:
    ids = ["10", "9", "a10", "a9", "007", "7", "²", "", "9" * 5000]
    ordered = [job.job_id for job in submission_order(Job(i, 5.0) for i in ids)]
    assert ordered == ["007", "7", "9", "10", "9" * 5000, "", "a10", "a9", "²"]
    by_time = submission_order([Job("1", 2.0), Job("2", 1.0)])
    assert [job.job_id for job in by_time] == ["2", "1"], "time comes first"


@given(
    st.lists(st.tuples(st.text(max_size=4), st.sampled_from([0.0, 1.0])), unique_by=lambda job: job[0]),
    st.randoms(use_true_random=False),
)
def test_the_order_of_rows_does_not_matter(pairs: list[tuple[str, float]], shuffler: random.Random) -> None:
    jobs = [Job(*pair) for pair in pairs]
    ordered = submission_order(jobs)
    shuffler.shuffle(jobs)
    assert submission_order(jobs) == ordered


# The text of phases


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
