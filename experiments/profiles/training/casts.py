"""Casts of 16-bit tensors to 8 and 4 bits, from measured reductions and conversions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
from itertime.spec import Evidence
from itertime.spec.kernels import CastModel

from .tables import family, like

__all__ = ["fit_casts"]

TABLE = "{}_quantize_sustained_aiconfigurator"
COLUMNS = ("collector", "op", "m", "k", "time_us")
# Bytes per element of the two measured kernels: the largest magnitude is read, in 16 bit; scaling reads 16
# bit and writes 8.
MEASURED = {"computescale": 2.0, "scale_matrix": 3.0}
LARGE = 2**26  # elements; smaller tensors stay in the L2 cache while the benchmark repeats
SMALL = 2**14
BOUNDS: Bounds = {"fraction": (0.7, 0.1, 1.0), "launch_us": (2.0, 0.2, 20.0)}
HBM = {"h200": 4.8e12, "b200": 8e12, "gb200": 8e12}
HOPPER = ("h100", "h200")

# Bytes per element of scanning for the largest magnitude, and of the kernel that casts: it reads 2 and writes
# a row-wise copy, and a column-wise one where backward GEMMs need it (always for block scales, which differ
# by direction; with one scale only on Hopper, whose 8-bit GEMMs take operands of one layout).
RECIPES = {
    "fp8": (2.0, 3.0),
    "fp8_block": (0.0, 2 + 2 * (1 + 4 / 128)),
    "mxfp8": (0.0, 2 + 2 * (1 + 1 / 32)),
    "nvfp4": (2.0, 2 + 2 * (0.5 + 1 / 16)),
}
TRANSPOSED = 1.0
NAMES = {
    "fp8": "one scale from the tensor's largest magnitude",
    "fp8_block": "scales in 32 bit for 1 x 128 blocks, row- and column-wise",
    "mxfp8": "scales in 8 bit for 1 x 32 blocks, row- and column-wise",
    "nvfp4": "scales in 8 bit for 1 x 16 blocks under one of the tensor, row- and column-wise",
}


def fit_casts(folder: Path, chip: Chip) -> tuple[dict[str, CastModel], list[Evidence]]:
    """The casts of a chip with 8-bit GEMMs and their evidence; none for an older chip.

    Two kernels are measured: the search for the largest magnitude and the scaling of a matrix. Each recipe of
    a training library is a number of bytes at their rates (`RECIPES`), and a launch each.
    """
    tables = like("casts", chip)
    if tables not in HBM:
        return {}, []
    rows = read_rows(folder / f"{TABLE.format(tables)}.csv.gz", COLUMNS, zeros=True)
    rows = rows.loc[rows.collector.str.startswith("vllm")].assign(elements=rows.m * rows.k)
    fits: dict[str, Fit] = {}
    evidence = []
    own = tables == family(chip)
    for op, nbytes in MEASURED.items():
        chosen = rows.loc[(rows.op == op) & ((rows.elements >= LARGE) | (rows.elements <= SMALL))]
        elements = chosen.elements.to_numpy(dtype=float)
        measured = chosen.time_us.to_numpy(dtype=float) * 1e-6
        moved_s = nbytes * elements / HBM[tables]

        def predict(fit: Fit, moved_s: np.ndarray = moved_s) -> np.ndarray:
            return moved_s / fit["fraction"] + fit["launch_us"] * 1e-6

        weights = np.where(elements >= LARGE, 1.0, 0.1)
        fit, in_sample, held_out = fit_in_halves(predict, measured, weights, BOUNDS, elements)
        fits[op] = fit
        large = elements >= LARGE
        source = f"ai-dynamo/aiconfigurator ({chosen.collector.iloc[0]}, at the power limit)"
        evidence.append(
            Evidence(
                part=f"cast ({op})",
                kind="fitted" if own else "assumed",
                source=source if own else f"{tables.upper()}'s share of HBM bandwidth: {source}",
                rows=int(large.sum()) if own else 0,
                error_in_sample_pct=mape_pct(in_sample[large], measured[large]) if own else None,
                error_held_out_pct=mape_pct(held_out[large], measured[large]) if own else None,
                note=(
                    f"{nbytes:g} bytes per element at {fit['fraction']:.3g} of HBM bandwidth, "
                    f"{fit['launch_us']:g} us; errors from {LARGE / 1e6:.0f}M elements; "
                    "held out: half of the sizes"
                ),
                measured=measured_range(elements=elements) if own else {},
            )
        )
    casts = {name: _cast(name, chip, fits) for name in RECIPES}
    evidence += [
        Evidence(
            part=f"cast_{name}",
            kind="assumed",
            source="the bytes of the recipe at the measured rates",
            rows=0,
            note=f"{NAMES[name]}: {cast.bytes_per_element:.4g} bytes per element",
        )
        for name, cast in casts.items()
    ]
    return casts, evidence


def _cast(name: str, chip: Chip, fits: dict[str, Fit]) -> CastModel:
    scanned, cast = RECIPES[name]
    if name == "fp8" and family(chip) in HOPPER:
        cast += TRANSPOSED
    scan, scale = fits["computescale"], fits["scale_matrix"]
    inverse = scanned / scan["fraction"] + cast / scale["fraction"]
    launch_us = (scan["launch_us"] if scanned else 0.0) + scale["launch_us"]
    total = scanned + cast
    return CastModel(
        bytes_per_element=significant(total),
        bytes_per_s=significant(chip.hbm_bytes_per_s * total / inverse),
        launch_s=significant(launch_us * 1e-6),
    )
