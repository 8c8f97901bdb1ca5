"""Scores predictions with each source of measured runs left out in turn; run it with `--help` for its usage.

A *source* is an organisation that measured (`itertime.calibration.source_of`), whatever the number of its
files. Its runs are predicted with the constants of frameworks that were fitted without it, and held against
the intervals that did not see it.
Sources count alike in the means: a source with many rows is no surer sign of what an unseen site brings.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from itertime.accuracy.intervals import load_ranges
from itertime.calibration import RunSet, read_table, source_of
from itertime.commandline import run_task

from .arguments import tables_parser
from .build_intervals import samples_of

__all__ = ["HEADER", "Scores", "lines", "main", "mean_line", "scores_of"]

PROGRAM = "python -m experiments.evidence.left_out"
EXAMPLE = f"""\
Example, for every table of iterations but those of chips without a profile:

    cd ../shared/data
    {PROGRAM} iterations/*.csv modern_gpus/iterations/*.csv \\
        iterations_2026/[abmnq]*.csv mlperf/bert_iterations.csv
"""
HEADER = ["source", "rows", "as shipped: MAPE %", "bias %", "left out: MAPE %", "bias %", "in interval %"]


@dataclass
class Scores:
    """Errors of the runs of a source in percent, as shipped and with the source left out; for each run with
    an interval, whether the interval holds it.
    """

    source: str
    shipped_pct: list[float] = field(default_factory=list)
    left_out_pct: list[float] = field(default_factory=list)
    in_interval: list[bool] = field(default_factory=list)

    @property
    def figures(self) -> tuple[float, float, float, float, float]:
        """MAPE and bias as shipped, MAPE and bias left out, and the percentage of runs in their intervals."""
        shipped, unseen = np.array(self.shipped_pct), np.array(self.left_out_pct)
        held = 100 * float(np.mean(self.in_interval)) if self.in_interval else math.nan
        absolute = float(np.abs(shipped).mean()), float(np.abs(unseen).mean())
        return absolute[0], float(shipped.mean()), absolute[1], float(unseen.mean()), held


def scores_of(files: Sequence[str | Path]) -> list[Scores]:
    """The scores of every source of these tables, in order of names.

    Raises TableError for a malformed file.
    """
    scores: dict[str, Scores] = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path)).on_measured_chips()
        shipped = runs.evaluate()[0] / runs.measured_s - 1
        for cells, error, sample in zip(runs.cells, shipped.tolist(), samples_of(path), strict=True):
            name = source_of(cells, path.stem)
            entry = scores.setdefault(name, Scores(name))
            entry.shipped_pct.append(100 * error)
            entry.left_out_pct.append(100 * math.expm1(-sample.log))
            ends = load_ranges(sample.source).of(sample.profile, sample.kind, sample.framework, sample.plans)
            if ends:
                entry.in_interval.append(ends[0] <= math.exp(sample.outside) <= ends[1])
    return [scores[name] for name in sorted(scores)]


def mean_line(name: str, scores: Sequence[Scores]) -> list[str]:
    """The cells of the mean over sources."""
    means = np.nanmean([entry.figures for entry in scores], axis=0).tolist()
    return [
        f"{name}: {len(scores)} sources",
        str(sum(len(entry.shipped_pct) for entry in scores)),
        *_cells(means),
    ]


def lines(scores: Sequence[Scores]) -> list[list[str]]:
    """The cells of each source."""
    return [[entry.source, str(len(entry.shipped_pct)), *_cells(entry.figures)] for entry in scores]


def _cells(figures: Sequence[float]) -> list[str]:
    return ["-" if math.isnan(figure) else f"{figure:.1f}" for figure in figures]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(PROGRAM, "Score predictions with each source left out in turn.", EXAMPLE)
    options = parser.parse_args(arguments)
    return run_task(lambda: _print(scores_of(options.files)))


def _print(scores: Sequence[Scores]) -> None:
    for cells in [HEADER, *lines(scores), mean_line("mean", scores)]:
        print(" | ".join(cells))


if __name__ == "__main__":
    sys.exit(main())
