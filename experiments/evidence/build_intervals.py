"""Computes the ranges of measured over predicted seconds that predictions carry as intervals; run it with
`--help` for its usage.

The runs of one source share an error. So a run at an unseen source has two errors, as in a random-effects
model (Higgins, Thompson, Spiegelhalter 2009, "A re-evaluation of random-effects meta-analysis"), in
logarithms:

- that of its source, another draw of the normal distribution whose mean is that of the medians of the sources
  known with this GPU, kind of model and framework. Its standard deviation is pooled over all GPUs, kinds and
  frameworks, because each has few sources (Student's t with the pooled degrees of freedom);
- that of the run at its source, distributed like the distances of the class's runs from their sources'
  medians. A source with five runs or more has the weight of any other, one with fewer runs a fifth for each.

What was not measured adds to the variance of sources: that between GPUs at one source, if the framework was
measured on others alone ("GPUs" in the table); that between frameworks beyond sources, if it was measured
nowhere ("software"); that between classes of plans at one source, if the class was not measured ("plans").
The fewest degrees of freedom of these count.

A range is the middle nine tenths of the sum. A range of its own needs 20 runs for a class of plans, 10 for a
framework on a GPU and for a GPU with any framework. Constants of frameworks are fitted to some of these runs,
so each source is predicted with constants that were fitted without it. One simplification: medians count as
exact, so their errors add to the apparent differences between sources.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from itertime.accuracy import ANY, CLASSES, TABLE, kind_of
from itertime.accuracy.intervals import GENERATIONS, LEVEL, UNMEASURED, modes_s, plan_class
from itertime.calibration import RunSet, read_table, source_of
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.spec import Site

from .arguments import tables_parser
from .fit_frameworks import FREE, fitted_frameworks

__all__ = ["Evidence", "Sample", "main", "measured_ranges", "samples_of"]

PROGRAM = "python -m experiments.evidence.build_intervals"
EXAMPLE = f"""\
Example, which rewrites the shipped ranges:

    cd ../shared/data
    {PROGRAM} iterations/*.csv modern_gpus/iterations/*.csv iterations_2026/[abmnq]*.csv \\
        mlperf/bert_iterations.csv
"""
FITS = TABLE.parent / "frameworks.json"
"""Where `fit_frameworks` writes its constants."""
FEWEST_OF_CLASS, FEWEST = 20, 10  # runs of a class with its own range; of a framework, of a GPU
LAWLESS = ("nanotron",)
"""Software whose runs of one site follow no law (docs/accuracy.md): its medians say nothing of others."""
_FULL = 5  # runs of a site from which on it has full weight
_POINTS = 99  # equally likely values that stand for more
_SITES = 199  # the same for the distribution of sites
Array = NDArray[np.float64]
Unit = tuple[str, str, str, str]  # source, profile, kind, framework
Member = TypeVar("Member")
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Sample:
    """A measured run: its source, GPU and framework; `log`: of measured over predicted seconds.

    `outside`: of measured seconds over those of the nearer of its two modes, 0 between them; `log` where it
    has one.
    """

    source: str
    profile: str
    kind: str
    framework: str
    plans: str
    log: float
    outside: float

    @property
    def unit(self) -> Unit:
        """Runs with one error in common."""
        return self.source, self.profile, self.kind, self.framework


def samples_of(path: Path, fits: Path = FITS) -> list[Sample]:
    """The runs of a table that can be expressed, predicted with the constants of frameworks that were fitted
    without their source, as far as the file `fits` has them. Raises TableError for a malformed file.
    """
    runs = RunSet.of(read_table(path)).on_measured_chips()
    sources = [source_of(cells, path.stem) for cells in runs.cells]
    predicted = np.zeros(len(runs))
    for source in set(sources):
        seconds = _predicted_s(runs, _constants_without(source, fits))
        predicted = np.where([name == source for name in sources], seconds, predicted)
    return [
        Sample(
            source=source,
            profile=run.profile.name,
            kind=kind_of(run.model),
            framework=run.system.framework,
            plans=plan_class(run.model, run.plan, run.system),
            log=math.log(measured_s / predicted_s),
            outside=_outside(measured_s, modes_s(run.plan, run.system, predicted_s)),
        )
        for source, run, measured_s, predicted_s in zip(
            sources, runs.runs, runs.measured_s.tolist(), predicted.tolist(), strict=True
        )
    ]


def _outside(measured_s: float, modes: tuple[float, float]) -> float:
    fast_s, slow_s = modes
    return math.log(measured_s / min(max(measured_s, fast_s), slow_s))


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
    without = {name: _ranges_without(name, samples) for name in sources}
    return {
        "level": LEVEL,
        "unit": "measured seconds over predicted seconds, 1",
        "sets": sets,
        "sources": {name: sum(each.source == name for each in samples) for name in sources},
        "spreads": {name: round(sd, 4) for name, (sd, _) in everything.spreads.items()},
        "columns": "lowest, highest, runs, sources",
        "ranges": everything.ranges(counts=True),
        "without": without,
    }


def _ranges_without(source: str, samples: Sequence[Sample]) -> dict[str, list[float]]:
    """The ranges without a source that its runs can have."""
    mine = {(place, run.kind) for run in samples if run.source == source for place in _places(run)}
    ranges = Evidence([run for run in samples if run.source != source]).ranges()
    return {name: ends for name, ends in ranges.items() if tuple(name.split("/")[:2]) in mine}


class Evidence:
    """Samples, and the ranges that follow from them."""

    def __init__(self, samples: Sequence[Sample]):
        self.samples = samples

    def ranges(self, *, counts: bool = False) -> dict[str, list[float]]:
        """Lowest and highest ratio, with `counts` also the number of runs and sources, by "place/kind/
        framework/class": place is a profile, a generation or `ANY`.
        """
        ranges: dict[str, list[float]] = {}
        for place, kind in sorted({(place, run.kind) for run in self.samples for place in _places(run)}):
            here = [run for run in self.samples if run.kind == kind and place in _places(run)]
            for framework in (*sorted({run.framework for run in here}), ANY):
                group = [run for run in here if framework in (ANY, run.framework)]
                if len(group) < FEWEST:
                    continue
                for plans in (*CLASSES, UNMEASURED):
                    runs = [run for run in group if run.plans == plans]
                    if not runs and plans != UNMEASURED:
                        continue
                    alike = runs if len(runs) >= FEWEST_OF_CLASS else group
                    sd, freedom = self.spread(place, framework, plans)
                    ends = self._range(alike, group, sd, freedom)
                    numbers = [len(alike), len({run.source for run in alike})] if counts else []
                    name = "/".join((place, kind, framework, plans))
                    ranges[name] = [round(ends[0], 4), round(ends[1], 4), *numbers]
        return ranges

    def spread(self, place: str, framework: str, plans: str) -> tuple[float, int]:
        """Standard deviation of the site's error, with what is not measured, and its degrees of freedom: the
        fewest of its parts, so that no part makes a range narrower.
        """
        parts = [self.spreads["sources"]]
        if place in (ANY, *GENERATIONS.values()):
            parts.append(self.spreads["GPUs"])
        if framework == ANY:
            parts.append(self.spreads["software"])
        if plans == UNMEASURED:
            parts.append(self.spreads["plans"])
        sd = math.sqrt(sum(sd**2 for sd, _ in parts))
        return sd, min((freedom for _, freedom in parts if freedom), default=0)

    def _range(
        self, alike: Sequence[Sample], group: Sequence[Sample], sd: float, freedom: int
    ) -> tuple[float, float]:
        """The range of the runs `alike`, at a site like those of `group`."""
        by_source = _grouped({run.unit for run in group}, lambda unit: unit[0])
        means = [float(np.mean([self.medians[unit] for unit in units])) for units in by_source.values()]
        sites = np.full(1, np.mean(means))
        if freedom:
            places = (np.arange(_SITES) + 0.5) / _SITES
            sites = sites + sd * math.sqrt(1 + 1 / len(means)) * stats.t.ppf(places, freedom)
        beside = [
            np.array([run.outside for run in runs]) - self.medians[unit]
            for unit, runs in _grouped(alike, lambda run: run.unit).items()
        ]
        return _middle(sites, beside)

    @cached_property
    def medians(self) -> dict[Unit, float]:
        units = _grouped(self.samples, lambda run: run.unit)
        return {unit: float(np.median([run.outside for run in runs])) for unit, runs in units.items()}

    @cached_property
    def spreads(self) -> dict[str, tuple[float, int]]:
        """Standard deviations with their degrees of freedom, pooled over groups of medians that share all but
        one thing: of sources; of GPUs, software and classes of plans at one source.

        Software differs between sources too, so its part is what the medians of frameworks differ by beyond
        the spread of sources. `LAWLESS` enters the ranges of its own software alone.
        """
        medians = {unit: log for unit, log in self.medians.items() if unit[3] not in LAWLESS}
        classes = _grouped(
            (run for run in self.samples if run.framework not in LAWLESS), lambda run: (*run.unit, run.plans)
        )
        by_class = {key: float(np.median([run.outside for run in runs])) for key, runs in classes.items()}
        software = {
            key: float(np.mean([medians[unit] for unit in units]))
            for key, units in _grouped(medians, lambda unit: unit[1:]).items()
        }
        sources = _pooled(medians, lambda unit: unit[1:])
        kinds, freedom = _pooled(software, lambda key: key[:2])
        shared = sources[0] ** 2 * len(software) / max(len(medians), 1)
        return {
            "sources": sources,
            "GPUs": _pooled(medians, lambda unit: (unit[0], *unit[2:])),
            "software": (math.sqrt(max(kinds**2 - shared, 0.0)), freedom),
            "plans": _pooled(by_class, lambda key: key[:4]),
        }


def _pooled(medians: Mapping[Any, float], key: Callable[[Any], Hashable]) -> tuple[float, int]:
    """Standard deviation of medians about those that share a key, and its degrees of freedom; (0, 0) if no
    two do.
    """
    squares, freedom = 0.0, 0
    for group in _grouped(medians, key).values():
        values = np.array([medians[member] for member in group])
        squares += float(((values - values.mean()) ** 2).sum())
        freedom += len(values) - 1
    return (math.sqrt(squares / freedom) if freedom else 0.0), freedom


def _places(sample: Sample) -> tuple[str, ...]:
    generation = GENERATIONS.get(sample.profile)
    return (sample.profile, generation, ANY) if generation else (sample.profile, ANY)


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
    parser = tables_parser(PROGRAM, "Compute the ranges that predictions carry as intervals.", EXAMPLE)
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
