"""The output of `itertime cost`: a table, CSV, and a figure of days and dollars over utilisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from itertime.planning import CostPoint

__all__ = ["draw_cost", "print_cost", "write_cost_csv"]

MILLION = 1e6


def print_cost(points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """A line for each utilisation, and one for the prediction, in order."""
    print(f"{'utilisation':>11} {'days':>9} {'cost, $M':>10}")
    for point in sorted({*points, *([predicted] if predicted else [])}):
        mark = "  predicted" if point == predicted else ""
        print(f"{point.utilisation:11.1%} {point.days:9.2f} {point.cost_usd / MILLION:10.3f}{mark}")


def write_cost_csv(path: Path, points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """Columns `utilisation, days, cost_usd, predicted`; the prediction is the last row."""
    from itertime.io import write_text

    rows = [(point, "false") for point in points] + ([(predicted, "true")] if predicted else [])
    lines = [f"{p.utilisation!r},{p.days!r},{p.cost_usd!r},{mark}" for p, mark in rows]
    write_text(path, "\n".join(["utilisation,days,cost_usd,predicted", *lines]) + "\n")


def draw_cost(path: Path, title: str, points: Sequence[CostPoint], predicted: CostPoint | None) -> None:
    """The curve with both scales, and the prediction as a point. UserError for an unknown format, and if
    matplotlib is not installed.
    """
    from itertime.io.figures import COLOURS, check_ending, figures, save

    check_ending(path)
    with figures() as plt:
        figure, axes = plt.subplots(figsize=(4.6, 3.2))
        axes.plot([100 * point.utilisation for point in points], [point.days for point in points])
        if predicted:
            x, y = 100 * predicted.utilisation, predicted.days
            axes.plot([x], [y], "o", color=COLOURS[1])
            words = f"predicted: {x:.1f} %, {y:.1f} days, ${predicted.cost_usd / MILLION:.2f}M"
            axes.annotate(words, (x, y), xytext=(6, 8), textcoords="offset points", fontsize=8)
        axes.set(xlabel="utilisation of the GPUs, %", ylabel="days", ylim=(0, None))
        axes.set_title(title, loc="left", fontsize=9)
        millions_per_day = points[0].cost_usd / points[0].days / MILLION
        scales = (lambda days: days * millions_per_day, lambda dollars: dollars / millions_per_day)
        axes.secondary_yaxis("right", functions=scales).set_ylabel("cost, millions of dollars")
        save(figure, path)
