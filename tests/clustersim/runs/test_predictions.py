"""The setting `estimates.predictor`: what policies then see, what the run states, and how it is proved."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from random import Random
from statistics import median

import pytest

import clustersim
from clustersim.audit import check_run_folder, replay
from clustersim.scheduler import Proposal, State
from policies.fifo import Fifo
from tests.builders import rigid
from tests.effort import rotated
from traces.estimates import PREDICTORS
from traces.job import Job
from traces.native import write_trace

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

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "submitted" and event.job is not None:
                assert event.job.estimate_s == event.job.remaining(), "to the last bit"
                self.seen[event.job.id] = event.job.remaining()
        return super().schedule(state)


def seen(jobs: list[Job]) -> dict[str, float]:
    watched: list[Watched] = []

    class Own(Watched):
        def __init__(self) -> None:
            super().__init__()
            watched.append(self)

    clustersim.run(jobs, Own, cluster="n1g8", overheads=None, estimates=HISTORY)
    return watched[-1].seen


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


def test_a_run_without_the_setting_says_nothing_of_it() -> None:
    run = clustersim.run(jobs_of_users(0, 5), "fifo", cluster="n1g8")
    assert "predictions" not in run.summary
    assert "predictions" not in run.manifest


def test_a_folder_with_predictions_is_proved_and_replayed(tmp_path: Path) -> None:
    write_trace(jobs_of_users(2), tmp_path / "jobs.csv")
    clustersim.run(
        str(tmp_path / "jobs.csv"), "srtf", cluster="n1g8", out=tmp_path / "run", estimates=HISTORY
    )
    assert not [finding for finding in check_run_folder(tmp_path / "run") if finding.violations]
    assert not replay(tmp_path / "run").violations
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(summary.read_text().replace('"within_factor_2": 0.', '"within_factor_2": 1.'))
    broken = [finding.rule for finding in check_run_folder(tmp_path / "run") if finding.violations]
    assert "summary" in broken
