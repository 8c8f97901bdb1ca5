"""A profile built from a table of `itertime profile collect` recovers the GPU behind the times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.profiles.build import build, main
from experiments.profiles.collected import COLLECTED
from itertime import spec
from itertime.errors import UserError
from itertime.profiling import check_profile
from itertime.profiling.collecting.cases import COLUMNS, CaseGrid, cases_of
from itertime.profiling.collecting.collect import LEFT_OUT
from itertime.profiling.collecting.collectives import collective_cases
from itertime.spec import Attention, Elementwise, Gemm, Profile, load_profile
from itertime.spec.profile import COLLECTIVES, ELEMENTWISE_KINDS

TRUE = load_profile("a100-80gb")
GRID = CaseGrid(
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
        return slower * float(TRUE.seconds(Gemm(row["m"], row["n"], row["k"], row["batch"])))
    if row["table"] == "attention":
        shape = [row[name] for name in ("batch", "heads", "kv_heads", "head_dim", "seq", "seq", "causal")]
        backward = TRUE.seconds(Attention(*shape, backward=True)) if row["dir"] != "fwd" else 0.0
        return float(TRUE.seconds(Attention(*shape)) + backward)
    return float(TRUE.seconds(Elementwise(row["bytes"], KIND[row["op"]], row["cols"])))


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
    np.testing.assert_allclose(profile.seconds(Gemm(m, n, k)), TRUE.seconds(Gemm(m, n, k)), rtol=0.03)
    for kind in ELEMENTWISE_KINDS:
        found, true = (one.seconds(Elementwise(1e9, kind, 4096)) for one in (profile, TRUE))
        assert found == pytest.approx(true, rel=0.03), kind
    for head_dim in (64, 128):
        shape = (4, 16, 16, head_dim, 4096, 4096)
        for backward in (False, True):
            found, true = (one.seconds(Attention(*shape, backward=backward)) for one in (profile, TRUE))
            assert found == pytest.approx(true, rel=0.1)
    assert profile.collectives == load_profile("h100-80gb").collectives


def test_unfitted_rows_check_the_fit(profile: Profile) -> None:
    parts = {part.part: part for part in profile.evidence}
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


WIDE = CaseGrid(
    tokens=(1024, 4096),
    widths=(1024, 4096, 8192),
    heads=(16, 32),
    kv_share=(1,),
    head_dims=(64, 128),
    sequences=(512, 1024, 2048, 4096, 8192),
    vocabularies=(4096,),
    parameters=(2**24, 2**28),
    groups=(2, 8, 32),
    compiled_rows=(4096, 16384),
    other_attention=("cudnn", "flash3"),
)
FP8 = replace(TRUE.gemm, peak_flops_per_s=2 * TRUE.gemm.peak_flops_per_s, operand_bytes=1.0)
LIMIT_W, BUS = 350.0, 100e9


def wide_seconds(row: dict[str, Any]) -> float | None:
    """Times of a machine whose every kernel is known; None for what it cannot run."""
    kind, impl = row["table"], row.get("impl")
    if kind == "gemm-fp8":
        return float(FP8.seconds(row["m"], row["n"], row["k"]))
    if kind == "grouped":
        slower = 3 if impl == "loop" else 1
        return slower * float(TRUE.gemm.seconds(row["m"], row["n"], row["k"], row["groups"]))
    if kind == "attention-flash3":
        return None
    if kind == "attention-cudnn":
        return 0.7 * seconds(row | {"table": "attention"})
    if kind == "elementwise-compiled":
        return float(row["bytes"] / (0.9 * TRUE.hbm_bytes_per_s) + 5e-6)
    if kind == "cast":
        return float(row["bytes"] / ((0.6 if impl == "compiled" else 0.2) * TRUE.hbm_bytes_per_s) + 8e-6)
    if kind == "collective":
        return 1e-5 + 2 * (1 - 1 / row["ranks"]) * row["bytes"] / BUS
    return (1.2 if row.get("layout") == "dw-fp32" else 1.0) * seconds(row)


@pytest.fixture(scope="module")
def wide_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [one.columns for one in cases_of(WIDE)]
    rows += [case for ranks in (2, 4) for case in collective_cases(ranks)]
    timed = []
    for row in rows:
        found = wide_seconds(row)
        timed.append(
            row | {"table": LEFT_OUT, "note": "none"} if found is None else row | {"time_us": found * 1e6}
        )
    measured = {"gpu": "Some A100", "source": "torch/9.9", "power_w": 345.0, "power_limit_w": LIMIT_W}
    path = tmp_path_factory.mktemp("wide") / "mine.csv.gz"
    pd.DataFrame(timed, columns=COLUMNS).assign(**measured).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def wide(wide_table: Path) -> Profile:
    built = wide_table.with_name("mine.json")
    assert main([str(wide_table), "--base", "h200-141gb", "-o", str(built)]) == 0
    return load_profile(built)


def test_newer_kernels_are_fitted(wide: Profile) -> None:
    m, n, k = (one.ravel() for one in np.meshgrid([1024, 4096], [1024, 8192], [1024, 8192]))
    np.testing.assert_allclose(wide.seconds(Gemm(m, n, k, precision="fp8")), FP8.seconds(m, n, k), rtol=0.06)
    np.testing.assert_allclose(
        wide.seconds(spec.GroupedGemm(512, n, k, 8)), TRUE.gemm.seconds(512, n, k, 8), rtol=0.06
    )
    shape = (2, 16, 16, 128, 4096, 4096, True)
    for backward in (False, True):
        found = wide.seconds(Attention(*shape, backward, spec.AttentionKernel("cudnn")))
        assert found == pytest.approx(0.7 * TRUE.seconds(Attention(*shape, backward)), rel=0.1)
    for backward in (False, True):
        found = wide.seconds(Elementwise(1e9, "rmsnorm", 4096, "compiled", backward))
        assert found == pytest.approx(1e9 / (0.9 * TRUE.hbm_bytes_per_s), rel=0.02)
    elements = 2.0**28
    assert wide.seconds(spec.Cast(elements, "fp8")) == pytest.approx(
        4 * elements / (0.6 * TRUE.hbm_bytes_per_s), rel=0.02
    )
    assert wide.seconds(spec.Collective("all_reduce", 2.0**28, 4)) == pytest.approx(
        1.5 * 2**28 / BUS, rel=0.01
    )


def test_the_power_limit_is_that_of_the_rows(wide: Profile) -> None:
    base = load_profile("h200-141gb")
    assert wide.power is not None
    assert base.power is not None
    assert (wide.power_w, wide.power.exponent) == (LIMIT_W, base.power.exponent)


def test_what_the_same_chip_lends_holds_at_the_limit_of_the_rows(wide_table: Path) -> None:
    rows = pd.read_csv(wide_table, low_memory=False)
    path = wide_table.with_name("gemm.csv")
    rows[rows.table == "gemm"].to_csv(path, index=False)
    built = path.with_name("gemm.json")
    assert main([str(path), "--gpu", "h200-141gb", "--base", "h200-141gb", "-o", str(built)]) == 0
    base, profile = load_profile("h200-141gb"), load_profile(built)
    lent = base.variant(power_w=LIMIT_W)
    found, there = (one.seconds(Gemm(8192, 8192, 8192, precision="fp8_block")) for one in (profile, lent))
    assert found == pytest.approx(there, rel=1e-4)
    assert found > 1.1 * base.seconds(Gemm(8192, 8192, 8192, precision="fp8_block"))
    assert profile.gemm_in_training == base.gemm_in_training


def test_what_a_faster_chip_lends_stays_below_the_peak(wide: Profile) -> None:
    base = load_profile("h200-141gb")
    ratio = TRUE.peak_flops_per_s / base.peak_flops_per_s
    assert wide.peak_flops_of("fp8_block") == pytest.approx(ratio * base.peak_flops_of("fp8_block"), rel=1e-4)
    found, there = (one.seconds(Gemm(16384, 16384, 16384, precision="fp8_block")) for one in (wide, base))
    assert found == pytest.approx(there / ratio, rel=0.05)
    found, there = (one.seconds(spec.GroupedGemm(4096, 4096, 4096, 8, "fp8")) for one in (wide, base))
    assert found == pytest.approx(there / ratio, rel=0.05)
    # Iterations on A100 ask for no more than the products alone.
    assert (wide.gemm_in_training, base.gemm_in_training > 1) == (1.0, True)
    note = next(part.note for part in wide.evidence if part.part == "grouped_gemm, fp8")
    assert "at the ratio of bf16 peaks, 0.3153" in note


def test_every_part_says_where_it_comes_from(wide: Profile) -> None:
    parts = {part.part: part for part in wide.evidence}
    for name in ("gemm, fp8", "grouped_gemm", "rmsnorm, compiled (bwd)", "rmsnorm, eager (fwd)"):
        assert parts[name].kind == "fitted", name
        assert parts[name].source == "itertime profile collect (torch)"
    assert parts["gemm, dw added in 32 bit"].error_held_out_pct == pytest.approx(100 * (1 - 1 / 1.2), abs=3)
    assert parts["all_reduce"].kind == "measured"
    for name in ("gemm, fp8_block", "attention, earlier kernels over FlashAttention-2"):
        assert parts[name].kind == "assumed", name
        assert parts[name].source == "those of the profile h200-141gb"
    assert [one for one in check_profile(wide) if one.level == "error"] == []


def test_a_part_without_rows_is_the_bases(table: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(table)
    rows = rows[~(rows.table.isin(["attention", "elementwise"]) & (rows.op != "add"))]
    path = tmp_path / "few.csv"
    rows.to_csv(path, index=False)
    built = tmp_path / "few.json"
    assert main([str(path), "--base", "h100-80gb", "-o", str(built)]) == 0
    profile = load_profile(built)
    # At the peak and on the memory of the GPU that was measured.
    lent = load_profile("h100-80gb").variant(hbm_bytes_per_s=TRUE.hbm_bytes_per_s)
    ratio = TRUE.peak_flops_per_s / lent.peak_flops_per_s
    shape = (4, 16, 16, 128, 4096, 4096)
    assert profile.seconds(Attention(*shape)) == pytest.approx(
        lent.seconds(Attention(*shape)) / ratio, rel=0.05
    )
    found, there = (one.seconds(Elementwise(1e9, "rmsnorm", 4096)) for one in (profile, lent))
    assert found == pytest.approx(there, rel=1e-4)
    parts = {part.part: part for part in profile.evidence}
    assert parts["attention"].source == parts["rmsnorm"].source == "those of the profile h100-80gb"
    assert parts["elementwise"].kind == "fitted"


def test_without_a_base_the_error_names_the_option(table: Path) -> None:
    with pytest.raises(UserError, match="name the profile that stands in for what is missing: --base"):
        build(table)
