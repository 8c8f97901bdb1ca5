"""Traces and grids where a session cannot show it: equal documents, hashes, shared files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from itertime.io import sha256
from tests.printed import Call
from traces import read_trace

HEAD = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"


def row(i: int) -> str:
    """Eight jobs a day from 1 September 2020 on, one an hour from 8:00, each waiting for a minute."""
    day, hour, run_s = f"2020-09-{1 + i // 8:02}", 8 + i % 8, 600 + 7 * i
    end = f"{hour:02}:{1 + run_s // 60:02}:{run_s % 60:02}"
    moments = f"{day} {hour:02}:00:00,{day} {hour:02}:01:00,{day} {end}"
    return f"{i},u{i % 3},vc{i % 2},{2 ** (i % 4)},8,1,COMPLETED,{moments},{run_s},60"


@pytest.fixture
def log(here: Path) -> Path:
    path = here / "log.csv"
    path.write_text("\n".join([HEAD, *map(row, range(80))]) + "\n")
    return path


def report_of(name: str) -> Any:
    return json.loads(Path(name).read_text())


def test_import_states_hashes_and_no_place(log: Path, call: Call) -> None:
    done = call("trace", "import", log, "-o", "out.csv.gz", "--limit", 30, "--rules", "llm-mix")
    assert "30 jobs of 80 rows" in done.out
    assert "50 outside the selection" in " ".join(done.err.split())
    report = report_of("out.import.json")
    assert (report["input"]["file"], report["input"]["sha256"]) == ("log.csv", sha256(log))
    assert report["output"] == {"file": "out.csv.gz", "sha256": sha256(log.parent / "out.csv.gz"), "jobs": 30}
    assert (report["seed"], report["planner"], report["system"]) == (0, "3d", "dgx-a100-80gb")
    assert str(log.parent) not in json.dumps(report)
    assert sorted(os.listdir(log.parent)) == ["log.csv", "out.csv.gz", "out.import.json"]


@pytest.mark.usefixtures("log")
def test_describe_prints_one_json_document_of_a_trace(call: Call) -> None:
    assert call("trace", "import", "log.csv", "-o", "jobs.csv").code == 0
    of_trace, of_log = (
        json.loads(call("trace", "describe", name, "--json").out) for name in ("jobs.csv", "log.csv")
    )
    assert (of_trace.pop("file"), of_log.pop("file")) == ("jobs.csv", "log.csv")
    assert of_trace == of_log
    assert of_trace["arrivals"]["calendar"]  # by the report of the import, beside the trace
    Path("jobs.import.json").unlink()
    document = json.loads(call("trace", "describe", "jobs.csv", "--json").out)
    assert not document["arrivals"]["calendar"]


def test_fit_writes_a_preset_that_generate_takes(log: Path, call: Call) -> None:
    printed = call("trace", "fit", "log.csv", "-o", "own.yaml").out
    assert max(map(len, printed.splitlines())) <= 80
    assert "fitted to the first 48 jobs; A: the other 32, B: as many generated" in printed
    report = report_of("own.fit.json")
    assert report["input"] == {"file": "log.csv", "sha256": sha256(log)}
    assert report["jobs"] == {"first": 48, "rest": 32}
    words = ("trace", "generate", "--preset", "own.yaml", "-o", "made.csv", "--jobs", 50)
    assert call(*words).code == 0
    assert {job.gpus for job in read_trace("made.csv")} <= {1, 2, 4, 8}
    made = report_of("made.generate.json")
    assert (made["recipe"]["preset"], made["recipe"]["load"]) == ("own.yaml", None)
    assert made["preset"]["sha256"] == sha256(Path("own.yaml"))


GRID = """
set: {cluster: n2g8, trace: {jobs: 6, gpus: 16, load: 1.5, rules: none, sizes: itp-8h}}
matrix: {policy: [fifo, srtf]}
seeds: 2
"""


@pytest.mark.usefixtures("here")
def test_grids_have_the_distances_and_share_bounds(call: Call) -> None:
    Path("g.yaml").write_text(GRID)
    printed = " ".join(call("grid", "g.yaml", "--workers", "1").out.split())
    assert "Mean JCT is within these factors of the best possible (means over cells): fifo x" in printed
    ratios = pd.read_csv("g/results.csv")["jct_over_bound"]
    assert (len(ratios), ratios.min() >= 1) == (4, True)
    assert len(list(Path("g/bounds").glob("*.json"))) == 2  # one a seed, for both policies
    for cell in Path("g/cells").iterdir():
        assert json.loads((cell / "manifest.json").read_text())["timings"]["bound_s"] is None
    printed = call("grid", "g.yaml", "--workers", "1", "--no-bound", "-o", "without").out
    assert "best possible" not in printed
    assert pd.read_csv("without/results.csv")["jct_over_bound"].isna().tolist() == [True] * 4
