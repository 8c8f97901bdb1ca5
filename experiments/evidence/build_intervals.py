"""Computes the ranges of measured over predicted seconds that predictions carry as intervals; run it with
`--help` for its usage.

The runs of one site share an error. So a run at an unseen site has two errors, as in a random-effects model
(Higgins, Thompson, Spiegelhalter 2009, "A re-evaluation of random-effects meta-analysis"), in logarithms:

- that of its site, another draw of the normal distribution whose mean is that of the medians of the sites
  known with this GPU, kind of model and framework. Its standard deviation is pooled over all GPUs, kinds and
  frameworks, because each has few sites (Student's t with the pooled degrees of freedom);
- that of the run at its site, distributed like the distances of the class's runs from their sites' medians.
  A site with five runs or more has the weight of any other, one with fewer runs a fifth for each.

A range is the middle nine tenths of the sum. A range of its own needs 20 runs for a class of plans, 10 for a
framework on a GPU and for a GPU with any framework. GPUs with fewer have the range of their generation: to
the variance of sites it adds that between GPUs of a generation at one site ("gpu_sd" in the table).
Constants of frameworks are fitted to some of these runs, so each source is predicted with constants that were
fitted without it. One simplification: medians count as exact, so their errors add to the apparent differences
between sites.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from itertime.accuracy import ANY, CLASSES, TABLE, kind_of
from itertime.accuracy.intervals import GENERATIONS, LEVEL, plan_class
from itertime.calibration import RunSet, read_table
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import Site

from .fit_frameworks import FREE, fitted_frameworks
from .sources import source_of

__all__ = ["Evidence", "Sample", "main", "measured_ranges", "samples_of"]

PROGRAM = "python -m experiments.evidence.build_intervals"
EXAMPLE = f"""\
Example, which rewrites the shipped ranges:

    cd ../shared/data; {PROGRAM} iterations/*.csv modern_gpus/iterations/*.csv
"""
FITS = TABLE.parent / "frameworks.json"
"""Where `fit_frameworks` writes its constants."""
FEWEST_OF_CLASS, FEWEST = 20, 10  # runs of a class with its own range; of a framework, of a GPU
_FULL = 5  # runs of a site from which on it has full weight
_POINTS = 99  # equally likely values that stand for more
_SITES = 199  # the same for the distribution of sites
Array = NDArray[np.float64]
Unit = tuple[str, str, str, str]  # source, profile, kind, framework
Member = TypeVar("Member")
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Sample:
    """A measured run: its source, GPU and framework; `log`: of measured over predicted seconds."""

    source: str
    profile: str
    kind: str
    framework: str
    plans: str
    log: float

    @property
    def unit(self) -> Unit:
        """Runs with one error in common."""
        return self.source, self.profile, self.kind, self.framework


def samples_of(path: Path, fits: Path = FITS) -> list[Sample]:
    """The runs of a table that can be expressed, predicted with the constants of frameworks that were fitted
    without their source, as far as the file `fits` has them. Raises TableError for a malformed file.
    """
    runs = RunSet.of(read_table(path))
    sources = [source_of(cells, path.stem) for cells in runs.cells]
    predicted = np.zeros(len(runs))
    for source in set(sources):
        seconds = _predicted_s(runs, _constants_without(source, fits))
        predicted = np.where([name == source for name in sources], seconds, predicted)
    return [
        Sample(
            source=cells["site"] or path.stem,
            profile=run.profile.name,
            kind=kind_of(run.model),
            framework=run.system.framework,
            plans=plan_class(run.model, run.plan, run.system),
            log=log,
        )
        for cells, run, log in zip(
            runs.cells, runs.runs, np.log(runs.measured_s / predicted).tolist(), strict=True
        )
    ]


def _constants_without(source: str, fits: Path) -> list[float] | None:
    """The values of `FREE` fitted without a source; None if it was no part of the fit."""
    if not fits.is_file():
        return None
    entry = json.loads(fits.read_text(encoding="utf-8"))["leave_one_out"].get(source)
    constants = entry["constants"] if entry else None
    return None if constants is None else [constants[constant.name] for constant in FREE]


def _predicted_s(runs: RunSet, constants: Sequence[float] | None) -> Array:
    if constants is None:
        return runs.evaluate(Site())[0]
    other, sustained = (
        runs.evaluate(Site(), fitted_frameworks(constants, sustained=kind))[0] for kind in (False, True)
    )
    return np.where([run.profile.gemm_in_training != 1 for run in runs.runs], sustained, other)


def measured_ranges(files: Sequence[str | Path]) -> dict[str, Any]:
    """The document of ranges, from the rows of `files` that can be expressed.

    Raises TableError for a malformed file, UserError for a file without such a row.
    """
    samples: list[Sample] = []
    sets = {}
    for path in map(Path, files):
        rows = samples_of(path)
        if not rows:
            raise UserError(f"{path}: no row can be predicted; leave the file out")
        samples += rows
        sets[path.stem] = {"rows": len(rows), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    everything = Evidence(samples)
    sources = sorted({sample.source for sample in samples})
    without = {name: Evidence([each for each in samples if each.source != name]).ranges() for name in sources}
    return {
        "level": LEVEL,
        "unit": "measured seconds over predicted seconds, 1",
        "sets": sets,
        "sources": {name: sum(each.source == name for each in samples) for name in sources},
        "site_sd": round(everything.site_sd(True)[0], 4),
        "gpu_sd": round(everything.gpu_sd, 4),
        "columns": "lowest, highest, runs, sources",
        "ranges": everything.ranges(counts=True),
        "without": without,
    }


class Evidence:
    """Samples, and the ranges that follow from them."""

    def __init__(self, samples: Sequence[Sample]):
        self.samples = samples

    def ranges(self, *, counts: bool = False) -> dict[str, list[float]]:
        """Lowest and highest ratio, with `counts` also the number of runs and sources, by "profile or
        generation/kind/framework/class".
        """
        found: dict[str, list[float]] = {}

        def add(place: str, kind: str, framework: str, plans: str, members: Sequence[Sample]) -> None:
            least = FEWEST if plans == ANY else FEWEST_OF_CLASS
            group = [each for each in members if plans in (ANY, each.plans)]
            if len(group) >= least:
                low, high = self._range(group, members, framework != ANY, place not in GENERATIONS)
                numbers = [len(group), len({each.source for each in group})] if counts else []
                found["/".join((place, kind, framework, plans))] = [round(low, 4), round(high, 4), *numbers]

        for place, kind in sorted({(place, each.kind) for each in self.samples for place in _places(each)}):
            here = [each for each in self.samples if each.kind == kind and place in _places(each)]
            for framework in sorted({each.framework for each in here}):
                mine = [each for each in here if each.framework == framework]
                for plans in (*CLASSES, ANY) if place in GENERATIONS else (ANY,):
                    add(place, kind, framework, plans, mine)
            add(place, kind, ANY, ANY, here)
        return found

    def _range(
        self, group: Sequence[Sample], members: Sequence[Sample], one_framework: bool, borrowed: bool
    ) -> tuple[float, float]:
        """The range of the runs in `group`, at a site like those of `members`."""
        units = {each.unit for each in members}
        by_source = _grouped(units, lambda unit: unit[0])
        means = [float(np.mean([self.medians[unit] for unit in mine])) for mine in by_source.values()]
        sd, freedom = self.site_sd(one_framework)
        if borrowed:
            sd = math.hypot(sd, self.gpu_sd / math.sqrt(1 + 1 / len(means)))
        sites = np.full(1, np.mean(means))
        if freedom:
            at = (np.arange(_SITES) + 0.5) / _SITES
            sites = sites + sd * math.sqrt(1 + 1 / len(means)) * stats.t.ppf(at, freedom)
        beside = [
            np.array([each.log for each in mine]) - self.medians[unit]
            for unit, mine in _grouped(group, lambda each: each.unit).items()
        ]
        return _middle(sites, beside)

    @cached_property
    def medians(self) -> dict[Unit, float]:
        units = _grouped(self.samples, lambda each: each.unit)
        return {unit: float(np.median([each.log for each in mine])) for unit, mine in units.items()}

    def site_sd(self, one_framework: bool) -> tuple[float, int]:
        """Standard deviation of sites' medians about those with the same GPU, kind and (if asked) framework,
        and its degrees of freedom; (0, 0) if no two sites share these.
        """
        return self._pooled(lambda unit: unit[1:] if one_framework else unit[1:3])

    @cached_property
    def gpu_sd(self) -> float:
        """Standard deviation between the GPUs of a generation, of runs of one site, kind and framework."""
        return self._pooled(lambda unit: (unit[0], GENERATIONS.get(unit[1], unit[1]), *unit[2:]))[0]

    def _pooled(self, key: Callable[[Unit], Hashable]) -> tuple[float, int]:
        groups = _grouped(self.medians, key).values()
        squares, freedom = 0.0, 0
        for group in groups:
            values = np.array([self.medians[unit] for unit in group])
            squares += float(((values - values.mean()) ** 2).sum())
            freedom += len(values) - 1
        return (math.sqrt(squares / freedom) if freedom else 0.0), freedom


def _places(sample: Sample) -> tuple[str, ...]:
    generation = GENERATIONS.get(sample.profile)
    return (sample.profile, generation) if generation else (sample.profile,)


def _grouped(members: Iterable[Member], key: Callable[[Member], Name]) -> dict[Name, list[Member]]:
    groups: dict[Name, list[Member]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups


def _middle(sites: Array, beside: Sequence[Array]) -> tuple[float, float]:
    """The middle `LEVEL` of all sums of a site's error and a run's error at its site, as ratios."""
    short = [_shortened(found) for found in beside]
    sums = np.concatenate([np.add.outer(found, sites).ravel() for found in short])
    masses = np.concatenate(
        [
            np.full(len(found) * len(sites), min(len(each), _FULL) / len(found))
            for each, found in zip(beside, short, strict=True)
        ]
    )
    order = np.argsort(sums, kind="stable")
    reached = np.cumsum(masses[order]) / masses.sum()
    low, high = np.exp(sums[order][np.searchsorted(reached, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])])
    return float(low), float(high)


def _shortened(values: Array) -> Array:
    if len(values) <= _POINTS:
        return values
    return np.asarray(np.quantile(values, (np.arange(_POINTS) + 0.5) / _POINTS))


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
    return run_task(lambda: write_text(options.output, _text(measured_ranges(options.files))))


def _text(document: dict[str, Any]) -> str:
    """JSON with one line per range."""
    return re.sub(r"\[\s+([^\[\]]*?)\s+\]", _joined, json.dumps(document, indent=1)) + "\n"


def _joined(found: re.Match[str]) -> str:
    return "[" + re.sub(r"\s+", " ", found.group(1)) + "]"


if __name__ == "__main__":
    sys.exit(main())
