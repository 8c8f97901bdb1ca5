"""Pictures of docs/accuracy.md: predicted against measured seconds by family of GPUs (needs matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from accuracy_tables import Measured

LARGEST = 200  # runs of a set
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
MARKS = "osD^vPX*<"  # one more than colours, so that no two sets look alike
FAMILIES: dict[str, Callable[[Measured], bool]] = {
    "a100": lambda each: each.name.startswith("a100") or each.name == "published",
    "h100": lambda each: each.name.startswith("h100") and not each.mixture and each.name != "h100_ultrascale",
    "h100_ultrascale": lambda each: each.name == "h100_ultrascale",
    "h100_mixtures": lambda each: each.name.startswith("h100") and each.mixture,
    "blackwell": lambda each: each.name.startswith("blackwell"),
}
"""The sets of every picture, by its name."""


def draw(name: str, sets: Sequence[Measured], path: Path) -> None:
    """Draw predicted against measured seconds, both axes logarithmic, as a reproducible SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(5.4, 5.0), layout="constrained")
    drawn = [_some(each) for each in sets]
    seconds = np.concatenate([np.concatenate(pair) for pair in drawn])
    ends = [0.8 * seconds.min(), 1.25 * seconds.max()]
    for factor, style in ((1.0, "-"), (1.1, ":"), (1 / 1.1, ":")):
        axes.plot(ends, [end * factor for end in ends], style, color="#888888", linewidth=0.8)
    for place, (each, (measured, predicted)) in enumerate(zip(sets, drawn, strict=True)):
        colour, mark = COLOURS[place % len(COLOURS)], MARKS[place % len(MARKS)]
        axes.plot(measured, predicted, mark, color=colour, markersize=4, alpha=0.7, label=each.name)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel="measured, s per iteration", ylabel="predicted, s per iteration", title=name)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1,) if ends[1] > 100 * ends[0] else (1, 2, 5)))
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.legend(frameon=False, loc="upper left", fontsize=7)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def _some(each: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Measured and predicted seconds of a set's runs, or of `LARGEST` of them."""
    rows = np.arange(len(each.runs))
    if len(rows) > LARGEST:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:LARGEST])
    return each.runs.measured_s[rows], each.predicted_s[rows]
