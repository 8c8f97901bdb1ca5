"""Fits of newer attention kernels, styles and casts to tables whose times come from known rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from experiments.profiles.chips import chip_named
from experiments.profiles.training.attention import Curves, Tail, fit_cudnn
from experiments.profiles.training.casts import fit_casts
from experiments.profiles.training.styles import fit_styles
from itertime.errors import UserError
from itertime.spec import Attention, load_profile

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
