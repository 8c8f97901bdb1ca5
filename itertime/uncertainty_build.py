"""Works out the ranges of measured over predicted seconds that predictions carry as intervals.

    cd ../shared/data/iterations; python -m itertime.uncertainty_build a100_*.csv published.csv

rewrites `residuals/measured_over_predicted.json`. Every set of runs weighs the same, however many rows it
has, because the runs of one site err together. A class needs 20 runs to have a range of its own; where they
are from fewer than three sets, its range is widened to the pooled one, which knows how sites differ.

Exchangeability fails between sites: ranges drawn at 90 % hold less of a set that they never saw. So they are
drawn at the first level from 90 to 99 % at which the sets, each left out in turn, are held to 90 % over all
rows. That is one number chosen by these sets.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from itertime.atomic import write_text
from itertime.runset import RunSet
from itertime.system import Site
from itertime.table import read_table
from itertime.uncertainty import CLASSES, LEVEL, TABLE, conformal_range, plan_class

__all__ = ["measured_ranges"]

FEWEST = 20  # runs of a class with a range of its own
ENOUGH_SETS = 3  # for a class to know how sites differ
_LEVELS = tuple(round(0.9 + step / 100, 2) for step in range(10))
Sample = tuple[str, str, float]  # set, class, measured over predicted


def measured_ranges(files: Sequence[str | Path], profile: str = "a100-80gb") -> dict[str, Any]:
    """The table's document, from the rows of `files` that ran on this profile's GPU and can be expressed.

    Raises TableError for a malformed file.
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
        samples += rows
        sets[path.stem] = {"rows": len(rows), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    for drawn_at in _LEVELS:
        without = {
            name: _ranges([each for each in samples if each[0] != name], drawn_at)
            for name in (sets if len(sets) > 1 else ())
        }
        if not without or _coverage(samples, without) >= LEVEL:
            break
    return {
        "profile": profile,
        "level": LEVEL,
        "drawn_at": drawn_at,
        "unit": "measured seconds over predicted seconds, 1",
        "sets": sets,
        **_ranges(samples, drawn_at),
        "without": without,
    }


def _coverage(samples: Sequence[Sample], without: Mapping[str, Any]) -> float:
    """The share of samples in the ranges that their own set had no part in."""
    held = 0
    for name, class_, ratio in samples:
        found = without[name]["classes"].get(class_, without[name]["pooled"])
        held += found["range"][0] <= ratio <= found["range"][1]
    return held / len(samples)


def _ranges(samples: Sequence[Sample], level: float) -> dict[str, Any]:
    pooled = _range(samples, level)
    classes: dict[str, Any] = {}
    for name in CLASSES:
        members = [sample for sample in samples if sample[1] == name]
        if len(members) >= FEWEST:
            entry = _range(members, level)
            if len(entry["sets"]) < ENOUGH_SETS:
                low, high = zip(entry["range"], pooled["range"], strict=True)
                entry["range"] = [min(low), max(high)]
            classes[name] = entry
    return {"classes": classes, "pooled": pooled}


def _range(samples: Sequence[Sample], level: float) -> dict[str, Any]:
    rows: Mapping[str, int] = _counts([sample[0] for sample in samples])
    weights = [1 / rows[sample[0]] for sample in samples]
    low, high = conformal_range([sample[2] for sample in samples], level, weights)
    return {"rows": len(samples), "sets": list(rows), "range": [round(low, 4), round(high, 4)]}


def _counts(names: Sequence[str]) -> dict[str, int]:
    return {name: names.count(name) for name in dict.fromkeys(names)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Rewrite the ranges that predictions carry.")
    parser.add_argument("files", nargs="+", type=Path, help="iteration tables")
    parser.add_argument("-o", "--output", type=Path, default=TABLE)
    options = parser.parse_args()
    write_text(options.output, json.dumps(measured_ranges(options.files), indent=2) + "\n")


if __name__ == "__main__":
    main()
