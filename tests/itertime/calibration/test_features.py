"""Columns that change the work of a run are used, or the row is skipped with the reason; never in silence."""

from __future__ import annotations

import contextlib
import csv
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from itertime import Plan, Site, load_model, load_system, predict
from itertime.calibration import GROUPINGS, summary, validate
from itertime.calibration.measured_run import MeasuredRun, measured_run
from itertime.calibration.table import read_table
from itertime.calibration.validation import FileErrors
from itertime.cli import main
from itertime.errors import UserError
from itertime.spec import Gemm
from tests.iteration_table import table_of
from tests.itertime.tables import TABLES

ROW = TABLES["measured row"]
MIXTURE = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 14336}


def written(folder: Path, **changes: Any) -> Path:
    return table_of({**ROW, **changes}, folder)


def found(folder: Path, **changes: Any) -> FileErrors:
    return validate(written(folder, **changes))


def seconds(folder: Path, **changes: Any) -> float:
    (row,) = found(folder, **changes).predicted
    return row.prediction.iteration_s


def run_of(folder: Path, **changes: Any) -> MeasuredRun:
    (row,) = read_table(written(folder, **changes))
    return measured_run(row, Site())


@pytest.mark.parametrize("same", TABLES["cells without effect"])
def test_what_a_run_has_anyway_changes_nothing(tmp_path: Path, same: dict[str, Any]) -> None:
    assert seconds(tmp_path, **same) == seconds(tmp_path)


def test_a_lower_power_limit_and_other_memory_make_another_gpu(tmp_path: Path) -> None:
    usual, limited = run_of(tmp_path), run_of(tmp_path, power_w=500, site="meta-grand-teton")
    assert (limited.profile.power_w, limited.profile.hbm_bytes_per_s) == (500, 2.4e12)
    assert limited.profile.seconds(Gemm(8192, 8192, 8192)) > 1.1 * usual.profile.seconds(
        Gemm(8192, 8192, 8192)
    )
    assert run_of(tmp_path, power_w=700).profile is usual.profile


def test_a_published_model_fills_what_no_column_states(tmp_path: Path) -> None:
    published = load_model("gpt-oss-20b")
    shape = TABLES["shape of GPT-OSS-20B"]
    assert run_of(tmp_path, **shape).model == replace(published, name="run")
    shallow = run_of(tmp_path, **shape | {"layers": 4, "seq_len": 256}).model
    assert (shallow.layers, shallow.seq_len, shallow.window) == (4, 256, published.window)
    unnamed = run_of(tmp_path, **shape | {"model": "", "seq_len": 256}).model
    assert (unnamed.window, unnamed.head_dim, unnamed.experts) == (0, 64, 32)


def test_what_the_source_leaves_open_is_searched_and_said(tmp_path: Path) -> None:
    """The fastest form that fits: without recomputation if there is room, else with."""
    stated = [seconds(tmp_path, recompute=each) for each in ("none", "elementwise", "full")]
    (row,) = found(tmp_path, missing="recompute").predicted
    assert row.prediction.iteration_s == min(stated)
    assert row.assumed == ("the source does not say recompute",)
    large = {"layers": 32, "micro_batch": 8, "global_batch": 32}
    assert not found(tmp_path, **large).predicted[0].prediction.fits
    (row,) = found(tmp_path, **large, missing="recompute").predicted
    assert row.prediction.fits
    shares = {"recompute": "selective", "missing": "share of checkpointed blocks"}
    assert seconds(tmp_path, **shares) == stated[0]


def test_what_is_assumed_is_in_the_document_and_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, missing="micro-batch")
    what = "the source does not say micro-batch"
    (entry,) = summary([validate(path)])["files"]
    assert entry["assumed"] == [{"id": "run", "what": [what]}]
    assert main(["validate", str(path)]) == 0
    assert f"1 assumed: {what} (run)" in capsys.readouterr().err


def test_errors_by_a_property(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, framework="Megatron-DeepSpeed")
    result = validate(path)
    document = summary([result], "framework")
    assert list(document["by"]) == ["megatron-deepspeed"]
    assert document["by"]["megatron-deepspeed"]["mape"] == document["all"]["mape"]
    assert set(result.predicted[0].groups) == set(GROUPINGS)
    assert main(["validate", str(path), "--by", "precision"]) == 0
    assert "precision bf16" in capsys.readouterr().out
    assert main(["validate", str(path), "--by", "colour"]) == 2


def test_a_mixture_with_context_parallelism_is_predicted_as_one(tmp_path: Path) -> None:
    """By hand: the same model, plan and system, put together without a table."""
    model = replace(
        load_model("mixtral-8x7b"), layers=8, vocab=32000, seq_len=4096, attention="flash", name="run"
    )
    plan = Plan(2, 1, 2, 1, 16, cp=2, ep=4, recompute="none", sequence_parallel=True, fp32_gradients=True)
    expected = predict(model, plan, replace(load_system("dgx-h100,framework=megatron"), name="run"))
    mine = seconds(tmp_path, **MIXTURE, cp=2, dp=2, ep=4, etp=2, moe_dispatcher="alltoall", grad_dtype="fp32")
    assert mine == pytest.approx(expected.iteration_s, rel=1e-12)
    assert mine > 1.01 * seconds(tmp_path)


def test_a_column_of_another_name_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, logger="itertime"):
        found(tmp_path, model="m", framework="f", quantisation="int4", **{"\x1b[31mred": 1})
    (message,) = [text for text in caplog.messages if "runs.csv" in text]
    assert "quantisation" in message
    assert "'\\x1b[31mred'" in message
    assert not {"model", "framework", "id"} & {word.strip(",;") for word in message.split()}
    caplog.clear()
    found(tmp_path, model="m", framework="f", release="r", missing="", mfu_bf16=0.4, commit="0")
    assert not [text for text in caplog.messages if "runs.csv" in text]


ESCAPE = "\x1b[31mRED\x1b[0m"


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": ESCAPE},
        {"id": ESCAPE, "attention": ""},
        {"id": ESCAPE, "gpus": 9},
        {"gpu": ESCAPE},
        {"precision": ESCAPE},
        {"recompute_modules": ESCAPE},
    ],
)
@pytest.mark.parametrize("command", [["validate"], ["calibrate", "-o", "site.yaml"]])
def test_no_cell_steers_the_terminal(
    changes: dict[str, Any],
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.suppress(UserError):
        found(tmp_path, **changes)
    main([*command, "runs.csv"])
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\\x1b[31mRED" in printed or "0 runs can be expressed" in printed


@pytest.mark.parametrize("name", ["=cmd|'/C calc'!A0", "+1", "-1", "@x"])
def test_rows_written_are_no_formulas(tmp_path: Path, name: str) -> None:
    found(tmp_path, id=name)
    assert main(["validate", str(tmp_path / "runs.csv"), "--rows", str(tmp_path / "rows.csv")]) == 0
    with (tmp_path / "rows.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["id"] == "'" + name
