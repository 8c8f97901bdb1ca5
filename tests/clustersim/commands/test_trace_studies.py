"""`clustersim trace describe`, `compare`, `fit`, `generate --preset`, `slice` and `scale`, from the shell."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from clustersim.cli import main
from traces import read_trace

HEAD = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def row(i: int) -> str:
    """Eight jobs a day from 1 September 2020 on, one an hour from 8:00, each waiting for a minute."""
    day, hour, run_s = f"2020-09-{1 + i // 8:02}", 8 + i % 8, 600 + 7 * i
    end = f"{hour:02}:{1 + run_s // 60:02}:{run_s % 60:02}"
    moments = f"{day} {hour:02}:00:00,{day} {hour:02}:01:00,{day} {end}"
    return f"{i},u{i % 3},vc{i % 2},{2 ** (i % 4)},8,1,COMPLETED,{moments},{run_s},60"


LOG = "\n".join([HEAD, *map(row, range(80))]) + "\n"


def call(*arguments: object) -> int:
    return main(["trace", *(str(argument) for argument in arguments)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    return tmp_path


def test_describe_prints_one_json_document_of_a_trace(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("import", "log.csv", "-o", "jobs.csv") == 0
    capsys.readouterr()
    assert call("describe", "jobs.csv", "--json") == 0
    of_trace = json.loads(capsys.readouterr().out)
    assert call("describe", "log.csv", "--json") == 0
    of_log = json.loads(capsys.readouterr().out)
    assert (of_trace.pop("file"), of_log.pop("file")) == ("jobs.csv", "log.csv")
    assert of_trace == of_log
    assert of_trace["arrivals"]["calendar"]  # by the report of the import, beside the trace
    Path("jobs.import.json").unlink()
    assert call("describe", "jobs.csv", "--json") == 0
    assert not json.loads(capsys.readouterr().out)["arrivals"]["calendar"]


def test_hostile_names_are_printed_on_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.csv").write_text(
        'job_id,submit_s,gpus,duration_s,tenant\na,0,1,5,"x\x1b[2J\ny"\nb,9,1,5,' + "z" * 90
    )
    assert call("describe", "jobs.csv") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_fit_writes_a_preset_that_generate_takes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("fit", "log.csv", "-o", "own.yaml") == 0
    said = capsys.readouterr()
    assert max(map(len, said.out.splitlines())) <= 80
    assert "fitted to the first 48 jobs; A: the other 32, B: as many generated" in said.out
    report = json.loads(Path("own.fit.json").read_text())
    assert report["input"] == {"file": "log.csv", "sha256": hashlib.sha256(LOG.encode()).hexdigest()}
    assert report["jobs"] == {"first": 48, "rest": 32}
    assert call("generate", "--preset", "own.yaml", "-o", "made.csv", "--jobs", 50) == 0
    assert {job.gpus for job in read_trace("made.csv")} <= {1, 2, 4, 8}
    made = json.loads(Path("made.generate.json").read_text())
    assert made["recipe"]["preset"] == "own.yaml"
    assert made["recipe"]["load"] is None
    assert made["preset"]["sha256"] == hashlib.sha256(Path("own.yaml").read_bytes()).hexdigest()


def test_slices_and_scaled_traces_say_where_they_came_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("import", "log.csv", "-o", "jobs.csv") == 0
    assert call("slice", "jobs.csv", "-o", "part.csv", "--gpus", "2..4", "--users", "u0,u1") == 0
    assert {job.gpus for job in read_trace("part.csv")} == {2, 4}
    assert call("scale", "part.csv", "-o", "dense.csv", "--load", 0.9, "--on", 8, "--jobs", 20) == 0
    report = json.loads(Path("dense.scale.json").read_text())
    sliced, imported = report["input"]["report"], report["input"]["report"]["input"]["report"]
    assert (report["input"]["file"], report["output"]["jobs"]) == ("part.csv", 20)
    assert (sliced["kind"], sliced["part"]["least_gpus"], sliced["part"]["users"]) == (
        "slice",
        2,
        ["u0", "u1"],
    )
    assert (imported["kind"], imported["format"], imported["input"]["file"]) == (
        "import",
        "helios",
        "log.csv",
    )
    assert report["demand"]["mean_gpus"] == pytest.approx(0.9 * 8)
    shift = imported["clock"]["shift_s"]
    assert sliced["clock"]["shift_s"] == shift + 3600.0  # job 1 is the first of the slice
