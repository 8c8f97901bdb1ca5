"""Tables of measured operators, and the arithmetic that all fits share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from itertime.arrays import Array
from itertime.errors import UserError
from itertime.spec import Evidence

__all__ = [
    "NAMES",
    "Bounds",
    "Fit",
    "credit",
    "fit_in_halves",
    "fit_logarithms",
    "mape_pct",
    "measured_range",
    "missed_pct",
    "read_rows",
    "read_table",
    "significant",
]


def read_table(folder: Path, name: str, columns: tuple[str, ...]) -> pd.DataFrame:
    """The rows of `folder/name.csv.gz`, with the first part of `source` as a column `origin`.

    If `folder` is a file of `itertime profile collect`, the rows are those in which `table` is the last word
    of `name`. Raises `UserError` naming the file if it is missing, unreadable, or lacks one of `columns`, and
    naming column and row if a time is not positive.
    """
    path = folder if folder.is_file() else folder / f"{name}.csv.gz"
    table = _columns_of(path, (*columns, "time_us", "source"))
    if folder.is_file():
        kind = name.rpartition("_")[2]
        if "table" not in table.columns or not (table["table"] == kind).any():
            raise UserError(f"{path}: no row has table={kind}; is it a file of `itertime profile collect`?")
        table = table.loc[table["table"] == kind]  # the rows of what was left out have no time
    _check_times(path, table, "time_us")
    table = table.reset_index(drop=True)
    table["origin"] = table["source"].str.split("/").str[0]
    return table


def read_rows(
    path: Path, columns: tuple[str, ...], time: str = "time_us", zeros: bool = False
) -> pd.DataFrame:
    """All rows of a gzip CSV file; `time` is its column of times, in the unit that ends its name.

    `zeros` says that a time may be 0, a difference too small to measure; such rows are left out.

    Raises `UserError` naming the file if it is missing, unreadable, or lacks one of `columns`, and naming
    column and row if a time is not positive.
    """
    table = _columns_of(path, columns)
    if zeros:
        table = table.loc[table[time] != 0]
    _check_times(path, table, time)
    return table


def _columns_of(path: Path, columns: tuple[str, ...]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read as gzip CSV: {error}") from error
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise UserError(f"{path}: column {missing[0]!r} is missing; found {', '.join(table.columns)}")
    return table


def _check_times(path: Path, table: pd.DataFrame, time: str) -> None:
    bad = table.index[~(table[time] > 0)]
    if len(bad):
        value, unit = table[time][bad[0]], "milliseconds" if time.endswith("_ms") else "microseconds"
        raise UserError(f"{path}:{bad[0] + 2}: {time}={value}: must be a positive number of {unit}")


# First part of a row's source -> the name in a profile's evidence.
NAMES = {
    "vidur": "microsoft/vidur (fp16, kernels of an inference server)",
    "aiconfigurator": "ai-dynamo/aiconfigurator",
    "LLMCompass": "LLMCompass (fp16)",
    "neusight": "NeuSight (fp32)",
    "torch": "itertime profile collect (torch)",
}


def credit(sources: pd.Series) -> str:
    """The names of the rows' sources, in the order of their first rows; aiconfigurator's with its version."""
    found: dict[str, None] = {}
    for source in sources.drop_duplicates():
        origin, _, rest = source.partition("/")
        name = NAMES.get(origin, origin)
        found[f"{name} ({rest.partition('/')[0]})" if origin == "aiconfigurator" else name] = None
    return "; ".join(found)


def mape_pct(predicted: Array, measured: Array) -> float:
    """Mean absolute percentage error, rounded to 0.01."""
    return round(float(np.mean(np.abs(np.asarray(predicted) / np.asarray(measured) - 1))) * 100, 2)


def missed_pct(evidence: Iterable[Evidence]) -> float:
    """By how much fits miss their rows, in sample or held out, whichever is more: the mean over the rows."""
    fitted = [item for item in evidence if item.kind == "fitted" and item.rows]
    if not fitted:
        return 0.0
    errors = [max(item.error_in_sample_pct or 0.0, item.error_held_out_pct or 0.0) for item in fitted]
    return float(np.average(errors, weights=[item.rows for item in fitted]))


def measured_range(**arguments: Array) -> dict[str, tuple[float, float]]:
    """The minimum and the maximum of each argument."""
    return {name: (float(np.min(values)), float(np.max(values))) for name, values in arguments.items()}


Bounds = dict[str, tuple[float, float, float]]  # parameter: start, least, most


@dataclass(frozen=True)
class Fit:
    """Parameters by name, in the order of their bounds, rounded to 4 significant digits."""

    values: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def fit_logarithms(
    predict: Callable[[Fit], Array],
    measured: Array,
    weights: Array,
    bounds: Bounds,
) -> Fit:
    """Parameters within `bounds` that minimise the weighted distance of log(predicted) from log(measured).

    The loss is soft-L1 with a scale of 5 %: library heuristics shift single shapes by 20 %, which must not
    bend the curve.
    """
    start, least, most = (np.array(column) for column in zip(*bounds.values(), strict=True))
    used = weights > 0
    weights = weights * np.sqrt(used.sum() / np.sum(weights**2))

    def residual(values: Array) -> Array:
        fit = Fit(dict(zip(bounds, values.tolist(), strict=True)))
        pull = 1e-3 * (values - start) / (most - least)  # determines parameters that no row constrains
        return np.concatenate([(np.log(predict(fit) / measured) * weights)[used], pull])

    found = least_squares(
        residual,
        start,
        bounds=(least, most),
        loss="soft_l1",
        f_scale=0.05,
        diff_step=1e-4,
        x_scale=most - least,
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
    )
    return Fit({name: significant(value) for name, value in zip(bounds, found.x.tolist(), strict=True)})


def fit_in_halves(
    predict: Callable[[Fit], Array],
    measured: Array,
    weights: Array,
    bounds: Bounds,
    *groups: Array,
) -> tuple[Fit, Array, Array]:
    """The fit to all rows, its predictions, and predictions of each half of the rows by a fit to the other.

    Rows that are equal in all of `groups` are in the same half, since a neighbour of a held-out row would
    reveal it. If all rows are equal, each row is a group. Raises `UserError` for fewer than two rows.
    """
    if len(measured) < 2:
        raise UserError(f"{len(measured)} rows of {', '.join(bounds)}: at least 2 are needed; measure more")
    _, group = np.unique(np.stack(groups), axis=1, return_inverse=True)
    group = group.reshape(-1)
    if group.max() == 0:
        group = np.arange(len(group))
    first = (np.random.default_rng(0).permutation(group.max() + 1) % 2 == 0)[group]
    fit = fit_logarithms(predict, measured, weights, bounds)
    by_first = predict(fit_logarithms(predict, measured, weights * first, bounds))
    by_second = predict(fit_logarithms(predict, measured, weights * ~first, bounds))
    return fit, predict(fit), np.where(first, by_second, by_first)


def significant(value: float, digits: int = 4) -> float:
    """`value` rounded to significant digits, so that files do not contain the noise of a fit."""
    return float(f"{value:.{digits}g}")
