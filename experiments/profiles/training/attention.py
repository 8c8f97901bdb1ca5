"""Fits attention kernels of training software: cuDNN's, FlashAttention-3, FlashAttention-2 on newer chips."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from experiments.profiles.chips import Chip
from experiments.profiles.measurements import (
    Bounds,
    Fit,
    fit_logarithms,
    mape_pct,
    measured_range,
    read_rows,
    significant,
)
from itertime.arrays import Array
from itertime.spec import Attention, AttentionKernel, Evidence
from itertime.spec.kernels import AttentionCurve, AttentionModel

from .tables import CUDNN_TABLE, family, like

__all__ = ["CUDNN", "Curves", "Tail", "fit_cudnn", "flash_elsewhere", "training_rows"]

CUDNN = {"cudnn": ("bfloat16", "bf16"), "cudnn_fp8": ("fp8",), "cudnn_mxfp8": ("mxfp8",)}
SOURCE = "NVIDIA/cudnn-frontend, forward and backward of training (B200: mlcommons/training_results_v5.1)"
BLOCK_ROWS = 128
DIMS = (64, 128, 160)  # 160: the mean of 192 for queries and keys and 128 for values
USUAL = 128
LONGEST = 65536  # tokens; beyond, kernels slow down again
WIDE_WINDOW = 512  # keys; a window narrower than a few tiles measures its waste, not the kernel's rate
CHIP_OF_TABLE = {
    "h200": "NVIDIA H200",
    "b200": "NVIDIA B200",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
}
COMPARED = "gb200"  # measured in every shape; lends B200, whose table has one, its ratios between shapes
COLUMNS = ("gpu", "backend", "dtype", "mask", "batch", "seq_q", "heads", "kv_heads", "pass", "time_us")
# The rows of B200 are timed from the host: a constant part is fitted beside the curve, and left out of it.
HOST_BOUNDS: Bounds = {"host_us": (30.0, 0.0, 200.0)}
BOUNDS: Bounds = {"tera_flops_per_s": (600.0, 50.0, 6000.0), "seq_half": (300.0, 0.0, 4000.0)}
Direction = Literal["forward", "backward"]
DIRECTIONS: tuple[tuple[Direction, str], ...] = (("forward", "fwd"), ("backward", "bwd"))


@dataclass(frozen=True)
class Tail:
    """What the forward kernels of serving measure better than the few shapes of training.

    `tail_blocks` and `launch_s` are those of `AttentionModel`; `narrow` is the rate at head dim 64 over that
    at 128; `sustained` the time at the power limit over that of a burst, at least 1.
    """

    tail_blocks: float
    launch_s: float
    narrow: float
    sustained: float = 1.0


@dataclass
class Curves:
    """Curves by direction, mask and head dim, as (FLOP/s, seq_half), while they are being fitted."""

    chip: Chip
    tail: Tail
    found: dict[tuple[Direction, bool, int], tuple[float, float]] = field(default_factory=dict)

    def model(self, slowed: float = 1.0) -> AttentionModel:
        """The model of these curves, `slowed` times slower."""
        curves = [
            AttentionCurve(
                direction=direction,
                causal=causal,
                head_dim=head_dim,
                flops_per_s=significant(rate / slowed),
                seq_half=significant(seq_half),
            )
            for (direction, causal, head_dim), (rate, seq_half) in sorted(self.found.items())
        ]
        return self.of(curves)

    def of(self, curves: list[AttentionCurve]) -> AttentionModel:
        return AttentionModel(
            curves=curves,
            block_rows=BLOCK_ROWS,
            tail_blocks=self.tail.tail_blocks,
            multiprocessors=self.chip.multiprocessors,
            bytes_per_s=self.chip.hbm_bytes_per_s,
            launch_s=self.tail.launch_s,
        )

    def seconds(self, rows: pd.DataFrame, direction: Direction, rate: float, seq_half: float) -> Array:
        """Seconds of rows of one direction, mask and shape of head by one curve."""
        row = rows.iloc[0]
        head_dim = round(float(row.head_dim_qk + row.head_dim_v) / 2)
        curves = [
            AttentionCurve(
                direction=way, causal=causal, head_dim=head_dim, flops_per_s=rate, seq_half=seq_half
            )
            for way, _ in DIRECTIONS
            for causal in (False, True)
        ]
        return seconds_of(self.of(curves), rows, direction == "backward")


def seconds_of(model: AttentionModel, rows: pd.DataFrame, backward: bool) -> Array:
    """Seconds of rows of equal head dims and windows."""
    batch, heads, kv_heads, seq = (
        rows[column].to_numpy(dtype=float) for column in ("batch", "heads", "kv_heads", "seq_q")
    )
    row = rows.iloc[0]
    kernel = AttentionKernel(value_dim=float(row.head_dim_v), window=int(row.window))
    causal = (rows["mask"] == "top_left").to_numpy()
    dim = float(row.head_dim_qk)
    return model.seconds(Attention(batch, heads, kv_heads, dim, seq, seq, causal, backward, kernel))


def training_rows(folder: Path, tables: str, dtypes: tuple[str, ...], backend: str = "cudnn") -> pd.DataFrame:
    """The rows of a chip's forward and backward, none for a chip that has none.

    The backward that gives equal bits in every run is left out where the usual one is measured. Head dim 256
    has no backward.
    """
    rows = read_rows(folder / f"{CUDNN_TABLE}.csv.gz", COLUMNS)
    rows = rows.loc[(rows.gpu == CHIP_OF_TABLE.get(tables)) & (rows.backend == backend)]
    rows = rows.loc[rows.dtype.isin(dtypes) & (rows.head_dim_qk < 256) & (rows.seq_q <= LONGEST)].copy()
    rows["window"] = rows.window.fillna(0).astype(int)
    rows["repeatable"] = rows.deterministic.eq(True)
    shape = [
        "gpu",
        "mask",
        "batch",
        "seq_q",
        "heads",
        "kv_heads",
        "head_dim_qk",
        "head_dim_v",
        "window",
        "pass",
    ]
    usual = ~rows.repeatable | ~rows.duplicated(shape, keep=False)
    rows = rows.loc[usual].groupby(shape, as_index=False).agg({"time_us": "median"})
    rows["dim"] = ((rows.head_dim_qk + rows.head_dim_v) / 2).astype(int)
    return rows


def fit_cudnn(
    folder: Path, chip: Chip, name: str, tail: Tail
) -> tuple[AttentionModel | None, list[Evidence]]:
    """cuDNN's attention in one precision and its evidence; None for a chip that no table or sibling measures.

    Each curve has its own rate and `seq_half`. Shapes that a chip's table lacks are scaled: no mask, and head
    dims of 192 and 128, in the ratios to head dim 128 under a causal mask of `COMPARED`; head dim 64 from
    rows with a wide window, or by `Tail.narrow`.
    """
    tables = like("attention", chip)
    rows = training_rows(folder, tables, CUDNN[name])
    if rows.empty:
        return None, []
    curves = Curves(chip, tail)
    errors: dict[Direction, list[tuple[Array, Array, Array]]] = {}
    for direction, word in DIRECTIONS:
        full = rows.loc[(rows["pass"] == word) & (rows.window == 0)]
        for _, chosen in full.groupby(["dim", "mask"]):
            if len(chosen) >= 3:
                key = direction, *_key(chosen)
                fitted, errors_here = _fit_curve(curves, chosen, direction)
                curves.found[key] = fitted
                errors.setdefault(direction, []).append(errors_here)
    lent = None
    if any((way, False, USUAL) not in curves.found for way, _ in DIRECTIONS):
        lent = _compared_curves(folder, chip, CUDNN[name], tail).found
    for direction, word in DIRECTIONS:
        _fill(curves, direction, lent)
        _narrow(curves, direction, rows.loc[(rows["pass"] == word) & (rows.window >= WIDE_WINDOW)])
    model = curves.model(tail.sustained)
    return model, _evidence(chip, name, rows, errors, tail, curves, tables)


def _key(rows: pd.DataFrame) -> tuple[bool, int]:
    """Mask and head dim of rows that share them."""
    return bool(rows["mask"].iloc[0] == "top_left"), int(rows.dim.iloc[0])


def _compared_curves(folder: Path, chip: Chip, dtypes: tuple[str, ...], tail: Tail) -> Curves:
    """The curves of `COMPARED`, on the multiprocessors of `chip`."""
    rows = training_rows(folder, COMPARED, dtypes)
    curves = Curves(chip, tail)
    for direction, word in DIRECTIONS:
        full = rows.loc[(rows["pass"] == word) & (rows.window == 0)]
        for _, chosen in full.groupby(["dim", "mask"]):
            curves.found[direction, *_key(chosen)] = _fit_curve(curves, chosen, direction, checked=False)[0]
    return curves


def _fit_curve(
    curves: Curves,
    rows: pd.DataFrame,
    direction: Direction,
    seq_half: float | None = None,
    checked: bool = True,
) -> tuple[tuple[float, float], tuple[Array, Array, Array]]:
    """Rate and `seq_half` of one curve; measured seconds, those in sample, and, if
    `checked`, each length by the others.
    """
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    bounds = dict(BOUNDS)
    if seq_half is not None:
        del bounds["seq_half"]
    if (rows.gpu == CHIP_OF_TABLE["b200"]).all():
        bounds |= HOST_BOUNDS

    # Seconds are max((work + half of start) / rate, moved) + launch: the model's own terms, evaluated once.
    work, start, moved = (np.empty(len(rows)) for _ in range(3))
    launch_s = curves.tail.launch_s
    for part in rows.groupby(["head_dim_qk", "head_dim_v", "window"]).indices.values():
        chosen = rows.iloc[part]
        work[part] = curves.seconds(chosen, direction, 1.0, 0.0) - launch_s
        start[part] = curves.seconds(chosen, direction, 1.0, 1.0) - launch_s - work[part]
        moved[part] = curves.seconds(chosen, direction, 1e30, 0.0) - launch_s

    def predict(fit: Fit) -> Array:
        half = fit["seq_half"] if seq_half is None else seq_half
        compute = (work + half * start) / (fit["tera_flops_per_s"] * 1e12)
        parts = np.asarray(np.maximum(compute, moved) + launch_s)
        return parts + fit.values.get("host_us", 0.0) * 1e-6

    fit = fit_logarithms(predict, measured, np.ones(len(rows)), bounds)
    left_out = np.full(len(rows), np.nan)
    for seq in rows.seq_q.unique() if checked else ():
        held = (rows.seq_q == seq).to_numpy()
        left_out[held] = predict(fit_logarithms(predict, measured, 1.0 * ~held, bounds))[held]
    half = fit["seq_half"] if seq_half is None else seq_half
    return (fit["tera_flops_per_s"] * 1e12, half), (measured, predict(fit), left_out)


def _fill(
    curves: Curves,
    direction: Direction,
    lent: dict[tuple[Direction, bool, int], tuple[float, float]] | None,
) -> None:
    """The curves that the chip's rows lack, by the ratios of `COMPARED` or of the chip's usual head dim."""
    rate, half = curves.found[direction, True, USUAL]
    if (direction, False, USUAL) not in curves.found:
        assert lent is not None
        for causal, dim in ((False, USUAL), (True, DIMS[-1]), (False, DIMS[-1])):
            if (direction, causal, dim) in lent:
                base_rate, base_half = lent[direction, True, USUAL]
                other_rate, other_half = lent[direction, causal, dim]
                curves.found[direction, causal, dim] = (
                    rate * other_rate / base_rate,
                    half * other_half / max(base_half, 1.0),
                )
    wide = curves.found.get((direction, True, DIMS[-1]))
    if wide is not None and (direction, False, DIMS[-1]) not in curves.found:
        free_rate, free_half = curves.found[direction, False, USUAL]
        curves.found[direction, False, DIMS[-1]] = wide[0] * free_rate / rate, free_half


def _narrow(curves: Curves, direction: Direction, windowed: pd.DataFrame) -> None:
    """The curves of head dim 64."""
    rate, half = curves.found[direction, True, USUAL]
    free_rate, free_half = curves.found[direction, False, USUAL]
    narrow = curves.tail.narrow
    if len(windowed) >= 3:
        (fitted, _), _ = _fit_curve(curves, windowed, direction, half, checked=False)
        narrow = fitted / rate
    curves.found[direction, True, DIMS[0]] = narrow * rate, half
    curves.found[direction, False, DIMS[0]] = narrow * free_rate, free_half


def _evidence(
    chip: Chip,
    name: str,
    rows: pd.DataFrame,
    errors: dict[Direction, list[tuple[Array, Array, Array]]],
    tail: Tail,
    curves: Curves,
    tables: str,
) -> list[Evidence]:
    own = tables == family(chip)
    found = []
    for direction, word in DIRECTIONS:
        measured, fitted, left_out = (np.concatenate(each) for each in zip(*errors[direction], strict=True))
        full = rows.loc[(rows["pass"] == word) & (rows.window == 0)]
        slowed = f"; times x{tail.sustained:.3g} at the power limit" if tail.sustained > 1 else ""
        found.append(
            Evidence(
                part=f"attention_{name} {direction}",
                kind="fitted" if own else "assumed",
                source=SOURCE if own else f"that of {tables.upper()}: {SOURCE}",
                rows=len(full) if own else 0,
                error_in_sample_pct=mape_pct(fitted, measured) if own else None,
                error_held_out_pct=mape_pct(left_out, measured) if own else None,
                note=f"a rate and a start-up per head dim and mask; held out: each length in turn{slowed}",
                measured=_range(full) if own else {},
            )
        )
    windowed = rows.loc[(rows.window > 0) & (name == "cudnn")]
    if own and len(windowed):
        found.append(_windows(windowed, curves))
    if own and tables != COMPARED and not (full.dim == DIMS[-1]).any():
        found.append(
            Evidence(
                part=f"attention_{name} (no mask, head dims 192 and 128)",
                kind="assumed",
                source=f"the ratios of {COMPARED.upper()} to head dim 128 under a causal mask",
                rows=0,
            )
        )
    return found


def _range(rows: pd.DataFrame) -> dict[str, tuple[float, float]]:
    return measured_range(
        head_dim=rows.head_dim_qk.to_numpy(dtype=float), seq=rows.seq_q.to_numpy(dtype=float)
    )


def _windows(rows: pd.DataFrame, curves: Curves) -> Evidence:
    """The check of a window: it counts the scores kept, at the rate of as short a sequence."""
    model = curves.model()
    measured, predicted = [], []
    for direction, word in DIRECTIONS:
        chosen = rows.loc[rows["pass"] == word]
        measured.append(chosen.time_us.to_numpy(dtype=float) * 1e-6)
        predicted.append(seconds_of(model, chosen, direction == "backward"))
    reach = int(rows.window.iloc[0])
    error = mape_pct(np.concatenate(predicted), np.concatenate(measured))
    fitted = reach >= WIDE_WINDOW
    return Evidence(
        part=f"attention_cudnn (window of {reach}, head dim 64)",
        kind="fitted" if fitted else "assumed",
        source=SOURCE,
        rows=len(rows),
        error_in_sample_pct=error if fitted else None,
        error_held_out_pct=None if fitted else error,
        note="the rate of head dim 64 is fitted to it" if fitted else "no row of it is fitted",
        measured=_range(rows) if fitted else {},
    )


def flash_elsewhere(folder: Path, chip: Chip, other: AttentionModel) -> tuple[AttentionModel, list[Evidence]]:
    """FlashAttention-2 on a chip without the older tables; `other` is the H100's.

    A chip of the H100's architecture takes its times. On Blackwell the rows of B200, head dim 128 under a
    causal mask, give the rates; other head dims and no mask have the H100's ratios.
    """
    if like("serving", chip) == "h200":
        return other, [_assumed_flash("the H100's, which holds the same die")]
    rows = training_rows(folder, "b200", ("bf16",), "flash_attention")
    tail = Tail(other.tail_blocks, other.launch_s, 1.0)
    curves = Curves(chip, tail)
    base = {(c.direction, c.causal, c.head_dim): (c.flops_per_s, c.seq_half) for c in other.curves}
    errors = []
    for direction, word in DIRECTIONS:
        (rate, half), error = _fit_curve(curves, rows.loc[rows["pass"] == word], direction)
        errors.append(error)
        base_rate, base_half = base[direction, True, USUAL]
        for (way, causal, dim), (one, one_half) in base.items():
            if way == direction:
                ratio = one_half / base_half if base_half else 1.0
                curves.found[way, causal, dim] = rate * one / base_rate, half * ratio
    measured, fitted, left_out = (np.concatenate(each) for each in zip(*errors, strict=True))
    if family(chip) != "b200":
        return curves.model(), [_assumed_flash("B200's; no table measures it here")]
    seq = rows.seq_q.to_numpy(dtype=float)
    measured_here = Evidence(
        part="attention forward, backward (head dim 128, causal)",
        kind="fitted",
        source="mlcommons/training_results_v5.1, FlashAttention-2 on B200",
        rows=len(rows),
        error_in_sample_pct=mape_pct(fitted, measured),
        error_held_out_pct=mape_pct(left_out, measured),
        note="held out: each length in turn",
        measured=measured_range(head_dim=np.array([128.0]), seq=seq),
    )
    rest = _assumed_flash("the H100's ratios to head dim 128 under a causal mask")
    return curves.model(), [measured_here, rest]


def _assumed_flash(source: str) -> Evidence:
    return Evidence(part="attention (other shapes)", kind="assumed", source=source, rows=0)
