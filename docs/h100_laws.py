"""Laws of slow layers and slow sends in pipelines over nodes of `h100_ultrascale`, and the runs that follow
them, for docs/h100.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from itertime.calibration.run_set import RunSet

FITTED_ON = (8, 32, 128)  # GPUs
CLOSE = 0.2  # of the measured time: a run counts as explained
FARTHEST = 0.5  # of |log|: runs farther off do not influence the fit

Array = np.ndarray


@dataclass(frozen=True)
class Columns:
    """The variables of the laws, one element per run.

    `layers`: of a stage, on average. `slots`: micro-batches plus stages less one.
    """

    measured: Array
    gpus: Array
    tp: Array
    pp: Array
    layers: Array
    slots: Array
    zero: Array
    fitted_on: Array

    @classmethod
    def of(cls, runs: RunSet) -> Columns:
        plans = [run.plan for run in runs.runs]
        gpus = np.array([plan.gpus for plan in plans])
        return cls(
            runs.measured_s,
            gpus,
            np.array([plan.tp for plan in plans]),
            np.array([plan.pp for plan in plans]),
            np.array([run.model.layers / run.plan.pp for run in runs.runs]),
            np.array([plan.microbatches + plan.pp - 1 for plan in plans]),
            np.array([plan.zero_stage for plan in plans]),
            np.isin(gpus, FITTED_ON),
        )

    @property
    def classes(self) -> dict[str, Array]:
        alone, node = self.pp == 1, self.gpus <= 8
        return {
            "all": np.ones(len(self.pp), bool),
            "no pipeline, tp <= 8": alone & (self.tp <= 8),
            "no pipeline, tp > 8": alone & (self.tp > 8),
            "pipeline in a node": ~alone & node,
            "over nodes, tp = 1": ~alone & ~node & (self.tp == 1),
            "over nodes, tp > 1": ~alone & ~node & (self.tp > 1),
        }


@dataclass(frozen=True)
class Laws:
    """Effects of the fitted runs that the model does not have.

    A pipeline over nodes with tp > 1: a layer and micro-batch take at least `layer_s` + tp x `rank_s`. Slow
    sends: every send and receive of a stage takes `send_s` more.
    """

    layer_s: float
    rank_s: float
    send_s: float

    def least(self, columns: Columns) -> Array:
        return columns.slots * columns.layers * (self.layer_s + self.rank_s * columns.tp)

    def slow_layers(self, predicted: Array, columns: Columns) -> Array:
        affected = (columns.pp > 1) & (columns.gpus > 8) & (columns.tp > 1)
        return np.where(affected, np.maximum(predicted, self.least(columns)), predicted)

    def slow_sends(self, columns: Columns) -> Array:
        sends = np.where(columns.pp == 2, 2, 4) * (columns.pp > 1)  # and receives, of a stage and micro-batch
        return columns.slots * sends * self.send_s

    def kinds(self, predicted: Array, columns: Columns) -> dict[str, Array]:
        """Seconds under each kind of behaviour, the simplest first."""
        layers, sends = self.slow_layers(predicted, columns), self.slow_sends(columns)
        return {
            "as predicted": predicted,
            "slow layers": layers,
            "slow sends": predicted + sends,
            "slow layers and sends": layers + sends,
        }


def laws(predicted: Array, columns: Columns) -> Laws:
    """The laws that bring the runs of pipelines over nodes closest to one kind or another."""
    rows = (columns.pp > 1) & (columns.gpus > 8) & columns.fitted_on

    def misses(logs: Array) -> float:
        kinds = Laws(*np.exp(logs)).kinds(predicted, columns).values()
        off = np.min([np.abs(np.log(each / columns.measured))[rows] for each in kinds], axis=0)
        return float(np.minimum(off, FARTHEST).mean())

    start = np.log([5e-3, 2e-3, 0.2])
    found = minimize(
        misses, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6, "maxiter": 2000}
    )
    return Laws(*(float(value) for value in np.exp(found.x)))


def sorted_by_kind(kinds: dict[str, Array], columns: Columns) -> dict[str, Array]:
    """Runs of pipelines over nodes by the kind that they lie close to, counted once, the simplest first."""
    left = (columns.pp > 1) & (columns.gpus > 8)
    found = {}
    for name, seconds in kinds.items():
        found[name] = left & (np.abs(seconds / columns.measured - 1) < CLOSE)
        left = left & ~found[name]
    return found | {"none of these": left}
