"""What every registered policy must pass."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest

import clustersim
from clustersim.overheads import Overheads
from clustersim.records import ALLOCATES
from clustersim.runs import find_policy, list_policies, make_policy
from clustersim.testing import check_outcome, check_scheduler, simulate
from tests.builders import rigid
from tests.places import ROOT
from traces.job import Job

NAMES = [info.name for info in list_policies()]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_keeps_every_rule(name: str) -> None:
    check_scheduler(find_policy(name))


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    cls = find_policy(name)
    assert cls.__doc__
    assert cls.__module__.replace("policies.", "").replace("_", "-") == name, "one small file per policy"


@pytest.mark.parametrize("name", NAMES)
def test_says_whether_it_chooses_the_number_of_gpus(name: str) -> None:
    """Only elastic policies give jobs other numbers of GPUs than requested."""
    jobs = [
        Job(f"{i}", 600.0 * i, model="megatron-1.7b", gpus=4, global_batch=64, iterations=300.0,
            deadline_s=600.0 * i + 1e5)
        for i in range(6)
    ]  # fmt: skip
    run = clustersim.run(jobs, name, cluster="n2g8")
    other = {event.gpus for event in run.events if event.event in ALLOCATES} - {4}
    assert bool(other) == find_policy(name).elastic


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_hold(name: str) -> None:
    module = import_module(find_policy(name).__module__)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_jobs_that_never_fit_together_do_not_change_places_for_ever(name: str) -> None:
    """GPUs are enough for both jobs, but not in blocks of nodes, and a start takes longer than any round."""
    charged = Overheads(launch_s=3600.0, plain_restart_s=0.0)
    jobs = [Job("a", 0.0, gpus=14, duration_s=200.0), Job("b", 0.0, gpus=16, duration_s=300.0)]
    outcome = simulate(jobs, make_policy(name, {}), "n5g6", placement="buddy", overheads=charged)
    check_outcome(outcome)
    assert [record.state for record in outcome.records] == ["finished", "finished"]
    assert sum(record.preemptions for record in outcome.records) <= 2


COUNTS_ALONE = ("elasticflow", "vtrain-aware")  # they do not see that free GPUs are in no common block


@pytest.mark.parametrize("removed", [(1,), (1, 2)], ids=str)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] * (i % 4 > 0 and name != "unicron"))
        for i, name in enumerate(NAMES)
    ],
)
def test_jobs_without_a_place_on_the_nodes_that_are_left_keep_no_job_out(
    name: str, removed: tuple[int, ...]
) -> None:
    """Of nodes 0 to 3 of 4 GPUs some go for good, and with them blocks: what needs those never runs."""
    calendar = [{"at_s": 100.0 + 400 * i, "remove": node} for i, node in enumerate(removed)]
    overheads, sizes = Overheads(launch_s=4.0, plain_restart_s=6.0), (12, 1, 8, 4, 16, 2, 3) * 3
    jobs = [rigid(str(i), 30.0 * i, gpus, 100.0 + i, tenant=f"tenant{i % 3}") for i, gpus in enumerate(sizes)]
    policy = make_policy(name, {})
    outcome = simulate(jobs, policy, "n4g4", placement="buddy", calendar=calendar, overheads=overheads)
    unfinished_jobs = [int(record.job_id) for record in outcome.records if record.state == "unfinished"]
    assert unfinished_jobs, "some jobs have no place any more"
    assert name in COUNTS_ALONE or not [job for job in unfinished_jobs if sizes[job] <= 4]


@pytest.mark.parametrize("assumption", ["one_gpu_type", "equal_nodes"])
def test_the_docs_name_the_policies_that_plan_with_one_gpu_type_or_size_of_nodes(assumption: str) -> None:
    text = (ROOT / "docs" / "clusters.md").read_text()
    paragraph = next(part for part in text.split("\n\n") if f"`{assumption} = True`" in part)
    names = " ".join(paragraph.split()).split(" plan with ")[0]
    refusing = {name for name in NAMES if getattr(find_policy(name), assumption)}
    assert {name.strip(" `") for name in names.replace(" and ", ",").split(",")} == refusing
