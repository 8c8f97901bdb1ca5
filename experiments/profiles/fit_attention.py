"""Fits `AttentionModel`: forward to its measurements, backward to the remainder of forward + backward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from itertime.arrays import Array
from itertime.spec import Attention, Evidence
from itertime.spec.kernels import AttentionCurve, AttentionModel

from .chips import Chip, chip_named
from .measurements import (
    Fit,
    fit_in_halves,
    fit_logarithms,
    mape_pct,
    measured_range,
    read_table,
    significant,
)

__all__ = ["fit_attention"]

SERVING = "ai-dynamo/aiconfigurator (sglang-0.5.10, context attention)"
CHART = "Dao-AILab/flash-attention, chart of FlashAttention-2 forward + backward (+-0.5 TFLOP/s)"
COLUMNS = ("dir", "impl", "batch", "heads", "kv_heads", "head_dim", "seq", "causal")
BLOCK_ROWS = 128
SHORTEST = 256  # tokens; the time of shorter prompts is all launch
DIMS = (64, 128)
DIRECTIONS: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")

FORWARD_BOUNDS = {
    "tera_flops_per_s": (200.0, 100.0, 312.0),
    "seq_half": (200.0, 0.0, 900.0),
    "tail_blocks": (0.8, 0.0, 10.0),
    "cache_passes": (3.0, 0.0, 10.0),
    "launch_us": (13.0, 0.0, 30.0),
}
BACKWARD_BOUNDS = {"tera_flops_per_s": (180.0, 50.0, 900.0), "seq_half": (300.0, 0.0, 3000.0)}


@dataclass(frozen=True)
class _Kernel:
    """The parameters that all curves share."""

    chip: Chip
    tail_blocks: float
    launch_s: float

    def model(self, curves: list[AttentionCurve]) -> AttentionModel:
        return AttentionModel(
            curves=curves,
            block_rows=BLOCK_ROWS,
            tail_blocks=self.tail_blocks,
            multiprocessors=self.chip.multiprocessors,
            bytes_per_s=self.chip.hbm_bytes_per_s,
            launch_s=self.launch_s,
        )


def fit_attention(folder: Path, chip: Chip, launch_s: float) -> tuple[AttentionModel, list[Evidence]]:
    """The model and its evidence; `launch_s` is one kernel's launch, of which the measured forward has two.

    Two things are measured. One is the forward, causal, head dim 128, of a serving kernel. That kernel also
    writes keys and values to a cache; the write is fitted as passes over them and left out of the model. The
    other is forward + backward of training for head dims 64 and 128, causal and not.

    The rest of the forward is assumed. Its rates for head dims 64 and 128 have the ratio of those of
    forward + backward, and a curve without the mask lacks only the half-empty diagonal blocks. The backward
    is the remainder, so the sum, the cost of training without recomputation, is measured for every curve.

    The forward in the H100's tables reaches 660 TFLOP/s, twice the rate of FlashAttention-2 there, so it is
    another kernel. For such a chip the forward is the A100's share of the time of both.
    """
    fit, evidence, share = _forward(folder, chip)
    launch = max(fit["launch_us"] * 1e-6 - launch_s, launch_s)
    kernel = _Kernel(chip=chip, tail_blocks=fit["tail_blocks"], launch_s=launch)
    both = _trained(folder, chip)
    curves = _forward_curves(fit, both)
    for head_dim in DIMS:
        for causal in (False, True):
            chosen = both.loc[(both.head_dim == head_dim) & (both.causal == causal)]
            curve, found = _fit_backward(chosen, curves, kernel)
            curves.append(curve)
            evidence.append(found)
    measured = "attention forward (head dim 64, and without a mask)"
    evidence.append(
        Evidence(
            part="attention forward" if share else measured,
            kind="assumed",
            source=f"{share or 'scaled from head dim 128, causal,'} by {CHART}",
            rows=0,
            note="only the split between forward and backward is assumed; their sum is measured",
        )
    )
    return kernel.model(curves), evidence


def _trained(folder: Path, chip: Chip) -> pd.DataFrame:
    """The rows of FlashAttention-2's forward + backward."""
    rows = read_table(folder, f"{chip.tables}_attention", COLUMNS)
    rows = rows.loc[(rows.dir == "fwd+bwd") & (rows.impl == "flash2") & (rows.kv_heads == rows.heads)]
    shape = ["batch", "heads", "kv_heads", "head_dim", "seq", "causal"]
    return rows.groupby(shape, as_index=False).agg({"time_us": "median"})


def _forward(folder: Path, chip: Chip) -> tuple[Fit, list[Evidence], str]:
    """The forward's fit, its evidence, and "". For a chip with `forward_like`: that chip's fit at this chip's
    rate, no evidence, and the source of the share.
    """
    rows = read_table(folder, f"{chip.tables}_attention", COLUMNS)
    if chip.forward_like is None or (rows.origin == "torch").all():
        return *_fit_forward(rows, chip), ""
    like = chip_named(chip.forward_like)
    fit, _ = _fit_forward(read_table(folder, f"{like.tables}_attention", COLUMNS), like)
    rate = _longest(_trained(folder, chip))[128] / _longest(_trained(folder, like))[128]
    scaled = significant(fit["tera_flops_per_s"] * float(rate))
    return Fit(fit.values | {"tera_flops_per_s": scaled}), [], f"the share of {like.name}, scaled"


def _fit_forward(rows: pd.DataFrame, chip: Chip) -> tuple[Fit, list[Evidence]]:
    rows = rows.loc[(rows.dir == "fwd") & (rows.seq >= SHORTEST) & (rows.head_dim == 128) & rows.causal]
    shape = ["batch", "heads", "kv_heads", "seq"]
    rows = rows.groupby(shape, as_index=False).agg({"time_us": "median"})
    batch, heads, kv_heads, seq = (rows[column].to_numpy(dtype=float) for column in shape)
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    cache_s = 4 * batch * kv_heads * seq * 128 / chip.hbm_bytes_per_s

    def predict(fit: Fit) -> Array:
        rate = fit["tera_flops_per_s"] * 1e12
        curves = [
            AttentionCurve(
                direction=direction,
                causal=causal,
                head_dim=128,
                flops_per_s=rate,
                seq_half=fit["seq_half"],
            )
            for direction in DIRECTIONS
            for causal in (False, True)
        ]
        kernel = _Kernel(chip=chip, tail_blocks=fit["tail_blocks"], launch_s=fit["launch_us"] * 1e-6)
        return (
            kernel.model(curves).seconds(Attention(batch, heads, kv_heads, 128, seq, seq))
            + fit["cache_passes"] * cache_s
        )

    fit, in_sample, held_out = fit_in_halves(
        predict, measured, np.ones(len(rows)), FORWARD_BOUNDS, heads, kv_heads
    )
    long = seq >= 1024
    ranges = {
        f"seq >= {SHORTEST}": seq >= SHORTEST,
        "seq >= 1024": long,
        "seq >= 1024, batch x heads >= 16": long & (batch * heads >= 16),
        "seq >= 1024, grouped queries": long & (kv_heads < heads),
    }
    note = (
        "held out: half of the (heads, kv_heads), both ways; fitted beside it and left out of the model: the "
        f"write of keys and values to a cache, {fit['cache_passes']:g} passes over them, and its launch"
    )
    return fit, [
        Evidence(
            part=f"attention forward (head dim 128, causal, {name})",
            kind="fitted",
            source=SERVING,
            rows=int(chosen.sum()),
            error_in_sample_pct=mape_pct(in_sample[chosen], measured[chosen]),
            error_held_out_pct=mape_pct(held_out[chosen], measured[chosen]),
            note=note,
            measured=measured_range(head_dim=np.array([128.0]), seq=seq[chosen]),
        )
        for name, chosen in ranges.items()
        if chosen.any()
    ]


def _forward_curves(fit: Fit, both: pd.DataFrame) -> list[AttentionCurve]:
    """The forward curves. Their long-sequence rates are in proportion to those of forward + backward without
    a mask.
    """
    rate = _longest(both)
    unmasked = significant(max(fit["seq_half"] - BLOCK_ROWS, 0.0))
    curves = []
    for head_dim in DIMS:
        flops_per_s = significant(fit["tera_flops_per_s"] * 1e12 * float(rate[head_dim] / rate[128]))
        for causal, seq_half in ((False, unmasked), (True, fit["seq_half"])):
            curves.append(
                AttentionCurve(
                    direction="forward",
                    causal=causal,
                    head_dim=head_dim,
                    flops_per_s=flops_per_s,
                    seq_half=seq_half,
                )
            )
    return curves


def _longest(both: pd.DataFrame) -> pd.Series:
    """By head dim, the rate of forward + backward for the longest sequences, up to a common factor."""
    longest = both.loc[(both.seq == both.seq.max()) & ~both.causal]
    longest = longest.sort_values("heads").groupby("head_dim").last()
    return longest.batch * longest.heads * longest.index / longest.time_us


def _fit_backward(
    rows: pd.DataFrame, forward: list[AttentionCurve], kernel: _Kernel
) -> tuple[AttentionCurve, Evidence]:
    """The backward curve for one head dim and mask; its errors are those of forward + backward."""
    head_dim, causal = int(rows.head_dim.iloc[0]), bool(rows.causal.iloc[0])
    batch, heads, seq = (rows[column].to_numpy(dtype=float) for column in ("batch", "heads", "seq"))
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    unused = AttentionCurve(
        direction="backward", causal=not causal, head_dim=head_dim, flops_per_s=1e14, seq_half=0.0
    )

    def curve(fit: Fit) -> AttentionCurve:
        return AttentionCurve(
            direction="backward",
            causal=causal,
            head_dim=head_dim,
            flops_per_s=fit["tera_flops_per_s"] * 1e12,
            seq_half=fit["seq_half"],
        )

    def predict(fit: Fit) -> Array:
        model = kernel.model([*forward, unused, curve(fit)])
        forward_pass = Attention(batch, heads, heads, head_dim, seq, seq, causal)
        return model.seconds(forward_pass) + model.seconds(forward_pass._replace(backward=True))

    fit = fit_logarithms(predict, measured, np.ones(len(measured)), BACKWARD_BOUNDS)
    left_out = [
        predict(fit_logarithms(predict, measured, 1.0 - one, BACKWARD_BOUNDS))[one == 1][0]
        for one in np.eye(len(measured))
    ]
    return curve(fit), Evidence(
        part=f"attention forward + backward (head dim {head_dim}, {'causal' if causal else 'no mask'})",
        kind="fitted",
        source=CHART,
        rows=len(rows),
        error_in_sample_pct=mape_pct(predict(fit), measured),
        error_held_out_pct=mape_pct(np.array(left_out), measured),
        note="backward is fitted to what the forward model leaves; held out: each sequence length in turn",
        measured=measured_range(head_dim=np.array([float(head_dim)]), seq=seq),
    )
