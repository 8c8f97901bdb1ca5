"""Rates of memory-bound kernels by the way they are written: fused, compiled, eager."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
from itertime.spec import Evidence
from itertime.spec.kernels import ElementwiseModel, ElementwiseStyle, WidthRate

from .tables import NORMS_TABLE, family, like

__all__ = ["STYLES", "fit_styles"]

STYLES = {"fused": "cudnn", "compiled": "torch_compile", "eager": "pytorch"}
SOURCE = "NVIDIA/cudnn-frontend, norms of training"
COLUMNS = ("gpu_name", "norm_type", "backend", "N", "C", "fwd_time_ms", "bwd_time_ms")
CHIP_OF_TABLE = {"h200": "NVIDIA H200", "gb200": "NVIDIA GB200", "gb300": "NVIDIA GB300"}
HBM = {"h200": 4.8e12, "gb200": 8e12, "gb300": 8e12}
BYTES = {"fwd": 4.0, "bwd": 6.0}  # per element: each tensor once, in 16 bit
LEAST_BYTES = 64e6  # read and written; less stays in the L2 cache
LEAST_WIDTH = 2048
WIDTHS = (4096, 16384)
BOUNDS: Bounds = {f"fraction_{width}": (0.6, 0.05, 0.95) for width in WIDTHS}

# Streams of two operands: Azure/AI-benchmarking-guide, HBM add and triad, over the data sheet's bandwidth.
STREAM = {"a100": 1.70 / 2.039, "h100": 2.97 / 3.352, "h200": 4.15 / 4.8}
STREAM_ELSEWHERE = STREAM["h200"]

# Bytes that a kernel moves, forward and backward, over the bytes that an `Elementwise` query is asked for.
# SwiGLU is asked for as two kernels, 10 and 16 bytes per element of the MLP width. In one kernel it reads two
# operands and writes one, 6, and backward reads three and writes two, 10. Rotary positions in plain PyTorch
# negate, join, multiply twice and add: 18 bytes per element for the 4 of one kernel.
MOVED: dict[str, dict[str, tuple[float, float]]] = {
    "fused": {"swiglu": (0.6, 0.625)},
    "compiled": {"swiglu": (0.6, 0.625)},
    "eager": {"rotary": (4.5, 4.5)},
}
STREAMED = ("elementwise", "gelu", "swiglu", "dropout", "rotary", "adam")
AS_BEFORE = ("embedding", "softmax", "cross_entropy")
NORMS = ("rmsnorm", "layernorm")


@dataclass(frozen=True)
class _Norm:
    """Fractions of HBM bandwidth at `WIDTHS`, and the measured ratios to them, in sample and held out."""

    fractions: tuple[float, ...]
    rows: pd.DataFrame
    measured: Array
    in_sample: Array
    held_out: Array


def fit_styles(
    folder: Path, chip: Chip, plain: dict[str, ElementwiseModel]
) -> tuple[dict[str, dict[str, ElementwiseStyle]], list[Evidence]]:
    """Models by style and kind, and their evidence. `plain` are the chip's own rates and give launches.

    RMS norm is measured in each style, forward and backward. Layer norm takes its fractions: one measured
    size has too few rows for more. Kernels that only stream reach the bandwidth of a streaming benchmark, for
    the bytes that their style moves. Embedding, softmax and cross-entropy keep the rates of `plain`.
    """
    tables = like("norms", chip)
    if tables not in CHIP_OF_TABLE:
        return {}, []
    rows = read_rows(folder / f"{NORMS_TABLE}.csv.gz", COLUMNS, "fwd_time_ms")
    rows = rows.loc[rows.gpu_name == CHIP_OF_TABLE[tables]]
    launch_s = plain["elementwise"].launch_s
    stream = STREAM.get(family(chip), STREAM_ELSEWHERE)
    styles: dict[str, dict[str, ElementwiseStyle]] = {}
    evidence = []
    for style, backend in STYLES.items():
        norms = {way: _fit_norm(rows, backend, way, tables, launch_s) for way in BYTES}
        forward, backward = (_norm_model(norms[way], chip, launch_s) for way in ("fwd", "bwd"))
        kinds = dict.fromkeys(NORMS, ElementwiseStyle(forward, backward))
        for kind in STREAMED:
            moved = MOVED[style].get(kind, (1.0, 1.0))
            kinds[kind] = ElementwiseStyle(
                *(
                    ElementwiseModel(significant(stream * chip.hbm_bytes_per_s / one), launch_s)
                    for one in moved
                )
            )
        for kind in AS_BEFORE:
            kinds[kind] = ElementwiseStyle(plain[kind], plain[kind])
        styles[style] = kinds
        evidence += [_evidence(style, way, norm, chip, tables) for way, norm in norms.items()]
    evidence += _assumed(rows, stream, chip)
    return styles, evidence


def _fit_norm(rows: pd.DataFrame, backend: str, way: str, tables: str, launch_s: float) -> _Norm:
    chosen = rows.loc[(rows.norm_type == "rms_norm") & (rows.backend == backend) & (rows.C >= LEAST_WIDTH)]
    nbytes = BYTES[way] * chosen.N * chosen.C
    chosen = chosen.loc[nbytes >= LEAST_BYTES]
    measured = chosen[f"{way}_time_ms"].to_numpy(dtype=float) * 1e-3
    widths = chosen.C.to_numpy(dtype=float)
    moved_s = (BYTES[way] * chosen.N * chosen.C).to_numpy(dtype=float) / HBM[tables]

    def predict(fit: Fit) -> Array:
        fractions = np.interp(np.log2(widths), np.log2(WIDTHS), list(fit.values.values()))
        return np.asarray(moved_s / fractions + launch_s)

    fit = fit_logarithms(predict, measured, np.ones(len(measured)), BOUNDS)
    held_out = np.empty(len(measured))
    for width in np.unique(widths):
        held = widths == width
        held_out[held] = predict(fit_logarithms(predict, measured, 1.0 * ~held, BOUNDS))[held]
    return _Norm(tuple(fit.values.values()), chosen, measured, predict(fit), held_out)


def _norm_model(norm: _Norm, chip: Chip, launch_s: float) -> ElementwiseModel:
    rates = [significant(fraction * chip.hbm_bytes_per_s) for fraction in norm.fractions]
    by_width = [WidthRate(*pair) for pair in zip(WIDTHS, rates, strict=True)]
    return ElementwiseModel(rates[0], launch_s, by_width)


def _evidence(style: str, way: str, norm: _Norm, chip: Chip, tables: str) -> Evidence:
    own = tables == family(chip)
    backend = STYLES[style].replace("_", ".")
    at = ", ".join(f"{one:.3g} at {width}" for one, width in zip(norm.fractions, WIDTHS, strict=True))
    return Evidence(
        part=f"style_{style} rmsnorm, {'forward' if way == 'fwd' else 'backward'}",
        kind="fitted" if own else "assumed",
        source=f"{SOURCE} ({backend})" if own else f"the {tables.upper()}'s fractions of HBM: {SOURCE}",
        rows=len(norm.rows) if own else 0,
        error_in_sample_pct=mape_pct(norm.in_sample, norm.measured) if own else None,
        error_held_out_pct=mape_pct(norm.held_out, norm.measured) if own else None,
        note=(
            f"of HBM bandwidth by width {at}; {BYTES[way]:g} bytes per element; from "
            f"{LEAST_BYTES / 1e6:.0f} MB; held out: each width in turn"
        ),
        measured=(measured_range(width=norm.rows.C.to_numpy(dtype=float)) if own else {}),
    )


def _assumed(rows: pd.DataFrame, stream: float, chip: Chip) -> list[Evidence]:
    layer = rows.loc[rows.norm_type == "layer_norm"].set_index("backend")
    found = []
    for style, backend in STYLES.items():
        gbps = [layer[f"{way}_gbps"][backend] / 1e3 for way in ("fwd", "bwd")]
        found.append(f"{style} {gbps[0]:.2g} and {gbps[1]:.2g}")
    swiglu, swiglu_back = MOVED["fused"]["swiglu"]
    streamed = "measured" if family(chip) in STREAM else "the H200's share"
    return [
        Evidence(
            part="styles of layernorm",
            kind="assumed",
            source=f"RMS norm's fractions; {SOURCE} has one size",
            rows=0,
            note=f"1,024 rows of 12,288, TB/s forward and backward: {', '.join(found)}",
        ),
        Evidence(
            part=f"styles of {', '.join(STREAMED)}",
            kind="assumed",
            source=f"Azure/AI-benchmarking-guide, HBM add and triad ({streamed}): {stream:.3g} of HBM",
            rows=0,
            note=(
                f"for the bytes moved: SwiGLU fused or compiled {swiglu:g} and {swiglu_back:g} of the two "
                f"kernels', rotary eager {MOVED['eager']['rotary'][0]:g} times those of one kernel"
            ),
        ),
        Evidence(
            part=f"styles of {', '.join(AS_BEFORE)}",
            kind="assumed",
            source="the profile's own rates",
            rows=0,
            note="no table tells the styles apart",
        ),
    ]
