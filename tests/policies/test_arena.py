"""Arena: cells by hand, on one GPU type and on two."""

from __future__ import annotations

from typing import Any

import pytest

import clustersim
from clustersim.overheads import Overheads
from clustersim.testing import simulate
from policies.arena import Arena
from policies.solvers.divisions.cell_search import Cell, Changes
from tests.builders import MixedBench, elastic, rigid, times
from traces.job import Job

TABLE = {("m", 8): {1: 1.0, 2: 1.9, 4: 3.4, 8: 5.5}}


def log(outcome: Any) -> list[tuple[float, str, str, int]]:
    return [(e.time_s, e.event, e.job_id, e.gpus) for e in outcome.events if e.event != "submit"]


def test_a_job_makes_way_for_another_and_grows_again() -> None:
    """On 4 GPUs `a` takes twice its request. `b` comes and needs at least 1: `a` on 2 and `b` on 2 do more
    than `a` on 4. When `b` ends, `a` grows again.
    """
    jobs = [elastic("a", 0, 2, 1000), elastic("b", 100, 2, 190)]
    assert log(simulate(jobs, Arena(), "n1g4", table=TABLE))[:5] == [
        (0.0, "start", "a", 4),
        (100.0, "resize", "a", 2),
        (100.0, "start", "b", 2),
        (200.0, "finish", "b", 0),
        (200.0, "resize", "a", 4),
    ]


def test_no_job_makes_way_where_the_change_costs_more() -> None:
    """`b` would be done after 10 s, and `a` would stand still for 500 s."""
    charged = Overheads(launch_s=0.0, plain_restart_s=500.0)
    jobs = [elastic("a", 0, 2, 5000), elastic("b", 1000, 2, 19)]
    found = times(simulate(jobs, Arena(), "n1g4", table=TABLE, overheads=charged))
    assert found["b"][0] == found["a"][1]


def test_counts_stay_within_the_spread() -> None:
    for spread, most in ((0, 2), (1, 4), (2, 8)):
        outcome = simulate([elastic("a", 0, 2, 1000)], Arena(spread=spread), "n1g8", table=TABLE)
        assert log(outcome)[0] == (0.0, "start", "a", most)


def test_no_other_job_changes_without_depth() -> None:
    jobs = [elastic("a", 0, 2, 1000), elastic("b", 100, 2, 190)]
    outcome = simulate(jobs, Arena(depth=0), "n1g4", table=TABLE)
    assert times(outcome)["b"][0] == times(outcome)["a"][1]


def test_jobs_move_to_the_better_type_when_it_is_free() -> None:
    """`a` holds the fast GPUs, so `b` begins on the slow ones, and moves when `a` ends. As many GPUs as they
    ask for, so that only types differ.
    """
    tables = {"new": {("m", 8): {2: 2.0}}, "old": {("m", 8): {2: 1.0}}}
    jobs = [elastic("a", 0, 2, 200), elastic("b", 10, 2, 1000)]
    outcome = MixedBench([("new", 1, 2), ("old", 1, 2)], tables).run(jobs, Arena())
    assert log(outcome) == [
        (0.0, "start", "a", 2),
        (10.0, "start", "b", 2),
        (100.0, "finish", "a", 0),
        (100.0, "migrate", "b", 2),
        (100 + (1000 - 90) / 2, "finish", "b", 0),
    ]


def test_a_job_moves_to_another_type_for_one_that_can_use_no_other() -> None:
    """`b` runs on new GPUs alone. `a` goes to the old ones, where it is nearly as fast."""
    tables: Any = {
        "new": {("m", 8): {2: 1.0}, ("n", 8): {2: 1.0}},
        "old": {("m", 8): {2: 0.9}},
    }
    jobs = [elastic("a", 0, 2, 1000), elastic("b", 100, 2, 100, model="n")]
    outcome = MixedBench([("new", 1, 2), ("old", 1, 2)], tables).run(jobs, Arena())
    assert [event[:3] for event in log(outcome)][:5] == [
        (0.0, "start", "a"),
        (100.0, "migrate", "a"),
        (100.0, "start", "b"),
        (200.0, "finish", "b"),
        (200.0, "migrate", "a"),
    ]


def test_room_takes_free_gpus_of_another_type_once() -> None:
    """Two jobs would move to the one free GPU of type b; one does, and the other shrinks."""
    big, small, moved = Cell("a", 2, 2.0), Cell("a", 1, 1.0), Cell("b", 1, 1.9)
    search = Changes([(name, i, big, [small, big, moved]) for i, name in enumerate("xy")], steps=2)
    found = search.room("a", 3, {"a": 0, "b": 1})
    assert found is not None
    assert [(change.job, change.cell) for change in found] == [("x", moved), ("y", small)]
    assert search.room("a", 4, {"a": 0, "b": 1}) is None


def test_rigid_jobs_run_in_order_and_pass_what_does_not_fit() -> None:
    jobs = [rigid("a", 0, 3, 100), rigid("wide", 1, 4, 10), rigid("small", 2, 1, 50)]
    assert times(simulate(jobs, Arena(), "n1g4")) == {"a": (0, 100), "small": (2, 52), "wide": (100, 110)}


def test_a_job_whose_run_time_nobody_states_needs_no_oracle() -> None:
    jobs = [Job(str(i), 10.0 * i, gpus=4, duration_s=100.0) for i in range(4)]
    assert clustersim.run(jobs, "arena", cluster="n1g8").manifest["oracle_used"] is False


@pytest.mark.parametrize(
    ("params", "match"),
    [({"spread": -1}, "spread=-1"), ({"depth": 1.5}, "depth=1.5"), ({"waiting": -1}, "waiting=-1")],
)
def test_bad_parameters_are_named(params: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Arena(**params)
