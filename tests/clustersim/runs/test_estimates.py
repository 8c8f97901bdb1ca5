"""The setting `estimates`: errors that are drawn, predictors, and how runs with them are proved."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

import clustersim
from clustersim.audit import replay
from clustersim.records import Run
from clustersim.rundir import read_run, write_run
from clustersim.runs import Trace
from clustersim.scheduler import Proposal, State
from policies.fifo import Fifo
from tests.builders import rigid
from tests.effort import rotated
from traces.estimates import PREDICTORS, Estimates
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


def test_folders_of_versions_without_the_setting_are_replayed(table: str, tmp_path: Path) -> None:
    write_trace(made_up(5), tmp_path / "t.csv")
    clustersim.run(tmp_path / "t.csv", "srtf", cluster="n2g8", table=table, out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    manifest = {name: value for name, value in run.manifest.items() if name != "estimates"}
    write_run(tmp_path / "run", replace(run, manifest=manifest))
    assert not replay(tmp_path / "run").violations


HISTORY = {"predictor": "history"}


def jobs_of_users(seed: int, count: int = 60) -> list[Job]:
    random, now, jobs = Random(seed), 0.0, []
    for i in range(count):
        now += random.expovariate(1 / 40)
        user, gpus = random.choice("abc"), random.choice((1, 2, 4))
        run_s = 10 ** ("abc".index(user) + random.uniform(1, 1.3))
        jobs.append(rigid(f"j{i}", now, gpus, run_s, user=user))
    return jobs


class Watched(Fifo):
    """fifo that notes what it sees of each job on submission: {job: seconds}."""

    seen: dict[str, float] = {}  # noqa: RUF012

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                assert event.job.estimate_s == event.job.remaining(), "to the last bit"
                self.seen[event.job.id] = event.job.remaining()
        return super().schedule(state)


def seen(jobs: list[Job]) -> dict[str, float]:
    Watched.seen.clear()
    clustersim.run(jobs, Watched, cluster="n1g8", overheads=None, estimates=HISTORY)
    return dict(Watched.seen)


@pytest.mark.parametrize("seed", range(3))
def test_a_prediction_depends_on_what_ended_before_alone(seed: int) -> None:
    """Every job that is submitted in the second half, or ends in it, takes another time: predictions of the
    first half stay. The job in the middle then sees a change of what had ended, and only that.
    """
    jobs = jobs_of_users(seed)
    run = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None)
    middle_s = jobs[30].submit_s
    over = {record.job_id for record in run.jobs if (record.finish_s or 0) > middle_s}
    longer = [
        replace(job, duration_s=(job.duration_s or 0) * 3) if job.job_id in over else job for job in jobs
    ]
    before, after = seen(jobs), seen(longer)
    early = [job.job_id for job in jobs if job.submit_s <= middle_s]
    assert [before[name] for name in early] == [after[name] for name in early]
    assert before != after


@pytest.mark.parametrize(
    ("policy", "predictor"), rotated(["sjf", "srtf", "srsf", "easy", "conservative", "qssf"], PREDICTORS)
)
def test_policies_do_without_the_oracle(policy: str, predictor: str) -> None:
    run = clustersim.run(
        jobs_of_users(0), policy, cluster="n1g8", overheads=None, estimates={"predictor": predictor}
    )
    assert run.manifest["oracle_used"] is False
    assert {record.state for record in run.jobs} == {"finished"}
    assert run.summary["predictions"]["jobs"] == 60


def test_the_errors_stated_are_those_of_what_policies_saw() -> None:
    jobs = jobs_of_users(1)
    found = seen(jobs)
    errors = [abs(log(found[job.job_id] / (job.duration_s or 0))) for job in jobs]
    stated = clustersim.run(jobs, "fifo", cluster="n1g8", overheads=None, estimates=HISTORY).summary
    assert stated["predictions"]["median_abs_log_error"] == pytest.approx(median(errors))
    assert stated["predictions"]["within_factor_2"] == sum(e <= log(2) for e in errors) / len(errors)
    assert stated["predictions"]["within_factor_2"] > 0.5, "users differ by 10, and within one by 2"
