"""Computes how wrong predictions on each GPU were, and by how much plans beside each other differ from their
predictions; run it with `--help` for its usage.

A *choice* is a group of measured runs that differ in nothing but their plan: same set, model, number of GPUs,
global batch and nodes. An error that all of them share changes no order. What is left, a run's error less the
mean of its group, is what can make the plan predicted best not the best. Groups of n runs hide part of it:
the differences are multiplied by sqrt(n / (n - 1)), so that their variance is unbiased.

The standard deviation is a robust one, 1.4826 times the median of the absolute differences, which is that of
a normal distribution (Rousseeuw and Croux 1993). Single runs that took up to 1.65 times as long as their
group would dominate any other: among thousands of independent plans some would always be so wrong.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.accuracy import ERRORS
from itertime.calibration import MeasuredRun, RunSet, read_table
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import Site

__all__ = ["beside_others", "main", "measured_errors", "work_of"]

PROGRAM = "python -m itertime.evidence.build_errors"
EXAMPLE = f"""\
Example, which rewrites the shipped errors:

    cd ../shared/data/iterations; {PROGRAM} *.csv
"""
TO_SD = 1.4826  # standard deviation over median absolute deviation of a normal distribution
Array = NDArray[np.float64]
Groups = dict[tuple[Any, ...], list[float]]


def measured_errors(files: Sequence[str | Path]) -> dict[str, Any]:
    """The document of errors by profile, from the rows of `files` that can be expressed.

    Raises TableError for a malformed file, UserError if no row of a file can be expressed.
    """
    by_set: dict[str, dict[str, Array]] = {}
    choices: dict[str, Groups] = {}
    sets = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path))
        if not len(runs):
            raise UserError(f"{path}: no row can be predicted; leave the file out")
        ratios = np.log(runs.measured_s / runs.evaluate(Site())[0])
        profiles = np.array([run.profile.name for run in runs.runs])
        for name in sorted(set(profiles.tolist())):
            by_set.setdefault(name, {})[path.stem] = ratios[profiles == name]
        for run, ratio in zip(runs.runs, ratios.tolist(), strict=True):
            choices.setdefault(run.profile.name, {}).setdefault((path.stem, *work_of(run)), []).append(ratio)
        sets[path.stem] = {"rows": len(runs), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    profiles_found = {name: _errors(by_set[name], choices[name]) for name in sorted(by_set)}
    return {"unit": "measured seconds over predicted seconds", "sets": sets, "profiles": profiles_found}


def work_of(run: MeasuredRun) -> tuple[Any, ...]:
    """What the runs of one choice have in common: all but their plan."""
    model, system = run.model, run.system
    shape = model.layers, model.hidden, model.heads, model.kv_heads, model.ffn_hidden, model.vocab
    nodes = run.profile.gpu, system.gpus_per_node, system.nic_bytes_per_s
    return *shape, model.seq_len, run.plan.gpus, run.plan.global_batch, *nodes


def _errors(sets: Mapping[str, Array], groups: Groups) -> dict[str, Any]:
    beside = beside_others(list(groups.values()))
    return {
        **_statistics(np.concatenate(list(sets.values()))),
        "sets": {name: _statistics(ratios) for name, ratios in sets.items()},
        "beside_others": {
            "choices": sum(len(group) > 1 for group in groups.values()),
            "runs": len(beside),
            "sd": round(TO_SD * float(np.median(np.abs(beside))), 4) if len(beside) else None,
        },
    }


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
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Compute the errors of predictions by GPU that searches state.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, help="iteration tables")
    parser.add_argument("-o", "--output", type=Path, default=ERRORS, help="default: the shipped file")
    options = parser.parse_args(arguments)
    return run_task(
        lambda: write_text(options.output, json.dumps(measured_errors(options.files), indent=2) + "\n")
    )


if __name__ == "__main__":
    sys.exit(main())
