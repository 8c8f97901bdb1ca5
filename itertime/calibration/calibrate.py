"""Site calibration: fits a few constants of a site to measured runs and measures their error on other runs.

Every held-out figure comes from fits that did not see the run: k folds drawn with a seed, and whole models or
whole GPU counts left out. With `choose`, each of these fits selects its constants from its own runs.

Constants that raise the mean absolute error, of the runs they were fitted to or of held-out runs, are
refused: the site stays neutral, and the result says so. A fit can raise this error where runs lie far from
the model. It minimises ratios, in which 5 times too fast is as bad as 5 times too slow; in percent, the one
error is -80 and the other 400.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from itertime.accuracy import conformal_range
from itertime.arrays import Array, Whole
from itertime.errors import UserError
from itertime.spec import Site

from .measured_run import MeasuredRun
from .run_set import RunSet
from .site_fit import MEMORY_CONSTANTS, TIME_CONSTANTS, SiteFit, constants_named, site_of
from .table import read_table

Rows = Whole
"""Indices of runs."""
Fitted = Callable[[Rows], dict[str, float]]
"""The constants of the best fit to some runs."""
FEWEST = 8  # runs
MOST_CONSTANTS = 3
REPORTED = 0.01  # percentage points: reports show two decimals


@dataclass(frozen=True)
class FitErrors:
    """Constants fitted to the seconds or to the bytes of runs, and errors in percent (predicted over
    measured, minus one), one element a run: with the neutral constants, with the fitted ones, and with those
    of a fit without the run.
    """

    fitted: dict[str, float]
    neutral: Array
    in_sample: Array
    held_out: Array

    @property
    def refused(self) -> bool:
        """Whether the mean absolute error of either fit exceeds the neutral one by a reported digit."""
        threshold = np.abs(self.neutral).mean() + REPORTED
        return any(np.abs(errors).mean() > threshold for errors in (self.in_sample, self.held_out))


@dataclass(frozen=True)
class Calibration:
    """Fits to the seconds of all runs, and to the bytes of those that state them, None if too few do.

    If there are several groups, `left_out` maps "model" and "GPU count" to the errors of the seconds of runs
    under fits without their group.
    """

    runs: RunSet
    time: FitErrors
    memory: FitErrors | None
    folds: int
    seed: int
    left_out: dict[str, Array]

    @property
    def fitted(self) -> dict[str, float]:
        """The constants that fit best, of time and of memory."""
        return self.time.fitted | (self.memory.fitted if self.memory else {})

    @property
    def refused(self) -> list[str]:
        """Which of "time" and "memory" have constants that predict worse than the neutral ones."""
        return [name for name, fit in (("time", self.time), ("memory", self.memory)) if fit and fit.refused]

    @property
    def constants(self) -> dict[str, float]:
        """The fitted constants, neutral where they are refused."""
        values = self.fitted
        for kind, kind_constants in (("time", TIME_CONSTANTS), ("memory", MEMORY_CONSTANTS)):
            if kind in self.refused:
                values |= {
                    name: kind_constants[name].neutral for name in self.fitted if name in kind_constants
                }
        return values

    @property
    def site(self) -> Site:
        """The neutral site with the constants and the range of its errors: those of held-out runs or, if the
        constants of time are refused, those of the neutral constants.
        """
        errors = self.time.neutral if self.time.refused else self.time.held_out
        ratios = 1 / (1 + errors / 100)
        return replace(site_of(self.constants), measured_over_predicted=conformal_range(ratios.tolist()))

    @property
    def at_bound(self) -> list[str]:
        """Fitted constants at a bound. No real site lies there, so the model lacks something."""
        constants = {**TIME_CONSTANTS, **MEMORY_CONSTANTS}
        ends = {name: (constants[name].low, constants[name].high) for name in self.fitted}
        return [
            name
            for name, value in self.fitted.items()
            if value in ends[name] and value != constants[name].neutral
        ]

    @property
    def does_not_fit(self) -> list[str]:
        """Measured runs that, with the site's constants, are predicted not to fit in memory."""
        predicted_bytes = self.runs.needed_bytes(self.site)
        limits = [run.profile.memory_bytes for run in self.runs.runs]
        names = [str(cells["id"]) for cells in self.runs.cells]
        return [
            name for name, size, limit in zip(names, predicted_bytes, limits, strict=True) if size > limit
        ]


def calibrate(
    files: Sequence[str | Path],
    constants: Sequence[str] | None = None,
    folds: int = 10,
    seed: int = 0,
    choose: bool = False,
    max_constants: int = MOST_CONSTANTS,
) -> Calibration:
    """Fit the site that ran the rows of `files`.

    `constants` names the constants to fit. None means `default_constants` of the runs or, with `choose`, up
    to `max_constants` constants that the runs support (`SiteFit.choose`). Memory constants are fitted
    separately if enough rows state memory. Raises TableError for a malformed file, UserError for fewer than 8
    runs, more folds than runs, fewer than 2 folds, or a constant that does not exist.
    """
    rows = [row for path in files for row in read_table(path)]
    runs = RunSet.of(rows)
    if len(runs) < FEWEST:
        reason = (
            f" (skipped {len(runs.skipped)}; the first reason: {runs.skipped[0][1]})" if runs.skipped else ""
        )
        raise UserError(f"{len(runs)} runs can be expressed{reason}; a calibration needs at least {FEWEST}")
    if not 2 <= folds <= len(runs):
        raise UserError(f"folds={folds}: must be from 2 to the number of runs, {len(runs)}")
    fixed = constants_named(default_constants(runs.runs) if constants is None else constants)
    if not fixed:
        raise UserError("no constants to fit; name at least one")
    fitter = SiteFit(runs)

    def fitted(rows: Rows) -> dict[str, float]:
        selection = fitter.choose(tuple(TIME_CONSTANTS.values()), rows, max_constants) if choose else fixed
        return fitter.fit(selection, rows)

    everything = np.arange(len(runs))
    left_out = {}
    for name, key in _GROUPS.items():
        groups = [key(run) for run in runs.runs]
        if len(dict.fromkeys(groups)) > 1:
            left_out[name] = _errors(fitter, everything, _by_group(groups), fitted)
    return Calibration(
        runs=runs,
        time=_fit(fitter, everything, fitted, folds, seed),
        memory=_memory(runs, folds, seed),
        folds=folds,
        seed=seed,
        left_out=left_out,
    )


def default_constants(runs: Iterable[MeasuredRun]) -> tuple[str, ...]:
    """Three constants that runs of this kind can distinguish: arithmetic, and the kind's other costs.

    With tensor or pipeline parallelism in most runs: communication in every layer, and a layer's overhead.
    With data parallelism alone: an iteration's overhead, and either the broadcast of weights (ZeRO-1 or -2 in
    most runs) or a layer's overhead; with LAMB, which gathers weights at once and trains narrow models,
    memory-bound kernels.
    """
    plans = [run.plan for run in runs]
    if _most(plan.tp > 1 or plan.pp > 1 for plan in plans):
        return "gemm_multiplier", "all_reduce_multiplier", "layer_overhead_s"
    if _most(plan.options.optimizer == "lamb" for plan in plans):
        return "gemm_multiplier", "hbm_fraction", "iteration_overhead_s"
    if _most(plan.zero_stage in (1, 2) for plan in plans):
        return "gemm_multiplier", "iteration_overhead_s", "zero_broadcast_s"
    return "gemm_multiplier", "layer_overhead_s", "iteration_overhead_s"


def _most(holds: Iterable[bool]) -> bool:
    answers = list(holds)
    return 2 * sum(answers) > len(answers)


_GROUPS: Mapping[str, Callable[[MeasuredRun], Hashable]] = {
    "model": lambda run: (run.model.layers, run.model.hidden, run.model.heads),
    "GPU count": lambda run: run.plan.gpus,
}


def _memory(runs: RunSet, folds: int, seed: int) -> FitErrors | None:
    """The fit to measured memory; None without enough measurements."""
    rows = np.flatnonzero(np.isfinite(runs.measured_bytes))
    if len(rows) < FEWEST:
        return None
    fitter, constants = SiteFit(runs, of_memory=True), tuple(MEMORY_CONSTANTS.values())
    return _fit(fitter, rows, lambda sample: fitter.fit(constants, sample), min(folds, len(rows)), seed)


def _fit(fitter: SiteFit, rows: Rows, fitted: Fitted, folds: int, seed: int) -> FitErrors:
    """The fit to `rows`, with its errors on them and those of `folds` fits without each part of them."""
    values = fitted(rows)
    return FitErrors(
        fitted=values,
        neutral=_error(fitter, {}, rows),
        in_sample=_error(fitter, values, rows),
        held_out=_errors(fitter, rows, _folds(rows, folds, seed), fitted),
    )


def _errors(fitter: SiteFit, rows: Rows, parts: Iterable[Rows], fitted: Fitted) -> Array:
    """Errors of `rows`; those of each part are from a fit to all other rows."""
    errors = np.zeros(len(fitter.measured))
    for part in parts:
        errors[part] = _error(fitter, fitted(np.setdiff1d(rows, part)), part)
    return errors[rows]


def _error(fitter: SiteFit, values: Mapping[str, float], rows: Rows) -> Array:
    return (fitter.predicted(values)[rows] / fitter.measured[rows] - 1) * 100


def _folds(rows: Rows, folds: int, seed: int) -> list[Rows]:
    shuffled = np.random.default_rng(seed).permutation(rows)
    return [shuffled[offset::folds] for offset in range(folds)]


def _by_group(groups: Sequence[Hashable]) -> list[Rows]:
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    return [np.array(rows) for rows in members.values()]
