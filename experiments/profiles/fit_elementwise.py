"""Fits the bandwidth of each kind of memory-bound kernel, as a fraction of its GPU's HBM bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from itertime.arrays import Array
from itertime.errors import UserError
from itertime.spec import Evidence
from itertime.spec.kernels import ElementwiseModel, WidthRate

from .chips import CHIPS, HBM_BYTES_PER_S, Chip
from .measurements import (
    NAMES,
    Bounds,
    Fit,
    fit_in_halves,
    fit_logarithms,
    mape_pct,
    measured_range,
    read_table,
    significant,
)

__all__ = [
    "LARGE_BYTES",
    "MEASURED",
    "SMALL_BYTES",
    "Kind",
    "elementwise_rows",
    "fit_elementwise",
    "fit_kind",
    "kind_model",
]

# Rows between these sizes are left out: when a benchmark repeats a kernel, its buffers stay in the L2 cache.
SMALL_BYTES, LARGE_BYTES = 1e6, 64e6
LAUNCH_BOUNDS = (5.0, 0.5, 100.0)
FRACTION_BOUNDS = (0.7, 0.05, 0.97)  # the largest rows reach 0.97; more would be the L2 cache
ROW_FRACTION_BOUNDS = (0.7, 0.05, 0.88)  # a kernel that reduces rows does not stream faster than an addition
KERNEL_TIMES = ("vidur", "torch")  # sources that time the kernel, not the host that waits for it
LEVEL_BOUNDS = (1.0, 0.5, 2.0)
ALIGNED = 64
ARITHMETIC = ("add", "addu", "mul", "mulu", "div", "divu", "relu", "tanh")


@dataclass(frozen=True)
class Kind:
    """The rows that a kind is fitted to, as (origin, operators), and rows of another origin that check it.

    `by_width`: widths between which the bandwidth is interpolated. It depends on the length of a row, since
    long rows are read more than once. The curve is fitted to the rows of `fitted`, which are in 32 bit. Its
    level is half way (geometric mean) to that of `checked`, whose rows are in 16 bit but few.
    """

    fitted: tuple[tuple[str, tuple[str, ...]], ...]
    checked: tuple[str, tuple[str, ...]] | None = None
    bytes_per_element: str = ""
    by_width: tuple[int, ...] = ()


MEASURED = {
    "elementwise": Kind(
        fitted=(("vidur", ("add",)),),
        checked=("neusight", ARITHMETIC),
        bytes_per_element="6 (two read, one written)",
    ),
    "gelu": Kind(
        fitted=(("LLMCompass", ("gelu",)), ("neusight", ("gelu",))),
        checked=("vidur", ("gelu",)),
        bytes_per_element="4",
    ),
    "layernorm": Kind(
        fitted=(("neusight", ("ln",)),),
        checked=("LLMCompass", ("layernorm",)),
        bytes_per_element="4",
        by_width=(2048, 4096, 8192),
    ),
    "softmax": Kind(
        fitted=(("neusight", ("softmax",)),),
        checked=("LLMCompass", ("softmax",)),
        bytes_per_element="4",
        by_width=(2048, 8192, 16384),
    ),
    "rmsnorm": Kind(fitted=(("vidur", ("rmsnorm",)),), bytes_per_element="4"),
    "swiglu": Kind(
        fitted=(("vidur", ("silu_mul",)),), bytes_per_element="6 of the MLP width (two read, one written)"
    ),
    "rotary": Kind(fitted=(("vidur", ("rope_qk",)),), bytes_per_element="4 of queries and keys"),
    "embedding": Kind(fitted=(("vidur", ("embedding",)),), bytes_per_element="4"),
}
# The rows of a kind for a GPU that lacks the rows of `MEASURED`.
FEWER = {"gelu": Kind(fitted=(("vidur", ("gelu",)),), bytes_per_element="4")}
ASSUMED = {"dropout": "elementwise", "adam": "elementwise", "cross_entropy": "softmax"}


def fit_elementwise(folder: Path, chip: Chip) -> tuple[dict[str, ElementwiseModel], list[Evidence]]:
    """A model of each kind and the evidence. Raises `UserError` for a GPU of unknown HBM bandwidth.

    The parameters are one fraction of HBM bandwidth per kind (or per kind and width), and one launch time per
    source, which absorbs that source's way of timing (tens of microseconds where the host waits for the GPU).
    Sources have equal weight. The launch time of the models is vidur's, whose rows are kernel times; a kind
    without such rows takes that of `elementwise`. A kind without rows of this chip takes the fractions of the
    A100.
    """
    rows = elementwise_rows(folder, chip)
    elsewhere = rows if chip is CHIPS[0] else elementwise_rows(folder, CHIPS[0])
    models: dict[str, ElementwiseModel] = {}
    evidence = []
    for name, kind in MEASURED.items():
        kind = next((one for one in (kind, FEWER.get(name)) if one and _measures(rows, one)), kind)
        here = _measures(rows, kind)
        fit, found = fit_kind(name, kind, rows if here else elsewhere)
        if not here:
            found = [_assumed(name, f"the {CHIPS[0].name} fractions of HBM bandwidth")]
        own = fit.values.get("launch_us_vidur")
        launch_s = models["elementwise"].launch_s if own is None else own * 1e-6
        models[name] = kind_model(fit, kind, chip, launch_s)
        evidence += found
    for name, like in ASSUMED.items():
        models[name] = models[like]
        evidence.append(_assumed(name, f"the bandwidth of {like}"))
    return models, evidence


def elementwise_rows(folder: Path, chip: Chip) -> pd.DataFrame:
    """The rows of a chip's element-wise table, with the HBM bandwidth of their GPUs as a column `hbm`."""
    name = f"{chip.tables}_elementwise"
    rows = read_table(folder, name, ("op", "cols", "bytes", "gpu"))
    bandwidth = {**dict.fromkeys(rows.gpu[rows.origin == "torch"], chip.hbm_bytes_per_s), **HBM_BYTES_PER_S}
    for gpu in rows.gpu.unique():
        if gpu not in bandwidth:
            raise UserError(f"{folder}/{name}.csv.gz: gpu={gpu!r}: its HBM bandwidth is not known; add it")
    return rows.assign(hbm=rows.gpu.map(bandwidth))


def _measures(rows: pd.DataFrame, kind: Kind) -> bool:
    return all(len(_select(rows, origin, operators)) for origin, operators in kind.fitted)


def _assumed(name: str, source: str) -> Evidence:
    return Evidence(part=name, kind="assumed", source=source, rows=0, note="no table measures it")


def kind_model(fit: Fit, kind: Kind, chip: Chip, launch_s: float) -> ElementwiseModel:
    """The model of a kind on a chip, with the fractions of a fit."""
    if not kind.by_width:
        return ElementwiseModel(fit["hbm_fraction"] * chip.hbm_bytes_per_s, launch_s)
    rates = [significant(fit[f"hbm_fraction_{width}"] * chip.hbm_bytes_per_s) for width in kind.by_width]
    middle = rates[len(rates) // 2]
    return ElementwiseModel(
        middle, launch_s, [WidthRate(*pair) for pair in zip(kind.by_width, rates, strict=True)]
    )


def fit_kind(name: str, kind: Kind, rows: pd.DataFrame) -> tuple[Fit, list[Evidence]]:
    """One kind's fit and evidence: of large sizes and, where kernel times are measured, of launches."""
    chosen, ranges = _sample(kind, rows)
    found = _fit_sample(kind, chosen)
    fit = found.fit
    large = found.nbytes >= min(LARGE_BYTES, found.nbytes.max())
    in_sample, held_out = found.errors(large)
    how = "half of the widths (or sizes), both ways"
    if kind.checked is not None:
        origin, operators = kind.checked
        other = _select(rows, origin, operators)
        if len(other) and kind.by_width:
            level = _level(fit, kind, other)
            how += f"; {NAMES[origin]} runs at {level:.3g} of that, met half way"
            fit = _scaled(fit, np.sqrt(level))
        elif len(other):
            held_out, how = _check(fit, other), f"all of {NAMES[origin]}, its launch time fitted"
    origins = [origin for origin, _ in kind.fitted]
    bandwidth = Evidence(
        part=name,
        kind="fitted",
        source="; ".join(NAMES[origin] for origin in origins),
        rows=int(large.sum()),
        error_in_sample_pct=in_sample,
        error_held_out_pct=held_out,
        note=(
            f"forward, {_fractions(fit, kind)}; "
            f"bytes per element: {kind.bytes_per_element}; "
            f"errors on rows from {LARGE_BYTES / 1e6:g} MB; held out: {how}"
        ),
        measured=ranges,
    )
    if len(origins) > 1 or origins[0] not in KERNEL_TIMES or large.all():
        return fit, [bandwidth]
    return fit, [bandwidth, _launch_evidence(name, origins[0], found, ~large)]


@dataclass(frozen=True)
class _Fitted:
    """A fit to the rows of one kind: their bytes, and their seconds as measured and as predicted."""

    fit: Fit
    nbytes: Array
    measured: Array
    in_sample: Array
    held_out: Array

    def errors(self, chosen: NDArray[np.bool_]) -> tuple[float, float]:
        """Mean absolute errors of the chosen rows in percent, in sample and held out."""
        measured = self.measured[chosen]
        return mape_pct(self.in_sample[chosen], measured), mape_pct(self.held_out[chosen], measured)


def _sample(kind: Kind, rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, tuple[float, float]]]:
    """The rows that a kind is fitted to, one a size, and the measured ranges of bytes and widths."""
    chosen = pd.concat([_select(rows, origin, operators) for origin, operators in kind.fitted])
    if kind.by_width:
        chosen = chosen.loc[chosen.cols % ALIGNED == 0]
    ranges = measured_range(bytes=chosen.bytes.to_numpy(dtype=float))
    if kind.by_width:
        ranges |= measured_range(width=chosen.cols.to_numpy(dtype=float))
    chosen = chosen.loc[(chosen.bytes <= SMALL_BYTES) | (chosen.bytes >= LARGE_BYTES)]
    columns = ["origin", "gpu", "hbm", "op", "cols", "bytes"]
    return chosen.groupby(columns, as_index=False).agg({"time_us": "median"}), ranges


def _fit_sample(kind: Kind, chosen: pd.DataFrame) -> _Fitted:
    """Fit one launch time per origin, and one fraction of HBM bandwidth, or one per width."""
    nbytes, peak, measured = _arrays(chosen)
    origins = [origin for origin, _ in kind.fitted]
    masks = [(chosen.origin == origin).to_numpy() for origin in origins]
    weights = np.select(masks, [1 / np.sqrt(mask.sum()) for mask in masks])
    bounds: Bounds = {f"launch_us_{origin}": LAUNCH_BOUNDS for origin in origins}
    if kind.by_width:
        bounds |= {f"hbm_fraction_{width}": ROW_FRACTION_BOUNDS for width in kind.by_width}
    else:
        bounds["hbm_fraction"] = FRACTION_BOUNDS

    def predict(fit: Fit) -> Array:
        launch = np.select(masks, [np.asarray(fit[f"launch_us_{origin}"]) for origin in origins])
        return np.asarray(nbytes / (_fraction(fit, kind, chosen) * peak) + launch * 1e-6)

    # Halves are split by width, which the bandwidth depends on. LLMCompass varies the size at one width.
    one_width = chosen.groupby("origin").cols.transform("nunique") == 1
    group = chosen.cols.where((chosen.origin != "LLMCompass") & ~one_width, -chosen.bytes)
    fit, in_sample, held_out = fit_in_halves(predict, measured, weights, bounds, group.to_numpy(dtype=float))
    return _Fitted(fit=fit, nbytes=nbytes, measured=measured, in_sample=in_sample, held_out=held_out)


def _launch_evidence(name: str, origin: str, found: _Fitted, small: NDArray[np.bool_]) -> Evidence:
    in_sample, held_out = found.errors(small)
    launch_us = found.fit[f"launch_us_{origin}"]
    return Evidence(
        part=f"{name} (launch, up to {SMALL_BYTES / 1e6:g} MB)",
        kind="fitted",
        source=NAMES[origin],
        rows=int(small.sum()),
        error_in_sample_pct=in_sample,
        error_held_out_pct=held_out,
        note=f"{launch_us:.3g} us for the smallest kernel; times are whole microseconds",
    )


def _fraction(fit: Fit, kind: Kind, rows: pd.DataFrame) -> Array:
    """The fraction of HBM bandwidth of each row."""
    if not kind.by_width:
        return np.full(len(rows), fit["hbm_fraction"])
    fractions = [fit[f"hbm_fraction_{width}"] for width in kind.by_width]
    return np.asarray(np.interp(np.log2(rows.cols), np.log2(kind.by_width), fractions))


def _level(fit: Fit, kind: Kind, rows: pd.DataFrame) -> float:
    """The bandwidth of other rows over that of the fit; their launch time is fitted too."""
    rows = rows.loc[(rows.bytes <= SMALL_BYTES) | (rows.bytes >= LARGE_BYTES)]
    nbytes, peak, measured = _arrays(rows)
    moved_s = nbytes / (_fraction(fit, kind, rows) * peak)

    def predict(other: Fit) -> Array:
        return np.asarray(moved_s / other["level"] + other["launch_us"] * 1e-6)

    bounds = {"level": LEVEL_BOUNDS, "launch_us": LAUNCH_BOUNDS}
    return fit_logarithms(predict, measured, np.ones(len(rows)), bounds)["level"]


def _scaled(fit: Fit, ratio: float) -> Fit:
    """The fit with its bandwidths multiplied, up to the largest allowed fraction."""
    most = ROW_FRACTION_BOUNDS[2]
    values = {
        name: significant(min(value * ratio, most)) if name.startswith("hbm") else value
        for name, value in fit.values.items()
    }
    return Fit(values)


def _fractions(fit: Fit, kind: Kind) -> str:
    if not kind.by_width:
        return f"{fit['hbm_fraction']:.3g} of HBM bandwidth"
    pairs = [f"{fit[f'hbm_fraction_{width}']:.3g} at {width}" for width in kind.by_width]
    return f"of HBM bandwidth by width (multiples of {ALIGNED}) {', '.join(pairs)}"


def _select(rows: pd.DataFrame, origin: str, operators: tuple[str, ...]) -> pd.DataFrame:
    return rows.loc[(rows.origin == origin) & rows.op.isin(operators)]


def _arrays(rows: pd.DataFrame) -> tuple[Array, Array, Array]:
    """Bytes, HBM bandwidth of the row's GPU, seconds."""
    nbytes, seconds = rows.bytes.to_numpy(dtype=float), rows.time_us.to_numpy(dtype=float) * 1e-6
    return nbytes, rows.hbm.to_numpy(dtype=float), seconds


def _check(fit: Fit, rows: pd.DataFrame) -> float:
    """Error on the large rows of a source that the bandwidth was not fitted to; its launch time is fitted."""
    nbytes, peak, measured = _arrays(rows.loc[rows.bytes >= LARGE_BYTES])
    moved_s = nbytes / (fit["hbm_fraction"] * peak)

    def predict(launch: Fit) -> Array:
        return np.asarray(moved_s + launch["launch_us"] * 1e-6)

    return mape_pct(
        predict(fit_logarithms(predict, measured, np.ones(len(measured)), {"launch_us": LAUNCH_BOUNDS})),
        measured,
    )
