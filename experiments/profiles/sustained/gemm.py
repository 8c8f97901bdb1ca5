"""Fits `GemmModel` to each precision of a GPU, from the tables that `SOURCES` names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.profiles.chips import CHIPS, Chip
from experiments.profiles.measurements import Fit, fit_in_halves, mape_pct, measured_range
from itertime.arrays import Array
from itertime.spec import Evidence
from itertime.spec.operators import GemmModel, GemmTile, PowerTerm

from .tables import SOURCES, GemmSource, exponent_of, gemm_rows, headroom_ratio, ratio_of, serving_folder

__all__ = ["fit_precisions", "model_of", "tile_bounds"]

TILES = ((128, 256), (128, 128), (64, 64))
# Rows of a fit, drawn with seed 0: more change no coefficient by more than its scatter between halves.
MOST_ROWS = 3000
# The weight of each group of rows, by FLOPs of the product: training runs mostly heavy ones.
GROUPS = (("light", 0.0, 1e10, 0.2), ("medium", 1e10, 1e11, 0.5), ("heavy", 1e11, np.inf, 1.5))

BOUNDS = {
    "wave_quantisation": (0.15, 0.0, 1.0),
    "k_offset": (100.0, 0.0, 1000.0),
    "k_exponent": (1.0, 0.3, 2.0),
    "hbm_fraction": (0.78, 0.4, 1.0),
    "overlap_exponent": (2.5, 1.0, 20.0),
    "launch_us": (4.0, 0.0, 60.0),
}
CAST_BOUNDS = (1.0, 0.0, 8.0)  # bytes per element of x that a collector's own quantisation moves


def tile_bounds(tiles: tuple[tuple[int, int], ...]) -> dict[str, tuple[float, float, float]]:
    """Bounds of each tile's fraction of peak, and those of the other coefficients."""
    return {**{f"peak_fraction_{i}": (0.6, 0.1, 1.0) for i in range(len(tiles))}, **BOUNDS}


def fit_precisions(folder: Path, chip: Chip) -> tuple[dict[str, GemmModel], PowerTerm, list[Evidence]]:
    """GEMM models by precision, the power term, and the evidence.

    Half of the (n, k) shapes is held out, both ways. Times of a burst table are multiplied by the ratio of
    sustained to burst that its source names. Where a collector casts the operands itself, its bytes are
    fitted and left out of the model.
    """
    tables = serving_folder(folder)
    sources = SOURCES[chip.name]
    models: dict[str, GemmModel] = {}
    evidence: list[Evidence] = []
    for precision, source in sources.items():
        launch_s = models["bf16"].launch_s if models else None
        models[precision], rows = _fitted(tables, chip, precision, source, launch_s)
        evidence.append(rows)
    power, row = _power(tables, chip)
    return models, power, [*evidence, row]


def model_of(
    fit: Fit, chip: Chip, source: GemmSource, tiles: tuple[tuple[int, int], ...], slower: float = 1.0
) -> GemmModel:
    """The fitted model on the memory of `chip`, its arithmetic `slower` times as long."""
    return GemmModel(
        tiles=[
            GemmTile(rows, columns, fit[f"peak_fraction_{i}"] / slower)
            for i, (rows, columns) in enumerate(tiles)
        ],
        multiprocessors=chip.multiprocessors,
        peak_flops_per_s=source.peak_flops_per_s,
        wave_quantisation=fit["wave_quantisation"],
        k_offset=fit["k_offset"],
        k_exponent=fit["k_exponent"],
        bytes_per_s=fit["hbm_fraction"] * chip.hbm_bytes_per_s,
        overlap_exponent=fit["overlap_exponent"],
        launch_s=fit["launch_us"] * 1e-6,
        operand_bytes=source.operand_bytes,
    )


def _fitted(
    tables: Path, chip: Chip, precision: str, source: GemmSource, launch_s: float | None
) -> tuple[GemmModel, Evidence]:
    rows = _sample(gemm_rows(tables, source.table))
    measuring = _measuring(chip, source)
    m, n, k, measured = (rows[name].to_numpy(dtype=float) for name in ("m", "n", "k", "time_us"))
    bounds = tile_bounds(TILES)
    if precision != "bf16":
        bounds["cast_bytes"] = CAST_BOUNDS

    def predict(fit: Fit) -> Array:
        cast = fit.values.get("cast_bytes", 0.0) * m * k / measuring.hbm_bytes_per_s
        return model_of(fit, measuring, source, TILES).seconds(m, n, k) + cast

    flops = 2 * m * n * k
    fit, in_sample, held_out = fit_in_halves(predict, measured * 1e-6, _weights(flops), bounds, n, k)
    slower, shapes = (1.0, 0) if source.ratio is None else ratio_of(tables, source.ratio)
    model = model_of(fit, chip, source, TILES, slower)
    if launch_s is not None:
        model = dataclasses.replace(model, launch_s=launch_s)
    heavy = flops >= GROUPS[-1][1]
    return model, Evidence(
        part="gemm" if precision == "bf16" else f"gemm, {precision}",
        kind="fitted",
        source=f"ai-dynamo/aiconfigurator ({source.table})",
        rows=int(heavy.sum()),
        error_in_sample_pct=mape_pct(in_sample[heavy], measured[heavy] * 1e-6),
        error_held_out_pct=mape_pct(held_out[heavy], measured[heavy] * 1e-6),
        note=_note(source, slower, shapes, fit, mape_pct(held_out, measured * 1e-6)),
        measured=measured_range(m=m, n=n, k=k),
    )


def _sample(rows: pd.DataFrame) -> pd.DataFrame:
    if len(rows) <= MOST_ROWS:
        return rows
    return rows.sample(MOST_ROWS, random_state=0).sort_index()


def _weights(flops: Array) -> Array:
    weights = np.zeros(len(flops))
    for _, least, below, weight in GROUPS:
        chosen = (flops >= least) & (flops < below)
        if chosen.any():
            weights[chosen] = np.sqrt(weight / chosen.sum())
    return weights


def _measuring(chip: Chip, source: GemmSource) -> Chip:
    """The chip that the table was measured on: `chip` itself, or the one whose table stands for it."""
    return next((one for one in CHIPS if one.serving_tables == source.table.gpu), chip)


def _note(source: GemmSource, slower: float, shapes: int, fit: Fit, all_pct: float) -> str:
    parts = [f"errors of products of 100 GFLOP and more; of all {all_pct:g} % held out (half of the (n, k))"]
    if source.ratio is not None:
        own = source.ratio.slow.gpu == source.table.gpu and source.ratio.slow.dtype == source.table.dtype
        parts.append(
            f"arithmetic x{slower:g}: {source.ratio.slow} over {source.ratio.fast} ({shapes} shapes)"
            + ("" if own else ", assumed to hold here")
        )
    if fit.values.get("cast_bytes"):
        parts.append(f"without the collector's own cast, {fit['cast_bytes']:g} bytes per element of x")
    if source.note:
        parts.append(source.note)
    return "; ".join(parts)


def _power(tables: Path, chip: Chip) -> tuple[PowerTerm, Evidence]:
    """What another power limit changes. The headroom is the ratio of burst to sustained rates."""
    headroom, _ = ratio_of(tables, headroom_ratio(chip.serving_tables))
    gemm, attention, rows = exponent_of(tables)
    exponent = round((gemm + attention) / 2, 2)
    assert chip.power_w is not None
    own = chip.serving_tables in ("b200", "gb200")
    return PowerTerm(chip.power_w, exponent, headroom), Evidence(
        part="power limit",
        kind="measured" if own else "assumed",
        source="ai-dynamo/aiconfigurator (B200 at 1,000 W over GB200 at 1,200 W, kernels at both limits)",
        rows=rows,
        note=f"exponent {exponent:g}: GEMMs {gemm:g}, attention {attention:g}; up to x{headroom:g} faster",
        measured={"limit_w": (1000.0, 1200.0)} if own else {},
    )
