"""What the same plan takes longer on more GPUs, by source, and the spread of GPUs' speeds that it shows.

Rows of one file that differ in data parallelism and global batch alone have the same work on every GPU. Their
measured over predicted times grow as if the slowest of N GPUs set the pace of all: with the expected maximum
of N normal values. The slope is the spread of their speeds. A source of n rows weighs as much as min(n, 10);
the spread is scored on each source with that source left out. docs/accuracy.md says what follows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist

import numpy as np

from itertime.calibration import RunSet, read_table, source_of
from itertime.commandline import run_task

from .arguments import tables_parser

__all__ = ["Growth", "expected_maximum", "growth_of", "main", "spread_of"]

PROGRAM = "python -m experiments.evidence.growth"
EXAMPLE = f"""\
Example:

    cd ../shared/data
    {PROGRAM} iterations/a100*.csv modern_gpus/iterations/*.csv mlperf/bert_iterations.csv
"""
_FREE = ("id", "line", "gpus", "dp", "global_batch", "iteration_s", "memory_gb", "recipe")
_MEASURED = ("tokens_per_s_gpu", "tflops_per_gpu", "model_tflops_gpu", "mfu_bf16", "samples_per_gpu_step")
_MOST_ROWS = 10
_NODE = 8  # GPUs of a node: kernels and frameworks measured on one hold its own slowest GPU


def expected_maximum(count: int) -> float:
    """The expected maximum of `count` independent standard normal values, at least 2 (Blom 1958).

    >>> round(expected_maximum(8), 3), round(expected_maximum(1024), 3)
    (1.434, 3.234)
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))


@dataclass
class Growth:
    """Of the rows of a source on one GPU type: logarithms of measured over predicted times, and expected
    maxima of as many values as GPUs, each less the mean over its plan; the largest number of GPUs.
    """

    source: str
    profile: str
    logs: list[float] = field(default_factory=list)
    maxima: list[float] = field(default_factory=list)
    most_gpus: int = 0

    @property
    def weight(self) -> float:
        return min(len(self.logs), _MOST_ROWS) / len(self.logs)

    def error_pct(self, spread: float) -> float:
        """Root mean square of what remains of the growth with this spread, in percent."""
        rest = np.array(self.logs) - spread * np.array(self.maxima)
        return float(100 * np.sqrt(np.mean(rest**2)))


def growth_of(files: Sequence[str | Path]) -> list[Growth]:
    """The growth of every source and GPU type with plans on several numbers of GPUs. TableError for a
    malformed file.
    """
    plans: dict[tuple[object, ...], list[tuple[int, float]]] = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path)).on_measured_chips()
        predicted_s = runs.evaluate()[0]
        for cells, run, seconds, measured_s in zip(
            runs.cells, runs.runs, predicted_s, runs.measured_s, strict=True
        ):
            left_out = (*_FREE, *_MEASURED)
            same = tuple(str(value) for name, value in sorted(cells.items()) if name not in left_out)
            source = source_of(cells, path.stem)
            alike = (source, run.profile.name, run.plan.microbatches, path.stem, same)
            plans.setdefault(alike, []).append((run.plan.gpus, float(np.log(measured_s / seconds))))
    found: dict[tuple[object, ...], Growth] = {}
    for key, members in plans.items():
        counts, logs = zip(*members, strict=True)
        maxima = np.array([expected_maximum(max(count, _NODE)) for count in counts])
        if len(set(maxima)) > 1:
            growth = found.setdefault(key[:2], Growth(str(key[0]), str(key[1])))
            growth.logs += (np.array(logs) - np.mean(logs)).tolist()
            growth.maxima += (maxima - maxima.mean()).tolist()
            growth.most_gpus = max(growth.most_gpus, *counts)
    return sorted(found.values(), key=lambda growth: (growth.profile, growth.source))


def spread_of(growths: Sequence[Growth]) -> float:
    """The spread of speeds that these sources show together; NaN for none."""
    squares = sum(growth.weight * float(np.square(growth.maxima).sum()) for growth in growths)
    products = sum(growth.weight * float(np.dot(growth.maxima, growth.logs)) for growth in growths)
    return products / squares if squares else float("nan")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(
        PROGRAM,
        "Fit the spread of GPUs' speeds, and score it with each source left out.",
        EXAMPLE,
    )
    options = parser.parse_args(arguments)
    return run_task(lambda: _print(growth_of(options.files)))


def _print(growths: Sequence[Growth]) -> None:
    print("source | GPU | rows | most GPUs | spread % | growth off, % | by others' spread | their spread %")
    for growth in growths:
        others = [
            other for other in growths if other.source != growth.source and other.profile == growth.profile
        ]
        theirs = spread_of(others)
        cells = (100 * spread_of([growth]), growth.error_pct(0.0), growth.error_pct(theirs), 100 * theirs)
        numbers = " | ".join("-" if np.isnan(cell) else f"{cell:.2f}" for cell in cells)
        print(f"{growth.source} | {growth.profile} | {len(growth.logs)} | {growth.most_gpus} | {numbers}")
    for profile in dict.fromkeys(growth.profile for growth in growths):
        together = spread_of([growth for growth in growths if growth.profile == profile])
        print(f"all of {profile}: {100 * together:.2f} %")


if __name__ == "__main__":
    sys.exit(main())
