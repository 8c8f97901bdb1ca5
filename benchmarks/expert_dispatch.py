"""DeepEP's dispatch and combine: predicted against measured, and the constants of the formula.

    python benchmarks/expert_dispatch.py [FILE]

FILE is `moe_all_to_all_deepep_aiconfigurator.csv.gz`: DeepEP's kernels on one node (or a tray of 4) of six
GPUs, and on 2 to 8 nodes of H100. The constants `IN_NODE` of `itertime.costs.network.expert_dispatch` are
fitted to one node of H100 and B200 with hidden 2,048 and 7,168. Everything else is held out: the other GPUs,
the other shapes, and all rows of several nodes, where the network is that of the system `dgx-h100`.

Dispatch is in fp8, combine in bf16, which the bytes confirm: both reach the same bandwidth.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from itertime.costs.network import Fabric, Group, RoutedTokens, combine_s, dispatch_s
from itertime.costs.network.expert_dispatch import IN_NODE, DeepEpKernel
from itertime.spec import System, load_system, profile_of

SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", Path(__file__).parents[2] / "shared"))
NAME = "moe_all_to_all_deepep_aiconfigurator.csv.gz"
FILE = SHARED / "data" / "modern_gpus" / "operators" / NAME
SYSTEMS = {
    "h100_sxm": "dgx-h100",
    "h200_sxm": "dgx-h200",
    "b200_sxm": "dgx-b200",
    "b300_sxm": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}
FUNCTIONS = {"dispatch": dispatch_s, "combine": combine_s}
MOST_NODES = 4
"""DeepEP's test sends a token to at most 4 nodes."""


@cache
def _system(gpu: str) -> System:
    return load_system(SYSTEMS[gpu])


def measured(path: Path) -> pd.DataFrame:
    """The rows; those of several nodes of H200 are left out, because they repeat those of H100."""
    rows = pd.read_csv(path)
    return rows.loc[(rows.nodes == 1) | (rows.gpu == "h100_sxm")].reset_index(drop=True)


def fitted_to(rows: pd.DataFrame) -> pd.Series:
    """Whether the constants are fitted to a row."""
    inside = (rows.nodes == 1) & (rows.version == "0.5.12")
    return inside & rows.gpu.isin(("h100_sxm", "b200_sxm")) & rows.hidden.isin((2048, 7168))


def ratios(rows: pd.DataFrame, direction: str) -> np.ndarray:
    """Predicted over measured, row by row."""
    found = np.empty(len(rows))
    keys = ["gpu", "nodes", "topk", "experts", "sms"]
    for (gpu, nodes, copies, experts, sms), some in rows.groupby(keys):
        system = _system(gpu)
        width = some.hidden * (1 + 4 / 128) if direction == "dispatch" else 2.0 * some.hidden
        routed = RoutedTokens(some.tokens.to_numpy(), width.to_numpy(), copies, experts, MOST_NODES)
        local = system.gpus_per_node
        seconds = FUNCTIONS[direction](
            routed,
            Group.side_by_side(nodes * local, local, system),
            Fabric(system, profile_of(system)),
            "deepep",
            multiprocessors=sms,
        )
        found[some.index] = seconds / (some[f"{direction}_us"] * 1e-6)
    return found


def fit(rows: pd.DataFrame, direction: str) -> DeepEpKernel:
    """The constants with the least mean |log| (soft) of predicted over measured on `fitted_to`."""
    chosen = rows.loc[fitted_to(rows)].reset_index(drop=True)
    kept = IN_NODE[direction]
    start = np.log(kept)  # a token's and a byte's share of the work are alike in many fits

    def misses(logs: np.ndarray) -> np.ndarray:
        IN_NODE[direction] = DeepEpKernel(*np.exp(logs).tolist())
        return np.log(ratios(chosen, direction))

    try:
        return DeepEpKernel(
            *np.exp(least_squares(misses, start, loss="soft_l1", f_scale=0.05, diff_step=1e-3).x).tolist()
        )
    finally:
        IN_NODE[direction] = kept


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    path = parser.parse_args().file
    if not path.is_file():
        sys.exit(f"{path}: no such file; give the table of DeepEP's kernels")
    rows = measured(path)
    used, training = fitted_to(rows), (rows.tokens >= 1024) & (rows.sms >= 16)
    for direction in FUNCTIONS:
        found = fit(rows, direction)
        print(direction, *(f"{name}={value:.4g}" for name, value in found._asdict().items()))
        error = np.abs(ratios(rows, direction) - 1) * 100
        print(
            f"  fitted rows: {error[used].mean():.1f} %; one node, held out: "
            f"{error[~used & (rows.nodes == 1)].mean():.1f} %"
        )
        for nodes in sorted(rows.nodes.unique()):
            chosen = ~used & training & (rows.nodes == nodes)
            ratio = np.median(ratios(rows, direction)[chosen])
            print(
                f"  {nodes} nodes, from 1,024 tokens and 16 SMs: {error[chosen].mean():.1f} % held out, "
                f"median of predicted over measured {ratio:.2f}"
            )


if __name__ == "__main__":
    main()
