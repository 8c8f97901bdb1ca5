"""Errors of mixtures by source, with the framework's two constants of experts fitted to other sources.

    python benchmarks/mixtures.py [FOLDER]

FOLDER holds the tables of iterations of modern GPUs. `expert_multiplier` and `expert_layer_s` of the
framework `te` are fitted to the H100 sources (Grok-1 in dgxc-benchmarking, Megatron-Bridge, AutoModel), each
weighing the same, by the mean of a robust loss of ln(predicted / measured). The first lines leave out the
source that is scored; Blackwell is never fitted to. The line "all" gives the values of
`itertime/frameworks/te.yaml`, and the last ones are its errors.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from itertime.calibration.run_set import RunSet
from itertime.calibration.table import read_table
from itertime.spec import Framework, load_framework

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
FRAMEWORK = "te"
SOURCES = {
    "dgxc": ("h100_dgxc_nemo_moe_bf16.csv", "h100_dgxc_nemo_moe_fp8.csv"),
    "bridge": ("h100_megatron_bridge_moe_bf16.csv", "h100_megatron_bridge_moe_fp8.csv"),
    "automodel": ("h100_automodel_moe_bf16.csv",),
    "blackwell": ("blackwell_megatron_bridge_moe.csv",),
}
FITTED = ("dgxc", "bridge", "automodel")
START, LEAST, MOST = (1.0, 3e-3), (0.3, 1e-5), (3.0, 30e-3)

Array = NDArray[np.float64]


def framework(values: Sequence[float] | Array) -> Framework:
    """`te` with these constants of experts."""
    multiplier, layer_s = values
    te = load_framework(FRAMEWORK)
    return replace(te, expert_multiplier=float(multiplier), expert_layer_s=float(layer_s))


def ratios(runs: RunSet, values: Sequence[float] | Array) -> Array:
    """Predicted over measured seconds."""
    return runs.evaluate(None, {FRAMEWORK: framework(values)})[0] / runs.measured_s


def fitted(sets: Sequence[RunSet]) -> tuple[float, float]:
    """The two constants that fit these sets best."""

    def misses(logs: Array) -> Array:
        return np.concatenate([np.log(ratios(runs, np.exp(logs))) / np.sqrt(len(runs)) for runs in sets])

    bounds = np.log(LEAST), np.log(MOST)
    # differences of 1 %, because rounded sizes of tiles make steps
    found = least_squares(misses, np.log(START), bounds=bounds, loss="soft_l1", f_scale=0.03, diff_step=1e-2)
    multiplier, layer_s = np.exp(found.x)
    return float(multiplier), float(layer_s)


def line(name: str, values: Sequence[float], errors: Array) -> str:
    off = 100 * (errors - 1)
    return f"{name:<22} {values[0]:10.2f} {1e3 * values[1]:8.2f} {np.abs(off).mean():8.1f} {off.mean():+8.1f}"


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.WARNING)
    folder = Path(arguments[0]) if arguments else SHARED / "data" / "modern_gpus" / "iterations"
    sets = {
        name: RunSet.of([row for file in files for row in read_table(folder / file)])
        for name, files in SOURCES.items()
    }
    for name, runs in sets.items():
        print(f"{name}: {len(runs)} runs, {len(runs.skipped)} rows skipped")
    print(f"{'scored':<22} {'multiplier':>10} {'layer ms':>8} {'MAPE %':>8} {'bias %':>8}")
    for name, runs in sets.items():
        values = fitted([sets[other] for other in FITTED if other != name])
        print(line(f"{name}, left out", values, ratios(runs, values)))
    values = fitted([sets[name] for name in FITTED])
    print(f"{'all':<22} {values[0]:10.2f} {1e3 * values[1]:8.2f}")
    shipped = load_framework(FRAMEWORK)
    values = shipped.expert_multiplier, shipped.expert_layer_s
    for name, runs in sets.items():
        print(line(f"{name}, as shipped", values, ratios(runs, values)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
