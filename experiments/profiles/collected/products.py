"""Fits products in fp8 and of experts, and checks those that add into 32 bit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from experiments.profiles.measurements import NAMES, Bounds, Fit, fit_in_halves, mape_pct, measured_range
from itertime.arrays import Array
from itertime.spec import Evidence
from itertime.spec.operators import GemmModel, GemmTile

__all__ = ["check_accumulation", "fit_fp8", "fit_grouped"]

FP8_OVER_BF16 = 2.0  # of the dense peaks, NVIDIA's data sheets since Hopper
BOUNDS: Bounds = {
    "share": (0.9, 0.1, 1.6),
    "k_offset": (200.0, 0.0, 2000.0),
    "wave_quantisation": (0.15, 0.0, 1.0),
    "launch_us": (6.0, 0.0, 100.0),
}


def fit_fp8(rows: pd.DataFrame, gemm: GemmModel) -> tuple[GemmModel, list[Evidence]]:
    """Products of one scale per tensor, with the tiles of `gemm`; backward layouts check the forward fit."""
    peak = FP8_OVER_BF16 * gemm.peak_flops_per_s
    like = dataclasses.replace(gemm, peak_flops_per_s=peak, operand_bytes=1.0)
    forward = rows.loc[rows.layout == "forward"]
    model, found = _fitted("gemm, fp8", forward, like, "batch")
    return model, [found, *_checked("gemm, fp8, backward layouts", rows.loc[rows.layout != "forward"], model)]


def fit_grouped(rows: pd.DataFrame, gemm: GemmModel) -> tuple[GemmModel, list[Evidence]]:
    """Experts' products in one launch; backward layouts check the forward fit."""
    model, found = _fitted("grouped_gemm", rows.loc[rows.layout == "forward"], gemm, "groups")
    backward = rows.loc[rows.layout != "forward"].assign(batch=lambda table: table.groups)
    return model, [found, *_checked("grouped_gemm, backward layouts", backward, model)]


def check_accumulation(rows: pd.DataFrame, gemm: GemmModel) -> list[Evidence]:
    """How well the forward formula predicts dw added to a gradient in 32 bit."""
    return _checked("gemm, dw added in 32 bit", rows.loc[rows.layout == "dw-fp32"], gemm)


def _fitted(part: str, rows: pd.DataFrame, like: GemmModel, count: str) -> tuple[GemmModel, Evidence]:
    """`like` with its rates, start-up and launch fitted to rows; `count` is the column of equal products."""
    m, n, k, many = (rows[name].to_numpy(dtype=float) for name in ("m", "n", "k", count))
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6

    def model(fit: Fit) -> GemmModel:
        tiles = [
            GemmTile(tile.rows, tile.columns, min(tile.peak_fraction * fit["share"], 1.0))
            for tile in like.tiles
        ]
        return dataclasses.replace(
            like,
            tiles=tiles,
            k_offset=fit["k_offset"],
            wave_quantisation=fit["wave_quantisation"],
            launch_s=fit["launch_us"] * 1e-6,
        )

    def predict(fit: Fit) -> Array:
        return model(fit).seconds(m, n, k, many)

    fit, in_sample, held_out = fit_in_halves(predict, measured, np.ones(len(rows)), BOUNDS, n, k)
    return model(fit), Evidence(
        part=part,
        kind="fitted",
        source=NAMES["torch"],
        rows=len(rows),
        error_in_sample_pct=mape_pct(in_sample, measured),
        error_held_out_pct=mape_pct(held_out, measured),
        note=(
            f"the tiles of bf16 at {fit['share']:.3g} of their fraction of peak; "
            "held out: half of the (n, k) shapes, both ways"
        ),
        measured=measured_range(m=m, n=n, k=k),
    )


def _checked(part: str, rows: pd.DataFrame, model: GemmModel) -> list[Evidence]:
    """The error on rows that were not fitted; nothing if there are none."""
    if rows.empty:
        return []
    m, n, k, batch = (rows[column].to_numpy(dtype=float) for column in ("m", "n", "k", "batch"))
    error = mape_pct(model.seconds(m, n, k, batch), rows.time_us.to_numpy(dtype=float) * 1e-6)
    return [
        Evidence(
            part=part,
            kind="measured",
            source=NAMES["torch"],
            rows=len(rows),
            error_held_out_pct=error,
            note="the forward formula; none of these rows was fitted",
            measured=measured_range(m=m, n=n, k=k),
        )
    ]
