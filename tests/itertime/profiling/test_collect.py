"""`itertime profile collect`: a table of this machine's operators, and its refusals."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

from itertime.cli import main
from itertime.profiling.collect import COLUMNS, GRIDS, ROW_KERNELS, Case, Grid

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed (the extra `profile`)"
)
# Smaller than the tiny grid, to keep the tests short.
SMALLEST = Grid((64,), (128,), (2,), (2,), (64,), (64, 128), (500,), (4096,))


def arguments(output: Path, *more: str) -> list[str]:
    return ["profile", "collect", "--device", "cpu", "--grid", "tiny", "-o", str(output), *more]


@needs_torch
def test_collect_times_every_kind_of_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(GRIDS, "tiny", SMALLEST)
    assert main(arguments(tmp_path / "mine.csv.gz", "--repeats", "1")) == 0
    assert "rows written to" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "mine.csv.gz")
    assert tuple(rows.columns) == COLUMNS
    assert (rows.time_us > 0).all()
    assert rows.source.str.startswith("torch/").all()
    gemm, attention, elementwise = (rows[rows.table == name] for name in ("gemm", "attention", "elementwise"))
    assert sorted(gemm.layout.unique()) == ["batched", "dw", "dx", "forward"]
    assert gemm[["m", "n", "k", "batch"]].notna().all(axis=None)
    assert set(attention.dir) == {"fwd", "fwd+bwd"}
    assert (attention.kv_heads < attention.heads).all()
    assert {*ROW_KERNELS, "adam", "cross_entropy"} == set(elementwise.op)
    assert set(elementwise[elementwise.op == "layernorm"].dir) == {"fwd", "bwd"}
    assert (elementwise.bytes >= 4 * elementwise.elements).all()
    assert list(tmp_path.iterdir()) == [tmp_path / "mine.csv.gz"]


@needs_torch
def test_a_case_without_memory_is_left_out_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_large(bench: object) -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 3 GiB")

    case = Case({"table": "gemm", "m": 7}, too_large)  # type: ignore[arg-type]
    module = sys.modules["itertime.profiling.collect"]  # the package's `collect` is the function
    monkeypatch.setattr(module, "cases_of", lambda grid: iter([case]))
    assert main(arguments(tmp_path / "mine.csv")) == 0
    captured = capsys.readouterr()
    assert "left out, not enough memory: {'table': 'gemm', 'm': 7}" in captured.err
    assert captured.out.startswith("0 rows written")


def test_without_torch_the_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(arguments(tmp_path / "mine.csv")) == 2
    assert capsys.readouterr().err == (
        "error: torch is not installed, and measuring needs it; python -m pip install torch\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--device", "tpu"], "--device tpu: must be cuda or cpu"),
        (["--grid", "tin"], "unknown grid 'tin'; did you mean tiny?"),
        (["-o", "mine.txt"], "must end in .csv or .csv.gz"),
    ],
)
def test_wrong_options(
    tmp_path: Path, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments(tmp_path / "mine.csv"), *more]) == 2
    assert message in capsys.readouterr().err
