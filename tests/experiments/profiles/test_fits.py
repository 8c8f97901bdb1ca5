"""Fits: attention kernels, styles and casts, sustained GEMM rates, and collectives from the H200 on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from experiments.profiles.chips import chip_named
from experiments.profiles.fit_collectives import EIGHT_OF, RACK_BUS, RACK_RANKS, fit_collectives
from experiments.profiles.sustained import SOURCES
from experiments.profiles.sustained.tables import exponent_of, gemm_rows
from experiments.profiles.training.attention import Curves, Tail, fit_cudnn
from experiments.profiles.training.casts import fit_casts
from experiments.profiles.training.styles import fit_styles
from itertime.errors import UserError
from itertime.spec import Attention, Evidence, Gemm, load_profile
from itertime.spec.size_table import SizeTable

H100 = chip_named("h100-80gb")
TAIL = Tail(tail_blocks=0.3, launch_s=5e-6, narrow=0.7)
RATES = {"fwd": (700e12, 500.0), "bwd": (600e12, 900.0)}  # FLOP/s and seq_half


def attention_table() -> pd.DataFrame:
    curves = Curves(H100, TAIL)
    for direction, word in (("forward", "fwd"), ("backward", "bwd")):
        for causal in (False, True):
            curves.found[direction, causal, 128] = RATES[word]  # type: ignore[index]
    model = curves.model()
    rows: list[dict[str, Any]] = []
    for word in RATES:
        for mask in ("top_left", "no_mask"):
            for seq in (2048, 4096, 8192, 16384):
                shape = (1, 64, 8, 128, seq, seq, mask == "top_left", word == "bwd")
                row = {"mask": mask, "batch": 1, "seq_q": seq, "heads": 64, "kv_heads": 8, "pass": word}
                rows.append(row | {"time_us": float(model.seconds(Attention(*shape))) * 1e6})
    same = {"gpu": "NVIDIA H200", "backend": "cudnn", "dtype": "bf16", "head_dim_qk": 128, "head_dim_v": 128}
    return pd.DataFrame(rows).assign(**same, window=float("nan"), deterministic=False)


def test_the_attention_fit_recovers_the_rates_behind_the_times(tmp_path: Path) -> None:
    attention_table().to_csv(tmp_path / "attention_fwd_bwd_cudnn.csv.gz", index=False)
    model, evidence = fit_cudnn(tmp_path, H100, "cudnn", TAIL)
    assert model is not None
    for curve in model.curves:
        rate, half = RATES["fwd" if curve.direction == "forward" else "bwd"]
        expected = rate * (TAIL.narrow if curve.head_dim == 64 else 1.0)
        assert curve.flops_per_s == pytest.approx(expected, rel=0.01)
        assert curve.seq_half == pytest.approx(half, rel=0.05, abs=10)
    assert {curve.head_dim for curve in model.curves} == {64, 128}
    assert all(item.kind == "assumed" for item in evidence)  # the H200 stands for the H100
    assert fit_cudnn(tmp_path, H100, "cudnn_mxfp8", TAIL) == (None, [])


def test_a_missing_or_damaged_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"attention_fwd_bwd_cudnn\.csv\.gz: cannot be read"):
        fit_cudnn(tmp_path, H100, "cudnn", TAIL)
    attention_table().drop(columns="heads").to_csv(tmp_path / "attention_fwd_bwd_cudnn.csv.gz")
    with pytest.raises(UserError, match="column 'heads' is missing"):
        fit_cudnn(tmp_path, H100, "cudnn", TAIL)


def test_the_styles_recover_fractions_of_bandwidth(tmp_path: Path) -> None:
    fractions = {"cudnn": (0.8, 0.7), "torch_compile": (0.7, 0.4), "pytorch": (0.5, 0.3)}
    plain = load_profile("h100-80gb").elementwise
    launch_s = plain["elementwise"].launch_s
    rows = [
        {
            "gpu_name": "NVIDIA H200",
            "norm_type": norm,
            "backend": backend,
            "N": 32768,
            "C": width,
            "fwd_time_ms": 1e3 * (4 * 32768 * width / (forward * 4.8e12) + launch_s),
            "bwd_time_ms": 1e3 * (6 * 32768 * width / (backward * 4.8e12) + launch_s),
            "fwd_gbps": 1.0,
            "bwd_gbps": 1.0,
        }
        for backend, (forward, backward) in fractions.items()
        for norm, widths in (("rms_norm", (4096, 8192, 16384)), ("layer_norm", (12288,)))
        for width in widths
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "norms_fwd_bwd_cudnn.csv.gz", index=False)
    styles, _ = fit_styles(tmp_path, H100, plain)
    for style, backend in (("fused", "cudnn"), ("compiled", "torch_compile"), ("eager", "pytorch")):
        norm = styles[style]["rmsnorm"]
        for model, fraction in zip((norm.forward, norm.backward), fractions[backend], strict=True):
            assert model.rate(8192) == pytest.approx(fraction * H100.hbm_bytes_per_s, rel=0.01)


def test_casts_count_the_bytes_of_each_recipe_at_the_measured_rates(tmp_path: Path) -> None:
    rows = [
        {"collector": "vllm 1", "op": op, "m": m, "k": 4096, "time_us": nbytes * m * 4096 / rate * 1e6 + 2.0}
        for op, nbytes, rate in (("computescale", 2, 0.8 * 4.8e12), ("scale_matrix", 3, 0.6 * 4.8e12))
        for m in (1, 2, 4, 16384, 32768, 65536, 131072)
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "h200_quantize_sustained_aiconfigurator.csv.gz", index=False)
    casts, _ = fit_casts(tmp_path, H100)
    elements, hbm = 1e10, H100.hbm_bytes_per_s
    expected = elements * (2 / 0.8 + 4 / 0.6) / hbm  # scan; then read 2, write 1 and a transposed 1
    assert casts["fp8"].seconds(elements) == pytest.approx(expected, rel=0.02)
    expected = elements * (2 + 2 * (1 + 1 / 32)) / 0.6 / hbm
    assert casts["mxfp8"].seconds(elements) == pytest.approx(expected, rel=0.02)
    assert casts["fp8"].launch_s == pytest.approx(4e-6, rel=0.1)
    assert fit_casts(tmp_path, chip_named("a100-80gb")) == ({}, [])


# Sustained rates


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


# Collectives of newer GPUs


SOME = dataclasses.replace(chip_named("h100-80gb"), collective_tables=())


def fitted(shared_dir, gpu: str) -> tuple[dict[str, SizeTable], dict[str, Evidence]]:
    tables, evidence = fit_collectives(
        shared_dir / "data" / "operators", dataclasses.replace(SOME, serving_tables=gpu)
    )
    return tables, {item.part: item for item in evidence}


@pytest.mark.parametrize("gpu", ["h200", "b200", "b300", "gb200", "gb300"])
def test_other_versions_of_nccl_confirm_the_tables(shared_dir, gpu: str) -> None:
    tables, evidence = fitted(shared_dir, gpu)
    assert set(tables) == {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv"}
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        assert evidence[name].error_held_out_pct < 5.5
        assert evidence[name].measured["ranks"] == (2.0, 4.0 if gpu in EIGHT_OF else 8.0)
    assert evidence["send_recv"].kind == "assumed"


def test_sizes_are_those_of_a_profile(shared_dir) -> None:
    """nccl-tests on 8 H200: 459 GB/s of bus in a 512 MB all-reduce, 337 in an all-gather of 512 MB in all."""
    tables, _ = fitted(shared_dir, "h200")
    for name, passes, bus in (("all_reduce", 2, 459e9), ("all_gather", 1, 337e9)):
        seconds = tables[name].seconds(2.0**29, 8)
        assert passes * 7 / 8 * 2**29 / seconds == pytest.approx(bus, rel=0.02)


def test_a_rack_carries_what_one_shows(shared_dir) -> None:
    tables, evidence = fitted(shared_dir, "gb300")
    for name, passes in (("all_reduce", 2), ("all_to_all", 1)):
        table = tables[name]
        assert table.ranks == [2, 4, 8, RACK_RANKS]
        nbytes = 2.0**40  # latency counts for nothing
        bus = [passes * (n - 1) / n * nbytes / table.seconds(nbytes, n) for n in (8, RACK_RANKS)]
        assert bus[1] / bus[0] == pytest.approx(RACK_BUS[name], rel=1e-3)
    small = tables["all_gather"].seconds(512, np.array([4, 8, RACK_RANKS]))
    assert (small[2] - small[1]) / (small[1] - small[0]) == pytest.approx(14, rel=0.2)
    rack = evidence["collectives among more than 8 ranks of a node"]
    assert rack.kind == "assumed"
    assert rack.error_in_sample_pct < 13
