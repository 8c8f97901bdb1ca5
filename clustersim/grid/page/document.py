"""What the page of a grid shows, and the unit of each metric on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, isfinite, sqrt
from pathlib import Path

from clustersim.grid.comparisons import Comparison, Result
from clustersim.grid.expand import Scalar, text_of
from clustersim.report.frame import looks_of
from clustersim.report.headline import TITLES
from clustersim.report.numbers import decimals, time_unit

__all__ = [
    "RUN_PAGES",
    "GridDocument",
    "Mean",
    "Scale",
    "axis_number",
    "better",
    "page_of_run",
]

RUN_PAGES = "runs"
"""The folder of the pages of single runs, in the folder of the grid."""

_HIGHER = (
    "finished", "deadline_met_ratio", "deadlines_of_bound", "gpu_allocated_ratio",
    "gpu_allocated_arrival_ratio", "gpu_useful_ratio", "jain_index",
)  # fmt: skip
_NEITHER = ("jobs", "offered_load", "arrival_window_s", "load_jobs", "deadline_jobs", "events", "resizes")

_UNITS = {"kwh": "kWh", "usd": "USD"}
"""Units that metrics state as the end of their names, beside seconds."""

Values = tuple[Scalar, ...]


def better(metric: str) -> str:
    """Whether a metric is better `lower` or `higher`; empty for one that is neither."""
    return "" if metric in _NEITHER else "higher" if metric in _HIGHER else "lower"


def axis_number(value: Scalar) -> float | None:
    """The number that a value of an axis is, also where it is written as text; None for other values."""
    if value is None or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


def page_of_run(key: str) -> str:
    """The address of the page of a run, from that of the grid."""
    return f"{RUN_PAGES}/{key}.html"


@dataclass(frozen=True)
class Mean:
    """The mean over the seeds of a cell; `half`: half the width of its 95 % interval by Student's t, None for
    fewer than two seeds.
    """

    mean: float
    half: float | None
    seeds: int

    @property
    def low(self) -> float | None:
        """The lower end of the interval; not below 0 unless the mean is, as no metric is negative."""
        if self.half is None:
            return None
        return max(0.0, self.mean - self.half) if self.mean >= 0 else self.mean - self.half

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.half is None else self.mean + self.half

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean | None:
        """None without values."""
        if not values:
            return None
        mean, n = fsum(values) / len(values), len(values)
        if n < 2:
            return cls(mean, None, n)
        from scipy.special import stdtrit

        spread = sqrt(fsum((value - mean) ** 2 for value in values) / (n - 1))
        return cls(mean, float(stdtrit(n - 1, 0.975)) * spread / sqrt(n), n)


@dataclass(frozen=True)
class Scale:
    """The one unit of a metric on a page. `title`: the metric in words."""

    title: str
    unit: str
    factor: float
    digits: int

    @classmethod
    def of(cls, metric: str, values: Sequence[float]) -> Scale:
        """The unit that suits the largest of the values."""
        name, _, kind = metric.rpartition("_")
        title = TITLES.get(metric) or _words(name if kind in ("s", "ratio") and name else metric)
        magnitudes = [abs(value) for value in values if value]
        if kind == "s" and name:
            unit, factor = time_unit(max(magnitudes, default=0.0))
            return cls(title, unit, factor, decimals(min(magnitudes, default=0.0) / factor))
        if kind == "ratio" and name:
            return cls(title, "%", 0.01, 1)
        unit = _UNITS.get(kind, "")
        all_whole = all(float(value).is_integer() for value in magnitudes)
        return cls(title, unit, 1.0, 0 if all_whole else 2)

    @property
    def head(self) -> str:
        """Title and unit."""
        return f"{self.title}, {self.unit}" if self.unit else self.title

    def number(self, value: float | None) -> float | None:
        """A value in the unit."""
        return None if value is None else value / self.factor

    def text(self, value: float | None, signed: bool = False) -> str:
        """A value in the unit, without its name; a dash for none."""
        if value is None:
            return "–"
        size = abs(value) / self.factor
        number = f"{size:,.{self.digits + (1 if signed and size < 1 else 0)}f}"
        if not signed:
            return f"−{number}" if value < 0 else number
        return f"±{number}" if not number.strip("0.,") else f"{'−' if value < 0 else '+'}{number}"


def _words(name: str) -> str:
    words = name.replace("_", " ").replace("jct", "JCT").replace("gpu", "GPU")
    return f"{words[:1].upper()}{words[1:]}"


@dataclass(frozen=True)
class GridDocument:
    """The cells of a grid in their order, and their differences from the baseline."""

    name: str
    folder: Path
    axes: tuple[str, ...]
    results: tuple[Result, ...]
    comparisons: tuple[Comparison, ...]
    baseline: Mapping[str, Scalar] | None
    metrics: tuple[str, ...]

    @cached_property
    def cells(self) -> dict[Values, list[Result]]:
        """The runs that are done, by the values of all axes: one for each seed."""
        results_of_cell: dict[Values, list[Result]] = {}
        for result in self.results:
            group = results_of_cell.setdefault(tuple(result.axes[name] for name in self.axes), [])
            if result.status == "done":
                group.append(result)
        return results_of_cell

    @cached_property
    def levels(self) -> dict[str, tuple[Scalar, ...]]:
        """The values of each axis, in the order of the file."""
        return {
            name: tuple(dict.fromkeys(values[i] for values in self.cells)) for i, name in enumerate(self.axes)
        }

    @cached_property
    def varied(self) -> tuple[str, ...]:
        """The axes with several values."""
        return tuple(name for name in self.axes if len(self.levels[name]) > 1)

    @cached_property
    def colours(self) -> str | None:
        """The axis whose values have colours: the policy if it varies, else none."""
        return "policy" if "policy" in self.varied else None

    def numeric(self, axis: str) -> bool:
        """Whether all values of an axis are numbers."""
        return all(axis_number(value) is not None for value in self.levels[axis])

    def series(self, values: Values) -> int:
        """The look of a cell: that of its policy."""
        return 0 if self.colours is None else self.looks[values[self.axes.index(self.colours)]]

    @cached_property
    def looks(self) -> dict[Scalar, int]:
        """The looks of the values of `colours`."""
        names = self.levels[self.colours] if self.colours else ()
        return dict(zip(names, looks_of([(text_of(name), text_of(name)) for name in names]), strict=True))

    def mean(self, values: Values, metric: str) -> Mean | None:
        """The mean of a metric over the seeds of a cell."""
        return Mean.of(
            [
                float(value)
                for result in self.cells.get(values, ())
                if (value := result.metrics.get(metric)) is not None
            ]
        )

    @cached_property
    def scales(self) -> dict[str, Scale]:
        """The unit of each shown metric that has a value."""
        means = {m: [mean.mean for v in self.cells if (mean := self.mean(v, m))] for m in self.metrics}
        return {metric: Scale.of(metric, values) for metric, values in means.items() if values}

    @cached_property
    def varying(self) -> dict[str, Scale]:
        """The metrics of `scales` that are not the same in all cells."""
        return {
            metric: scale
            for metric, scale in self.scales.items()
            if len({mean.mean for values in self.cells if (mean := self.mean(values, metric))}) > 1
        }

    @cached_property
    def short_names(self) -> dict[str, str]:
        """The last part of the name of each axis, or the whole name where two axes share it."""
        last_parts = [name.rpartition(".")[2] for name in self.axes]
        return {
            n: short if last_parts.count(short) == 1 else n
            for n, short in zip(self.axes, last_parts, strict=True)
        }

    def others(self, *axes: str) -> Iterator[tuple[Values, dict[str, Scalar]]]:
        """The combinations of the values of all axes but these, each with the values by axis."""
        kept_axes = [i for i, name in enumerate(self.axes) if name not in axes]
        for values in dict.fromkeys(tuple(cell[i] for i in kept_axes) for cell in self.cells):
            yield values, {self.axes[i]: value for i, value in zip(kept_axes, values, strict=True)}

    def cell(self, by_axis: Mapping[str, Scalar]) -> Values:
        """The values of a cell in the order of the axes."""
        return tuple(by_axis[name] for name in self.axes)

    def label(self, by_axis: Mapping[str, Scalar]) -> str:
        """Values of axes in words, without the axes that do not vary. A policy needs no other word."""
        return ", ".join(
            text_of(value) if name == self.colours else f"{self.short_names[name]} {text_of(value)}"
            for name, value in by_axis.items()
            if name in self.varied
        )
