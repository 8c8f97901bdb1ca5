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


def test_a_trace_that_misstates_its_work_has_the_same_bound(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Policies see the stated work; the bound takes the true one."""
    head, *rows = TRACE.splitlines()
    path = tmp_path / "stated.csv"
    lines = [f"{row},{1 if row.startswith('m') else ''}" for row in rows]
    path.write_text("\n".join([f"{head},stated_iterations", *lines, ""]))
    command = ("bound", *HERE, "--json", "--method", "area")
    bounds = [json.loads(said(capsys, *command, str(file))) for file in (trace, path)]
    for bound in bounds:
        del bound["seconds"]
    assert bounds[0] == bounds[1]


def test_it_takes_the_options_of_a_run(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    def mean_s(*options: str) -> float:
        command = ("bound", trace, "--json", *HERE, "--method", "area")
        return float(json.loads(said(capsys, *command, *options))["jct_mean_s"])

    least, least_alone = mean_s("--no-overheads"), mean_s("--method", "alone", "--no-overheads")
    assert mean_s("--method", "alone", "--set", "overheads.launch_s=500") > least_alone + 499
    assert mean_s("--system", "dgx-h100", "--no-overheads") < least
    assert mean_s("--no-overheads", "--cluster", "n1g8") > least
    assert mean_s("--method", "alone") <= mean_s("--method", "area")


def test_a_run_with_these_settings_states_the_same(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    alone = json.loads(said(capsys, "bound", trace, *HERE, "--json", "--method", "auto"))
    run = json.loads(said(capsys, "run", trace, *HERE, "--policy", "fifo", "--json"))
    assert run["jct_over_bound"] == run["jct_mean_s"] / alone["jct_mean_s"] >= 1
    assert run["makespan_over_bound"] == run["makespan_s"] / alone["makespan_s"] >= 1
    assert run["deadlines_of_bound"] == run["deadline_met_ratio"] / alone["deadline_met_ratio"]


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
    ("options", "code", "text"),
    [
        (["--method", "arae"], 2, "error: unknown method 'arae'; did you mean area?"),
        (["--method", ""], 2, "error: unknown method ''"),
        (["--set", "bound=area"], 2, "error: --set bound=area: is a setting of runs; give --method here"),
        (["--cluster", "x"], 2, "error: cluster"),
        (["--set", "overheads.lunch_s=1"], 2, "did you mean launch_s"),
        (["--no-overheads", "--overheads", "pollux"], 2, "contradicts --no-overheads"),
    ],
)
def test_mistakes(
    options: list[str], code: int, text: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert text in said(capsys, "bound", trace, *options, code=code)


def test_a_missing_trace_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no-such.csv" in said(capsys, "bound", "no-such.csv", code=2)


def test_run_and_compare_say_how_far_they_are_from_the_best_possible(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "run", trace, *HERE, "--policy", "fifo")
    assert "Mean JCT is within x" in text
    assert "of the best possible." in text
    assert "Deadlines met: 100.0 of at most 100.0 %." in text
    text = said(capsys, "compare", trace, *HERE, "--policies", "fifo,vtrain-aware", "--workers", "1")
    assert "of the best possible under vtrain-aware, and within x" in text
    text = said(capsys, "run", trace, *HERE, "--policy", "fifo", "--no-bound")
    assert "best possible" not in text


def test_no_bound_beside_a_bound_is_a_mistake(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", trace, "--policy", "fifo", "--no-bound", "--set", "bound=area")
    assert "--set bound=area: contradicts --no-bound" in said(capsys, *arguments, code=2)
    varied = ("what-if", *arguments[1:], "--vary", "nodes=1,2")
    assert "--set bound=area: contradicts --no-bound" in said(capsys, *varied, code=2)
    varied = ("what-if", *arguments[1:5], "--vary", "bound=none,area")
    assert "--vary bound: contradicts --no-bound" in said(capsys, *varied, code=2)


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


def test_a_grid_over_bounds_cannot_be_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.yaml").write_text(GRID.replace("policy: [fifo, srtf]", "policy: [fifo], bound: [area, alone]"))
    text = said(capsys, "grid", "g.yaml", "--no-bound", code=2)
    assert "g.yaml:3: matrix.bound: is an axis" in text
