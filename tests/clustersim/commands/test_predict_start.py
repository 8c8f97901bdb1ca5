"""`clustersim predict-start`: what it prints, and what it says of input that it cannot use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.cli import main
from tests.places import ROOT
from tests.traces.logs.live_samples import SQUEUE

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
