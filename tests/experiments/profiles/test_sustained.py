"""Shipped GEMM models against the tables that they come from, and one that they do not come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments.profiles.sustained import SOURCES
from experiments.profiles.sustained.tables import exponent_of, gemm_rows
from itertime.spec import Gemm, load_profile

HEAVY = 1e11  # FLOPs


def _tables(shared_dir: Path) -> Path:
    return shared_dir / "data" / "modern_gpus" / "operators"


@pytest.mark.parametrize(
    ("name", "precision", "most_pct"),
    [("h200-141gb", "bf16", 4.0), ("b200-180gb", "bf16", 10.0)],
)
def test_sustained_rows_lie_within_the_stated_error(
    name: str, precision: str, most_pct: float, shared_dir: Path
) -> None:
    source = SOURCES[name][precision]
    rows = gemm_rows(_tables(shared_dir), source.table)
    rows = rows.loc[2 * rows.m * rows.n * rows.k >= HEAVY].sample(500, random_state=1)
    m, n, k, time_us = (rows[column].to_numpy(dtype=float) for column in ("m", "n", "k", "time_us"))
    predicted = load_profile(name).seconds(Gemm(m, n, k, precision=precision))
    assert np.mean(np.abs(predicted / (time_us * 1e-6) - 1)) * 100 < most_pct


@pytest.mark.parametrize(("name", "gpu"), [("h100-80gb", "H100-SXM-80GB"), ("h200-141gb", "H200-SXM-141GB")])
def test_fp8_products_of_another_source(name: str, gpu: str, shared_dir: Path) -> None:
    """Azure's benchmark: products alone, after 10,000 warm-ups with random data; no row of it was fitted."""
    table = pd.read_csv(_tables(shared_dir) / "peaks_sustained.csv")
    rows = table.loc[
        (table.gpu == gpu) & table.what.str.startswith("GEMM sustained") & (table.dtype == "fp8")
    ]
    rows = rows.loc[2 * rows.m * rows.n * rows.k >= HEAVY]
    m, n, k, tflops = (rows[column].to_numpy(dtype=float) for column in ("m", "n", "k", "value"))
    large = (m < 100_000) & (k >= 2048)
    predicted = 2 * m * n * k / load_profile(name).seconds(Gemm(m, n, k, precision="fp8")) / 1e12
    assert large.sum() >= 4
    assert np.mean(np.abs(predicted / tflops - 1)[large]) < 0.07


def test_a_burst_is_faster_than_the_h100_profile(shared_dir: Path) -> None:
    """The profile is a sustained one: a table of 9 runs a shape is 1.1 to 1.25 times as fast, on median."""
    table = pd.read_csv(_tables(shared_dir) / "h100_gemm_aiconfigurator.csv.gz")
    rows = table.loc[(table.collector == "vllm 0.24.0") & (table.dtype == "bfloat16")]
    flops = 2 * rows.m * rows.n * rows.k
    rows = rows.loc[(flops >= HEAVY) & (flops < 1e12)]
    ratio = load_profile("h100-80gb").seconds(Gemm(rows.m, rows.n, rows.k)) / (rows.time_us * 1e-6)
    assert 1.1 < np.median(ratio) < 1.25


def test_the_exponent_of_power_is_that_of_the_tables(shared_dir: Path) -> None:
    gemm, attention, rows = exponent_of(_tables(shared_dir))
    assert rows > 1000
    for name in SOURCES:
        power = load_profile(name).power
        assert power is not None
        assert power.exponent == pytest.approx((gemm + attention) / 2, abs=0.01)
