"""A profile built from a table of `itertime profile collect` recovers the GPU behind the times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from itertime.errors import UserError
from itertime.profiling.build import build, main
from itertime.profiling.collecting import COLUMNS, Grid, cases_of
from itertime.profiling.collected import COLLECTED
from itertime.spec import Profile, load_profile
from itertime.spec.profile import COLLECTIVES, ELEMENTWISE_KINDS

TRUE = load_profile("a100-80gb")
GRID = Grid(
    tokens=(512, 1024, 2048, 8192),
    widths=(1024, 2048, 4096, 8192, 12288, 16384),
    heads=(16,),
    kv_share=(1, 8),
    head_dims=(64, 128),
    sequences=(512, 1024, 2048, 4096, 8192, 16384),
    vocabularies=(4096,),
    parameters=(2**14, 2**24, 2**28),
)
TABLES = ("gemm", "attention", "elementwise")
KIND = {op: kind for kind, op in COLLECTED.items()}


def seconds(row: dict[str, Any]) -> float:
    if row["table"] == "gemm":
        # Backward layouts take 10 % longer on this machine, which no fit may hide.
        slower = 1.1 if row["layout"] in ("dx", "dw") else 1.0
        return slower * float(TRUE.gemm_s(row["m"], row["n"], row["k"], row["batch"]))
    if row["table"] == "attention":
        shape = [row[name] for name in ("batch", "heads", "kv_heads", "head_dim", "seq", "seq", "causal")]
        backward = TRUE.attention_s(*shape, backward=True) if row["dir"] != "fwd" else 0.0
        return float(TRUE.attention_s(*shape) + backward)
    return float(TRUE.elementwise_s(row["bytes"], KIND[row["op"]], row["cols"]))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [one.columns for one in cases_of(GRID) if one.columns["table"] in TABLES]
    rows = [row for row in rows if row.get("layout") != "dw-fp32"]
    times = {"time_us": [seconds(row) * 1e6 for row in rows], "gpu": "Some A100", "source": "torch/9.9"}
    path = tmp_path_factory.mktemp("collected") / "mine.csv.gz"
    pd.DataFrame(rows, columns=COLUMNS).assign(**times).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def profile(table: Path) -> Profile:
    path = table.with_name("mine.json")
    assert main([str(table), "--base", "h100-80gb", "-o", str(path)]) == 0
    return load_profile(path)


def test_the_fit_recovers_the_rates_behind_the_times(profile: Profile) -> None:
    m, n, k = np.meshgrid([512, 2048, 8192], [1024, 8192], [1024, 8192])
    np.testing.assert_allclose(profile.gemm_s(m, n, k), TRUE.gemm_s(m, n, k), rtol=0.03)
    for kind in ELEMENTWISE_KINDS:
        found, true = (one.elementwise_s(1e9, kind, 4096) for one in (profile, TRUE))
        assert found == pytest.approx(true, rel=0.03), kind
    for head_dim in (64, 128):
        shape = (4, 16, 16, head_dim, 4096, 4096)
        for backward in (False, True):
            found, true = (one.attention_s(*shape, backward=backward) for one in (profile, TRUE))
            assert found == pytest.approx(true, rel=0.1)
    assert profile.collectives == load_profile("h100-80gb").collectives


def test_unfitted_rows_check_the_fit(profile: Profile) -> None:
    parts = {part.part: part for part in profile.parts()}
    backward = parts["gemm, backward layouts"]
    assert backward.kind == "measured"
    assert backward.error_held_out_pct == pytest.approx(9, abs=1.5)
    batched = parts["gemm, batched"]
    assert batched.kind == "measured"
    assert parts["layernorm (backward)"].kind == "measured"
    assert "element-wise kernels, backward" not in parts
    for collective in COLLECTIVES:
        assert parts[collective].kind == "assumed"


def test_a_file_that_was_not_collected(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("m,n,k,time_us,source\n1,2,3,4,me\n")
    with pytest.raises(UserError, match=r"other\.csv: no row has table=gemm"):
        build(path, base="a100-80gb")


def test_a_users_own_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chip = tmp_path / "gpu.yaml"
    chip.write_text("name: mine\ngpu: Mine\nsource: me\npeak_flops: 1\n")
    assert main([str(tmp_path), "--gpu", str(chip), "-o", str(tmp_path / "p.json")]) == 2
    assert f"{chip}: unknown key 'peak_flops' (did you mean 'peak_flops_per_s'?)" in capsys.readouterr().err
