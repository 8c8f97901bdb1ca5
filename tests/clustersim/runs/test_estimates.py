"""The setting `estimates`: the runs that it leaves alone, and those that equal a trace with the column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.audit import replay
from clustersim.grid import read_plan
from clustersim.records import Run
from clustersim.rundir import read_run, write_run
from clustersim.runs import Trace
from itertime.errors import UserError
from traces.estimates import Estimates
from traces.job import Job
from traces.native import write_trace
from traces.synthetic import Recipe

TABLE = "model,global_batch,gpus,iterations_per_s\nm,8,1,1\nm,8,2,1.9\nm,8,4,3.4\nm,8,8,6\n"


def made_up(count: int) -> list[Job]:
    """Jobs of 1 to 8 GPUs, every fifth of a duration, every third with a deadline."""
    random, now, jobs = Random(3), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 60)
        gpus, run_s = random.choice((1, 2, 4, 8)), random.uniform(60, 900)
        deadline_s = now + run_s * random.uniform(1, 4) if i % 3 == 0 else None
        job = Job(f"j{i}", now, gpus=gpus, duration_s=run_s, deadline_s=deadline_s)
        if i % 5:
            job = replace(job, model="m", global_batch=8, iterations=run_s)
        jobs.append(job)
    return jobs


@pytest.fixture
def table(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(TABLE)
    return str(tmp_path / "table.csv")


def simulated(jobs: list[Job], table: str, policy: str = "srtf", **settings: Any) -> Run:
    return clustersim.run(jobs, policy, cluster="n2g8", table=table, **settings)


@pytest.mark.parametrize("policy", ["srtf", "vtrain-aware"])
def test_sigma_0_equals_no_setting_byte_for_byte(policy: str, table: str, tmp_path: Path) -> None:
    jobs = made_up(40)
    simulated(jobs, table, policy, out=tmp_path / "none")
    simulated(jobs, table, policy, out=tmp_path / "zero", estimates={"sigma": 0})
    for name in ("jobs.csv", "events.csv", "usage.csv", "plans.csv", "summary.json"):
        assert (tmp_path / "none" / name).read_bytes() == (tmp_path / "zero" / name).read_bytes()


@pytest.mark.parametrize("policy", ["srtf", "vtrain-aware", "conservative"])
def test_the_setting_draws_what_the_column_says(policy: str, table: str) -> None:
    jobs, settings = made_up(40), {"estimates": {"sigma": 1.0}}
    column = [Estimates(1.0).applied_to(job, 5) for job in jobs]
    drawn = simulated(jobs, table, policy, seed=5, **settings)
    assert drawn.events == simulated(column, table, policy, seed=5).events
    assert drawn.events == simulated(column, table, policy, seed=6, **settings).events, "theirs stay"
    assert drawn.events != simulated(jobs, table, policy, seed=5).events
    assert drawn.events != simulated(jobs, table, policy, seed=6, **settings).events
    assert drawn.manifest["estimates"] == {"sigma": 1.0}


def test_a_generated_trace_with_the_column_is_the_run_with_the_setting() -> None:
    recipe = Recipe(jobs=12, gpus=64, load=2.0, seed=3, deadlines="none")
    column = Trace.generated(replace(recipe, stated_sigma=0.5))
    ran = clustersim.run(column, "srtf", cluster="n8g8", seed=3)
    drawn = clustersim.run(Trace.generated(recipe), "srtf", cluster="n8g8", seed=3, estimates={"sigma": 0.5})
    assert ran.events == drawn.events


def test_a_grid_has_the_sigma_as_an_axis(tmp_path: Path) -> None:
    write_trace([Job("a", 0.0, gpus=8, duration_s=60.0)], tmp_path / "t.csv")
    text = "set: {trace: t.csv, cluster: n2g8, policy: srtf}\nmatrix: {estimates.sigma: [0, 2]}"
    (tmp_path / "g.yaml").write_text(text)
    cells = read_plan(tmp_path / "g.yaml").cells
    assert [cell.inputs.config.estimates for cell in cells] == [{"sigma": 0}, {"sigma": 2}]
    (tmp_path / "g.yaml").write_text(text.replace("2]", "-2]"))
    with pytest.raises(UserError, match=r"g\.yaml:2: .*sigma=-2: of the errors of stated work"):
        read_plan(tmp_path / "g.yaml")


def test_folders_of_versions_without_the_setting_are_replayed(table: str, tmp_path: Path) -> None:
    write_trace(made_up(5), tmp_path / "t.csv")
    clustersim.run(tmp_path / "t.csv", "srtf", cluster="n2g8", table=table, out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    manifest = {name: value for name, value in run.manifest.items() if name != "estimates"}
    write_run(tmp_path / "run", replace(run, manifest=manifest))
    assert not replay(tmp_path / "run").violations
