"""Ctrl-C and SIGTERM: what has happened is kept, whole, and marked."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clustersim.cli import main
from clustersim.records import JobRecord
from clustersim.rundir import RunWriter, read_run
from clustersim.runs import run, signals
from clustersim.runs.signals import interrupting
from tests.places import ROOT
from tests.tables import TEXTS
from traces.job import Job

LAZY = TEXTS["policies that ask for an end"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "lazy.py").write_text(LAZY)
    rows = [f"{i},{10 * i},8,{15 if i < 2 else 30}" for i in range(9)]
    (tmp_path / "trace.csv").write_text("\n".join(["job_id,submit_s,gpus,duration_s", *rows]))
    return tmp_path


def start(here: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "clustersim", arguments[0], f"{here}/trace.csv", *arguments[1:]]
    return subprocess.Popen(
        [*command, "--cluster", "n2g8", "--no-overheads", "--out", f"{here}/out"], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize(("policy", "number"), [("Lazy", None), ("Stuck", signal.SIGINT)])
def test_a_run_keeps_what_had_happened(here: Path, policy: str, number: int | None) -> None:
    out = here / "out"
    child = start(here, "run", "--policy", f"{here}/lazy.py:{policy}")
    if number is not None:
        assert child.stderr is not None
        assert child.stderr.readline() == "begun\n"
        child.send_signal(number)
    stdout, stderr = child.communicate(timeout=30)
    text = f"error: interrupted; the records up to then are in {out}, marked as interrupted\n"
    assert (child.returncode, stdout, stderr) == (130, "", text)
    manifest = json.loads((out / "manifest.json").read_text())
    assert (manifest["status"], manifest["complete"], manifest["end_s"]) == ("interrupted", False, 25.0)
    with (out / "jobs.csv").open(newline="") as file:
        records = list(csv.DictReader(file))
    assert [record["job_id"] for record in records] == [str(i) for i in range(9)]
    assert [record["state"] for record in records] == ["finished"] * 2 + ["unfinished"] * 7
    assert records[2]["reason"] == "still running when the run was interrupted"
    assert sorted(path.suffix for path in out.iterdir() if path.name.startswith(".")) == []
    assert main(["check", str(out)]) == 0
    assert main(["report", str(out)]) == 0
    assert "interrupted before that" in (out / "report.html").read_text()


def test_a_signal_that_finds_the_engine_at_work(tmp_path: Path) -> None:
    """Not the policy: what the policy makes of this instant is still enacted."""
    jobs = [Job(str(i), 10.0 * i, gpus=8, duration_s=15.0) for i in range(9)]

    def ask(left: int) -> None:
        if left == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt) as caught:
        run(jobs, "fifo", cluster="n1g8", overheads=None, out=tmp_path / "out", on_progress=ask)
    partial = caught.value.partial  # type: ignore[attr-defined]
    assert list(partial.events)[-1][:3] == (30.0, "start", "2")
    assert [record.state for record in partial.jobs] == ["finished"] * 2 + ["unfinished"] * 7
    assert main(["check", str(tmp_path / "out")]) == 0


def test_a_comparison_keeps_every_run(here: Path) -> None:
    """One has finished, one is stuck in a decision."""
    child = start(here, "compare", "--policies", f"fifo,{here}/lazy.py:Stuck", "--workers", "2")
    assert child.stderr is not None
    assert child.stderr.readline() == "begun\n"
    done = here / "out" / "fifo" / "manifest.json"
    while not done.exists():
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    stdout, stderr = child.communicate(timeout=30)
    assert (child.returncode, stdout) == (130, "")
    assert stderr.startswith("error: interrupted; ")
    assert stderr.count("\n") == 1
    found = {path.parent.name: json.loads(path.read_text()) for path in here.glob("out/*/manifest.json")}
    assert sorted(manifest["status"] for manifest in found.values()) == ["complete", "interrupted"]
    assert main(["check", str(here / "out")]) == 0


def test_the_second_signal_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one that follows the first within an instant, as terminals and wrappers send them."""
    asked: list[int] = []
    before = signal.getsignal(signal.SIGINT)  # a test before this one may have left one of its own
    with interrupting(lambda: asked.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        monkeypatch.setattr(signals, "_ECHO_S", -1.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert asked == [1]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("again", [2, 5], ids=["in the engine", "while unfinished jobs are recorded"])
def test_what_a_second_signal_tears_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """Records that are half made contradict each other: an earlier run in the folder stays."""
    monkeypatch.setattr(signals, "_ECHO_S", -1.0)
    jobs = [Job(str(i), 10.0 * i, gpus=8, duration_s=15.0) for i in range(9)]
    earlier = run(jobs, "fifo", cluster="n1g8", overheads=None, out=tmp_path / "out")
    kept = RunWriter.keep_job
    seen = 0

    def keep(self: RunWriter, record: JobRecord, order: int) -> None:
        nonlocal seen
        seen += 1
        if seen in (2, again):
            for _ in range(2 if again == 2 else 1):
                os.kill(os.getpid(), signal.SIGINT)
        kept(self, record, order)

    monkeypatch.setattr(RunWriter, "keep_job", keep)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(jobs, "fifo", cluster="n1g8", overheads=None, out=tmp_path / "out")
    assert not hasattr(caught.value, "partial")
    assert read_run(tmp_path / "out").manifest == earlier.manifest
    assert sorted(path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")) == []


def test_outside_the_main_thread_nothing_changes() -> None:
    seen: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def look() -> None:
        with interrupting(lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
