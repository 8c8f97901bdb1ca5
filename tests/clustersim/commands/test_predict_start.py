"""`clustersim predict-start`: what it prints, and what it says of input that it cannot use."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.places import ROOT
from tests.traces.logs.live_samples import SQUEUE, kube_list, when, workload

pytestmark = pytest.mark.usefixtures("wide_terminal")

DAY = "2024-05-01T"
ROWS = (
    f"1|vision|ann|gpu|high|RUNNING|{DAY}08:00:00|{DAY}09:00:00|N/A|4:00:00|1|gres:gpu:8|500|None",
    f"2|vision|bob|gpu|high|RUNNING|{DAY}08:00:00|{DAY}09:30:00|N/A|6:00:00|1|gres:gpu:4|500|None",
    f"3|speech|eli|gpu|high|PENDING|{DAY}10:00:00|N/A|N/A|2:00:00|1|gres:gpu:8|400|(Resources)",
    f"4|speech|eli|gpu|high|PENDING|{DAY}10:30:00|N/A|N/A|UNLIMITED|1|gres:gpu:1|300|(JobHeldUser)",
)
HISTORY = str(ROOT / "traces" / "samples" / "slurm.txt")


@pytest.fixture
def state(tmp_path: Path) -> str:
    path = tmp_path / "squeue.txt"
    path.write_text(SQUEUE + "\n".join(ROWS) + "\n")
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["predict-start", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_queue_by_limits(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    """All 16 GPUs; 4 are free, so job 3 waits for job 1, which may run until 13:00; it is 10:30."""
    code, out, err = run(capsys, state, "--job", "3", "--cluster", "n2g8")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "squeue.txt (squeue), 2024-05-01 10:30:00, jobs: 2 running, 1 waiting, 1 held back" in lines
    assert "- jobs run for their time limits, since there is no --history to draw from" in lines
    assert "median 2.50 h 2024-05-01 13:00:00" in lines
    assert "It needs 8 GPUs; 4 of 16 are free; place 1 of 1 in the queue" in lines
    assert "lacked GPUs for 9,000 s: 4 free of 16" in lines
    assert "4 GPUs 0 s 0 s 0 s 2.50 h 100 % 0 %" in lines


def test_json_says_the_same(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, state, "--job", "3", "--cluster", "n2g8", "--by", "2024-05-01T13:00:01", "--json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["start"]["p50_s"] == 9000
    assert found["start"]["by_then"] == 1
    assert [one["job_id"] for one in found["waits_for"]["holders"]] == ["1", "2"]
    assert {change["change"] for change in found["changes"]} >= {"4 GPUs", "limit 60.0 min"}


def test_a_new_job_with_a_history(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (state, "--gpus", "8", "--time-limit", "30m", "--history", HISTORY, "--draws", "5", "--json",
                 "--now", "2026-03-04", "--default-limit", "9000h", "--cluster", "n2g8")  # fmt: skip
    code, out, _ = run(capsys, *arguments)
    found = json.loads(out)
    assert code == 0
    assert found["history"]["jobs"] == 500
    assert (found["job"]["new"], found["draws"]) == (True, 5)


def test_kueue(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "workloads.json"
    admitted = workload("runs", when("Admitted", "12:05:00"), gpus=8, maximumExecutionTimeSeconds=3600)
    path.write_text(kube_list(admitted, workload("waits", gpus=4, maximumExecutionTimeSeconds=60)))
    code, out, _ = run(capsys, str(path), "--job", "team/waits", "--json")
    assert code == 0
    assert json.loads(out)["start"]["p50_s"] == pytest.approx(3600, abs=1)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ("--job 33", 2, "unknown waiting job '33'; did you mean 3?"),
        ("--job zzz", 2, "unknown waiting job 'zzz'; known: "),
        ("--job 1", 2, "squeue.txt:2: job 1: runs already, since 2024-05-01 09:00:00"),
        ("--job 4", 2, "squeue.txt:5: job 4: is held back (JobHeldUser), so it waits for no GPUs"),
        ("", 2, "name a job that waits, or ask about a new one"),
        ("--job 3 --gpus 4", 2, "--job 3: is described by the state; leave --gpus and the like out"),
        ("--gpus 0", 2, "--gpus 0: must be between 1 and"),
        ("--gpus 4", 2, "--time-limit: is missing, and there is no --history"),
        ("--gpus 4 --time-limit 4x", 2, "--time-limit 4x: "),
        ("--gpus 4 --time-limit h", 2, "--time-limit h: "),
        ("--gpus 99 --time-limit 4h", 2, "asks for 99 GPUs, its pool has 16"),
        ("--job 3 --cluster n1g8", 2, "--cluster n1g8: has 8 GPUs, and 12 are in use"),
        ("--job 3 --ratio 0", 2, "--ratio 0: must be above 0 and at most 1"),
        ("--job 3 --ratio 0.5 --history HISTORY", 2, "--ratio 0.5: is drawn from --history"),
        ("--job 3 --history HISTORY", 2, "--history: none of its 500 jobs ended before 2024-05-01 10:30:00"),
        ("--job 3 --draws 0", 2, "--draws 0: must be between 1"),
        ("--job 3 --by 2024-05-01", 2, "--by 2024-05-01 00:00:00: lies before now, 2024-05-01 10:30:00"),
        ("--job 3 --queue alphabet", 2, "unknown order of the queue 'alphabet'"),
        ("--job 3 --policy easier", 2, "did you mean easy"),
        ("--job 3 --now 2023-05-01", 2, "--now 1682899200: lies before the first submission"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(
    state: str, options: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = [] if "--cluster" in options else ["--cluster", "n2g8"]
    found = run(capsys, state, *cluster, *shlex.split(options.replace("HISTORY", HISTORY)))
    assert found[:2] == (code, "")
    assert message in found[2]
    assert found[2].startswith("error: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("no table at all", "no known log format"),
        (SQUEUE, "holds no usable job"),
        (SQUEUE + ROWS[0].replace("gres:gpu:8", "N/A"), "names no GPU"),
        (SQUEUE + ROWS[0].replace(f"{DAY}08:00:00", "noon"), "noon"),
        ('{"apiVersion": "v1", "kind": "List", "items": [', "is no table"),
        ("\0\1\2", "state"),
    ],
)
def test_states_that_are_none(
    tmp_path: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.txt"
    path.write_text(text)
    code, out, err = run(capsys, str(path), "--job", "3")
    assert (code, out) == (3, "")
    assert message in err
    assert "Traceback" not in err


def test_a_job_without_a_limit(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(state).write_text(Path(state).read_text().replace("6:00:00", "UNLIMITED"))
    code, _, err = run(capsys, state, "--job", "3")
    assert code == 2
    assert "squeue.txt:3: job 2: states no time limit; give --history LOG" in err
