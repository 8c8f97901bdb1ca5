"""Measures the operators of this machine's GPU (or CPU) with torch, into one table.

Column `table` names the operator table that a row belongs to (gemm, attention, elementwise); the row has that
table's columns, and a profile is fitted to them. Sizes are those of the GEMM that runs: a backward product is
a separate row with its own m, n, k, identified by `layout`. A backward element-wise kernel has `dir` "bwd".
Bytes count every tensor once, as in `Profile.elementwise_s`.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import write_bytes

from . import kernels

__all__ = ["COLUMNS", "GRIDS", "Grid", "cases_of", "collect"]

COLUMNS = (
    *("table", "op", "layout", "dir", "impl", "m", "n", "k", "batch", "heads", "kv_heads", "head_dim", "seq"),
    *("causal", "rows", "cols", "elements", "bytes", "dtype", "time_us", "gpu", "source"),
)
WARM_UP = 3
FLUSH_BYTES = 256 * 2**20  # larger than any L2 cache, so that no run finds its operands in the cache


@dataclass(frozen=True)
class Grid:
    """The sizes to measure."""

    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    heads: tuple[int, ...]
    kv_share: tuple[int, ...]
    head_dims: tuple[int, ...]
    sequences: tuple[int, ...]
    vocabularies: tuple[int, ...]
    parameters: tuple[int, ...]


GRIDS = {
    "full": Grid(
        tokens=(1, 64, 512, 1024, 2048, 4096, 8192, 16384),
        widths=(768, 1024, 2048, 3072, 4096, 5120, 8192, 12288, 16384),
        heads=(8, 16, 32),
        kv_share=(1, 8),
        head_dims=(64, 80, 96, 128),
        sequences=(512, 1024, 2048, 4096, 8192, 16384),
        vocabularies=(32000, 51200),
        parameters=(2**20, 2**24, 2**28),
    ),
    "tiny": Grid(
        tokens=(64, 512),
        widths=(128, 256),
        heads=(2,),
        kv_share=(1, 2),
        head_dims=(64, 128),
        sequences=(64, 256, 512),
        vocabularies=(1000,),
        parameters=(2**10, 2**14),
    ),
}


@dataclass(frozen=True)
class Case:
    """One kernel to time: its columns, and a function that prepares it and returns the function to run."""

    columns: dict[str, Any]
    prepare: Callable[[kernels.Bench], Callable[[], Any]] = field(repr=False)


def collect(device: str, grid: str, repeats: int, output: Path) -> int:
    """Time every case of a grid and write the table. Returns its number of rows.

    Raises `UserError` if torch or the device is missing, for an unknown grid, and for a file that cannot be
    written. A case that runs out of memory is left out, with a note on stderr.
    """
    if grid not in GRIDS:
        raise UnknownName("grid", grid, GRIDS)
    if not output.name.endswith((".csv", ".csv.gz")):
        raise UserError(f"-o {output}: must end in .csv or .csv.gz")
    bench = kernels.bench_on(device)
    rows = []
    for case in cases_of(GRIDS[grid]):
        seconds = _median_s(bench, case, repeats)
        if seconds is None:
            sizes = {name: value for name, value in case.columns.items() if value != ""}
            print(f"left out, not enough memory: {sizes}", file=sys.stderr)
            continue
        stated = {"dtype": bench.dtype_name, "gpu": bench.name, "source": bench.source}
        rows.append(case.columns | stated | {"time_us": f"{seconds * 1e6:.3f}"})
    _write(rows, output)
    return len(rows)


def _write(rows: list[dict[str, Any]], output: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    write_bytes(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)


def _median_s(bench: kernels.Bench, case: Case, repeats: int) -> float | None:
    """Median seconds of one run with cold caches, after a warm-up; None if memory does not suffice."""
    try:
        run = case.prepare(bench)
        for _ in range(WARM_UP):
            run()
        times = sorted(_once_s(bench, run) for _ in range(repeats))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "memory" in str(error).lower():
            return None
        raise
    return times[len(times) // 2]


def _once_s(bench: kernels.Bench, run: Callable[[], Any]) -> float:
    torch = bench.torch
    if bench.device == "cpu":
        start = time.perf_counter()
        run()
        return max(time.perf_counter() - start, 1e-9)
    bench.flush(FLUSH_BYTES)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    torch.cuda.synchronize()
    return max(float(begin.elapsed_time(end)) * 1e-3, 1e-9)


def cases_of(grid: Grid) -> Iterator[Case]:
    """All kernels of a grid."""
    yield from _gemms(grid)
    yield from _attention(grid)
    yield from _rows(grid)
    for count in grid.parameters:
        # Fused Adam in 32 bit: reads parameter, gradient, both moments; writes all but the gradient.
        yield _elementwise("adam", "fwd", 1, count, 28 * count, kernels.adam(count))


def _gemms(grid: Grid) -> Iterator[Case]:
    for m in grid.tokens:
        for n in grid.widths:
            for k in grid.widths:
                yield _gemm("forward", m, n, k, 1)
                yield _gemm("dx", m, k, n, 1)
                yield _gemm("dw", n, k, m, 1)
    for heads in grid.heads:
        for head_dim in grid.head_dims:
            for seq in grid.sequences[:3]:
                yield _gemm("batched", seq, seq, head_dim, heads)
                yield _gemm("batched", seq, head_dim, seq, heads)


def _gemm(layout: str, m: int, n: int, k: int, batch: int) -> Case:
    columns = {"table": "gemm", "op": "gemm", "layout": layout, "m": m, "n": n, "k": k, "batch": batch}
    return Case(columns, kernels.gemm(layout, m, n, k, batch))


def _attention(grid: Grid) -> Iterator[Case]:
    tokens = grid.sequences[-1]
    sizes = itertools.product(grid.heads, grid.kv_share, grid.head_dims, grid.sequences)
    for heads, share, head_dim, seq in sizes:
        for causal in (False, True):
            for direction in ("fwd", "fwd+bwd"):
                shape = {
                    "batch": max(tokens // seq, 1),
                    "heads": heads,
                    "kv_heads": max(heads // share, 1),
                    "head_dim": head_dim,
                    "seq": seq,
                }
                columns: dict[str, Any] = {"table": "attention", "op": "attention", "dir": direction}
                columns |= {"impl": "flash2", "causal": causal, **shape}
                prepare = kernels.attention(**shape, causal=causal, direction=direction)
                yield Case(columns, prepare)


# Bytes per element, forward and backward, of the kernels that torch runs (0: nothing to run).
ROW_KERNELS = {
    "add": (6, 0),
    "gelu": (4, 6),
    "layernorm": (4, 6),
    "rmsnorm": (4, 6),
    "softmax": (4, 6),
    "silu_mul": (10, 16),
    "dropout": (5, 5),
    "rope_qk": (4, 4),
    "embedding": (4, 6),
}


def _rows(grid: Grid) -> Iterator[Case]:
    for rows in grid.tokens:
        for cols in grid.widths:
            for op, (forward, backward) in ROW_KERNELS.items():
                for direction, nbytes in (("fwd", forward), ("bwd", backward)):
                    if nbytes:
                        run = kernels.row_kernel(op, rows, cols, direction)
                        yield _elementwise(op, direction, rows, cols, nbytes * rows * cols, run)
        for vocabulary in grid.vocabularies:
            for direction, nbytes in (("fwd", 36), ("bwd", 14)):
                run = kernels.row_kernel("cross_entropy", rows, vocabulary, direction)
                size = nbytes * rows * vocabulary
                yield _elementwise("cross_entropy", direction, rows, vocabulary, size, run)


def _elementwise(
    op: str,
    direction: str,
    rows: int,
    cols: int,
    nbytes: int,
    prepare: Callable[[kernels.Bench], Callable[[], Any]],
) -> Case:
    sizes = {"rows": rows, "cols": cols, "elements": rows * cols, "bytes": nbytes}
    return Case({"table": "elementwise", "op": op, "dir": direction, **sizes}, prepare)
