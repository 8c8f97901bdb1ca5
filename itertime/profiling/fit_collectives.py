"""Builds tables of NCCL collectives within a node, by size and ranks, from measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from itertime.spec import Array, Evidence, SizeTable

from .chips import Chip
from .measurements import mape_pct, measured_range, read_table, significant

__all__ = ["fit_collectives"]

NCCL = "ai-dynamo/aiconfigurator (nccl-tests, NCCL 2.27.3)"
NCCL_ROWS = "aiconfigurator/nccl-2.27.3"
VTRAIN = "VIA-Research/vTrain look-up tables (fp32, another node, an older NCCL)"
RANKS = (2, 4, 8)
COLUMNS = ("op", "n_gpus", "nodes", "bytes", "dtype")
OPERATIONS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
}


def fit_collectives(folder: Path, chip: Chip) -> tuple[dict[str, SizeTable], list[Evidence]]:
    """The tables and their evidence.

    All four collectives come from one program on one machine, nccl-tests from 512 B to 512 MB, the only
    source with every size and operation. The sources of all-reduce differ by up to 2.6 times near 1 MB, where
    NCCL versions pick different protocols, and agree within 10 % from 128 MB. The other sources (vTrain's
    table for the A100, 1 MB to 1 GB, vidur's for the H100) are held out and check the table by range. Times
    are made monotonic in the size; below 64 KB the noise of nccl-tests breaks that.
    """
    rows = pd.concat([read_table(folder, name, COLUMNS) for name in chip.collective_tables])
    tested = rows.loc[(rows.source == NCCL_ROWS) & (rows.dtype == "half") & rows.n_gpus.isin(RANKS)]
    tables, evidence = {}, []
    for name, operation in OPERATIONS.items():
        chosen = tested.loc[tested.op == operation]
        tables[name] = _table(chosen)
        evidence.append(_measured(name, NCCL, tables[name], len(chosen)))
    reductions = rows.loc[(rows.op == "all_reduce") & (rows.nodes == 1)]
    evidence[1:1] = _all_reduce_checks(tables["all_reduce"], reductions, chip)
    node = f"{chip.tables}_dgx"
    sends = rows.loc[(rows.op == "send_recv") & (rows.source == f"vidur/{node}(devices_per_node=2)")]
    tables["send_recv"] = _send_table(sends)
    source = f"microsoft/vidur ({node}, two GPUs of one node)"
    evidence.append(_measured("send_recv", source, tables["send_recv"], len(sends)))
    return tables, evidence


def _table(rows: pd.DataFrame) -> SizeTable:
    times = rows.pivot_table(index="n_gpus", columns="bytes", values="time_us", aggfunc="median")
    return _rising([int(count) for count in times.index], int(times.columns[0]), times.to_numpy() * 1e-6)


def _send_table(rows: pd.DataFrame) -> SizeTable:
    """Medians within 15 % of each power of two; a few small octaves without rows are interpolated."""
    sizes = 2.0 ** np.arange(11, 27)
    nbytes, times = rows.bytes.to_numpy(dtype=float), rows.time_us.to_numpy(dtype=float) * 1e-6
    medians = np.full(len(sizes), np.nan)
    for i, size in enumerate(sizes):
        near = np.abs(nbytes / size - 1) < 0.15
        medians[i] = np.median(times[near]) if near.any() else np.nan
    known = ~np.isnan(medians)
    return _rising([2], int(sizes[0]), np.interp(sizes, sizes[known], medians[known])[None, :])


def _rising(ranks: list[int], first_bytes: int, times: Array) -> SizeTable:
    times = np.maximum.accumulate(times, axis=1)
    time_s = [[significant(time) for time in row] for row in times.tolist()]
    return SizeTable(ranks=ranks, first_bytes=first_bytes, time_s=time_s)


def _measured(name: str, source: str, table: SizeTable, rows: int) -> Evidence:
    times = np.array(table.time_s)
    even, odd = times[:, ::2], times[:, 1::2]
    between = even[:, :-1] + (even[:, 1:] - even[:, :-1]) / 3  # at 2 s, linear in bytes from s to 4 s
    return Evidence(
        part=name,
        kind="measured",
        source=source,
        rows=rows,
        error_held_out_pct=mape_pct(between, odd[:, : between.shape[1]]),
        note="held out: every second size of the table, interpolated from its neighbours",
        measured=measured_range(
            bytes=table.first_bytes * np.array([1.0, 2.0 ** (times.shape[1] - 1)]),
            ranks=np.array(table.ranks, dtype=float),
        ),
    )


def _all_reduce_checks(table: SizeTable, rows: pd.DataFrame, chip: Chip) -> list[Evidence]:
    other = rows.loc[rows.origin == "vTrain"]
    source = VTRAIN
    if other.empty:
        other = rows.loc[rows.source.str.startswith(f"vidur/{chip.tables}_dgx")]
        source = f"microsoft/vidur ({chip.tables}_dgx)"
    listed, size = other.n_gpus.isin(RANKS), other.bytes / 2**20
    ranges = {
        "1-8 MB": listed & (size >= 1) & (size < 8),
        "8-128 MB": listed & (size >= 8) & (size < 128),
        "128 MB-1 GB": listed & (size >= 128),
        "8 MB-1 GB, among 3, 5, 6, 7 ranks": ~listed & (size >= 8),
    }
    checks = []
    for name, chosen in ranges.items():
        if not chosen.any():
            continue
        nbytes, ranks = other.bytes[chosen].to_numpy(dtype=float), other.n_gpus[chosen].to_numpy(dtype=int)
        measured = other.time_us[chosen].to_numpy(dtype=float) * 1e-6
        checks.append(
            Evidence(
                part=f"all_reduce ({name})",
                kind="measured",
                source=f"checked against {source}",
                rows=len(measured),
                error_held_out_pct=mape_pct(table.seconds(nbytes, ranks), measured),
                note="none of these rows is in the table",
                measured=measured_range(bytes=nbytes, ranks=ranks.astype(float)),
            )
        )
    return checks
