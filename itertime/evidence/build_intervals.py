"""Computes the ranges of measured over predicted seconds that predictions carry as intervals; run it with
`--help` for its usage.

The runs of one site share an error. So a run at an unseen site has two errors, as in a random-effects model
(Higgins, Thompson, Spiegelhalter 2009, "A re-evaluation of random-effects meta-analysis"), in logarithms:

- that of its site, another draw of the normal distribution from which the sets' medians are known draws
  (Student's t);
- that of the run at its site, distributed like the distances of the class's runs from their sets' medians,
  with equal weight for every set.

A range is the middle nine tenths of the sum. A class with fewer than 20 runs uses the runs of all classes.
One simplification: medians count as exact, so their errors add to the apparent differences between sites.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from itertime.accuracy import CLASSES, LEVEL, TABLE, plan_class
from itertime.calibration import RunSet, read_table
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import Site

__all__ = ["main", "measured_ranges", "ranges_of"]

PROGRAM = "python -m itertime.evidence.build_intervals"
EXAMPLE = f"""\
Example, which rewrites the shipped ranges:

    cd ../shared/data/iterations; {PROGRAM} a100_*.csv published.csv
"""
FEWEST = 20  # runs of a class with its own range
_SITES = 999  # equally likely sites that represent the distribution of sites
Sample = tuple[str, str, float]  # set, class, measured over predicted
Array = NDArray[np.float64]


def measured_ranges(files: Sequence[str | Path], profile: str = "a100-80gb") -> dict[str, Any]:
    """The document of ranges, from the rows of `files` that ran on the profile's GPU and can be expressed.

    Raises TableError for a malformed file, UserError for a file without such a row.
    """
    samples: list[Sample] = []
    sets = {}
    for path in map(Path, files):
        runs = RunSet.of(read_table(path))
        ratios = runs.measured_s / runs.evaluate(Site())[0]
        rows = [
            (path.stem, plan_class(run.model, run.plan, run.system), float(ratio))
            for run, ratio in zip(runs.runs, ratios, strict=True)
            if run.profile.name == profile
        ]
        if not rows:
            raise UserError(f"{path}: no row ran on the GPU of profile {profile}; leave the file out")
        samples += rows
        sets[path.stem] = {"rows": len(rows), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    left_out = {name: [each for each in samples if each[0] != name] for name in sets} if len(sets) > 1 else {}
    return {
        "profile": profile,
        "level": LEVEL,
        "unit": "measured seconds over predicted seconds, 1",
        "sets": sets,
        **ranges_of(samples),
        "without": {name: ranges_of(rest) for name, rest in left_out.items()},
    }


def ranges_of(samples: Sequence[Sample]) -> dict[str, Any]:
    """The ranges of all classes with enough samples, and that of all samples together ("pooled")."""
    names = dict.fromkeys(sample[0] for sample in samples)
    medians = {name: float(np.median(_logarithms(samples, name))) for name in names}
    sites = _sites(list(medians.values()))

    def range_of(members: Sequence[Sample]) -> dict[str, Any]:
        beside = [_logarithms(members, name) - medians[name] for name in medians]
        entry = [name for name, found in zip(medians, beside, strict=True) if len(found)]
        low, high = _middle(sites, [found for found in beside if len(found)])
        return {"rows": len(members), "sets": entry, "range": [round(low, 4), round(high, 4)]}

    by_class = {name: [sample for sample in samples if sample[1] == name] for name in CLASSES}
    classes = {name: range_of(members) for name, members in by_class.items() if len(members) >= FEWEST}
    return {"classes": classes, "pooled": range_of(samples)}


def _logarithms(samples: Sequence[Sample], name: str) -> Array:
    return np.log([ratio for found, _, ratio in samples if found == name])


def _sites(medians: Sequence[float]) -> Array:
    """Equally likely medians of the next site, given known ones: the predictive distribution of a normal.

    A single site does not show how sites differ, so all sites are assumed to be like it.
    """
    count = len(medians)
    if count == 1:
        return np.array(medians)
    spread = np.std(medians, ddof=1) * math.sqrt(1 + 1 / count)
    at = (np.arange(_SITES) + 0.5) / _SITES
    drawn: Array = np.mean(medians) + spread * stats.t.ppf(at, count - 1)
    return drawn


def _middle(sites: Array, beside: Sequence[Array]) -> tuple[float, float]:
    """The middle `LEVEL` of all sums of a site's error and a run's error at its site, as ratios."""
    sums = np.concatenate([np.add.outer(sites, found).ravel() for found in beside])
    masses = np.concatenate([np.full(len(sites) * len(found), 1 / len(found)) for found in beside])
    order = np.argsort(sums, kind="stable")
    reached = np.cumsum(masses[order]) / masses.sum()
    low, high = np.exp(sums[order][np.searchsorted(reached, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])])
    return float(low), float(high)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Compute the ranges that predictions carry as intervals.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, help="iteration tables")
    parser.add_argument("-o", "--output", type=Path, default=TABLE, help="default: the shipped table")
    options = parser.parse_args(arguments)
    return run_task(
        lambda: write_text(options.output, json.dumps(measured_ranges(options.files), indent=2) + "\n")
    )


if __name__ == "__main__":
    sys.exit(main())
