"""The profile of a CPU core from a table of `itertime profile collect --device cpu`; it needs no base.

A kernel that was timed has its time; formulas answer for other sizes. What was not timed is left out, so that
a prediction that needs it is refused: no kernel of a GPU, and no link between GPUs, stands for a core's.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.profiles.chips import Chip
from experiments.profiles.fit_gemm import fit_gemm
from experiments.profiles.measurements import NAMES, mape_pct, measured_range, read_table, significant
from itertime.spec import Evidence, Profile
from itertime.spec.kernels import (
    AttentionCurve,
    AttentionModel,
    ElementwiseModel,
    TimedKernels,
    TimedProducts,
    TimedSizes,
)
from itertime.spec.operators import GemmModel, GemmTile
from itertime.spec.profile import UNUSABLE_PCT

from .collectives import collective_tables
from .elementwise import COLLECTED

__all__ = ["core_profile", "is_of_core"]

NO_ATTENTION = Evidence(
    part="attention",
    kind="assumed",
    source="nothing",
    rows=0,
    note="fused kernels compute in 16 bit, and plans in 32 bit refuse them",
)

NAME, PRECISION = "cpu-core", "fp32"
STREAMING = "add"  # whose fastest size is the memory's bandwidth, caches included
KINDS = {op: kind for kind, op in COLLECTED.items()} | {"dropout_add": "dropout"}
SOURCE = "itertime profile collect --device cpu"


def is_of_core(path: Path) -> bool:
    """Whether the products of a table were timed on a CPU: in 32 bit. A file that is no table of
    `itertime profile collect` is none of a core.
    """
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, EOFError):
        return False
    if not {"table", "dtype"} <= set(table.columns):
        return False
    return bool((table.loc[table["table"] == "gemm", "dtype"] == PRECISION).any())


def core_profile(path: Path, name: str = NAME) -> Profile:
    """The profile of a core by the table at `path`. Its peak is that of its fastest product, its memory the
    core's share of that of this machine. Raises `UserError` for a table without products.
    """
    gemm_rows, rows = (
        read_table(path, "own_gemm", ("m", "n", "k", "processes")),
        read_table(path, "own_elementwise", ()),
    )
    processes = int(gemm_rows.processes.fillna(1).max())
    flops = 2.0 * gemm_rows.m * gemm_rows.n * gemm_rows.k * gemm_rows["batch"]
    peak = float((flops / gemm_rows.time_us).max()) * 1e6
    streamed = rows.loc[rows.op == STREAMING]
    bandwidth = float((streamed.bytes / streamed.time_us).max()) * 1e6
    turned = gemm_rows.layout == "dw"  # timed as dy^T x, and asked for as its transpose, x^T dy
    as_asked = gemm_rows.assign(
        m=gemm_rows.m.where(~turned, gemm_rows.n), n=gemm_rows.n.where(~turned, gemm_rows.m)
    )
    gemm, evidence = _products(path, as_asked, peak, bandwidth)
    products = {PRECISION: _timed_products(as_asked)}
    sizes, size_evidence = _timed_sizes(rows)
    tables, collective_evidence = collective_tables(path)
    return Profile(
        name=name,
        gpu=f"a core of a CPU, {processes} running each kernel at a time"
        if processes > 1
        else "a core of a CPU",
        source=SOURCE,
        peak_flops_per_s=significant(peak),
        hbm_bytes_per_s=significant(bandwidth),
        memory_bytes=significant(_memory_bytes() / (os.cpu_count() or 1)),
        launch_s=significant(float(rows.time_us.min()) * 1e-6),
        gemm=gemm,
        gemm_precisions={PRECISION: gemm},
        attention=_no_attention(peak, bandwidth),
        attention_slowdown={},
        elementwise={kind: _rate(timed) for kind, timed in sizes["fwd"].items()},
        collectives=tables,
        evidence=[*evidence, NO_ATTENTION, *size_evidence, *collective_evidence],
        is_core=True,
        timed=TimedKernels(products, sizes["fwd"], sizes["bwd"]),
    )


def _memory_bytes() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _products(
    path: Path, rows: pd.DataFrame, peak: float, bandwidth: float
) -> tuple[GemmModel, list[Evidence]]:
    """The formula of products that were not timed. One that misses the timed ones by far is not used: their
    median rate stands in.
    """
    chip = Chip(
        name=NAME,
        gpu="a core",
        source=SOURCE,
        peak_flops_per_s=peak,
        hbm_bytes_per_s=bandwidth / 2,  # the formula counts 2 bytes an element, and these have 4
        multiprocessors=1,
        memory_bytes=1.0,
    )
    model, evidence = fit_gemm(path, chip)
    m, n, k, batch = (rows[column].to_numpy(dtype=float) for column in ("m", "n", "k", "batch"))
    seconds = rows.time_us.to_numpy(dtype=float) * 1e-6
    error = mape_pct(model.seconds(m, n, k, batch), seconds)
    of_all_layouts = Evidence(
        part="gemm, fp32",
        kind="fitted",
        source=NAMES["torch"],
        rows=len(rows),
        error_in_sample_pct=error,
        note="all layouts; a product that was timed has its own time",
        measured=measured_range(m=m, n=n, k=k),
    )
    if error <= UNUSABLE_PCT:
        return model, [*evidence, of_all_layouts]
    share = float(np.median(2 * m * n * k * batch / seconds)) / peak
    plain = dataclasses.replace(
        model, tiles=[GemmTile(1, 1, share)], wave_quantisation=0.0, k_offset=0.0, bytes_per_s=1e3 * bandwidth
    )
    stand_in = f"the timed products' median rate, {share * peak / 1e9:.4g} GFLOP/s, stands in"
    note = f"the formula misses its rows by {error:.0f} %"
    return plain, [dataclasses.replace(of_all_layouts, kind="unusable", source=stand_in, note=note)]


def _timed_products(rows: pd.DataFrame) -> TimedProducts:
    """The products by shape; those of several layouts have their mean."""
    plain = rows.loc[rows.layout != "dw-fp32"]
    means = plain.groupby(["m", "n", "k", "batch"]).time_us.mean() * 1e-6
    shapes = [tuple(int(size) for size in shape) for shape in means.index]
    return TimedProducts(shapes, [significant(value) for value in means])  # type: ignore[arg-type]


def _timed_sizes(rows: pd.DataFrame) -> tuple[dict[str, dict[str, TimedSizes]], list[Evidence]]:
    """The memory-bound kernels by direction ("fwd", "bwd") and kind, and their evidence: each size inside
    is held out in turn, and predicted by its neighbours.
    """
    sizes: dict[str, dict[str, TimedSizes]] = {"fwd": {}, "bwd": {}}
    evidence = []
    for names, kind_rows in rows.groupby(["dir", rows.op.map(KINDS)]):
        direction, kind = map(str, names)
        times = kind_rows.groupby("bytes").time_us.median() * 1e-6
        nbytes = [float(size) for size in times.index]
        sizes[direction][kind] = TimedSizes(nbytes, [significant(value) for value in times])
        evidence.append(
            Evidence(
                part=kind if direction == "fwd" else f"{kind} (backward)",
                kind="measured",
                source=NAMES["torch"],
                rows=len(kind_rows),
                error_held_out_pct=_between_pct(np.array(nbytes), times.to_numpy(dtype=float)),
                note="as timed; held out: each size between two others",
                measured=measured_range(bytes=np.array(nbytes)),
            )
        )
    return sizes, evidence


def _between_pct(nbytes: Any, seconds: Any) -> float | None:
    """The error of each inner size as the line between its neighbours has it, both in logarithms."""
    if len(nbytes) < 3:
        return None
    sizes, times = np.log(nbytes), np.log(seconds)
    share = (sizes[1:-1] - sizes[:-2]) / (sizes[2:] - sizes[:-2])
    return mape_pct(np.exp(times[:-2] + share * (times[2:] - times[:-2])), seconds[1:-1])


def _rate(timed: TimedSizes) -> ElementwiseModel:
    """The bandwidth of the largest size, for profiles' readers: predictions take the timed sizes."""
    return ElementwiseModel(significant(timed.nbytes[-1] / timed.time_s[-1]), 0.0)


def _no_attention(peak: float, bandwidth: float) -> AttentionModel:
    """A place-holder: fused kernels of attention compute in 16 bit, which a core's profile refuses."""
    curves = [
        AttentionCurve(direction, causal, 128, peak, 0.0)
        for direction in ("forward", "backward")
        for causal in (False, True)
    ]
    return AttentionModel(curves, 1, 0.0, 1, bandwidth, 0.0)
