"""Builds tables of NCCL collectives within a node, by size and ranks, from measurements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from itertime.arrays import Array
from itertime.errors import UserError
from itertime.spec import Evidence, Profile
from itertime.spec.size_table import SizeTable

from .chips import Chip, chip_named
from .measurements import mape_pct, measured_range, read_table, significant

__all__ = ["by_reductions", "fit_collectives"]

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

# The newest NCCL that every GPU from the H200 on was measured with.
VERSION = "2.29.2"
SERVED = f"ai-dynamo/aiconfigurator (nccl-tests, NCCL {VERSION})"
SENDS_LIKE = "h100-80gb"
# Trays hold 4 GPUs of these; a node of 8 with the same NVLink and NVSwitch stands in for 8 of them.
EIGHT_OF = {"gb200": "b200", "gb300": "b300"}
RACK_RANKS = 64
# Bus bandwidth among 64 GPUs of a rack over that among 8, both of 16 GB, on GB300 NVL72 (OCI's guide, in
# collectives_multi_node.csv); nothing measures the other collectives.
RACK_BUS = {"all_reduce": 930.48 / 841.63, "all_to_all": 666.93 / 685.07}


def fit_collectives(folder: Path, chip: Chip) -> tuple[dict[str, SizeTable], list[Evidence]]:
    """The tables and their evidence.

    All four collectives come from one program on one machine, nccl-tests from 512 B to 512 MB, the only
    source with every size and operation. The sources of all-reduce differ by up to 2.6 times near 1 MB, where
    NCCL versions pick different protocols, and agree within 10 % from 128 MB. The other sources (vTrain's
    table for the A100, 1 MB to 1 GB, vidur's for the H100) are held out and check the table by range. Times
    are made monotonic in the size; below 64 KB the noise of nccl-tests breaks that.

    GPUs from the H200 on have no `collective_tables`: `_served`.
    """
    if not chip.collective_tables:
        return _served(folder, chip)
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


def _served(folder: Path, chip: Chip) -> tuple[dict[str, SizeTable], list[Evidence]]:
    """The tables of a GPU whose collectives one table of nccl-tests holds, `GPU_nccl_aiconfigurator`.

    Other versions of NCCL are held out. Sends, which no table has, are those of the H100, scaled by the
    all-to-all of two GPUs, which NCCL builds of sends. Trays of 4 GPUs belong to a rack of 72: `_in_rack`.
    """
    rows, stand_in = _nccl_rows(folder, chip.serving_tables), EIGHT_OF.get(chip.serving_tables)
    tables, evidence = {}, []
    for name, operation in OPERATIONS.items():
        chosen = rows.loc[rows.op == operation]
        newest = chosen.version == VERSION
        own = _table(chosen.loc[newest])
        others = chosen.loc[~newest & (chosen.bytes >= 2**20)]
        predicted = own.seconds(others.bytes.to_numpy(dtype=float), others.n_gpus.to_numpy())
        evidence.append(
            Evidence(
                part=name,
                kind="measured",
                source=SERVED,
                rows=int(newest.sum()),
                error_held_out_pct=mape_pct(predicted, others.time_us.to_numpy() * 1e-6),
                note="held out: other versions of NCCL, from 1 MB on",
                measured=_measured_sizes(own),
            )
        )
        tables[name] = own
        if stand_in is not None:
            eight = _nccl_rows(folder, stand_in)
            eight = eight.loc[(eight.op == operation) & (eight.version == VERSION)]
            tables[name] = _in_rack(own, _table(eight), name)
    base = chip_named(SENDS_LIKE)
    like, _ = fit_collectives(folder, base)
    sends = like["send_recv"]
    sizes = sends.first_bytes * 2.0 ** np.arange(len(sends.time_s[0]))
    ratio = tables["all_to_all"].seconds(2 * sizes, 2) / like["all_to_all"].seconds(2 * sizes, 2)
    tables["send_recv"] = _rising([2], sends.first_bytes, np.array(sends.time_s) * ratio)
    evidence.append(
        Evidence(
            part="send_recv",
            kind="assumed",
            source=f"those of the profile {SENDS_LIKE}, scaled by the all-to-all of two GPUs",
            rows=0,
            note="no table measures sends",
        )
    )
    if stand_in is not None:
        evidence.append(_rack_evidence(folder, chip, stand_in, tables))
    return tables, evidence


def by_reductions(folder: Path, gpu: str, base: Profile) -> tuple[dict[str, SizeTable], list[Evidence]]:
    """The tables of a GPU whose all-reduces alone are measured, among 2 to 8 ranks of a node, 1 MiB to 1 GiB
    (`vtrain_artifact/nccl_all_reduce.csv`): `_octaves_near` all sizes. For the error held out, odd sizes are
    predicted by the even ones.

    Smaller messages, and the other collectives, take as much longer than on the `base` as an all-reduce of
    1 MiB, or of as many bytes, among as many ranks.
    """
    path = folder.parent / "vtrain_artifact" / "nccl_all_reduce.csv"
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as CSV: {error}") from error
    rows = rows.loc[rows.gpu == gpu]
    ranks = [int(count) for count in sorted(rows.ranks.unique())]
    like = base.collectives["all_reduce"]
    sizes = like.first_bytes * 2.0 ** np.arange(1 + int(np.log2(rows.bytes.max() / like.first_bytes)))
    small = sizes < rows.bytes.min()
    measured = _octaves_near(rows, sizes[~small])
    of_base = np.array([like.seconds(sizes, count) for count in ranks])
    ratio = measured / of_base[:, ~small]
    slower = np.hstack([np.repeat(ratio[:, :1], small.sum(), axis=1), ratio])
    tables = {}
    for name, table in base.collectives.items():
        counts = [2] if name == "send_recv" else ranks
        own = np.array([table.seconds(sizes, count) for count in counts]) * slower[: len(counts)]
        tables[name] = _rising(counts, like.first_bytes, own)
    odd = (rows.bytes // rows.bytes.min() % 2 == 1) & (rows.bytes > rows.bytes.min())
    by_even = _rising(ranks, int(rows.bytes.min()), _octaves_near(rows.loc[~odd], sizes[~small]))
    in_sample, held_out = (
        table.seconds(some.bytes.to_numpy(dtype=float), some.ranks.to_numpy(dtype=int))
        / (some.out_of_place_ns.to_numpy() * 1e-9)
        for table, some in ((tables["all_reduce"], rows), (by_even, rows.loc[odd]))
    )
    return tables, [
        Evidence(
            part="all_reduce",
            kind="measured",
            source="VIA-Research/vTrain @ f8dda84, nccl-tests on a DGX-1 with V100",
            rows=len(rows),
            error_in_sample_pct=mape_pct(in_sample, np.ones(1)),
            error_held_out_pct=mape_pct(held_out, np.ones(1)),
            note=(
                f"held out: {odd.sum()} odd numbers of MiB, by the even ones, at most "
                f"{100 * np.abs(held_out - 1).max():.3g} % off; in sample at most "
                f"{100 * np.abs(in_sample - 1).max():.3g} %, near 10 MiB, where NCCL changes its protocol"
            ),
            measured=measured_range(
                bytes=rows.bytes.to_numpy(dtype=float), ranks=np.array(ranks, dtype=float)
            ),
        ),
        Evidence(
            part="all_gather, reduce_scatter, all_to_all, send_recv",
            kind="assumed",
            source=f"those of the profile {base.name}, at the ratio of all-reduces",
            rows=0,
            note="of as many bytes and ranks; below 1 MiB that of 1 MiB, also of all-reduces",
        ),
    ]


def _octaves_near(rows: pd.DataFrame, sizes: Array) -> Array:
    """Seconds at `sizes`, (ranks, sizes), such that the lines between them come near all measured sizes.

    Where NCCL changes its protocol, a larger message is up to a fifth faster than a smaller one, and the
    times at powers of two alone say nothing of it. The sum of the cubes of relative errors is least: squares
    leave a single size farther off.
    """

    def nearest(some: pd.DataFrame) -> Array:
        seconds = some.out_of_place_ns.to_numpy() * 1e-9
        start = np.interp(sizes, some.bytes, seconds)
        shares = [np.interp(some.bytes, sizes, row) for row in np.diag(start)]
        relative = np.stack(shares, axis=1) / seconds[:, None]

        def residual(factors: Array) -> Array:
            errors = relative @ factors - 1
            return np.sign(errors) * np.abs(errors) ** 1.5

        return start * np.asarray(least_squares(residual, np.ones(len(sizes)), xtol=1e-10).x)

    return np.array([nearest(some.sort_values("bytes")) for _, some in rows.groupby("ranks")])


def _nccl_rows(folder: Path, gpu: str) -> pd.DataFrame:
    """Rows of 16-bit collectives: version, op, n_gpus, bytes, time_us.

    `bytes` is nccl-tests' size, that of `Profile.collective_s`: the table's bus bandwidths follow from it.
    """
    path = folder.parent / "modern_gpus" / "operators" / f"{gpu}_nccl_aiconfigurator.csv.gz"
    try:
        table = pd.read_csv(path, dtype={"version": str})
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path}: cannot be read as gzip CSV: {error}") from error
    return table.loc[table.dtype == "half"].rename(columns={"ranks": "n_gpus"})


def _in_rack(own: SizeTable, eight: SizeTable, name: str) -> SizeTable:
    """A tray's table with 8 and 64 ranks of its rack.

    8 ranks: another node's of the same links. 64 ranks: its times at the bytes that take as long at
    `RACK_BUS`, and the latency of more ranks, from that of 4 to 8: an all-reduce's (a tree) per doubling, the
    other collectives' (rings, and messages to each peer) per rank.
    """
    sizes = own.first_bytes * 2.0 ** np.arange(len(own.time_s[0]))
    four, of_eight = own.seconds(own.first_bytes, 4), eight.seconds(own.first_bytes, 8)
    steps = np.log2(RACK_RANKS / 8) if name == "all_reduce" else (RACK_RANKS - 8) / 4
    passed = (1 - 1 / RACK_RANKS) / (1 - 1 / 8)
    many = eight.seconds(sizes * passed / RACK_BUS.get(name, 1.0), 8) + steps * (of_eight - four)
    times = np.vstack([np.array(own.time_s), eight.seconds(sizes, 8), many])
    return _rising([*own.ranks, 8, RACK_RANKS], own.first_bytes, times)


def _rack_evidence(folder: Path, chip: Chip, stand_in: str, tables: dict[str, SizeTable]) -> Evidence:
    """What `_in_rack` assumes, with its errors: of the node of 8 on 2 and 4 ranks, of all on the rack."""
    eight = _nccl_rows(folder, stand_in)
    eight = eight.loc[(eight.version == VERSION) & (eight.n_gpus <= 4) & (eight.bytes >= 2**20)]
    eight = eight.assign(op=eight.op.replace({found: name for name, found in OPERATIONS.items()}))
    rack = pd.read_csv(folder.parent / "modern_gpus" / "operators" / "collectives_multi_node.csv")
    rack = rack.loc[(rack.gpu == "GB300-NVL72") & rack.ranks.isin((8, RACK_RANKS))]
    agrees, error = (
        _difference_pct(tables, eight),
        _difference_pct(tables, rack.rename(columns={"ranks": "n_gpus"})),
    )
    return Evidence(
        part="collectives among more than 8 ranks of a node",
        kind="assumed",
        source=f"8 ranks: those of a node of {stand_in.upper()}; 64: its bus bandwidth, scaled",
        rows=len(rack),
        error_in_sample_pct=error,
        note=(
            f"on 2 and 4 ranks the two GPUs differ by {agrees:g} %; 64 ranks carry the ratios of bus "
            "bandwidths that one GB300 NVL72 shows at 16 GB, and latencies are assumed; the error is that of "
            "its 8 and 16 GB, far beyond the largest size of the tables"
        ),
    )


def _difference_pct(tables: dict[str, SizeTable], rows: pd.DataFrame) -> float:
    """Mean absolute percentage error of the tables on rows of several operations."""
    parts = [
        tables[str(name)].seconds(some.bytes.to_numpy(dtype=float), some.n_gpus.to_numpy(dtype=int))
        for name, some in rows.groupby("op", sort=False)
    ]
    measured = [some.time_us.to_numpy(dtype=float) for _, some in rows.groupby("op", sort=False)]
    return mape_pct(np.concatenate(parts), np.concatenate(measured) * 1e-6)


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
        measured=_measured_sizes(table),
    )


def _measured_sizes(table: SizeTable) -> dict[str, tuple[float, float]]:
    last = table.first_bytes * 2.0 ** (len(table.time_s[0]) - 1)
    ranks = np.array(table.ranks, dtype=float)
    return measured_range(bytes=np.array([table.first_bytes, last]), ranks=ranks)


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
