"""Columns that change the work of a run are used, or the row is skipped with the reason; never in silence."""

from __future__ import annotations

import contextlib
import csv
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from itertime import Plan, load_model, load_system, predict
from itertime.calibration import calibrate, validate
from itertime.calibration.validation import FileErrors
from itertime.cli import main
from itertime.errors import UserError

ROW: Mapping[str, Any] = {
    "id": "run", "gpu": "H100-SXM-80GB", "gpus": 8, "gpus_per_node": 8, "node_nic_gbps": 3200, "layers": 8,
    "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn_hidden": 14336, "gated_mlp": True, "vocab": 32000,
    "seq_len": 4096, "attention": "flash", "tp": 2, "pp": 1, "dp": 4, "micro_batch": 1, "global_batch": 16,
    "recompute": "none", "sequence_parallel": True, "iteration_s": 2.0,
}  # fmt: skip
MIXTURE = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 14336}


def found(folder: Path, **changes: Any) -> FileErrors:
    path = folder / "runs.csv"
    row = {**ROW, **changes}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    return validate(path)


def seconds(folder: Path, **changes: Any) -> float:
    (row,) = found(folder, **changes).predicted
    return row.prediction.iteration_s


@pytest.mark.parametrize(
    "same",
    [
        {"precision": "bf16"},
        {"cp": 1, "ep": 1, "etp": 2},
        {"experts": 1, "moe_ffn_hidden": "", "shared_ffn_hidden": ""},
        {"experts": "", "experts_per_token": 1},
        {"head_dim": 128, "head_dim_v": 128},
        {"power_w": 700},
        {"tp_comm_overlap": False, "cuda_graphs": "none", "cpu_offload_layers": 0},
        {"recompute_modules": "", "recompute_fraction": 0},
        {"moe_dispatcher": "hybridep", "moe_a2a_overlap": True},  # nothing without experts
        {"grad_dtype": "bf16"},
    ],
)
def test_what_a_run_has_anyway_changes_nothing(tmp_path: Path, same: dict[str, Any]) -> None:
    assert seconds(tmp_path, **same) == seconds(tmp_path)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"precision": "fp8"}, "precision=fp8: "),
        ({"precision": "mxfp8"}, "precision=mxfp8: "),
        ({"head_dim": 64}, "head_dim=64: "),
        ({"head_dim_v": 64}, "head_dim_v=64: "),
        ({"power_w": 500}, "power_w=500.0: "),
        ({"tp_comm_overlap": True}, "tp_comm_overlap=True: "),
        ({"cuda_graphs": "full_iteration"}, "cuda_graphs=full_iteration: "),
        ({"cpu_offload_layers": 3}, "cpu_offload_layers=3: "),
        ({"recompute_modules": "layernorm;moe_act"}, "recompute_modules=layernorm;moe_act: "),
        ({"recompute_fraction": 0.5}, "recompute_fraction=0.5: "),
        ({"recompute": "selective", "recompute_fraction": 0.5}, "recompute_fraction=0.5: "),
        ({"grad_dtype": "fp8"}, "grad_dtype=fp8: "),
        ({"cp": 2}, "gpus=8 is not tp x pp x cp x dp = 16"),
        ({"gpu": "B200"}, "no profile for GPU B200"),
        ({"ep": 2}, "this plan cannot train"),
        (MIXTURE | {"experts_per_token": ""}, "does not say experts_per_token"),
        (MIXTURE | {"moe_ffn_hidden": ""}, "does not say moe_ffn_hidden"),
        (MIXTURE | {"moe_ffn_hidden": 2048}, "ffn_hidden=14336 beside moe_ffn_hidden=2048"),
        (MIXTURE | {"experts": ""}, "experts_per_token=2: is of a mixture, and the row states no experts"),
        ({"experts": 1, "experts_per_token": 2}, "experts_per_token=2: is of a mixture"),
        ({"moe_ffn_hidden": 2048}, "moe_ffn_hidden=2048: is of a mixture"),
        ({"shared_ffn_hidden": 2048}, "shared_ffn_hidden=2048: is of a mixture"),
        (MIXTURE | {"shared_ffn_hidden": 2048}, "shared_ffn_hidden=2048: "),
        (MIXTURE | {"etp": 1}, "etp=1: "),
        (MIXTURE | {"moe_dispatcher": "deepep"}, "moe_dispatcher=deepep: "),
        (MIXTURE | {"moe_a2a_overlap": True}, "moe_a2a_overlap=True: "),
    ],
)
def test_what_no_run_can_have_is_a_reason_to_skip(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    errors = found(tmp_path, **changes)
    assert errors.predicted == ()
    assert why in errors.skipped[0].why
    with pytest.raises(
        UserError, match=f"0 runs can be expressed.*skipped 1; the first reason: .*{re.escape(why)}"
    ):
        calibrate([tmp_path / "runs.csv"])


def test_an_overlap_without_tensor_parallelism_has_no_effect(tmp_path: Path) -> None:
    alone = {"tp": 1, "dp": 8, "sequence_parallel": False}
    assert seconds(tmp_path, **alone, tp_comm_overlap=True) == seconds(tmp_path, **alone)


def test_a_mixture_with_context_parallelism_is_predicted_as_one(tmp_path: Path) -> None:
    """By hand: the same model, plan and system, put together without a table."""
    model = replace(
        load_model("mixtral-8x7b"), layers=8, vocab=32000, seq_len=4096, attention="flash", name="run"
    )
    plan = Plan(
        tp=2,
        cp=2,
        pp=1,
        dp=2,
        ep=4,
        micro_batch=1,
        global_batch=16,
        recompute="none",
        sequence_parallel=True,
        fp32_gradients=True,
    )
    expected = predict(model, plan, replace(load_system("dgx-h100"), name="run"))
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
