"""Bounds in grids: what the command says of cells, and that seeds share a bound."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.printed import Call

GRID = """
set: {cluster: n2g8, trace: {jobs: 6, gpus: 16, load: 1.5, rules: none, sizes: itp-8h}}
matrix: {policy: [fifo, srtf]}
seeds: 2
"""


@pytest.mark.usefixtures("here")
def test_grids_have_the_distances_and_share_bounds(call: Call) -> None:
    Path("g.yaml").write_text(GRID)
    printed = " ".join(call("grid", "g.yaml", "--workers", "1").out.split())
    assert "Mean JCT is within these factors of the best possible (means over cells): fifo x" in printed
    ratios = pd.read_csv("g/results.csv")["jct_over_bound"]
    assert (len(ratios), ratios.min() >= 1) == (4, True)
    assert len(list(Path("g/bounds").glob("*.json"))) == 2  # one a seed, for both policies
    for cell in Path("g/cells").iterdir():
        assert json.loads((cell / "manifest.json").read_text())["timings"]["bound_s"] is None
    printed = call("grid", "g.yaml", "--workers", "1", "--no-bound", "-o", "without").out
    assert "best possible" not in printed
    assert pd.read_csv("without/results.csv")["jct_over_bound"].isna().tolist() == [True] * 4
