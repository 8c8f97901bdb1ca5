"""Fits site constants to measured runs: robust, bounded, regularised towards neutral.

The residuals are log(predicted / measured) over 0.5 %, under the soft L1 loss. It is close to the reported
mean absolute error, so a few runs that contradict their neighbours do not decide. Each constant adds its z
(see `Constant`) under the square loss. The result is the mode of a Laplace-like likelihood under a normal
prior. Predictions are nearly linear in z, so a fit is a few small problems, each with the predictions
linearised at the last solution.

The constants of a site that can be fitted: their bounds, their scales, and the variable of the fit.

Every constant is fitted as z = (u - neutral u) / scale, where u is the constant, or its inverse if time is
proportional to the inverse. So the predicted time is close to linear in z, z = 0 is neutral, and one unit of
z is a typical difference between sites. Bounds are physical limits.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from itertime.arrays import Array, Whole
from itertime.errors import UnknownName, UserError
from itertime.spec import NETWORK_EFFICIENCY, Site

from .run_set import RunSet


@dataclass(frozen=True)
class Constant:
    """A field of `Site`: its bounds, and the scale by which sites differ (of its inverse, if `inverse`).

    `starts`: values of z from which a fit starts, in addition to 0, for a constant that has no effect on the
    time near neutral.
    """

    name: str
    low: float
    high: float
    scale: float
    inverse: bool = False
    starts: tuple[float, ...] = ()

    @property
    def neutral(self) -> float:
        value = getattr(Site(), self.name)
        return NETWORK_EFFICIENCY if value is None else float(value)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of z, lowest first."""
        low, high = sorted((self._z(self.low), self._z(self.high)))
        return low, high

    def value(self, z: float) -> float:
        """The constant at z, clamped to its bounds."""
        if self.inverse:
            return min(max(self.neutral / (1 + z * self.scale), self.low), self.high)
        return min(max(self.neutral + z * self.scale, self.low), self.high)

    def _z(self, value: float) -> float:
        return (self.neutral / value - 1 if self.inverse else value - self.neutral) / self.scale


# Scales: kernels of one GPU type differ little between sites, collectives by up to 2.6 times (the tables of
# vTrain, aiconfigurator and vidur near 1 MB, by NCCL version); overheads are milliseconds a layer
# (Megatron-DeepSpeed on Jean Zay, llm-foundry) and half a second an iteration (InternEvo).
TIME_CONSTANTS = {
    constant.name: constant
    for constant in (
        Constant("gemm_multiplier", 0.7, 2.0, 0.15),
        Constant("attention_multiplier", 0.4, 4.0, 0.3),
        Constant("hbm_fraction", 0.4, 1.3, 0.15, inverse=True),
        Constant("network_efficiency", 0.1, 1.0, 0.3, inverse=True),
        Constant("all_reduce_multiplier", 0.3, 4.0, 0.5),
        Constant("launch_s", 0.0, 300e-6, 50e-6, starts=(1.0, 2.0, 4.0)),
        Constant("layer_overhead_s", 0.0, 0.1, 0.01),
        Constant("iteration_overhead_s", 0.0, 20.0, 0.5),
        Constant("p2p_exposure", 0.0, 1.0, 0.3),
        Constant("zero_broadcast_s", 0.0, 0.1, 0.004),
    )
}
MEMORY_CONSTANTS = {
    constant.name: constant
    for constant in (
        Constant("memory_multiplier", 0.7, 1.5, 0.1),
        Constant("memory_overhead_bytes", 0.0, 40e9, 5e9),
    )
}


def constants_named(names: Iterable[str]) -> tuple[Constant, ...]:
    """The time constants of these names. Raises UnknownName for another, UserError for a repeated one."""
    constants: list[Constant] = []
    for name in names:
        if name not in TIME_CONSTANTS:
            raise UnknownName("site constant", name, TIME_CONSTANTS)
        if TIME_CONSTANTS[name] in constants:
            raise UserError(f"site constant {name} is given twice; name each once")
        constants.append(TIME_CONSTANTS[name])
    return tuple(constants)


def site_of(values: Mapping[str, float]) -> Site:
    """The neutral site with these constants."""
    return dataclasses.replace(Site(), **dict(values))  # type: ignore[arg-type]


RESIDUAL_SCALE = 0.005  # below this the absolute value is smoothed, so that it has a derivative
STEP = 0.1  # of z, for finite differences
TOLERANCE = 0.02  # of z
INSIDE = 0.05  # of z: distance of starts from the bounds, where the solver's steps vanish
AT_BOUND = 1e-4  # of z: the solver approaches a bound but never reaches it
MOST_ROUNDS = 6


class SiteFit:
    """Fits to subsets of one set of runs, which share cached predictions.

    `of_memory` fits the measured bytes instead of seconds.
    """

    def __init__(self, runs: RunSet, of_memory: bool = False):
        self.runs = runs
        self.of_memory = of_memory
        self.measured = runs.measured_bytes if of_memory else runs.measured_s
        self._known: dict[tuple[tuple[str, float], ...], Array] = {}
        self._slopes: dict[str, Array] = {}

    def predicted(self, values: Mapping[str, float]) -> Array:
        """Seconds (or bytes) of every run under these constants."""
        key = tuple(sorted(values.items()))
        if key not in self._known:
            self._known[key] = self.runs.evaluate(site_of(values))[int(self.of_memory)]
        return self._known[key]

    def fit(self, constants: Sequence[Constant], rows: Whole) -> dict[str, float]:
        """The constants of the best fit to these rows. Fits start at neutral and at constants' `starts`."""
        fits = []
        for start in itertools.product(*((0.0, *constant.starts) for constant in constants)):
            z = self._fit(constants, rows, np.array(start))
            fits.append((self._cost(constants, rows, z), start, z))
        return _values(constants, min(fits, key=lambda fit: fit[:2])[2])

    def _fit(self, constants: Sequence[Constant], rows: Whole, z: Array) -> Array:
        for round_ in range(MOST_ROUNDS):
            previous = z
            base, slopes = self._linear(constants, z)
            z, _ = self._solve(constants, rows, base, slopes, previous)
            if np.abs(z - previous).max(initial=0.0) < TOLERANCE and round_ > 0:
                break
        return z

    def _cost(self, constants: Sequence[Constant], rows: Whole, z: Array) -> float:
        ratios = self.predicted(_values(constants, z))[rows] / self.measured[rows]
        return 0.5 * float(_loss(np.concatenate([np.log(ratios) / RESIDUAL_SCALE, z]), len(rows))[0].sum())

    def choose(self, candidates: Sequence[Constant], rows: Whole, max_constants: int) -> tuple[Constant, ...]:
        """Select up to `max_constants` constants greedily; each lowers the cost on these rows the most.

        The selection stops where the Bayesian information criterion (Schwarz 1978) rejects the next constant:
        rows x log(cost before / after) <= log(rows) / 2, as for Laplace errors of unknown width. It uses
        predictions linearised at the neutral constants.
        """
        base = self.predicted({})
        selection: tuple[Constant, ...] = ()
        useful = [constant for constant in candidates if np.any(self._neutral_slope(constant)[rows])]
        cost = self._solve((), rows, base, np.zeros((len(base), 0)), np.zeros(0))[1]
        while len(selection) < max_constants:
            trials = []
            for index, constant in enumerate(useful):
                if constant not in selection:
                    trial = (*selection, constant)
                    slopes = np.column_stack([self._neutral_slope(member) for member in trial])
                    trials.append((self._solve(trial, rows, base, slopes, np.zeros(len(trial)))[1], index))
            if not trials:
                break
            best, index = min(trials)
            if len(rows) * math.log(cost / best) <= math.log(len(rows)) / 2:
                break
            selection, cost = (*selection, useful[index]), best
        return selection

    def _neutral_slope(self, constant: Constant) -> Array:
        """Seconds per unit of z, from neutral to the first of the constant's `starts`, or else to `STEP`."""
        if constant.name not in self._slopes:
            step = constant.starts[0] if constant.starts else STEP
            self._slopes[constant.name] = self._slope((constant,), np.zeros(1), 0, step)
        return self._slopes[constant.name]

    def _linear(self, constants: Sequence[Constant], z: Array) -> tuple[Array, Array]:
        base = self.predicted(_values(constants, z))
        if not z.any():
            slopes = [self._neutral_slope(constant) for constant in constants]
        else:
            slopes = [self._slope(constants, z, index) for index in range(len(constants))]
        return base, np.column_stack(slopes) if slopes else np.zeros((len(base), 0))

    def _slope(self, constants: Sequence[Constant], z: Array, index: int, step: float = STEP) -> Array:
        step = step if z[index] + step <= constants[index].bounds[1] else -step
        moved = z.copy()
        moved[index] += step
        return (self.predicted(_values(constants, moved)) - self.predicted(_values(constants, z))) / step

    def _solve(
        self, constants: Sequence[Constant], rows: Whole, base: Array, slopes: Array, origin: Array
    ) -> tuple[Array, float]:
        """The best z for the linear predictions base + slopes (z - origin), and its cost."""
        from scipy.optimize import least_squares

        base, slopes, measured = base[rows], slopes[rows], self.measured[rows]

        def residuals(z: Array) -> Array:
            predicted = np.maximum(base + slopes @ (z - origin), 1e-3 * measured)
            return np.concatenate([np.log(predicted / measured) / RESIDUAL_SCALE, z])

        if not constants:
            return origin, 0.5 * float(_loss(residuals(origin), len(rows))[0].sum())
        low, high = np.array([constant.bounds for constant in constants]).T
        result: Any = least_squares(
            residuals,
            np.clip(origin, low + INSIDE, high - INSIDE),
            bounds=(low, high),
            loss=lambda squares: _loss(squares**0.5, len(rows)),
        )
        z = np.where(result.x - low < AT_BOUND, low, np.where(high - result.x < AT_BOUND, high, result.x))
        return z, float(result.cost)


def _loss(residuals: Array, rows: int) -> Array:
    """rho, rho' and rho'' of squared residuals, as scipy expects: soft L1 for runs, square for constants."""
    rho = np.array([residuals**2, np.ones_like(residuals), np.zeros_like(residuals)])
    root = np.sqrt(1 + residuals[:rows] ** 2)
    rho[:, :rows] = 2 * (root - 1), 1 / root, -0.5 / root**3
    return rho


def _values(constants: Sequence[Constant], z: Array) -> dict[str, float]:
    return {constant.name: constant.value(float(value)) for constant, value in zip(constants, z, strict=True)}
