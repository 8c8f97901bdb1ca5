"""Fits attention kernels other than FlashAttention-2, norms by style, and casts."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import pandas as pd

from experiments.profiles.chips import Chip
from experiments.profiles.measurements import NAMES, Bounds, Fit, fit_in_halves, mape_pct, measured_range
from itertime.arrays import Array
from itertime.spec import Attention, Evidence
from itertime.spec.kernels import (
    AttentionCurve,
    AttentionModel,
    CastModel,
    ElementwiseModel,
    ElementwiseStyle,
)

__all__ = ["STYLED", "fit_attention_kernel", "fit_casts", "fit_style"]

Direction = Literal["forward", "backward"]
CURVE_BOUNDS: Bounds = {"tera_flops_per_s": (300.0, 0.01, 5000.0), "seq_half": (300.0, 0.0, 5000.0)}
RATE_BOUNDS: Bounds = {"fraction": (0.7, 0.0001, 0.99), "launch_us": (4.0, 0.0, 200.0)}
STYLED = ("layernorm", "rmsnorm")  # kernels whose bytes are the same however they are written
FEWEST = 4
PADDED = 32  # kernels pad the head dim to a multiple; a curve of another head dim would never be asked for
CAST = "fp8+transpose"


def fit_attention_kernel(
    name: str, rows: pd.DataFrame, like: AttentionModel
) -> tuple[AttentionModel | None, list[Evidence]]:
    """A kernel's curves by direction, mask and head dim; None if a direction or mask has too few rows.
    FlashAttention-2 then takes the curves of `like`.

    Forward is fitted to its rows, backward to what it leaves of forward + backward. The tail and the launch
    are those of `like`.
    """
    curves: list[AttentionCurve] = []
    evidence: list[Evidence] = []
    directions: tuple[tuple[Direction, str], ...] = (("forward", "fwd"), ("backward", "fwd+bwd"))
    for direction, word in directions:
        for _, chosen in rows.loc[rows.dir == word].groupby(["causal", "head_dim"]):
            if len(chosen) < FEWEST or chosen.head_dim.iloc[0] % PADDED:
                continue
            shape = bool(chosen.causal.iloc[0]), int(chosen.head_dim.iloc[0])
            known = [one for one in curves if (one.causal, one.head_dim) == shape]
            if direction == "backward" and not known:
                continue
            curve, found = _curve(name, direction, chosen, like, known)
            curves.append(curve)
            evidence.append(found)
    have = {(curve.direction, curve.causal) for curve in curves}
    lent_curves = [curve for curve in like.curves if (curve.direction, curve.causal) not in have]
    if not have or (lent_curves and name != "flash"):  # `like` is of FlashAttention-2
        return None, []
    if lent_curves:
        lent_masks = sorted({"causal" if curve.causal else "no mask" for curve in lent_curves})
        evidence.append(
            Evidence(
                part=f"attention, {name} ({', '.join(lent_masks)})",
                kind="assumed",
                source="those of the base profile",
                rows=0,
                note="not collected",
            )
        )
    return dataclasses.replace(like, curves=curves + lent_curves), evidence


def _curve(
    name: str, direction: Direction, rows: pd.DataFrame, like: AttentionModel, known: list[AttentionCurve]
) -> tuple[AttentionCurve, Evidence]:
    batch, heads, kv_heads, seq = (
        rows[column].to_numpy(dtype=float) for column in ("batch", "heads", "kv_heads", "seq")
    )
    causal, dim = bool(rows.causal.iloc[0]), int(rows.head_dim.iloc[0])
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    query = Attention(batch, heads, kv_heads, dim, seq, seq, causal)

    def curve(fit: Fit) -> AttentionCurve:
        return AttentionCurve(
            direction=direction,
            causal=causal,
            head_dim=dim,
            flops_per_s=fit["tera_flops_per_s"] * 1e12,
            seq_half=fit["seq_half"],
        )

    def model(one: AttentionCurve, way: Direction) -> AttentionModel:
        others: list[AttentionCurve] = []
        for side in ("forward", "backward"):
            for mask in (False, True):
                others.append(dataclasses.replace(one, direction=side, causal=mask))
        return dataclasses.replace(like, curves=others)

    before = model(known[0], "forward").seconds(query) if direction == "backward" else np.zeros(len(rows))

    def predict(fit: Fit) -> Array:
        return before + model(curve(fit), direction).seconds(query._replace(backward=direction == "backward"))

    fit, in_sample, held_out = fit_in_halves(predict, measured, np.ones(len(rows)), CURVE_BOUNDS, seq)
    masked = "causal" if causal else "no mask"
    return curve(fit), Evidence(
        part=f"attention, {name} {direction} (head dim {dim}, {masked})",
        kind="fitted",
        source=NAMES["torch"],
        rows=len(rows),
        error_in_sample_pct=mape_pct(in_sample, measured),
        error_held_out_pct=mape_pct(held_out, measured),
        note="held out: half of the sequence lengths, both ways"
        + ("; fitted to what forward leaves of forward + backward" if direction == "backward" else ""),
        measured=measured_range(head_dim=np.array([float(dim)]), seq=seq),
    )


def fit_style(
    style: str, kind: str, rows: pd.DataFrame, chip: Chip
) -> tuple[ElementwiseStyle | None, list[Evidence]]:
    """One norm in one style, forward and backward; None unless both are measured."""
    models: dict[str, ElementwiseModel] = {}
    evidence = []
    for word in ("fwd", "bwd"):
        chosen = rows.loc[(rows.op == kind) & (rows.dir == word)]
        if len(chosen) < 2:
            return None, []
        model, found = _rate(f"{kind}, {style} ({word})", chosen, chip)
        models[word] = model
        evidence.append(found)
    return ElementwiseStyle(models["fwd"], models["bwd"]), evidence


def fit_casts(rows: pd.DataFrame, chip: Chip) -> tuple[CastModel | None, list[Evidence]]:
    """The cast to fp8 and its transposed copy, by the faster of torch.compile and eager code."""
    for impl in ("compiled", "eager"):
        chosen = rows.loc[(rows.op == CAST) & (rows.impl == impl)]
        if len(chosen) >= 2:
            model, found = _rate(f"cast_fp8 ({impl}, with a transposed copy)", chosen, chip)
            per_element = float((chosen.bytes / chosen.elements).iloc[0])
            return CastModel(per_element, model.bytes_per_s, model.launch_s), [found]
    return None, []


def _rate(part: str, rows: pd.DataFrame, chip: Chip) -> tuple[ElementwiseModel, Evidence]:
    """Bandwidth and launch of one kernel."""
    nbytes = rows.bytes.to_numpy(dtype=float)
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    moved_s = nbytes / chip.hbm_bytes_per_s

    def predict(fit: Fit) -> Array:
        return np.asarray(moved_s / fit["fraction"] + fit["launch_us"] * 1e-6)

    fit, in_sample, held_out = fit_in_halves(predict, measured, np.ones(len(rows)), RATE_BOUNDS, nbytes)
    model = ElementwiseModel(fit["fraction"] * chip.hbm_bytes_per_s, fit["launch_us"] * 1e-6)
    return model, Evidence(
        part=part,
        kind="fitted",
        source=NAMES["torch"],
        rows=len(rows),
        error_in_sample_pct=mape_pct(in_sample, measured),
        error_held_out_pct=mape_pct(held_out, measured),
        note=f"{fit['fraction']:.3g} of HBM bandwidth; held out: half of the sizes, both ways",
        measured=measured_range(bytes=nbytes),
    )
