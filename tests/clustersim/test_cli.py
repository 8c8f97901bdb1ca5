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


def test_run_parquet(call: Callable[..., Done], trace: Path, tmp_path: Path) -> None:
    assert call("run", trace, "--policy", "fifo", "--out", tmp_path / "out", "--parquet").code == 0
    assert (tmp_path / "out" / "jobs.parquet").exists()
    assert not (tmp_path / "out" / "jobs.csv").exists()


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


def test_rejected_jobs_are_explained(call: Callable[..., Done], trace: Path) -> None:
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8")
    assert "Rejected under fifo: 1 (asks for 999 GPUs, the cluster has 8).\n" in done.out
    trace.write_text(TRACE + "wider,21,9999,5\n")
    done = call("run", trace, "--policy", "fifo", "--cluster", "n1g8")
    assert "(asks for 999 GPUs, the cluster has 8) and 1 for other\n  reasons.\n" in done.out


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
