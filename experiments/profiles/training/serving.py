"""Fits forward attention to kernels of inference servers, which cover many batches, heads and lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from experiments.profiles.chips import Chip
from experiments.profiles.measurements import (
    Bounds,
    Fit,
    fit_in_halves,
    mape_pct,
    measured_range,
    read_rows,
    significant,
)
from itertime.arrays import Array
from itertime.spec import Attention, Evidence
from itertime.spec.kernels import AttentionCurve, AttentionModel

from .attention import Curves, Tail
from .tables import family, like

__all__ = ["fit_flash3", "fit_tail"]

SUSTAINED = "{}_attention_forward_sustained_aiconfigurator"
BURST = "{}_attention_forward_aiconfigurator"
SHAPE = ["batch", "seq", "heads", "kv_heads", "head_dim"]
COLUMNS = ("collector", "causal", "dtype", "kv_dtype", *SHAPE, "time_us")
SHORTEST, LONGEST = 256, 16384  # tokens
ROWS, SEED = 1000, 16  # a sample is fitted, so that a build takes seconds
LARGE = 2**19  # batch x heads x tokens: enough to fill the GPU for a second of repeats
LONG = 4096  # tokens, from which a kernel draws the most power
DIMS = (64, 128)
HOPPER = "h200"
START: dict[str, tuple[float, float, float]] = {
    "tail_blocks": (0.8, 0.0, 10.0),
    "cache_passes": (3.0, 0.0, 10.0),
    "launch_us": (10.0, 0.0, 60.0),
}


@dataclass(frozen=True)
class _Forward:
    """A fit of the forward under a causal mask, and its rows, predictions in sample and of the other half."""

    fit: Fit
    rows: pd.DataFrame
    measured: Array
    in_sample: Array
    held_out: Array


def fit_tail(folder: Path, chip: Chip, launch_s: float) -> tuple[Tail, list[Evidence]]:
    """What training's attention takes from the forward at the power limit, and its evidence.

    `launch_s` is one kernel's launch; the measured forward has another kernel, which writes keys and values.
    """
    tables = like("serving", chip)
    forward = _fit(folder, tables, chip)
    fit = forward.fit
    narrow = significant(fit["tera_64"] / fit["tera_128"])
    sustained, rows = _sustained(folder, tables)
    launch = max(fit["launch_us"] * 1e-6 - launch_s, launch_s)
    tail = Tail(fit["tail_blocks"], significant(launch), narrow, sustained)
    own = tables == family(chip)
    source = f"ai-dynamo/aiconfigurator ({forward.rows.collector.iloc[0]}, at the power limit)"
    last_wave = Evidence(
        part="attention_serving (forward, causal: last wave and launch of cuDNN and FlashAttention-3)",
        kind="fitted" if own else "assumed",
        source=source if own else f"{tables.upper()}'s: {source}",
        rows=len(forward.rows) if own else 0,
        error_in_sample_pct=mape_pct(forward.in_sample, forward.measured) if own else None,
        error_held_out_pct=mape_pct(forward.held_out, forward.measured) if own else None,
        note=(
            f"{fit['tail_blocks']:g} tiles of queries idle at the end; head dim 64 at {narrow:.3g} of the "
            "rate of 128; held out: half of the (heads, kv_heads), both ways"
        ),
    )
    limit = Evidence(
        part="attention_serving (power limit)",
        kind="measured" if own else "assumed",
        source=source if own else f"{tables.upper()}'s: {source}",
        rows=rows if own else 0,
        note=(
            f"time under sustained load over that of a burst of the same kernel and shape: {sustained:.3g}, "
            "median; never counted below 1"
        ),
        measured={"seq": (float(LONG), float(LONGEST))} if own else {},
    )
    return tail, [last_wave, limit]


def fit_flash3(
    folder: Path, chip: Chip, cudnn: AttentionModel, launch_s: float
) -> tuple[AttentionModel | None, list[Evidence]]:
    """FlashAttention-3 and its evidence; None for a chip it does not run on.

    Its forward at the power limit is measured for training's head dims. Its backward is assumed to be that of
    `cudnn`, whose forward has the same rate within 5 %.
    """
    tables = like("serving", chip)
    if tables != HOPPER:
        return None, []
    forward = _fit(folder, tables, chip)
    fit = forward.fit
    launch = max(fit["launch_us"] * 1e-6 - launch_s, launch_s)
    curves = Curves(chip, Tail(fit["tail_blocks"], significant(launch), 1.0))
    free_of = {(c.causal, c.head_dim): c for c in cudnn.curves if c.direction == "forward"}
    for dim in DIMS:
        rate, half = fit[f"tera_{dim}"] * 1e12, fit[f"half_{dim}"]
        curves.found["forward", True, dim] = rate, half
        free, masked = (free_of[causal, dim] for causal in (False, True))
        curves.found["forward", False, dim] = (
            rate * free.flops_per_s / masked.flops_per_s,
            half * free.seq_half / masked.seq_half,
        )
    for curve in cudnn.curves:
        if curve.direction == "backward":
            curves.found["backward", curve.causal, curve.head_dim] = curve.flops_per_s, curve.seq_half
    backward = Evidence(
        part="attention_flash3 backward",
        kind="assumed",
        source="cuDNN's backward",
        rows=0,
        note="the two forward kernels differ by less than 5 % from 4,096 tokens",
    )
    return curves.model(), [*_of_forward(forward, tables, tables == family(chip)), backward]


def _of_forward(forward: _Forward, tables: str, own: bool) -> Iterator[Evidence]:
    """The evidence of the forward kernel by head dim; `own`: the tables are this chip's."""
    source = "ai-dynamo/aiconfigurator (vllm 0.22.0, FlashAttention-3 at the power limit)"
    for dim in DIMS:
        chosen = (forward.rows.head_dim == dim).to_numpy()
        seq = forward.rows.seq.to_numpy(dtype=float)[chosen]
        yield Evidence(
            part=f"attention_flash3 forward (head dim {dim}, causal)",
            kind="fitted" if own else "assumed",
            source=source if own else f"{tables.upper()}'s: {source}",
            rows=int(chosen.sum()) if own else 0,
            error_in_sample_pct=(
                mape_pct(forward.in_sample[chosen], forward.measured[chosen]) if own else None
            ),
            error_held_out_pct=(
                mape_pct(forward.held_out[chosen], forward.measured[chosen]) if own else None
            ),
            note="held out: half of the (heads, kv_heads), both ways; no mask in cuDNN's ratios",
            measured=measured_range(head_dim=np.array([float(dim)]), seq=seq) if own else {},
        )


def _fit(folder: Path, tables: str, chip: Chip) -> _Forward:
    rows = read_rows(folder / f"{SUSTAINED.format(tables)}.csv.gz", COLUMNS)
    rows = rows.loc[rows.collector.str.startswith("vllm") & rows.causal & rows.head_dim.isin(DIMS)]
    rows = rows.loc[(rows.dtype == "bfloat16") & (rows.kv_dtype == "bfloat16")]
    rows = rows.loc[(rows.seq >= SHORTEST) & (rows.seq <= LONGEST)]
    rows = rows.sample(min(ROWS, len(rows)), random_state=SEED).reset_index(drop=True)
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    parts = {dim: np.flatnonzero(rows.head_dim == dim) for dim in DIMS}
    batch, seq, heads, kv_heads, _ = (rows[column].to_numpy(dtype=float) for column in SHAPE)
    bounds: Bounds = dict(START)
    for dim in DIMS:
        bounds |= {f"tera_{dim}": (500.0, 50.0, 3000.0), f"half_{dim}": (300.0, 0.0, 3000.0)}

    def predict(fit: Fit) -> Array:
        curves = Curves(chip, Tail(fit["tail_blocks"], fit["launch_us"] * 1e-6, 1.0))
        seconds = np.empty(len(rows))
        for dim, part in parts.items():
            model = curves.of(_both(dim, fit[f"tera_{dim}"] * 1e12, fit[f"half_{dim}"]))
            query = Attention(batch[part], heads[part], kv_heads[part], dim, seq[part], seq[part])
            cache_s = 4 * batch[part] * kv_heads[part] * seq[part] * dim / chip.hbm_bytes_per_s
            seconds[part] = model.seconds(query) + fit["cache_passes"] * cache_s
        return seconds

    fit, in_sample, held_out = fit_in_halves(predict, measured, np.ones(len(rows)), bounds, heads, kv_heads)
    return _Forward(fit, rows, measured, in_sample, held_out)


def _both(dim: int, rate: float, half: float) -> list[AttentionCurve]:
    ways: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    return [
        AttentionCurve(direction=way, causal=causal, head_dim=dim, flops_per_s=rate, seq_half=half)
        for way in ways
        for causal in (False, True)
    ]


def _sustained(folder: Path, tables: str) -> tuple[float, int]:
    """Sustained over burst time, the median of kernels in both tables that are large, and their number."""
    key = ["collector", *SHAPE]
    times = []
    for name in (SUSTAINED, BURST):
        rows = read_rows(folder / f"{name.format(tables)}.csv.gz", COLUMNS)
        rows = rows.loc[rows.causal & (rows.head_dim == DIMS[-1]) & (rows.dtype == "bfloat16")]
        rows = rows.loc[(rows.kv_dtype == "bfloat16") & (rows.batch * rows.heads * rows.seq >= LARGE)]
        rows = rows.assign(collector=rows.collector.str.split().str[0])
        times.append(rows.loc[rows.seq.between(LONG, LONGEST)].groupby(key).time_us.median())
    ratio = (times[0] / times[1]).dropna()
    return significant(max(float(ratio.median()), 1.0), 3), len(ratio)
