"""`clustersim bound`, and what run, compare and grid say about the best possible."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clustersim.cli import main

TRACE = (
    "job_id,submit_s,model,gpus,global_batch,iterations,duration_s,deadline_s\n"
    + "".join(f"m{i},{60 * i},megatron-1.7b,8,512,{200 + 50 * i},,{60 * i + 9000}\n" for i in range(4))
    + "".join(f"d{i},{90 * i},,4,,,{900 + 70 * i},\n" for i in range(3))
)
KEYS = ["jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio", "method", "seconds"]
HERE = ("--cluster", "n2g8")


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    return str(path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(arguments) == code
    return " ".join("".join(capsys.readouterr()).split())  # sentences are folded


def test_the_command_prints_a_table_or_these_keys(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(said(capsys, "bound", trace, *HERE, "--json"))
    assert list(document) == KEYS
    assert document["deadline_met_ratio"] <= 1.0
    assert document["method"] == "prices"
    text = said(capsys, "bound", trace, *HERE, "--method", "area")
    assert "at most" in text
    assert "Method area, " in text
    assert "over 7 of 7 jobs." in text


def test_an_interrupt_ends_the_command(
    trace: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C ends any other command: 130, a line that says so, and no result."""

    def interrupted(instance: object, method: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("clustersim.bounds.bound_of", interrupted)
    text = said(capsys, "bound", trace, *HERE, "--json", code=130)
    assert "interrupted" in text
    assert "Traceback" not in text
    assert "jct_mean_s" not in text


def test_jobs_that_cannot_run_are_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,deadline_s\nwide,0,99,10,20\n")
    text = said(capsys, "bound", str(path), *HERE)
    assert "at most" in text  # no deadline can be met
    assert "over 0 of 1 jobs; 1 cannot run here and is left out." in text
    path.write_text("job_id,submit_s,gpus,duration_s\nwide,0,99,10\n")
    assert "Nothing is known: no job can run here." in said(capsys, "bound", str(path), *HERE)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--seeds", "2", "--set", "seed=3"], "--set seed=3: contradicts --seeds"),
        (["--vary", "nodes=1,2", "--force"], "--force: is not for --vary"),
        (["--vary", "nodes=1,2", "--parquet"], "--parquet: is not for --vary"),
    ],
)
def test_options_of_compare_that_would_do_nothing_are_mistakes(
    options: list[str], text: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in said(capsys, "compare", trace, "--policies", "fifo,srtf", *options, code=2)


GRID = """
set: {cluster: n2g8, trace: {jobs: 6, gpus: 16, load: 1.5, rules: none, sizes: itp-8h}}
matrix: {policy: [fifo, srtf]}
seeds: 2
"""


def test_grids_have_the_distances_and_share_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(GRID)
    text = said(capsys, "grid", "g.yaml", "--workers", "1")
    assert "Mean JCT is within these factors of the best possible (means over cells): fifo x" in text
    head, *rows = Path("g/results.csv").read_text().splitlines()
    ratios = [row.split(",")[head.split(",").index("jct_over_bound")] for row in rows]
    assert len(ratios) == 4
    assert min(map(float, ratios)) >= 1
    assert len(list(Path("g/bounds").glob("*.json"))) == 2  # one a seed, for both policies
    for cell in Path("g/cells").iterdir():
        assert json.loads((cell / "manifest.json").read_text())["timings"]["bound_s"] is None
    text = said(capsys, "grid", "g.yaml", "--workers", "1", "--no-bound", "-o", "without")
    assert "best possible" not in text
    head, *rows = Path("without/results.csv").read_text().splitlines()
    assert [row.split(",")[head.split(",").index("jct_over_bound")] for row in rows] == [""] * 4
