"""Parts of a trace, and scaled traces: what changes, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from traces.editing import Scaling, TraceSelection, scaled, sliced
from traces.job import Job
from traces.summary import demand

JOBS = [
    Job(
        str(i),
        100.0 * i,
        gpus=2 ** (i % 4),
        duration_s=50.0 + i,
        deadline_s=100.0 * i + 500,
        user=f"u{i % 3}",
        tenant=f"t{i % 2}",
        logged_start_s=100.0 * i + 7,
        estimate_s=90.0,
    )
    for i in range(20)
]


def ids(jobs: list[Job]) -> list[int]:
    return [int(job.job_id) for job in jobs]


def after(job: Job) -> tuple[Any, ...]:
    assert job.deadline_s is not None
    assert job.logged_start_s is not None
    return job.deadline_s - job.submit_s, job.logged_start_s - job.submit_s, job.duration_s, job.estimate_s


@pytest.mark.parametrize(
    ("part", "kept"),
    [
        (TraceSelection(), range(20)),
        (TraceSelection(from_s=300, until_s=600), [3, 4, 5]),
        (TraceSelection(users=["u1"]), range(1, 20, 3)),
        (TraceSelection(users=["t1", "u0"]), [i for i in range(20) if i % 2 or i % 3 == 0]),
        (TraceSelection(least_gpus=4), [i for i in range(20) if i % 4 >= 2]),
        (TraceSelection(least_gpus=2, most_gpus=2), range(1, 20, 4)),
        (TraceSelection(least_gpus=8, first=2), [3, 7]),
    ],
)
def test_a_part_has_the_jobs_of_the_selection_in_order(part: TraceSelection, kept: list[int]) -> None:
    found, zero_s = sliced(JOBS, part)
    assert ids(found) == list(kept)
    assert (found[0].submit_s, zero_s) == (0.0, 100.0 * kept[0])
    for job in found:
        old = JOBS[int(job.job_id)]
        assert job.submit_s == old.submit_s - zero_s
        assert after(job) == after(old)


def test_a_sample_is_drawn_before_the_selection() -> None:
    sample, _ = sliced(JOBS, TraceSelection(sample=0.5, seed=4))
    both, _ = sliced(JOBS, TraceSelection(sample=0.5, seed=4, least_gpus=4))
    assert 0 < len(both) < len(sample) < 20
    assert ids(both) == [i for i in ids(sample) if i % 4 >= 2]
    assert ids(sliced(JOBS, TraceSelection(sample=0.5, seed=5))[0]) != ids(sample)


def test_gaps_are_scaled_and_nothing_else() -> None:
    found, factor = scaled(JOBS, Scaling(time=2.5))
    assert (ids(found), factor) == (list(range(20)), 2.5)
    assert [job.submit_s for job in found] == [250.0 * i for i in range(20)]
    assert [after(job) for job in found] == [after(job) for job in JOBS]


def test_the_load_is_exactly_the_one_asked_for() -> None:
    found, factor = scaled(JOBS, Scaling(load=0.8, on_gpus=16))
    asked = demand(found)
    assert asked["mean_gpus"] == pytest.approx(0.8 * 16)
    assert found[-1].submit_s == pytest.approx(1900 * factor)


def test_gpus_are_scaled_and_stay_at_least_one() -> None:
    found, _ = scaled(JOBS, Scaling(gpus=0.4))
    assert [job.gpus for job in found[:4]] == [1, 1, 2, 3]
    bounded, _ = scaled([replace(JOBS[2], min_gpus=2, max_gpus=8)], Scaling(gpus=4))
    assert (bounded[0].gpus, bounded[0].min_gpus, bounded[0].max_gpus) == (16, 8, 32)


def test_more_jobs_repeat_the_trace_at_its_rate() -> None:
    found, _ = scaled(JOBS, Scaling(jobs=50))
    assert [job.submit_s for job in found] == [100.0 * i for i in range(50)]
    assert [job.job_id for job in found[18:22]] == ["18", "19", "0~2", "1~2"]
    assert found[40].job_id == "0~3"
    assert len({job.job_id for job in found}) == 50
    assert after(found[45]) == after(JOBS[5])


def test_fewer_jobs_are_a_sample_at_the_rate_of_the_trace() -> None:
    found, factor = scaled(JOBS, Scaling(jobs=5, seed=1))
    assert ids(found) == sorted(ids(found))
    assert len(found) == 5
    assert found[-1].submit_s - found[0].submit_s == pytest.approx(400.0)
    assert factor < 1
    assert ids(scaled(JOBS, Scaling(jobs=5, seed=2))[0]) != ids(found)


def test_a_logged_time_is_never_before_its_submission() -> None:
    """Rounding at large times must not put a deadline before its submission."""
    job = Job("a", 1e9 / 3, gpus=1, duration_s=1.0, logged_start_s=1e9 / 3, deadline_s=1e9 / 3)
    for factor in (0.1, 1 / 3, 3.0):
        found, _ = scaled([Job("0", 0.0, gpus=1, duration_s=1.0), job], Scaling(time=factor))
        assert found[1].logged_start_s == found[1].deadline_s == found[1].submit_s
