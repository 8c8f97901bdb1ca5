"""Fits the bandwidth that each kind of memory-bound kernel reaches, as a fraction of its GPU's HBM
bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from itertime.errors import UserError
from itertime.profile import Evidence
from itertime.profiling.measurements import Fit, fit_in_halves, fit_logarithms, mape_pct, read_table
from itertime.profiling.models import Array, ElementwiseModel

__all__ = ["fit_elementwise"]

# HBM bandwidth of the GPUs that the tables name, bytes/s (NVIDIA's data sheets of the A100).
HBM_BYTES_PER_S = {
    "A100-80GB(4x NVLink node)": 2039e9,
    "A100-80GB(PCIe/SXM unspecified)": 2039e9,
    "NVIDIA A100 80GB PCIe": 1935e9,
    "NVIDIA A100-PCIE-40GB": 1555e9,
}
NAMES = {
    "vidur": "microsoft/vidur (fp16, kernels of an inference server)",
    "LLMCompass": "LLMCompass (fp16)",
    "neusight": "NeuSight (fp32)",
}
# Rows between these sizes are left out: a benchmark repeats a kernel on buffers that stay in the L2 cache.
SMALL_BYTES, LARGE_BYTES = 1e6, 64e6
LAUNCH_BOUNDS = (5.0, 0.5, 100.0)
FRACTION_BOUNDS = (0.7, 0.05, 1.0)
ARITHMETIC = ("add", "addu", "mul", "mulu", "div", "divu", "relu", "tanh")


@dataclass(frozen=True)
class Kind:
    """Which rows a kind is fitted to, as (origin, operators), and which rows of another origin check it."""

    fitted: tuple[tuple[str, tuple[str, ...]], ...]
    checked: tuple[str, tuple[str, ...]] | None = None
    bytes_per_element: str = ""


MEASURED = {
    "elementwise": Kind((("vidur", ("add",)),), ("neusight", ARITHMETIC), "6 (two read, one written)"),
    "gelu": Kind((("LLMCompass", ("gelu",)), ("neusight", ("gelu",))), ("vidur", ("gelu",)), "4"),
    "layernorm": Kind((("LLMCompass", ("layernorm",)), ("neusight", ("ln",))), None, "4"),
    "softmax": Kind((("LLMCompass", ("softmax",)), ("neusight", ("softmax",))), None, "4"),
    "rmsnorm": Kind((("vidur", ("rmsnorm",)),), None, "4"),
    "swiglu": Kind((("vidur", ("silu_mul",)),), None, "6 of the MLP width (two read, one written)"),
    "rotary": Kind((("vidur", ("rope_qk",)),), None, "4 of queries and keys"),
    "embedding": Kind((("vidur", ("embedding",)),), None, "4"),
}
ASSUMED = {"dropout": "elementwise", "adam": "elementwise", "cross_entropy": "softmax"}


def fit_elementwise(folder: Path, hbm: float) -> tuple[dict[str, ElementwiseModel], list[Evidence]]:
    """A model of each kind and the evidence; raises `UserError` for a GPU whose HBM bandwidth is not known.

    One fraction of HBM bandwidth per kind, and one launch time per source, which holds that source's way of
    timing (tens of microseconds where the host waits for the GPU). Sources weigh the same. The launch time
    of the models is vidur's, whose rows are kernel times; a kind without such rows takes that of
    `elementwise`.
    """
    rows = read_table(folder, "a100_elementwise", ("op", "cols", "bytes", "gpu"))
    for gpu in rows.gpu.unique():
        if gpu not in HBM_BYTES_PER_S:
            raise UserError(
                f"{folder}/a100_elementwise.csv.gz: gpu={gpu!r}: its HBM bandwidth is not known; add it"
            )
    rows = rows.loc[(rows.bytes <= SMALL_BYTES) | (rows.bytes >= LARGE_BYTES)]
    models: dict[str, ElementwiseModel] = {}
    evidence = []
    for name, kind in MEASURED.items():
        fit, found = _fit_kind(name, kind, rows)
        own = fit.values.get("launch_us_vidur")
        launch_s = models["elementwise"].launch_s if own is None else own * 1e-6
        models[name] = ElementwiseModel(fit["hbm_fraction"] * hbm, launch_s)
        evidence.append(found)
    for name, like in ASSUMED.items():
        models[name] = models[like]
        source = f"the bandwidth of {like}"
        evidence.append(
            Evidence(part=name, kind="assumed", source=source, rows=0, note="no table measures it")
        )
    return models, evidence


def _fit_kind(name: str, kind: Kind, rows: pd.DataFrame) -> tuple[Fit, Evidence]:
    chosen = pd.concat([_select(rows, origin, operators) for origin, operators in kind.fitted])
    chosen = chosen.groupby(["origin", "gpu", "op", "cols", "bytes"], as_index=False).agg(
        {"time_us": "median"}
    )
    nbytes, peak, measured = _arrays(chosen)
    origins = [origin for origin, _ in kind.fitted]
    masks = [(chosen.origin == origin).to_numpy() for origin in origins]
    weights = np.select(masks, [1 / np.sqrt(mask.sum()) for mask in masks])
    bounds = {"hbm_fraction": FRACTION_BOUNDS, **{f"launch_us_{origin}": LAUNCH_BOUNDS for origin in origins}}

    def predict(fit: Fit) -> Array:
        launch = np.select(masks, [np.asarray(fit[f"launch_us_{origin}"]) for origin in origins])
        return np.asarray(nbytes / (fit["hbm_fraction"] * peak) + launch * 1e-6)

    # By width, which a kernel's bandwidth depends on; LLMCompass varies the size at one width.
    group = chosen.cols.where(chosen.origin != "LLMCompass", -chosen.bytes).to_numpy(dtype=float)
    fit, in_sample, held_out = fit_in_halves(predict, measured, weights, bounds, group)
    large = nbytes >= LARGE_BYTES
    if kind.checked is None:
        error, how = mape_pct(held_out[large], measured[large]), "half of the widths, both ways"
    else:
        error, how = (
            _check(fit, _select(rows, *kind.checked)),
            f"all of {NAMES[kind.checked[0]]}, its launch time fitted",
        )
    return fit, Evidence(
        part=name,
        kind="fitted",
        source="; ".join(NAMES[origin] for origin in origins),
        rows=int(large.sum()),
        error_in_sample_pct=mape_pct(in_sample[large], measured[large]),
        error_held_out_pct=error,
        note=(
            f"forward, {fit['hbm_fraction']:.3g} of HBM bandwidth; "
            f"bytes per element: {kind.bytes_per_element}; "
            f"errors on rows from {LARGE_BYTES / 1e6:g} MB; held out: {how}"
        ),
    )


def _select(rows: pd.DataFrame, origin: str, operators: tuple[str, ...]) -> pd.DataFrame:
    return rows.loc[(rows.origin == origin) & rows.op.isin(operators)]


def _arrays(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
    """Bytes, HBM bandwidth of the row's GPU, seconds."""
    nbytes, seconds = rows.bytes.to_numpy(dtype=float), rows.time_us.to_numpy(dtype=float) * 1e-6
    return nbytes, np.array([HBM_BYTES_PER_S[gpu] for gpu in rows.gpu]), seconds


def _check(fit: Fit, rows: pd.DataFrame) -> float:
    """Error on the large rows of a source that did not fit the bandwidth; its own launch time is fitted."""
    nbytes, peak, measured = _arrays(rows.loc[rows.bytes >= LARGE_BYTES])
    moved_s = nbytes / (fit["hbm_fraction"] * peak)

    def predict(launch: Fit) -> Array:
        return np.asarray(moved_s + launch["launch_us"] * 1e-6)

    return mape_pct(
        predict(fit_logarithms(predict, measured, np.ones(len(measured)), {"launch_us": LAUNCH_BOUNDS})),
        measured,
    )
