"""The study of Muri's testbed: its constants on jobs made by hand, and its figures from the logs."""

import csv
from pathlib import Path

import pytest

from experiments import muri_testbed as study
from experiments.muri_executions import Executions, Measured, MuriJob
from itertime.errors import UserError

needs_data = pytest.mark.skipif(
    not study.DATA.exists(), reason=f"needs {study.DATA}, which is not part of this project"
)


def job(name: str, gpus: int, work_s: float) -> MuriJob:
    return MuriJob(name, 0.0, gpus, "m", work_s, work_s)


def test_the_constants_of_executions_that_follow_them() -> None:
    """Each start takes 30 s, each step 1.02 times what is stated. The jobs that show starts have no work."""
    jobs = {
        j.job_id: j for j in (job("a", 8, 0.0), job("b", 1, 0.0), job("c", 8, 10_000.0), job("d", 4, 500.0))
    }
    starts = {"a": 1, "b": 1, "c": 5, "d": 1}
    log = {
        name: Measured(0.0, 0.0, 30.0 * starts[name] + 1.02 * jobs[name].work_s, starts[name])
        for name in jobs
    }
    found = Executions.of(jobs, [log, log])
    assert (found.start_s, found.slowdown) == (pytest.approx(30.0), pytest.approx(1.02))


def test_a_simulated_log_of_its_own_is_met_exactly() -> None:
    """A log that the conditions made themselves, judged by them."""
    jobs = {str(i): MuriJob(str(i), 50.0 * i, 8, "m", 400.0 + 100 * (i % 4), 0.0) for i in range(20)}
    settings = study.conditions(Executions(30.0, 1.02))
    ours = study.simulated(jobs, "srtf", settings)
    log = {name: Measured(start, end, 0.0, starts) for name, (start, end, starts) in ours.items()}
    found = study.compared("srtf", "all", jobs, log, ours)
    assert (found.jct_error, found.makespan_error, found.spearman) == (0.0, 0.0, pytest.approx(1.0))
    assert all(start % 360 == pytest.approx(0.0, abs=1e-6) for start, _, _ in ours.values())


@needs_data
@pytest.mark.parametrize("policy", ["srtf", "srsf"])
def test_the_testbed_by_the_constants_of_the_other_log(policy: str) -> None:
    """Mean JCT and makespan within 5 %, rank correlation of the JCT at least 0.95; and as the page says."""
    jobs = study.read_trace(study.DATA)
    logs = {name: study.read_log(study.DATA / f"{file}.job.csv.gz") for name, file in study.LOGS.items()}
    ours = study.simulated(jobs, policy, study.conditions(study.without(jobs, logs, policy)))
    found = study.compared(policy, study.LAST, jobs, logs[policy], ours)
    assert abs(found.jct_error) < 5
    assert abs(found.makespan_error) < 5
    assert found.spearman > 0.95
    with (study.FOLDER / "results.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if (row["policy"], row["conditions"]) == (policy, study.LAST)
        ]
    assert float(rows[0]["jct_mean_s"]) == pytest.approx(found.jct_mean_s, rel=1e-5)
    assert float(rows[0]["spearman"]) == pytest.approx(found.spearman, rel=1e-5)
    assert study.steps_table([found]).splitlines()[-1] in study.PAGE.read_text(encoding="utf-8")


@needs_data
def test_the_plain_simulation_is_as_far_off_as_stated() -> None:
    """-12 % for SRTF where the jobs take the durations of the trace, and nothing else is charged."""
    jobs = study.read_trace(study.DATA)
    log = study.read_log(study.DATA / "SRTF.job.csv.gz")
    ours = study.simulated(jobs, "srtf", {}, seconds_of=lambda job: job.duration_s)
    assert study.compared("srtf", "plain", jobs, log, ours).jct_error == pytest.approx(-12, abs=1)


@needs_data
def test_any_log_of_the_testbed_can_judge(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, jobs = str(study.DATA / "SRSF.job.csv.gz"), tmp_path / "jobs.csv"
    study.main(["--policy", "Tiresias", file, "--set", "policy.order=submission", "--jobs", str(jobs)])
    row = capsys.readouterr().out.splitlines()[-1]
    assert row.startswith("| tiresias | + slower steps |")
    with jobs.open(newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 400
    mean_s = sum(float(row["simulated_jct_s"]) for row in rows) / 400
    assert mean_s == pytest.approx(float(row.split("|")[3].replace(",", "")), abs=1)


@needs_data
def test_a_log_of_other_jobs_is_refused(tmp_path: Path) -> None:
    log = "job_id,start_time,end_time,real_executed_time,job_counter\n4711,0,1,1,1\n"
    (tmp_path / "log.csv").write_text(log)
    with pytest.raises(UserError, match="job 4711 is not in the trace"):
        study.main(["--policy", "srtf", str(tmp_path / "log.csv")])
    with pytest.raises(UserError, match=r"absent\.csv: cannot be read"):
        study.main(["--policy", "srtf", str(tmp_path / "absent.csv")])
