"""Fits `GemmModel` to the experts' products of a mixture, from tables of whole experts' MLPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.profiles.chips import Chip
from experiments.profiles.measurements import Fit, fit_in_halves, mape_pct, measured_range, read_rows
from itertime.arrays import Array
from itertime.spec import Evidence
from itertime.spec.operators import GemmModel

from .gemm import model_of, tile_bounds
from .tables import (
    GROUPED,
    GROUPED_RATIO,
    OF_SINGLES,
    SAME_TIMES,
    GemmSource,
    ratio_of,
    serving_folder,
)

__all__ = ["fit_grouped"]

TILES = ((128, 256), (128, 128), (64, 128))
MOST_ROWS = 2000
KEYS = ["tokens", "hidden", "ffn", "topk", "experts", "tp", "ep"]
# Bytes per element that an MLP's other kernels move: those of all routed tokens' hidden states (gather,
# casts, weighted sum), and those of the local tokens' MLP widths (activation, casts).
OTHER_BOUNDS = {"hidden_bytes": (4.0, 0.0, 16.0), "ffn_bytes": (6.0, 0.0, 16.0)}
# Fewer rows per expert, or a narrower share of the MLP, is inference. With more ranks in `ep` the other
# kernels, which handle all tokens, hide the products.
LEAST_ROWS, LEAST_FFN, MOST_EP = 64, 256, 8


def fit_grouped(
    folder: Path, chip: Chip, singles: Mapping[str, GemmModel]
) -> tuple[dict[str, GemmModel], list[Evidence]]:
    """Models of grouped GEMMs by precision, and their evidence, from rows of balanced routing; of a chip that
    `GROUPED` does not name, from `singles`, its products by precision.

    A row is the time of gate and up projection in one product, activation, and down projection, with gather
    and weighted sum. What is not a product is fitted as bytes and left out of the model. Half of the (hidden,
    ffn, experts) is held out, both ways.
    """
    if chip.name not in GROUPED:
        return _of_singles(singles)
    tables = serving_folder(folder)
    models: dict[str, GemmModel] = {}
    evidence = []
    for precision, source in GROUPED[chip.name].items():
        if isinstance(source, str):
            models[precision] = models[source]
            row = Evidence(
                part=f"grouped_gemm, {precision}", kind="assumed", source=SAME_TIMES.format(source), rows=0
            )
        else:
            models[precision], row = _fitted(tables, chip, precision, source)
        evidence.append(row)
    return models, evidence


def _of_singles(singles: Mapping[str, GemmModel]) -> tuple[dict[str, GemmModel], list[Evidence]]:
    models, evidence = {}, []
    for precision, single in singles.items():
        tiles = [
            dataclasses.replace(tile, peak_fraction=float(f"{tile.peak_fraction / GROUPED_RATIO:.6g}"))
            for tile in single.tiles
        ]
        models[precision] = dataclasses.replace(single, tiles=tiles)
        source = OF_SINGLES.format(precision)
        evidence.append(Evidence(part=f"grouped_gemm, {precision}", kind="assumed", source=source, rows=0))
    return models, evidence


def _fitted(tables: Path, chip: Chip, precision: str, source: GemmSource) -> tuple[GemmModel, Evidence]:
    rows, skewed = _rows(tables, source)
    tokens, hidden, topk, tp, ep = (
        rows[name].to_numpy(dtype=float) for name in ("tokens", "hidden", "topk", "tp", "ep")
    )
    ffn, groups = rows.ffn.to_numpy(dtype=float) / tp, rows.experts.to_numpy(dtype=float) / ep
    routed = tokens * topk
    m = routed / ep / groups
    measured = rows.time_us.to_numpy(dtype=float) * 1e-6

    def predict(fit: Fit) -> Array:
        model = model_of(fit, chip, source, TILES)
        products = model.seconds(m, 2 * ffn, hidden, groups) + model.seconds(m, hidden, ffn, groups)
        other = fit["hidden_bytes"] * routed * hidden + fit["ffn_bytes"] * routed / ep * ffn
        return products + other / chip.hbm_bytes_per_s

    bounds = tile_bounds(TILES) | OTHER_BOUNDS
    shapes = (rows.hidden.to_numpy(), rows.ffn.to_numpy(), rows.experts.to_numpy())
    fit, in_sample, held_out = fit_in_halves(predict, measured, np.ones(len(rows)), bounds, *shapes)
    slower, _ = (1.0, 0) if source.ratio is None else ratio_of(tables, source.ratio)
    model = model_of(fit, chip, source, TILES, slower)
    note = (
        f"{source.note}; without {fit['hidden_bytes']:.2f} bytes per element of the routed hidden states and "
        f"{fit['ffn_bytes']:.2f} of the MLP widths; routing by a power law of 1.2 takes {skewed:g} of the "
        f"time of balanced routing"
    )
    if source.ratio is not None:
        note += f"; arithmetic x{slower:g}: sustained over burst of single GEMMs, assumed to hold here"
    return dataclasses.replace(model, launch_s=min(model.launch_s, 10e-6)), Evidence(
        part=f"grouped_gemm, {precision}",
        kind="fitted",
        source=f"ai-dynamo/aiconfigurator ({source.table}, experts' MLPs)",
        rows=len(rows),
        error_in_sample_pct=mape_pct(in_sample, measured),
        error_held_out_pct=mape_pct(held_out, measured),
        note=note,
        measured=measured_range(n=np.append(2 * ffn, hidden), k=np.append(ffn, hidden), groups=groups),
    )


def _rows(tables: Path, source: GemmSource) -> tuple[pd.DataFrame, float]:
    """At most `MOST_ROWS` rows of balanced routing, drawn with seed 0; and power-law over balanced time."""
    table = source.table
    name = f"{table.gpu}_moe_mlp{'_sustained' if table.sustained else ''}_aiconfigurator"
    rows = read_rows(tables / f"{name}.csv.gz", (*KEYS, "collector", "dtype", "distribution", "time_us"))
    rows = rows.loc[(rows.collector == table.collector) & (rows.dtype == table.dtype)]
    per_expert = rows.tokens * rows.topk / rows.experts
    training = (per_expert >= LEAST_ROWS) & (rows.ffn / rows.tp >= LEAST_FFN) & (rows.ep <= MOST_EP)
    rows = rows.loc[training]
    balanced = rows.loc[rows.distribution == "balanced"]
    skewed = rows.loc[rows.distribution == "power_law_1.2"]
    both = skewed.merge(balanced, on=KEYS, suffixes=("", "_balanced"))
    ratio = round(float(np.median(both.time_us / both.time_us_balanced)), 3)
    if len(balanced) > MOST_ROWS:
        balanced = balanced.sample(MOST_ROWS, random_state=0).sort_index()
    return balanced.reset_index(drop=True), ratio
