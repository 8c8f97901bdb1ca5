"""Sia: its integer program against all assignments, and what it makes of a queue."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim.overheads import Overheads
from clustersim.testing import decide
from policies.sia import Sia
from policies.solvers.assignment import Choice, assign, without_lines_of_highs
from tests.builders import elastic
from tests.effort import examples

configurations = st.tuples(st.integers(0, 1), st.integers(1, 6))
costs = st.floats(-1, 0.2).map(lambda x: round(x, 6))
choice = st.dictionaries(configurations, costs, min_size=1, max_size=4)
choices = st.lists(
    choice.map(lambda c: tuple(sorted((*where, cost) for where, cost in c.items()))), min_size=1, max_size=4
)


@given(choices, st.tuples(st.integers(0, 12), st.integers(0, 6)), st.booleans())
@settings(deadline=None, max_examples=examples(100))
def test_no_assignment_costs_less(jobs: list[Choice], capacity: tuple[int, int], twice: bool) -> None:
    """On two GPU types, against all combinations."""
    jobs = jobs + jobs[:1] if twice else jobs
    given_ = assign(jobs, capacity, gap=0.0, search_nodes=10_000)
    assert given_ is not None
    mine = [
        next(entry for entry in job if entry[:2] == where) if where is not None else _NOTHING
        for job, where in zip(jobs, given_, strict=True)
    ]
    assert _fits(mine, capacity)
    picks = product(*((_NOTHING, *job) for job in jobs))
    least = min(sum(cost for _, _, cost in pick) for pick in picks if _fits(pick, capacity))
    assert sum(cost for _, _, cost in mine) == pytest.approx(least, abs=1e-6)


_NOTHING = (0, 0, 0.0)


def _fits(pick: Iterable[tuple[int, int, float]], capacity: tuple[int, int]) -> bool:
    taken = [0, 0]
    for type_, gpus, _ in pick:
        taken[type_] += gpus
    return all(n <= most for n, most in zip(taken, capacity, strict=True))


def test_alike_jobs_get_the_larger_counts_and_the_better_type_first() -> None:
    job: Choice = ((0, 1, -0.5), (0, 2, -0.9))
    assert assign([job, job, job], [4], gap=0.0, search_nodes=100) == [(0, 2), (0, 1), (0, 1)]
    job = ((0, 1, -0.5), (1, 1, -0.6))
    assert assign([job, job, job], [4, 1], gap=0.0, search_nodes=100) == [(1, 1), (0, 1), (0, 1)]
    assert assign([], [8], gap=0.0, search_nodes=10) == []
    assert assign([((0, 4, -1.0),)], [2], gap=0.0, search_nodes=10) == [None]


PRINTS: list[Choice] = [
    *[((0, 4, -0.1), (0, 8, -0.364644), (0, 16, -0.52265))] * 2,
    *[((0, 4, -0.11),), ((0, 1, -0.11),), ((0, 2, -0.11),), ((0, 2, -0.1),)],
    ((0, 1, -0.1), (0, 3, -0.454503), (0, 5, -0.61), (0, 6, -0.633748), (0, 12, -0.746447)),
    *[((0, 1, -0.1), (0, 2, -0.374524), (0, 4, -0.557674), (0, 8, -0.673599), (0, 16, -0.746447))] * 3,
    *[((0, 1, -0.1), (0, 2, -0.392893), (0, 4, -0.6), (0, 8, -0.652786))] * 2,
    ((0, 4, -0.1), (0, 8, -0.354644), (0, 16, -0.52265)),
]
"""A program for which the HiGHS of scipy 1.17 prints a line while it solves."""


def test_nothing_that_the_solver_prints_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    assert assign(PRINTS, [32], gap=0.001, search_nodes=1000)
    os.write(1, b"data\n")
    assert capfd.readouterr() == ("data\n", "")


def test_what_others_print_during_a_solution_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines_of_highs():
        os.write(1, b"one\nHighsMipSolverData::some line\n")
        os.write(2, b"a warning\n")
        os.write(1, b"two")
    assert capfd.readouterr() == ("one\ntwo", "a warning\n")


def test_a_program_is_solved_without_stdout() -> None:
    code = "from policies.solvers import assign\n"
    code += "import sys; sys.exit(assign([((0, 1, -1.0),)], [1], gap=0.1, search_nodes=9) != [(0, 1)])"
    assert subprocess.run([sys.executable, "-c", code], preexec_fn=lambda: os.close(1)).returncode == 0


@pytest.mark.parametrize(("age_s", "gpus"), [(50.0, 8), (81.0, 1), (1000.0, 8)])
def test_a_job_younger_than_a_restart_is_not_discounted(age_s: float, gpus: int) -> None:
    """Of 1.3 times the speed on 8 GPUs, whose restart takes 80 s, 81 / (81 + 80) would be left. At an age of
    1000 s it is 1000 / 1080.
    """
    charged = Overheads(launch_s=0.0, launch_gpu_s=10.0, plain_restart_s=0.0)
    decision = decide(
        Sia(), running=[(elastic("a", 0, 1, 1e5), 1)], now_s=age_s, table={("m", 8): {1: 1.0, 8: 1.3}},
        overheads=charged,
    )  # fmt: skip
    assert decision.gpus("a") == gpus
