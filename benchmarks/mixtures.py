"""Errors of mixtures by source, with the framework's constant of experts fitted to other sources.

    python benchmarks/mixtures.py [FOLDER]

FOLDER holds the tables of iterations of modern GPUs. `expert_layer_s` of the framework `te`, the wait for the
counts of tokens in every layer and micro-batch, is fitted to the H100 sources (Grok-1 in dgxc-benchmarking,
Megatron-Bridge, AutoModel), each weighing the same: it has the least mean over sources of the mean absolute
error, on a grid of 0.25 ms. The first lines leave out the source that is scored; Blackwell is never fitted
to. The line "all" gives the value of `itertime/frameworks/te.yaml`, and the last lines are its errors.

`expert_multiplier` stays 1: fitted beside the wait to all H100 sources, it came to 1.0.
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

from itertime.calibration.run_set import RunSet
from itertime.calibration.table import read_table
from itertime.spec import load_framework

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
FRAMEWORK = "te"
SOURCES = {
    "dgxc": ("h100_dgxc_nemo_moe_bf16.csv", "h100_dgxc_nemo_moe_fp8.csv"),
    "bridge": ("h100_megatron_bridge_moe_bf16.csv", "h100_megatron_bridge_moe_fp8.csv"),
    "automodel": ("h100_automodel_moe_bf16.csv",),
    "blackwell": ("blackwell_megatron_bridge_moe.csv",),
}
FITTED = ("dgxc", "bridge", "automodel")
GRID = np.arange(0, 12.01, 0.25) * 1e-3

Array = NDArray[np.float64]


def errors(runs: RunSet, layer_s: float) -> Array:
    """Predicted over measured seconds, minus 1."""
    te = {FRAMEWORK: replace(load_framework(FRAMEWORK), expert_layer_s=layer_s)}
    return runs.evaluate(None, te)[0] / runs.measured_s - 1


def line(name: str, layer_s: float, found: Array) -> str:
    off = 100 * found
    return f"{name:<22} {1e3 * layer_s:8.2f} {np.abs(off).mean():8.1f} {off.mean():+8.1f} {len(off):6}"


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.WARNING)
    folder = Path(arguments[0]) if arguments else SHARED / "data" / "modern_gpus" / "iterations"
    sets = {
        name: RunSet.of([row for file in files for row in read_table(folder / file)])
        for name, files in SOURCES.items()
    }
    on_grid = {name: [errors(runs, layer_s) for layer_s in GRID] for name, runs in sets.items()}

    def fitted(names: Sequence[str]) -> int:
        means = [[np.abs(found).mean() for found in on_grid[name]] for name in names]
        return int(np.argmin(np.mean(means, axis=0)))

    for name, runs in sets.items():
        print(f"{name}: {len(runs)} runs, {len(runs.skipped)} rows skipped")
    print(f"{'scored':<22} {'layer ms':>8} {'MAPE %':>8} {'bias %':>8} {'runs':>6}")
    for name in sets:
        best = fitted([other for other in FITTED if other != name])
        print(line(f"{name}, left out", float(GRID[best]), on_grid[name][best]))
    print(f"{'all':<22} {1e3 * GRID[fitted(FITTED)]:8.2f}")
    shipped = load_framework(FRAMEWORK).expert_layer_s
    for name, runs in sets.items():
        print(line(f"{name}, as shipped", shipped, errors(runs, shipped)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
