"""Computes how wrong predictions on each GPU were, by framework, and by how much plans beside each other
differ from their predictions; run it with `--help` for its usage.

Sources, the sites that measured, count alike: the error of a GPU is the mean over its sources, as one of them
has two thirds of all rows.

A *choice* is a group of measured plans for the same work at the same source (`choose_plans`). An error that
all of them share changes no order. What is left, a plan's error less the mean of its group, is what can make
the plan predicted best not the best. Groups of n plans hide part of it: the differences are multiplied by
sqrt(n / (n - 1)), so that their variance is unbiased.

The standard deviation is a robust one, 1.4826 times the median of the absolute differences, which is that of
a normal distribution (Rousseeuw and Croux 1993). Single runs that took up to 1.65 times as long as their
group would dominate any other: among thousands of independent plans some would always be so wrong.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.accuracy.errors_by_gpu import ERRORS, LARGE_PCT
from itertime.calibration import RunSet, read_table
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import Site

from .arguments import tables_parser
from .choose_plans import choices_of

__all__ = ["beside_others", "main", "measured_errors"]

PROGRAM = "python -m experiments.evidence.build_errors"
EXAMPLE = f"""\
Example, which rewrites the shipped errors:

    cd ../shared/data; {PROGRAM} iterations/*.csv modern_gpus/iterations/*.csv
"""
TO_SD = 1.4826  # standard deviation over median absolute deviation of a normal distribution
FEWEST = 10  # runs of a framework with its own errors; plans beside others with a spread
Array = NDArray[np.float64]


@dataclass
class _Found:
    """Logarithms of measured over predicted seconds: of the runs by source, of plans by choice."""

    runs: dict[str, list[float]] = field(default_factory=dict)
    choices: list[list[float]] = field(default_factory=list)


def measured_errors(files: Sequence[str | Path]) -> dict[str, Any]:
    """The document of errors by profile, from the rows of `files` that can be expressed.

    Raises TableError for a malformed file, UserError if no row of a file can be expressed.
    """
    found: dict[str, dict[str, _Found]] = {}
    sets = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path)).on_measured_chips()
        if not len(runs):
            raise UserError(f"{path}: no row can be predicted; leave the file out")
        predicted = runs.evaluate(Site())[0]
        ratios = np.log(runs.measured_s / predicted).tolist()
        for cells, run, ratio in zip(runs.cells, runs.runs, ratios, strict=True):
            here = found.setdefault(run.profile.name, {}).setdefault(run.system.framework, _Found())
            here.runs.setdefault(cells["site"] or path.stem, []).append(ratio)
        for choice in choices_of(runs, predicted):
            errors = np.log(choice.measured_s / choice.predicted_s).tolist()
            found[choice.profile][choice.framework].choices.append(errors)
        sets[path.stem] = {"rows": len(runs), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    names = sorted({name for frameworks in found.values() for name in frameworks})
    everywhere = {
        name: [each for mine in found.values() if name in mine for each in mine[name].choices]
        for name in names
    }
    return {
        "unit": "measured seconds over predicted seconds",
        "sets": sets,
        "beside_others": {name: _spread(choices) for name, choices in everywhere.items()},
        "profiles": {name: _profile(found[name]) for name in sorted(found)},
    }


def _profile(frameworks: Mapping[str, _Found]) -> dict[str, Any]:
    """The errors of all runs on a GPU and of those of each framework. Plans of a framework whose errors are
    large tell nothing about the choice of plans of another.
    """
    everything = _Found()
    for each in frameworks.values():
        for source, ratios in each.runs.items():
            everything.runs.setdefault(source, []).extend(ratios)
    own = {
        name: _errors(each)
        for name, each in sorted(frameworks.items())
        if sum(map(len, each.runs.values())) >= FEWEST
    }
    for name, each in frameworks.items():
        if name not in own or own[name]["mape"] < LARGE_PCT:
            everything.choices += each.choices
    return {"all": _errors(everything), "frameworks": own}


def _errors(found: _Found) -> dict[str, Any]:
    sources = {name: _statistics(np.array(ratios)) for name, ratios in sorted(found.runs.items())}
    return {
        "rows": sum(each["rows"] for each in sources.values()),
        "mape": round(float(np.mean([each["mape"] for each in sources.values()])), 1),
        "median": round(float(np.median([each["median"] for each in sources.values()])), 3),
        "sources": sources,
        "beside_others": _spread(found.choices),
    }


def _spread(choices: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Choices and their plans, and the standard deviation of a plan's error; None for fewer than `FEWEST`."""
    beside = beside_others(choices)
    known = len(beside) >= FEWEST
    sd = round(TO_SD * float(np.median(np.abs(beside))), 4) if known else None
    return {"choices": len(choices), "plans": len(beside), "sd": sd}


def _statistics(ratios: Array) -> dict[str, Any]:
    """Rows, mean absolute error of the prediction in percent, and the middle of measured over predicted."""
    errors = np.abs(np.expm1(-ratios)) * 100
    return {
        "rows": len(ratios),
        "mape": round(float(errors.mean()), 1),
        "median": round(float(np.exp(np.median(ratios))), 3),
    }


def beside_others(groups: Sequence[Sequence[float]]) -> Array:
    """Errors of the runs of all groups of at least two beside those of their group.

    >>> beside_others([[0.1, 0.3], [5.0]]).round(3).tolist()
    [-0.141, 0.141]
    """
    several = [np.array(group) for group in groups if len(group) > 1]
    parts = [(each - each.mean()) * np.sqrt(len(each) / (len(each) - 1)) for each in several]
    return np.concatenate(parts) if parts else np.array([])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(PROGRAM, "Compute the errors of predictions by GPU that searches state.", EXAMPLE)
    parser.add_argument("-o", "--output", type=Path, default=ERRORS, help="default: the shipped file")
    options = parser.parse_args(arguments)
    return run_task(
        lambda: write_text(options.output, json.dumps(measured_errors(options.files), indent=2) + "\n")
    )


if __name__ == "__main__":
    sys.exit(main())
