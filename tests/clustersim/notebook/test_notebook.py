"""What a notebook meets: tables, pictures, reports, and grids given as mappings."""

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow
import pytest

import clustersim
import itertime
from clustersim.cli import main
from clustersim.grid import run_grid
from clustersim.notebook import Comparison, ShownRun
from itertime.errors import UserError
from tests.places import ROOT
from traces import Job

JOBS = [Job(f"j{i}", 50.0 * i, gpus=[8, 16, 2, 24][i % 4], duration_s=300.0 + 7 * i) for i in range(24)]
FRAME = pd.DataFrame({"job_id": ["a", "b"], "submit_s": [0, 0], "gpus": [8, 8], "duration_s": [60, 30]})
PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def both() -> Comparison:
    return clustersim.compare(JOBS, iter(["fifo", "srtf"]), cluster="n4g8", workers=1, baseline="fifo")


def test_a_run_shows_itself(tmp_path: Path) -> None:
    run = clustersim.run(JOBS, "fifo", cluster="n4g8")
    assert isinstance(run, ShownRun)
    jobs = run.to_pandas()
    assert list(jobs["job_id"]) == [job.job_id for job in JOBS]
    assert jobs["jct_s"].mean() == pytest.approx(run.summary["jct_mean_s"])
    assert len(run.to_pandas("events")) == run.summary["events"]
    assert run.plot()._repr_png_().startswith(PNG)
    run.plot("gantt").save(tmp_path / "gantt.svg")
    assert (tmp_path / "gantt.svg").read_text().count("<svg") == 1
    run.report().save(tmp_path / "report.html")
    assert "fifo" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "srcdoc" in run.report()._repr_html_()
    assert "<th scope" in run._repr_html_()
    assert max(len(repr(one)) for one in (run, run.plot(), run.report())) < 100


def test_a_comparison_shows_itself(both: Comparison) -> None:
    assert repr(both) == "<Comparison of 2 runs: fifo, srtf>"
    table = both.to_pandas()
    assert list(table["policy"]) == ["fifo", "srtf"]
    assert list(table["jct_mean_s"]) == [run.summary["jct_mean_s"] for run in both]
    assert both.plot()._repr_png_().startswith(PNG)
    assert "srtf" in both.report().text
    assert both._repr_html_().count("<tr>") >= 3
    assert both["srtf"] is both[1]
    assert isinstance(both[:1], Comparison)
    assert [run.policy for run in both[:1]] == ["fifo"]


def test_a_name_in_markup_stays_text() -> None:
    class Evil(clustersim.Scheduler):
        def schedule(self, state: clustersim.State) -> clustersim.Proposal:
            return state.proposal()

    Evil.__name__ = "<script>"
    assert "<script>" not in clustersim.run(JOBS[:1], Evil, cluster="n4g8")._repr_html_()


def test_wrong_names_are_said(both: Comparison) -> None:
    for refused, text in (
        (lambda: both.plot("pie"), "kind of plot"),
        (lambda: both.report("las"), "policy of the comparison"),
        (lambda: both[0].to_pandas("rows"), "table"),
        (lambda: both["sjf"], "unknown policy of the comparison 'sjf'; did you mean"),
    ):
        with pytest.raises(UserError, match=text):
            refused()


def test_a_grid_from_a_mapping(here: Path) -> None:
    mapping = {
        "set": {"cluster": "n3g8", "bound": "none"},
        "matrix": {
            "policy": ["fifo", "srtf"],
            "workload": {"two": {"trace": FRAME}, "more": {"trace": JOBS}},
        },
    }
    results = clustersim.grid(mapping, out="study", workers=1)  # type: ignore[operator]
    assert len(results) == 4
    assert {result.status for result in results} == {"done"}
    assert clustersim.grid is not run_grid
    again = clustersim.run_grid("study.yaml", out="study", workers=1)
    assert list(again.to_pandas()["jct_mean_s"]) == list(results.to_pandas()["jct_mean_s"])
    assert main(["grid", "study.yaml", "--dry-run"]) == 0
    (here / "other.yaml").write_text("mine: 1\n")
    with pytest.raises(UserError, match="was not written by clustersim"):
        clustersim.run_grid(mapping, out="other")
    with pytest.raises(UserError, match="name it with out="):
        clustersim.run_grid(mapping)
    with pytest.raises(UserError, match="cannot be part of a grid"):
        clustersim.run_grid({"set": {"cluster": {1, 2}}}, out="third")


def test_the_page_runs(here: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        exec(block.replace('out="study"', 'out="study", workers=1'), names)
    assert {path.name for path in here.iterdir()} == {
        "gantt.pdf",
        "jct.pdf",
        "report.html",
        "study",
        "study.yaml",
    }


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_runs(path: Path, here: Path) -> None:
    """The cells run in order, and the last line of each can be shown; the file holds no outputs."""
    names: dict[str, object] = {"__name__": "__main__"}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert len(cells) >= 8
    for cell in cells:
        if cell["cell_type"] == "markdown":
            continue
        assert cell["outputs"] == []
        *body, last = ast.parse("".join(cell["source"])).body
        if not isinstance(last, ast.Expr):
            body.append(last)
        exec(compile(ast.Module(body, []), path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), path.name, "eval"), names)
            assert len(repr(value)) < 5_000
            shown = [getattr(value, name, None) for name in ("_repr_html_", "_repr_png_")]
            assert any(each() for each in shown if each) or "Axes" in type(value).__name__


@pytest.mark.filterwarnings("ignore:The Dataframe Interchange Protocol")
def test_any_data_frame_is_a_trace() -> None:
    table = pyarrow.Table.from_pandas(FRAME)

    class OnlyArrow:
        """As data frames of polars are."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return table.__arrow_c_stream__(requested_schema)

    class OnlyInterchange:
        def __dataframe__(self, **options: object) -> object:
            return table.__dataframe__(**options)

    summaries = [
        clustersim.run(frame, "fifo", cluster="n1g8").summary["jct_mean_s"]
        for frame in (FRAME, table, OnlyArrow(), OnlyInterchange())
    ]
    assert len(set(summaries)) == 1


def test_predictions_show_themselves() -> None:
    plan = itertime.Plan(tp=8, pp=1, dp=2, micro_batch=1, global_batch=32)
    one = itertime.predict("megatron-18.4b", plan, "dgx-a100-80gb")
    assert one.to_pandas()["seconds"].sum() == pytest.approx(one.iteration_s)
    found = itertime.search("megatron-18.4b", 32, "dgx-a100-80gb", 16, top=3)
    assert list(found.to_pandas()["iteration_s"]) == [each.prediction.iteration_s for each in found.plans]
    first_row = found.to_pandas().iloc[0][list(itertime.Plan.__dataclass_fields__)]
    assert itertime.Plan(**dict(first_row)) == found.plans[0].plan
    many = itertime.evaluate("megatron-18.4b", itertime.PlanBatch.of([plan, plan]), "dgx-a100-80gb")
    assert list(many.to_pandas()["iteration_s"]) == [one.iteration_s] * 2
    for shown in (one, found, many):
        assert len(repr(shown)) < 100
        assert "<table" in shown._repr_html_()


@pytest.mark.parametrize("value", ["9" * 70_000, "x y " * 17_500, "x\n" * 35_000, "x/" * 35_000])
def test_of_a_value_that_is_too_long_to_read_messages_repeat_the_beginning(value: str) -> None:
    run = clustersim.run(FRAME, "fifo", cluster="n1g8")
    calls: list[Callable[[], object]] = [
        lambda: clustersim.run(value, "fifo"),
        lambda: clustersim.run(FRAME, value),
        lambda: clustersim.run(FRAME, f"{value}.py:Policy"),
        lambda: clustersim.run(FRAME.assign(tenant=[value, ""], gpus=value), "fifo"),
        lambda: clustersim.run(FRAME, "fifo", model_path=value),
        lambda: clustersim.run(FRAME, "fifo", **{value: 1}),
        lambda: clustersim.run_grid({"trace": {"jobs": value}, "policies": [value]}),
        lambda: clustersim.run_grid(value),
        lambda: clustersim.what_if(FRAME, "fifo", {value: [value]}),
        lambda: clustersim.read_run(value),
        lambda: clustersim.read_results(value),
        lambda: clustersim.write_run(value, run),
        lambda: itertime.load_model(value),
        lambda: itertime.search("gpt3-175b", 8, value, 8),
        lambda: itertime.search("gpt3-175b", 8, "dgx-h100", 8, objective=value),
    ]
    for call in calls:
        with pytest.raises(UserError) as refusal:
            call()
        assert len(str(refusal.value)) < 3000


def test_a_table_without_rows_has_its_columns() -> None:
    run = clustersim.run(FRAME[:0], "fifo", cluster="n1g8")
    columns = {"jobs": "jct_s", "events": "job_id", "snapshots": "time_s", "plans": "iteration_s"}
    for table, column in columns.items():
        found = run.to_pandas(table)
        assert (len(found), column in found) == (0, True)
