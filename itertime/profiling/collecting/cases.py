"""The kernels to time and their sizes: one case per row of the table.

Column `table` names the operator table that a row belongs to; a profile is fitted to them.

| table | rows |
|---|---|
| gemm | bf16; `layout` forward, dx, dw, dw-fp32 (added to a 32-bit gradient), batched |
| gemm-fp8 | the same layouts with one scale per tensor |
| grouped | `groups` products of m rows each; `impl` grouped (one launch) or loop |
| attention | FlashAttention-2; `dir` fwd, fwd+bwd |
| attention-KERNEL | another kernel: cudnn, flash3, efficient, math |
| elementwise | norms, activations and so on, eager |
| elementwise-compiled | the same by torch.compile |
| cast | bf16 to fp8; `impl` eager or compiled |
| collective | `op`, `ranks`, `bytes` as nccl-tests counts them; only with several GPUs |
| left out | what could not be measured; `note` says why |

On a CPU all numbers have 32 bit: `dtype` is fp32, and bytes count 4 for each (`bytes_in_32_bit`).

Sizes are those of the GEMM that runs: a backward product is a separate row with its own m, n, k, identified
by `layout`. A backward element-wise kernel has `dir` "bwd". Bytes count every tensor once, as in
the query `Elementwise`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from . import kernels
from .bench import Preparation
from .kernels import attention

COLUMNS = (
    *(
        "table",
        "op",
        "layout",
        "dir",
        "impl",
        "m",
        "n",
        "k",
        "batch",
        "groups",
        "heads",
        "kv_heads",
        "head_dim",
    ),
    *("seq", "causal", "rows", "cols", "elements", "ranks", "bytes", "dtype", "time_us", "gpu", "source"),
    *(
        "mode",
        "repeats",
        "seconds",
        "power_w",
        "power_limit_w",
        "sm_mhz",
        "memory_mhz",
        "temperature_c",
        "processes",
        "note",
    ),
)


@dataclass(frozen=True)
class CaseGrid:
    """The sizes to measure. `groups`: experts of a grouped GEMM. `compiled_rows`: of compiled kernels and
    of casts, few because each is compiled for its shape.
    """

    tokens: tuple[int, ...]
    widths: tuple[int, ...]
    heads: tuple[int, ...]
    kv_share: tuple[int, ...]
    head_dims: tuple[int, ...]
    sequences: tuple[int, ...]
    vocabularies: tuple[int, ...]
    parameters: tuple[int, ...]
    groups: tuple[int, ...] = ()
    compiled_rows: tuple[int, ...] = ()
    other_attention: tuple[str, ...] = ()


OTHER_ATTENTION = ("cudnn", "flash3", "efficient", "math")
GRIDS = {
    "full": CaseGrid(
        tokens=(1, 64, 512, 1024, 2048, 4096, 8192, 16384),
        widths=(768, 1024, 2048, 3072, 4096, 5120, 8192, 12288, 16384),
        heads=(8, 16, 32),
        kv_share=(1, 8),
        head_dims=(64, 80, 96, 128),
        sequences=(512, 1024, 2048, 4096, 8192, 16384),
        vocabularies=(32000, 51200),
        parameters=(2**20, 2**24, 2**28),
        groups=(2, 8, 32),
        compiled_rows=(4096, 16384),
        other_attention=OTHER_ATTENTION,
    ),
    "quick": CaseGrid(
        tokens=(512, 2048, 8192),
        widths=(1024, 4096, 8192, 14336),
        heads=(16, 32),
        kv_share=(1, 8),
        head_dims=(64, 128),
        sequences=(1024, 2048, 4096, 8192),
        vocabularies=(51200,),
        parameters=(2**24, 2**28),
        groups=(8,),
        compiled_rows=(8192,),
        other_attention=("cudnn", "flash3"),
    ),
    "tiny": CaseGrid(
        tokens=(64, 512),
        widths=(128, 256),
        heads=(2,),
        kv_share=(1, 2),
        head_dims=(64, 128),
        sequences=(64, 256, 512),
        vocabularies=(1000,),
        parameters=(2**10, 2**14),
        groups=(2,),
        compiled_rows=(),
        other_attention=("math",),
    ),
}
LAYOUTS = ("forward", "dx", "dw", "dw-fp32")
LARGE_ROWS = 512  # micro-batches of training; below, only the plain products are timed
LONGEST_PLAIN = 4096  # tokens; attention that writes its scores is no choice for longer sequences
PLAIN = ("efficient", "math")


@dataclass(frozen=True)
class KernelCase:
    """One kernel to time: its columns, and a function that prepares it and returns the function to run."""

    columns: dict[str, Any]
    prepare: Preparation = field(repr=False)


def cases_of(grid: CaseGrid) -> Iterator[KernelCase]:
    """All kernels of a grid, the large products first: they show within minutes what power limit binds."""
    yield from _gemms(grid)
    yield from _grouped(grid)
    yield from _attention(grid)
    yield from _rows(grid)
    yield from _compiled(grid)
    for count in grid.parameters:
        yield adam_case(count)


def adam_case(count: int) -> KernelCase:
    """Fused Adam in 32 bit: reads parameter, gradient, both moments; writes all but the gradient."""
    return elementwise_case("adam", "fwd", 1, count, 28 * count, kernels.adam(count))


def _gemms(grid: CaseGrid) -> Iterator[KernelCase]:
    for m, n, k in itertools.product(sorted(grid.tokens, reverse=True), grid.widths, grid.widths):
        shapes = pass_shapes(m, n, k)
        large = m >= LARGE_ROWS
        for layout in LAYOUTS if large else LAYOUTS[:3]:
            yield gemm_case(layout, *shapes[layout])
        for layout in LAYOUTS[:3] if large else ():
            yield fp8_case(layout, *shapes[layout])
    for heads in grid.heads:
        for head_dim in grid.head_dims:
            for seq in grid.sequences[:3]:
                yield gemm_case("batched", seq, seq, head_dim, heads)
                yield gemm_case("batched", seq, head_dim, seq, heads)


def pass_shapes(m: int, n: int, k: int) -> dict[str, tuple[int, int, int]]:
    """m, n and k of the products of a linear layer y[m, n] = x[m, k] w[k, n], by layout."""
    return {"forward": (m, n, k), "dx": (m, k, n), "dw": (n, k, m), "dw-fp32": (n, k, m)}


def gemm_case(layout: str, m: int, n: int, k: int, batch: int = 1) -> KernelCase:
    """A 16-bit product of `kernels.gemm`; `batch` products for the layout "batched"."""
    columns = {"table": "gemm", "op": "gemm", "layout": layout, "m": m, "n": n, "k": k, "batch": batch}
    return KernelCase(columns, kernels.gemm(layout, m, n, k, batch))


def fp8_case(layout: str, m: int, n: int, k: int) -> KernelCase:
    """An 8-bit product of `kernels.fp8_gemm`."""
    columns = {"table": "gemm-fp8", "op": "gemm", "layout": layout, "m": m, "n": n, "k": k, "batch": 1}
    return KernelCase(columns | {"dtype": "fp8"}, kernels.fp8_gemm(layout, m, n, k))


def _grouped(grid: CaseGrid) -> Iterator[KernelCase]:
    """Experts: the tokens of a micro-batch over the groups, a narrow and a wide expert."""
    batch_tokens = max(grid.tokens, default=0)
    for groups, n, k in itertools.product(grid.groups, grid.widths[1:4], grid.widths[1:4]):
        for tokens in (batch_tokens // 4, batch_tokens):
            m = max(tokens // groups, 1)
            shapes = {"forward": (m, n, k), "dx": (m, k, n), "dw": (n, k, m)}
            for (layout, shape), impl in itertools.product(shapes.items(), ("grouped", "loop")):
                sizes = dict(zip("mnk", shape, strict=True))
                columns = {"table": "grouped", "op": "grouped_gemm", "layout": layout, "impl": impl}
                columns |= sizes | {"groups": groups}  # type: ignore[arg-type]
                prepare = kernels.grouped_gemm(layout, **sizes, groups=groups, impl=impl)
                yield KernelCase(columns, prepare)


def _attention(grid: CaseGrid) -> Iterator[KernelCase]:
    tokens = max(grid.sequences, default=0)
    sizes = itertools.product(grid.heads, grid.kv_share, grid.head_dims, grid.sequences)
    for heads, share, head_dim, seq in sizes:
        shape = {
            "batch": max(tokens // seq, 1),
            "heads": heads,
            "kv_heads": max(heads // share, 1),
            "head_dim": head_dim,
            "seq": seq,
        }
        for impl in ("flash2", *grid.other_attention):
            if impl in PLAIN and seq > LONGEST_PLAIN:
                continue
            for causal in (False, True):
                yield from attention_cases(shape, causal, impl)


def attention_cases(shape: dict[str, int], causal: bool, impl: str = "flash2") -> Iterator[KernelCase]:
    """Attention forward, and forward and backward, of `batch`, `heads`, `kv_heads`, `head_dim`, `seq`."""
    table = "attention" if impl == "flash2" else f"attention-{impl}"
    for direction in ("fwd", "fwd+bwd"):
        columns: dict[str, Any] = {"table": table, "op": "attention", "dir": direction}
        columns |= {"impl": impl, "causal": causal, **shape}
        yield KernelCase(columns, attention(**shape, causal=causal, direction=direction, impl=impl))


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
    "cross_entropy": (36, 14),
}
# Of trainings with dropout alone: one branch is dropped and added to the stream, as the cost model counts it.
RESIDUAL = {"dropout_add": (7, 11)}
LOSS = "cross_entropy"  # its rows are as wide as a vocabulary


LOSS_IN_32_BIT = {"fwd": 30, "bwd": 8}  # per logit: nothing is cast


def bytes_in_32_bit(columns: dict[str, Any]) -> int:
    """Bytes that a memory-bound kernel of these columns moves in 32 bit, as Adam does in any precision."""
    if columns["op"] == LOSS:
        return int(LOSS_IN_32_BIT[columns["dir"]] * columns["elements"])
    return int(columns["bytes"] * (1 if columns["op"] == "adam" else 2))


def _rows(grid: CaseGrid) -> Iterator[KernelCase]:
    for rows in grid.tokens:
        for cols, op in itertools.product(grid.widths, ROW_KERNELS):
            if op != LOSS:
                yield from row_cases(op, rows, cols)
        for vocabulary in grid.vocabularies:
            yield from row_cases(LOSS, rows, vocabulary)


def row_cases(op: str, rows: int, cols: int) -> Iterator[KernelCase]:
    """A kernel of `ROW_KERNELS` or `RESIDUAL` on rows of so many columns, forward and, where it runs,
    backward.
    """
    for direction, nbytes in zip(("fwd", "bwd"), (ROW_KERNELS | RESIDUAL)[op], strict=True):
        if nbytes:
            run = kernels.row_kernel(op, rows, cols, direction)
            yield elementwise_case(op, direction, rows, cols, nbytes * rows * cols, run)


# Bytes per element of the kernels that compilers fuse into one; the gradients of weights add almost none.
COMPILED = {"gelu": (4, 6), "layernorm": (4, 6), "rmsnorm": (4, 6), "softmax": (4, 6), "silu_mul": (6, 10)}
CASTS = {"fp8": 3, "fp8+transpose": 4}


def _compiled(grid: CaseGrid) -> Iterator[KernelCase]:
    for rows, cols in itertools.product(grid.compiled_rows, grid.widths):
        for op, direction_bytes in COMPILED.items():
            for direction, nbytes in zip(("fwd", "bwd"), direction_bytes, strict=True):
                run = kernels.row_kernel(op, rows, cols, direction, "compiled")
                size = nbytes * rows * cols
                yield elementwise_case(
                    op, direction, rows, cols, size, run, "elementwise-compiled", "compiled"
                )
        for (op, nbytes), impl in itertools.product(CASTS.items(), ("eager", "compiled")):
            run = kernels.cast(op, rows, cols, impl)
            yield elementwise_case(op, "fwd", rows, cols, nbytes * rows * cols, run, "cast", impl)


def elementwise_case(
    op: str,
    direction: str,
    rows: int,
    cols: int,
    nbytes: int,
    prepare: Preparation,
    table: str = "elementwise",
    impl: str = "eager",
) -> KernelCase:
    """A memory-bound kernel that moves so many bytes."""
    sizes = {"rows": rows, "cols": cols, "elements": rows * cols, "bytes": nbytes}
    return KernelCase({"table": table, "op": op, "dir": direction, "impl": impl, **sizes}, prepare)
