"""Site calibration: fits a handful of a site's constants to measured runs and says how they do on others.

Every held-out figure comes from fits that never saw the run: k folds drawn with a seed, and whole models or
whole GPU counts left out. With `choose`, each of those fits chooses its constants anew from its own runs.

Constants that raise the mean absolute error, of the runs they were fitted to or of runs held out, are not
handed out: the site stays neutral, and the result says so. A fit can come to that where runs lie far from
the model: it looks at ratios, under which being 5 times too fast is as bad as being 5 times too slow, while
the error in percent knows at most 100 one way and 400 the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.measured import MeasuredRun
from itertime.runset import RunSet
from itertime.siteconstants import MEMORY_CONSTANTS, TIME_CONSTANTS, constants_named, site_of
from itertime.sitefit import SiteFit
from itertime.system import Site
from itertime.table import read_table
from itertime.uncertainty import conformal_range

__all__ = ["Calibration", "calibrate", "default_constants"]

Array = NDArray[np.float64]
FEWEST = 8  # runs
MOST_CONSTANTS = 3
REPORTED = 0.01  # percentage points: two digits after the point


@dataclass(frozen=True)
class Calibration:
    """Constants fitted to all runs, and errors in percent, predicted over measured less one.

    `fitted` is what the fit found, of time and of memory; `constants` leaves those of time, or of memory,
    neutral where they are `refused`. `in_sample` and `held_out`, of what the fit found, are one element per
    run of `runs`; `left_out` maps "model" and "GPU count" to the errors of runs whose whole group the fit
    never saw, where there is more than one group. The memory fields are the same for bytes, None without
    enough measurements.
    """

    runs: RunSet
    fitted: dict[str, float]
    folds: int
    seed: int
    in_sample: Array
    held_out: Array
    left_out: dict[str, Array]
    neutral: Array
    memory_neutral: Array | None
    memory_in_sample: Array | None
    memory_held_out: Array | None

    @property
    def refused(self) -> list[str]:
        """Of "time" and "memory", those whose constants predict worse than the neutral ones."""
        both = {
            "time": (self.neutral, self.in_sample, self.held_out),
            "memory": (self.memory_neutral, self.memory_in_sample, self.memory_held_out),
        }
        return [name for name, errors in both.items() if _worse(*errors)]

    @property
    def constants(self) -> dict[str, float]:
        """The constants that are handed out."""
        values = dict(self.fitted)
        for kind, known in (("time", TIME_CONSTANTS), ("memory", MEMORY_CONSTANTS)):
            if kind in self.refused:
                values |= {name: known[name].neutral for name in self.fitted if name in known}
        return values

    @property
    def site(self) -> Site:
        """The neutral site with the constants, and the range of its errors: of held-out runs, or with neutral
        constants where those of time are refused.
        """
        errors = self.neutral if "time" in self.refused else self.held_out
        ratios = 1 / (1 + errors / 100)
        return replace(site_of(self.constants), measured_over_predicted=conformal_range(ratios.tolist()))

    @property
    def at_bound(self) -> list[str]:
        """Fitted constants at a bound, where no site should be: the model lacks what the runs have."""
        known = {**TIME_CONSTANTS, **MEMORY_CONSTANTS}
        ends = {name: (known[name].low, known[name].high) for name in self.fitted}
        return [
            name
            for name, value in self.fitted.items()
            if value in ends[name] and value != known[name].neutral
        ]

    @property
    def does_not_fit(self) -> list[str]:
        """Runs that were measured and yet do not fit in memory with the site's constants."""
        _, needed = self.runs.evaluate(self.site)
        limits = [run.profile.memory_bytes for run in self.runs.runs]
        names = [str(cells["id"]) for cells in self.runs.cells]
        return [name for name, size, most in zip(names, needed, limits, strict=True) if size > most]


def calibrate(
    files: Sequence[str | Path],
    constants: Sequence[str] | None = None,
    folds: int = 10,
    seed: int = 0,
    choose: bool = False,
    most: int = MOST_CONSTANTS,
) -> Calibration:
    """Fits the site that ran the rows of `files`.

    `constants` names the constants to fit; without, `default_constants` of the runs, or with `choose` up to
    `most` that the runs speak for (`SiteFit.choose`). Memory constants are fitted on their own, wherever
    enough rows state memory. Raises TableError for a malformed file, UserError for fewer than 8 runs, more
    folds than runs, fewer than 2 folds, or a constant that does not exist.
    """
    rows = [row for path in files for row in read_table(path)]
    runs = RunSet.of(rows)
    if len(runs) < FEWEST:
        raise UserError(f"{len(runs)} runs can be expressed; a calibration needs at least {FEWEST}")
    if not 2 <= folds <= len(runs):
        raise UserError(f"folds={folds}: must be from 2 to the number of runs, {len(runs)}")
    fixed = constants_named(default_constants(runs.runs) if constants is None else constants)
    if not fixed:
        raise UserError("no constants to fit; name at least one")
    fitter = SiteFit(runs)

    def fitted(known: NDArray[np.int64]) -> dict[str, float]:
        chosen = fitter.choose(tuple(TIME_CONSTANTS.values()), known, most) if choose else fixed
        return fitter.fit(chosen, known)

    everything = np.arange(len(runs))
    values = fitted(everything)
    left_out = {}
    for name, key in _GROUPS.items():
        groups = [key(run) for run in runs.runs]
        if len(dict.fromkeys(groups)) > 1:
            left_out[name] = _errors(fitter, everything, _by_group(groups), fitted)
    memory = _memory(runs, folds, seed)
    return Calibration(
        runs,
        {**values, **memory[0]},
        folds,
        seed,
        _error(fitter, values, everything),
        _errors(fitter, everything, _folds(everything, folds, seed), fitted),
        left_out,
        _error(fitter, {}, everything),
        *memory[1:],
    )


def default_constants(runs: Iterable[MeasuredRun]) -> tuple[str, ...]:
    """Three constants that runs of this kind can tell apart: arithmetic, and what the kind pays besides.

    Tensor or pipeline parallelism in most runs: communication in every layer, and a layer's overhead. Data
    parallelism alone: an iteration's overhead, with ZeRO-1 or -2 in most runs the broadcast of weights, else
    a layer's overhead.
    """
    plans = [run.plan for run in runs]
    if _most(plan.tp > 1 or plan.pp > 1 for plan in plans):
        return "gemm_multiplier", "all_reduce_multiplier", "layer_overhead_s"
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


def _worse(neutral: Array | None, *fitted: Array | None) -> bool:
    """Whether any errors are larger than the neutral ones, in the mean of their sizes as it is reported."""
    if neutral is None:
        return False
    most = np.abs(neutral).mean() + REPORTED
    return any(np.abs(errors).mean() > most for errors in fitted if errors is not None)


def _memory(
    runs: RunSet, folds: int, seed: int
) -> tuple[dict[str, float], Array | None, Array | None, Array | None]:
    """Constants, and the errors with neutral ones, in sample and held out."""
    rows = np.flatnonzero(np.isfinite(runs.measured_bytes))
    if len(rows) < FEWEST:
        return {}, None, None, None
    fitter, constants = SiteFit(runs, of_memory=True), tuple(MEMORY_CONSTANTS.values())

    def fitted(known: NDArray[np.int64]) -> dict[str, float]:
        return fitter.fit(constants, known)

    values = fitted(rows)
    held_out = _errors(fitter, rows, _folds(rows, min(folds, len(rows)), seed), fitted)
    return values, _error(fitter, {}, rows), _error(fitter, values, rows), held_out


def _errors(
    fitter: SiteFit,
    rows: NDArray[np.int64],
    parts: Iterable[NDArray[np.int64]],
    fitted: Callable[[NDArray[np.int64]], Mapping[str, float]],
) -> Array:
    """Errors of `rows`, each part's from a fit to all the others."""
    errors = np.zeros(len(fitter.measured))
    for part in parts:
        errors[part] = _error(fitter, fitted(np.setdiff1d(rows, part)), part)
    return errors[rows]


def _error(fitter: SiteFit, values: Mapping[str, float], rows: NDArray[np.int64]) -> Array:
    return (fitter.predicted(values)[rows] / fitter.measured[rows] - 1) * 100


def _folds(rows: NDArray[np.int64], folds: int, seed: int) -> list[NDArray[np.int64]]:
    shuffled = np.random.default_rng(seed).permutation(rows)
    return [shuffled[first::folds] for first in range(folds)]


def _by_group(groups: Sequence[Hashable]) -> list[NDArray[np.int64]]:
    members: dict[Any, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    return [np.array(rows) for rows in members.values()]
