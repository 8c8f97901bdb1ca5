"""Fits `GemmModel` to measured bf16/fp16 GEMMs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from itertime.arrays import Array
from itertime.spec import Evidence
from itertime.spec.operators import GemmModel, GemmTile

from .chips import Chip
from .measurements import Fit, credit, fit_in_halves, mape_pct, measured_range, read_table

__all__ = ["fit_gemm"]

TILES = ((128, 256), (128, 128), (64, 64))
LARGE_M = 512

# The weight of each group of rows: training runs mostly the large GEMMs of whole layers.
WEIGHTS = {"layers, m >= 512": 1.5, "grid, m >= 512": 0.7, "layers, m < 512": 0.2, "grid, m < 512": 0.3}

# start, least, most
BOUNDS = {
    "peak_fraction_0": (0.75, 0.3, 1.0),
    "peak_fraction_1": (0.73, 0.3, 1.0),
    "peak_fraction_2": (0.62, 0.2, 1.0),
    "wave_quantisation": (0.15, 0.0, 1.0),
    "k_offset": (100.0, 0.0, 400.0),
    "k_exponent": (1.0, 0.3, 2.0),
    "hbm_fraction": (0.78, 0.5, 1.0),
    "overlap_exponent": (2.5, 1.0, 20.0),
    "launch_us": (4.0, 0.0, 30.0),
}
GRID_BOUNDS = (0.96, 0.7, 1.3)


def fit_gemm(folder: Path, chip: Chip) -> tuple[GemmModel, list[Evidence]]:
    """The model fitted to all rows, and its evidence; each half of the (n, k) shapes is held out in turn.

    One factor represents the few percent by which two sources differ at equal shape (power limits, clocks).
    The model has the level of the rows measured on real layers, or that of the grid if there are no others.
    """
    rows = _rows(folder, chip)
    m, n, k = (rows[column].to_numpy(dtype=float) for column in "mnk")
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6
    layer = (rows.origin != "aiconfigurator").to_numpy()
    groups = {name: chosen for name, chosen in _groups(layer, m).items() if chosen.any()}
    weights = np.zeros(len(rows))
    for name, chosen in groups.items():
        weights[chosen] = np.sqrt(WEIGHTS[name] / chosen.sum())
    bounds = dict(BOUNDS)
    if layer.any() and not layer.all():
        bounds["grid_time_over_layers"] = GRID_BOUNDS

    def predict(fit: Fit) -> Array:
        return _model(fit, chip).seconds(m, n, k) * np.where(
            layer, 1.0, fit.values.get("grid_time_over_layers", 1.0)
        )

    fit, in_sample, held_out = fit_in_halves(predict, measured, weights, bounds, n, k)
    evidence = [
        Evidence(
            part=f"gemm ({name})",
            kind="fitted",
            source=credit(rows.source[chosen]),
            rows=int(chosen.sum()),
            error_in_sample_pct=mape_pct(in_sample[chosen], measured[chosen]),
            error_held_out_pct=mape_pct(held_out[chosen], measured[chosen]),
            note=_note(name, fit),
            measured=measured_range(m=m[chosen], n=n[chosen], k=k[chosen]),
        )
        for name, chosen in _reported(groups, m).items()
    ]
    model = _model(fit, chip)
    return model, [*evidence, *_checks(model, _other_layouts(folder, chip))]


def _rows(folder: Path, chip: Chip) -> pd.DataFrame:
    """One row per source and shape, without LLMCompass' 20 rows, which are 20 % faster than either source."""
    rows = _table(folder, chip)
    in_grid = (rows.origin == "aiconfigurator") & (rows.n >= 64) & (rows.k >= 64)
    rows = rows.loc[(rows.layout == "forward") & (rows.origin.isin(["vidur", "torch"]) | in_grid)]
    return rows.groupby(["origin", "m", "n", "k"], as_index=False).agg(
        {"time_us": "median", "source": "first"}
    )


def _other_layouts(folder: Path, chip: Chip) -> pd.DataFrame:
    rows = _table(folder, chip)
    return rows.loc[rows.layout != "forward"]


def _table(folder: Path, chip: Chip) -> pd.DataFrame:
    """All rows, with `layout` and `batch`; a table without these columns holds single forward products."""
    rows = read_table(folder, f"{chip.tables}_gemm", ("m", "n", "k"))
    if "layout" not in rows.columns:
        rows = rows.assign(layout="forward", batch=1)
    return rows


def _checks(model: GemmModel, rows: pd.DataFrame) -> list[Evidence]:
    """The error of the forward formula on measured backward layouts and batched products."""
    checks = []
    layouts = {"gemm, backward layouts": ("dx", "dw"), "gemm, batched": ("batched",)}
    for part, names in layouts.items():
        chosen = rows.loc[rows.layout.isin(names)]
        if chosen.empty:
            continue
        m, n, k, batch = (chosen[column].to_numpy(dtype=float) for column in ("m", "n", "k", "batch"))
        error = mape_pct(model.seconds(m, n, k, batch), chosen.time_us.to_numpy(dtype=float) * 1e-6)
        checks.append(
            Evidence(
                part=part,
                kind="measured",
                source=credit(chosen.source),
                rows=len(chosen),
                error_held_out_pct=error,
                note="the forward formula; none of these rows was fitted",
                measured=measured_range(m=m, n=n, k=k),
            )
        )
    return checks


def _note(name: str, fit: Fit) -> str:
    note = "held out: half of the (n, k) shapes, both ways"
    if name.startswith("grid") and "grid_time_over_layers" in fit.values:
        note += f"; times of this source are {fit['grid_time_over_layers']:g} of the model's"
    return note


def _model(fit: Fit, chip: Chip) -> GemmModel:
    return GemmModel(
        tiles=[GemmTile(rows, columns, fit[f"peak_fraction_{i}"]) for i, (rows, columns) in enumerate(TILES)],
        multiprocessors=chip.multiprocessors,
        peak_flops_per_s=chip.peak_flops_per_s,
        wave_quantisation=fit["wave_quantisation"],
        k_offset=fit["k_offset"],
        k_exponent=fit["k_exponent"],
        bytes_per_s=fit["hbm_fraction"] * chip.hbm_bytes_per_s,
        overlap_exponent=fit["overlap_exponent"],
        launch_s=fit["launch_us"] * 1e-6,
    )


def _groups(layer: NDArray[np.bool_], m: Array) -> dict[str, NDArray[np.bool_]]:
    large = m >= LARGE_M
    masks = (layer & large, ~layer & large, layer & ~large, ~layer & ~large)
    return dict(zip(WEIGHTS, masks, strict=True))


def _reported(groups: dict[str, NDArray[np.bool_]], m: Array) -> dict[str, NDArray[np.bool_]]:
    reported = {}
    for name, chosen in groups.items():
        reported[name] = chosen
        if name.endswith("m >= 512"):
            source = name.partition(",")[0]
            reported[f"{source}, 512 <= m < 2048"] = chosen & (m < 2048)
            reported[f"{source}, m >= 2048"] = chosen & (m >= 2048)
    return {name: chosen for name, chosen in reported.items() if chosen.any()}
