"""The command line: exit codes of the contract, what goes to stdout and stderr, what is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest

from clustersim.cli import main
from clustersim.testing.scaffold import write_template
from itertime.errors import UserError
from tests.places import ROOT

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\nwide,20,999,5\n"
COMMANDS = (
    "run",
    "compare",
    "grid",
    "demo",
    "report",
    "check",
    "explain",
    "policies",
    "trace",
    "trace import",
    "trace import-table",
    "trace generate",
    "trace check",
)
HEAVY = (
    "numpy",
    "pandas",
    "scipy",
    "plotly",
    "pyarrow",
    "simpy",
    "yaml",
    "jinja2",
    "distributed",
)


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: object) -> Done:
        code = main([str(argument) for argument in arguments])
        return Done(code, *capfd.readouterr())

    return run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return path


def error_of(done: Done, code: int) -> str:
    """What a command said on stderr that ended with `code`: one error, and nothing on stdout."""
    assert done.code == code, done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert not done.out
    return done.err


# What works


def test_run_prints_one_json_document_and_nothing_else(call: Callable[..., Done], trace: Path) -> None:
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--no-overheads", "--json")
    summary = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (summary["jobs"], summary["finished"], summary["rejected"], summary["makespan_s"]) == (
        4,
        3,
        1,
        95.0,
    )


def test_a_preset_of_overheads_is_charged(call: Callable[..., Done], trace: Path) -> None:
    """`a` and `b` ask for all 8 GPUs, `c` for 4: 30 s each before 60, 30 and 5 s of work."""
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--overheads", "helios", "--json")
    summary = json.loads(done.out)
    assert (summary["makespan_s"], summary["lost_gpu_h"]) == (185.0, pytest.approx(30 * 20 / 3600))


def test_without_a_report_the_folder_is_otherwise_the_same(
    call: Callable[..., Done], trace: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--out", out, "--force")
    assert call(*arguments).code == 0
    before = {path.name for path in out.iterdir()}
    done = call(*arguments, "--no-report")
    assert (done.code, "report.html" in done.out) == (0, False)
    assert {path.name for path in out.iterdir()} == before - {"report.html"}
    both = tmp_path / "both"
    done = call(
        "compare", trace, "--policies", "fifo,srtf", "--cluster", "n1g8", "--out", both, "--no-report"
    )
    assert (done.code, (both / "report.html").exists()) == (0, False)
    assert call("report", both).code == 0
    assert (both / "report.html").exists()


def test_run_writes_its_folder(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    done = call(
        "run", trace, "--policy", "srtf", "--cluster", "1x8", "--set", "overheads.launch_s=1", "--out", out
    )
    assert done.code == 0
    assert str(out) in done.out
    names = {path.name for path in out.iterdir()}
    assert {"jobs.csv", "events.csv", "usage.csv", "summary.json", "manifest.json", "report.html"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    header = (out / "jobs.csv").read_text().splitlines()[0]
    assert header.startswith(
        "job_id,tenant,model,state,submit_s,start_s,finish_s,jct_s,queue_s,gpu_seconds,deadline_s,deadline_met,"
        "preemptions,resizes,restarts,lost_s"
    )
    assert json.loads((out / "manifest.json").read_text())["overheads"]["launch_s"] == 1.0


def test_results_are_replaced_only_by_force(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    run = ("run", trace, "--cluster", "n1g8", "--out", one, "--policy")
    both = ("compare", trace, "--cluster", "n1g8", "--out", two, "--policies", "fifo,srtf")
    assert call(*run, "fifo").code == 0
    assert call(*both).code == 0
    for command, what in (((*run, "srtf"), "a run"), (both, "the run fifo")):
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        error = error_of(call(*command), 2)
        assert f"already holds {what}; choose another folder, or replace it with --force" in error
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        assert call(*command, "--force").code == 0
    assert json.loads((one / "manifest.json").read_text())["policy"] == "srtf"


def test_force_does_not_mix_two_comparisons(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    out = ("--cluster", "n1g8", "--out", tmp_path / "out")
    assert call("compare", trace, "--policies", "fifo,srtf", *out).code == 0
    done = call("compare", trace, "--policies", "fifo,sjf", *out, "--force")
    assert "holds srtf of another comparison" in error_of(done, 2)
    done = call("run", trace, "--policy", "fifo", *out, "--force")
    assert "holds fifo of another comparison" in error_of(done, 2)


def test_no_run_is_written_into_the_folder_of_a_grid(
    call: Callable[..., Done], trace: Path, tmp_path: Path
) -> None:
    grid = tmp_path / "grid"
    (grid / "cells").mkdir(parents=True)
    (grid / "grid.json").write_text("{}")
    for command in (["run", trace, "--policy", "fifo"], ["compare", trace, "--policies", "fifo,srtf"]):
        done = call(*command, "--cluster", "n1g8", "--out", grid, "--force")
        assert "holds a grid; choose an empty folder" in error_of(done, 2)
    assert sorted(path.name for path in grid.iterdir()) == ["cells", "grid.json"]


@pytest.mark.parametrize("command", [["run", "--policy", "fifo"], ["compare", "--policies", "fifo,srtf"]])
def test_no_pointer_to_a_report_that_could_not_be_written(
    call: Callable[..., Done],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
) -> None:
    def disk_is_full(path: Path, _: str) -> None:
        raise UserError(f"{path}: cannot be written: No space left on device")

    monkeypatch.setattr("itertime.io.write_text", disk_is_full)
    done = call(command[0], trace, *command[1:], "--cluster", "n1g8", "--out", tmp_path / "out")
    assert done.code == 2
    assert "report.html: cannot be written: No space left on device" in done.err
    assert "fifo" in done.out
    assert "Written to" not in done.out


def test_a_page_that_no_browser_opens_is_left_out_in_one_line(
    call: Callable[..., Done], trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is of all jobs of all runs; `report` tries nevertheless."""
    monkeypatch.setattr("clustersim.commands.output.runs._MOST_REPORTED", 4)
    one, two = tmp_path / "one", tmp_path / "two"
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--out", one)
    assert (done.code, done.err, (one / "report.html").exists()) == (0, "", True)
    done = call("compare", trace, "--policies", "fifo,srtf", "--cluster", "n1g8", "--out", two)
    what = f"not written: a page of 8 jobs is too large for a browser; `clustersim report {two}` tries"
    assert (done.code, done.err) == (0, f"{two}/report.html: {what}\n")
    assert not (two / "report.html").exists()
    assert f"Written to {two}\n" in done.out
    assert call("report", two).code == 0
    assert (two / "report.html").exists()


def test_two_runs_write_the_same_bytes(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert (
            call("run", trace, "--policy", "elasticflow", "--cluster", "n1g8", "--out", tmp_path / name).code
            == 0
        )
    for file in ("jobs.csv", "events.csv", "usage.csv", "summary.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_run_parquet(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    assert call("run", trace, "--policy", "fifo", "--out", tmp_path / "out", "--parquet").code == 0
    assert (tmp_path / "out" / "jobs.parquet").exists()
    assert not (tmp_path / "out" / "jobs.csv").exists()


def test_a_policy_of_ones_own(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from policies.fifo import Fifo\nclass Mine(Fifo):\n    '''Mine.'''\n")
    done = call("run", trace, "--policy", f"{tmp_path}/mine.py:Mine", "--cluster", "n1g8", "--json")
    assert done.code == 0
    assert json.loads(done.out)["finished"] == 3


def test_compare(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = call(
        "compare",
        trace,
        "--policies",
        "fifo, srtf",
        "--seeds",
        2,
        "--cluster",
        "n1g8",
        "--out",
        out,
        "--json",
    )
    document = json.loads(done.out)
    assert (done.code, done.err, document["baseline"]) == (0, "", "fifo")
    assert [(r["policy"], r["seed"]) for r in document["runs"]] == [
        ("fifo", 0),
        ("fifo", 1),
        ("srtf", 0),
        ("srtf", 1),
    ]
    folders = sorted(path.name for path in out.iterdir() if path.is_dir())
    assert folders == ["fifo-seed0", "fifo-seed1", "srtf-seed0", "srtf-seed1"]
    assert (out / "report.html").exists()


def test_compare_prints_a_table(call: Callable[..., Done], trace: Path) -> None:
    done = call("compare", trace, "--policies", "fifo,srtf", "--baseline", "srtf", "--cluster", "n1g8")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line.lstrip().startswith(("fifo ", "srtf "))]
    assert len(lines) == 2
    assert "oracle" in done.out


def test_a_window_of_measurement(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    out, options = tmp_path / "out", ("--cluster", "n1g8", "--warmup", 5, "--measure", 10)
    done = call("run", trace, "--policy", "fifo", *options, "--json", "--out", out)
    window = json.loads(done.out)["window"]
    assert [window[name] for name in ("warmup_s", "measure_s", "from_s", "until_s")] == [5, 10, 5, 15]
    assert json.loads((out / "summary.json").read_text())["window"] == window
    assert call("check", out).code == 0
    told = "Measured in a window: the "
    compared = call("compare", trace, "--policies", "fifo,srtf", *options).out
    assert told in compared
    jobs = window["jobs"]
    assert jobs < len(TRACE.splitlines()) - 1
    assert f" of {jobs} submitted." in compared
    whole = call("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--out", tmp_path / "b")
    assert told not in whole.out
    assert call("report", tmp_path / "b", "--warmup", 5).code == 0
    assert told in (tmp_path / "b" / "report.html").read_text()
    assert "choose a shorter warm-up" in error_of(call("report", tmp_path / "b", "--warmup", 1e6), 2)


def test_a_window_without_jobs_ends_the_command_before_anything_is_written(
    call: Callable[..., Done], trace: Path, tmp_path: Path
) -> None:
    for command in (["run", trace, "--policy", "fifo"], ["compare", trace, "--policies", "fifo,srtf"]):
        done = call(*command, "--cluster", "n1g8", "--warmup", 1e6, "--out", tmp_path / "out")
        assert "no job is submitted later than" in error_of(done, 2)
        assert not (tmp_path / "out").exists()


def test_counts_beside_labels_with_seeds_have_colons(call: Callable[..., Done], trace: Path) -> None:
    done = call("compare", trace, "--policies", "fifo,srtf", "--seeds", 2, "--cluster", "n1g8")
    assert "finished jobs: fifo, seed 0: " in done.out
    assert "; srtf, seed 1: " in done.out


def test_unfinished_jobs_are_named(call: Callable[..., Done], trace: Path) -> None:
    ended = call("compare", trace, "--policies", "fifo,srtf", "--cluster", "n1g8", "--until", 50)
    assert "Unfinished when the run ended: fifo 3, srtf 2; `reason` in jobs.csv says why." in ended.out
    assert "Unfinished" not in call("run", trace, "--policy", "fifo", "--cluster", "n1g8").out


def test_rejected_jobs_are_explained(call: Callable[..., Done], trace: Path) -> None:
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8")
    assert "Rejected under fifo: 1 (asks for 999 GPUs, the cluster has 8).\n" in done.out
    trace.write_text(TRACE + "wider,21,9999,5\n")
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8")
    assert "(asks for 999 GPUs, the cluster has 8) and 1 for other\n  reasons.\n" in done.out


def test_a_gpu_without_a_known_accuracy_is_named(call: Callable[..., Done], trace: Path) -> None:
    header = "job_id,submit_s,gpus,model,global_batch,iterations\n"
    trace.write_text(header + "a,0,8,llama2-7b,64,5\n")
    told = "No interval is known for iteration times on dgx-v100; docs/accuracy.md"
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8", "--system", "dgx-v100")
    assert done.code == 0
    assert told in done.out
    assert told not in call("run", trace, "--policy", "fifo", "--cluster", "n1g8").out


def test_demo(call: Callable[..., Done]) -> None:
    done = call("demo", "--jobs", 8, "--policies", "fifo,elasticflow", "--cluster", "n8g8", "--json")
    document = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    for summary in document["runs"]:
        assert summary["finished"] + summary["rejected"] + summary["unfinished"] == summary["jobs"] == 8


def test_report_again(
    call: Callable[..., Done], trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the order of the policies and the baseline of its command."""
    out = tmp_path / "out"
    command = [
        "compare",
        trace,
        "--policies",
        "srtf,fifo",
        "--baseline=fifo",
        "--cluster",
        "n1g8",
        "--out",
        out,
    ]
    monkeypatch.setattr(sys, "argv", ["clustersim", *map(str, command)])
    assert call(*command).code == 0
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    done = call("report", out)
    assert (done.code, done.out) == (0, f"{out / 'report.html'}\n")
    assert (out / "report.html").read_bytes() == before
    assert call("report", out / "srtf").code == 0


def test_policies(call: Callable[..., Done]) -> None:
    document = json.loads(call("policies", "--json").out)
    rows = {row["name"]: row for row in document["policies"]}
    assert {"fifo", "fifo-skip", "sjf", "srtf", "edf", "elasticflow", "vtrain-aware"} <= set(rows)
    assert set(rows["fifo"]) == {"name", "planner", "summary"}
    done = call("policies")
    assert done.code == 0
    text = " ".join(done.out.split())
    assert all(f"{name} {row['planner']} {row['summary']}" in text for name, row in rows.items())


# 2: usage and configuration


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--policy", "fif"], "unknown policy 'fif'; did you mean fifo"),
        (["--policy", "none.py:X"], "there is no file none.py"),
        (["--policy", "fifo", "--cluster", "n0g8"], "cluster: nodes=0: must be between 1"),
        (["--policy", "fifo", "--cluster", "big"], "cluster 'big': not a shape"),
        (["--policy", "fifo", "--cluster", "n1g16"], "nodes of system dgx-a100-80gb have 8 GPUs"),
        (["--policy", "fifo", "--system", "dgx"], "unknown system 'dgx'"),
        (["--policy", "fifo", "--planner", "4d"], "unknown planner '4d'"),
        (["--policy", "fifo", "--placement", "tight"], "unknown placement 'tight'"),
        (["--policy", "fifo", "--set", "x"], "--set 'x': write NAME=VALUE"),
        (["--policy", "fifo", "--set", "x=1"], "unknown setting 'x'"),
        (
            ["--policy", "fifo", "--set", "overheads.lunch_s=1"],
            "unknown overhead 'lunch_s'; did you mean launch_s",
        ),
        (["--policy", "fifo", "--until", "-1"], "setting until_s=-1.0"),
        (["--policy", "fifo", "--until", "nan"], "setting until_s=nan"),
        (
            ["--policy", "fifo", "--no-overheads", "--set", "overheads.launch_s=1"],
            "contradicts --no-overheads",
        ),
        (
            ["--policy", "fifo", "--no-overheads", "--overheads", "pollux"],
            "contradicts --no-overheads",
        ),
        (
            ["--policy", "fifo", "--overheads", "helois"],
            "unknown preset of overheads 'helois'; did you mean helios",
        ),
        (
            ["--policy", "fifo", "--cluster", "n1g8", "--set", "quotas.red=9"],
            "quotas: 9 GPUs are promised (red 9), the cluster has 8",
        ),
    ],
)
def test_mistakes_in_settings(
    call: Callable[..., Done], trace: Path, tmp_path: Path, arguments: list[str], text: str
) -> None:
    assert text in error_of(call("run", trace, *arguments, "--json", "--out", tmp_path / "out"), 2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("policy", "setting", "text"),
    [
        ("fifo", "policy.x=1", "unknown parameter of policy fifo 'x'; known: (none)"),
        (
            "elasticflow",
            "policy.guard=1",
            "unknown parameter of policy elasticflow 'guard'; did you mean guard_s",
        ),
        ("elasticflow", "policy.guard_s=soon", "policy elasticflow: "),
    ],
)
def test_mistakes_in_parameters_of_a_policy(
    call: Callable[..., Done], trace: Path, tmp_path: Path, policy: str, setting: str, text: str
) -> None:
    arguments = ("--policy", policy, "--set", setting, "--json", "--out", tmp_path / "out")
    assert text in error_of(call("run", trace, *arguments), 2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments",
    ["run", "run x.csv", "walk", "run x.csv --policy fifo --seed -1", "run x.csv --policy fifo --bogus",
     "compare x.csv", "demo --jobs 0", "demo --jobs many"],
)  # fmt: skip
def test_mistakes_in_options(call: Callable[..., Done], arguments: str) -> None:
    done = call(*arguments.split())
    assert done.code == 2
    assert done.err
    assert not done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--policies", ","], "name at least one policy"),
        (["--policies", "fifo,srtf,fifo"], "names a policy twice"),
        (["--policies", "fifo,sirtf"], "unknown policy 'sirtf'; did you mean srtf"),
        (["--policies", "fifo", "--baseline", "srtf"], "--baseline srtf: is not among"),
    ],
)
def test_mistakes_in_comparisons(
    call: Callable[..., Done], trace: Path, tmp_path: Path, arguments: list[str], text: str
) -> None:
    assert text in error_of(call("compare", trace, *arguments, "--out", tmp_path / "out"), 2)
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_written(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        error = error_of(call("run", trace, "--policy", "fifo", "--out", place), 2)
        assert str(tmp_path / "file") in error
        assert "not a folder" in error
    assert (tmp_path / "file").read_text() == "x"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("x")
    assert "thesis.tex" in error_of(call("run", trace, "--policy", "fifo", "--out", foreign), 2)
    assert [path.name for path in foreign.iterdir()] == ["thesis.tex"]


def test_nothing_to_report(call: Callable[..., Done], tmp_path: Path) -> None:
    assert "is not a folder" in error_of(call("report", tmp_path / "none"), 2)
    assert "holds no run" in error_of(call("report", tmp_path), 2)
    (tmp_path / "cells").mkdir()
    assert f"holds a grid; its runs are in {tmp_path / 'cells'}" in error_of(call("report", tmp_path), 2)


# 3: traces and tables


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "trace.csv:1: empty file"),
        ("job_id,submit_s,gpus,duration_s\n", "trace.csv:1: holds no jobs"),
        ("job_id,submit_s,gpus\na,0,8\n", "missing columns"),
        ("job_id,submit_s,gpus,duration_s\na,-1,8,5\n", "trace.csv:2: submit_s=-1: must not be negative"),
        ("job_id,submit_s,gpus,duration_s\na,nan,8,5\n", "trace.csv:2: submit_s=nan"),
        ("job_id,submit_s,gpus,duration_s\na,0,0,5\n", "trace.csv:2: gpus=0: must be at least 1"),
        ("job_id,submit_s,gpus,duration_s\na,0,1.5,5\n", "trace.csv:2: gpus=1.5"),
        (
            "job_id,submit_s,gpus,duration_s\na,0,1,5\na,0,1,5\n",
            "trace.csv:3: job_id=a: is also the id of line 2",
        ),
        ("job_id,submit_s,model,global_batch,iterations\na,0,gpt3-175,64,5\n", "did you mean gpt3-175b"),
    ],
)
def test_bad_traces(call: Callable[..., Done], tmp_path: Path, content: str, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(content)
    assert text in error_of(call("run", path, "--policy", "fifo", "--json", "--out", tmp_path / "out"), 3)
    assert not (tmp_path / "out").exists()


def test_a_trace_that_is_not_there(call: Callable[..., Done], tmp_path: Path) -> None:
    assert "none.csv" in error_of(call("run", tmp_path / "none.csv", "--policy", "fifo"), 2)


def test_bad_tables(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("model,global_batch,gpus,iterations_per_s\nm,8,0,1\n")
    assert "table.csv:2: gpus=0" in error_of(call("run", trace, "--policy", "fifo", "--table", table), 3)
    assert "none.csv" in error_of(call("run", trace, "--policy", "fifo", "--table", tmp_path / "none.csv"), 2)


# 4: policies


def test_a_rule_broken_leaves_the_records_so_far(
    call: Callable[..., Done], trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "greedy.py").write_text(
        "from clustersim.scheduler import Scheduler\n"
        "class Greedy(Scheduler):\n"
        "    def schedule(self, state):\n"
        "        proposal = state.proposal()\n"
        "        for job in state.pending:\n"
        "            proposal.start(job, 7)\n"
        "        return proposal\n"
    )
    out = tmp_path / "out"
    done = call(
        "run", trace, "--policy", f"{tmp_path}/greedy.py:Greedy", "--cluster", "n1g8", "--json", "--out", out
    )
    assert "policy Greedy at t=0 s: start(job a, gpus=7): it can run on 8 GPUs" in error_of(done, 4)
    assert json.loads((out / "manifest.json").read_text())["complete"] is False
    assert len((out / "jobs.csv").read_text().splitlines()) == 5
    (tmp_path / "bad.py").write_text("1 / 0\n")
    assert "bad.py:1: ZeroDivisionError" in error_of(
        call("run", trace, "--policy", f"{tmp_path}/bad.py:X"), 4
    )


# 130 and 1


def test_interrupted(call: Callable[..., Done], trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clustersim.engine.simulation.Simulation._decide", interrupt)
    assert "interrupted" in error_of(call("run", trace, "--policy", "fifo"), 130)


@pytest.mark.skipif(sys.platform == "win32", reason="no process groups")
def test_ctrl_c_ends_a_comparison_quietly(tmp_path: Path) -> None:
    """As in a terminal, the workers get the signal too."""
    (tmp_path / "slow.py").write_text(
        "import time, sys\n"
        "from clustersim.scheduler import Scheduler\n"
        "class Slow(Scheduler):\n"
        "    def schedule(self, state):\n"
        "        print('begun', file=sys.stderr, flush=True)\n"
        "        time.sleep(60)\n"
    )
    (tmp_path / "trace.csv").write_text(TRACE)
    policies = f"{tmp_path}/slow.py:Slow,fifo"
    child = subprocess.Popen(
        [sys.executable, "-m", "clustersim", "compare", f"{tmp_path}/trace.csv", "--policies", policies],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stderr is not None
    assert child.stderr.readline() == "begun\n"
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=20)
    assert (child.returncode, out, err) == (130, "", "error: interrupted\n")


def test_internal_errors(call: Callable[..., Done], trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("clustersim.engine.simulation.Simulation._decide", broken)
    done = call("run", trace, "--policy", "fifo", "--json")
    assert (done.code, done.out) == (1, "")
    assert "internal error, please report it: RuntimeError: a bug" in done.err
    assert "Traceback" in done.err


# Help


@pytest.mark.parametrize("command", COMMANDS)
def test_help(call: Callable[..., Done], command: str) -> None:
    done = call(*command.split(), "--help")
    assert (done.code, done.err) == (0, "")
    assert "Usage: clustersim" in done.out


def test_version(call: Callable[..., Done]) -> None:
    assert call("--version") == Done(0, f"clustersim {version('clustersim')}\n", "")


def test_help_imports_nothing_heavy() -> None:
    """What makes `--help` slow is what it imports; seconds would depend on the machine."""
    arguments = [["--help"], *([*command.split(), "--help"] for command in COMMANDS)]
    script = (
        "import sys\n"
        "from clustersim.cli import main\n"
        f"for arguments in {arguments!r}:\n"
        "    assert main(arguments) == 0\n"
        f"heavy = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "print('heavy:', heavy, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == "heavy: []\n"


def test_as_a_module_and_as_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clustersim", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "compare" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "clustersim", "run", "x"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2


def test_a_setting_for_one_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\n")
    common = ["compare", str(trace), "--policies", "fifo,elasticflow", "--cluster", "n1g8", "--json"]
    assert main([*common, "--set", "elasticflow.guard_s=2"]) == 0
    assert main([*common, "--set", "policy.guard_s=2"]) == 2
    assert "unknown parameter of policy fifo" in capsys.readouterr().err


def test_a_setting_for_one_policy_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_template("mine", tmp_path)
    (tmp_path / "trace.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\n")
    common = ["compare", "trace.csv", "--policies", "fifo,mine.py:Mine", "--cluster", "n1g8"]
    assert main([*common, "--set", "mine.py:Mine.patience_s=7", "--out", "out"]) == 0
    assert json.loads((tmp_path / "out/mine.py_Mine/manifest.json").read_text())["params"] == {
        "patience_s": 7
    }
    assert main([*common, "--set", "mine.py:Mine.patience=7"]) == 2
    assert "did you mean patience_s" in capsys.readouterr().err


def test_a_setting_for_a_policy_of_a_file_that_is_called_like_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_template("fifo", tmp_path)
    (tmp_path / "trace.csv").write_text("job_id,submit_s,gpus,duration_s\na,0,8,60\n")
    both = ["compare", "trace.csv", "--policies", "fifo,fifo.py:Fifo", "--cluster", "n1g8", "--out", "out"]
    assert main([*both, "--set", "fifo.py:Fifo.patience_s=7"]) == 0
    manifest = json.loads((tmp_path / "out/fifo.py_Fifo/manifest.json").read_text())
    assert manifest["params"] == {"patience_s": 7}
