"""Which tables of aiconfigurator measure the GEMMs of each GPU and precision, and how they are read.

The collectors time kernels of inference servers. A table is *sustained* if each kernel was repeated for 0.3
to 1 s with its power logged, and *burst* if it ran 9 times, which ends before the GPU reaches its power
limit.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.profiles.measurements import read_rows

__all__ = [
    "GROUPED",
    "GROUPED_RATIO",
    "OF_SINGLES",
    "SAME_TIMES",
    "SOURCES",
    "GemmSource",
    "Ratio",
    "Table",
    "exponent_of",
    "gemm_rows",
    "headroom_ratio",
    "ratio_of",
    "serving_folder",
]

# Kernels of at least so many FLOPs keep the GPU busy long enough to show how much a limit slows them.
HEAVY_FLOPS = 2e11
# Heavy kernels below this share of the limit had operands that draw little power (constant weights).
AT_LIMIT = 0.9
LONG_US = 200.0
VLLM, BURST_VLLM = "vllm 0.22.0", "vllm 0.24.0"
TRTLLM, BURST_TRTLLM = "trtllm 1.3.0rc17", "trtllm 1.3.0rc20"


class Table(NamedTuple):
    """Rows of one collector and dtype, in the sustained or the burst table of a GPU."""

    gpu: str
    dtype: str
    collector: str
    sustained: bool = True

    def __str__(self) -> str:
        return f"{self.gpu} {self.dtype}, {self.collector}, {'sustained' if self.sustained else 'burst'}"


class Ratio(NamedTuple):
    """Times of one table over those of another, at equal shape."""

    slow: Table
    fast: Table


class GemmSource(NamedTuple):
    """The rows that a precision of a chip is fitted to, and what their arithmetic's time is multiplied by.

    `peak_flops_per_s` is the dense peak of the data sheet. `operand_bytes` counts the operands' elements with
    their scales.
    """

    table: Table
    peak_flops_per_s: float
    operand_bytes: float
    ratio: Ratio | None = None
    note: str = ""


def _burst_ratio(gpu: str, dtype: str, collector: str, burst: str) -> Ratio:
    return Ratio(Table(gpu, dtype, collector), Table(gpu, dtype, burst, sustained=False))


# Sustained over burst where both were measured.
HOPPER_RATIO = _burst_ratio("h200", "bfloat16", VLLM, BURST_VLLM)
HOPPER_FP8_RATIO = _burst_ratio("h200", "fp8_block", VLLM, BURST_VLLM)
BF16_RATIO = _burst_ratio("b200", "bfloat16", VLLM, BURST_VLLM)
FP8_RATIO = _burst_ratio("gb200", "fp8", TRTLLM, BURST_TRTLLM)
FP4_RATIO = _burst_ratio("b200", "nvfp4", VLLM, BURST_VLLM)
# vLLM's heavy kernels on GB200 are up to 1.28 times as fast as TensorRT-LLM's at the same power: their
# operands draw less. Those of B200 are not, so GB200 is B200 at the ratio of kernels of 0.1 to 1 TFLOP.
GB200_RATIO = Ratio(Table("gb200", "bfloat16", VLLM), Table("b200", "bfloat16", VLLM))
DEEPGEMM = "kernels of DeepGEMM, whose power-of-two scales use the instructions of mxfp8"
SAME_DIE = "measured on the H200, the same chip with other memory"


def _hopper(note: str = "") -> dict[str, GemmSource]:
    return {
        "bf16": GemmSource(Table("h200", "bfloat16", VLLM), 989.4e12, 2.0, note=note),
        "fp8": GemmSource(Table("h200", "fp8", BURST_TRTLLM, False), 1978.9e12, 1.0, HOPPER_FP8_RATIO, note),
        "fp8_block": GemmSource(Table("h200", "fp8_block", VLLM), 1978.9e12, 1.0, note=note),
    }


def _blackwell(gpu: str, peak: float, fp4_peak: float) -> dict[str, GemmSource]:
    """`peak` is that of bf16. Tables of B300 and GB300 are bursts only."""
    bf16 = GemmSource(Table(gpu, "bfloat16", BURST_VLLM, False), peak, 2.0, BF16_RATIO)
    fp8 = GemmSource(Table(gpu, "fp8", BURST_TRTLLM, False), 2 * peak, 1.0, FP8_RATIO)
    block = GemmSource(Table(gpu, "fp8_block", "sglang 0.5.14", False), 2 * peak, 1.0, FP8_RATIO, DEEPGEMM)
    fp4 = GemmSource(Table(gpu, "nvfp4", BURST_VLLM, False), fp4_peak, 0.5625, FP4_RATIO)
    if gpu == "b200":
        bf16 = GemmSource(Table(gpu, "bfloat16", VLLM), peak, 2.0)
    if gpu == "gb200":
        bf16 = GemmSource(Table("b200", "bfloat16", VLLM), peak, 2.0, GB200_RATIO)
        fp8 = GemmSource(Table(gpu, "fp8", TRTLLM), 2 * peak, 1.0)
    if gpu in ("b200", "gb200"):
        fp4 = GemmSource(Table(gpu, "nvfp4", VLLM), fp4_peak, 0.5625)
    if gpu == "b300":  # sglang's rows of this GPU are those of GB300
        block = block._replace(table=Table(gpu, "fp8_block", BURST_TRTLLM, False), note="")
    mxfp8 = block._replace(operand_bytes=1.03125, note="assumed: the times of fp8_block")
    return {"bf16": bf16, "fp8": fp8, "fp8_block": block, "mxfp8": mxfp8, "nvfp4": fp4}


# By chip and precision. vLLM's and TensorRT-LLM's bf16 and TensorRT-LLM's per-tensor fp8 are cuBLAS, as in
# training. Peaks, without sparsity: NVIDIA's data sheets of H100, H200, HGX B200, GB200 NVL72, HGX B300 and
# GB300 NVL72.
SOURCES: dict[str, dict[str, GemmSource]] = {
    "h100-80gb": _hopper(SAME_DIE),
    "h200-141gb": _hopper(),
    "b200-180gb": _blackwell("b200", 2250e12, 9000e12),
    "gb200-186gb": _blackwell("gb200", 2500e12, 10000e12),
    "b300-270gb": _blackwell("b300", 2250e12, 13500e12),
    "gb300-280gb": _blackwell("gb300", 2500e12, 15000e12),
}


SAME_TIMES = "the grouped products of {}"
# A grouped product's time over that of single products of its shapes. CUTLASS kernels take it on Hopper, and
# of all collectors' kernels on Blackwell the fastest need 1.02 (MLPs of 1,536 and more) to 1.27 (of 256) with
# 512 to 1,024 rows an expert, activation and gather included. No collector has kernels for more rows that are
# not 1.3 to 8 times as slow; Transformer Engine runs one cuBLAS product an expert, on several streams.
GROUPED_RATIO = 1.1
OF_SINGLES = (
    f"the single products of {{}}, times {GROUPED_RATIO}: cuBLAS' products, one an expert, as in training"
)
CUTLASS = "CUTLASS' grouped products, as in training"


def _hopper_grouped() -> dict[str, GemmSource | str]:
    """Block-scaled fp8 takes the times of fp8: the collectors' kernels of it take up to twice as long, with
    casts that cannot be told from the products.
    """
    bf16, fp8 = (Table("h200", dtype, BURST_TRTLLM, False) for dtype in ("bfloat16", "fp8"))
    return {
        "bf16": GemmSource(bf16, 989.4e12, 2.0, HOPPER_RATIO, CUTLASS),
        "fp8": GemmSource(fp8, 1978.9e12, 1.0, HOPPER_FP8_RATIO, CUTLASS),
        "fp8_block": "fp8",
    }


# By chip and precision: a source, or the precision whose model is used; a chip that is not named has its
# single products at `GROUPED_RATIO`. Of the collectors' bf16 kernels on Hopper, TensorRT-LLM's take 1.1 times
# the single products' time, vLLM's (Triton) 1.3 to 1.7.
GROUPED: dict[str, dict[str, GemmSource | str]] = {
    "h100-80gb": _hopper_grouped(),
    "h200-141gb": _hopper_grouped(),
}


def serving_folder(folder: Path) -> Path:
    """The folder of these tables, beside `folder`, which holds those of `read_table`."""
    return folder.parent / "modern_gpus" / "operators"


def gemm_rows(folder: Path, table: Table) -> pd.DataFrame:
    """The rows of a table with m, n, k, time_us; n and k of at least 64.

    Of a sustained table, heavy kernels below the power limit are left out.
    """
    name = f"{table.gpu}_gemm{'_sustained' if table.sustained else ''}_aiconfigurator"
    rows = _read(folder / f"{name}.csv.gz")
    rows = rows.loc[(rows.collector == table.collector) & (rows.dtype == table.dtype)]
    rows = rows.loc[(rows.n >= 64) & (rows.k >= 64)]
    if table.sustained:
        light = 2 * rows.m * rows.n * rows.k < HEAVY_FLOPS
        rows = rows.loc[light | (rows.power_w >= AT_LIMIT * rows.power_limit_w)]
    return rows.reset_index(drop=True)


@functools.lru_cache(maxsize=4)
def _read(path: Path) -> pd.DataFrame:
    return read_rows(path, ("collector", "dtype", "m", "n", "k", "time_us"))


def ratio_of(folder: Path, ratio: Ratio) -> tuple[float, int]:
    """The median ratio of times over kernels of 0.2 to 1 TFLOP of equal shape, and their number."""
    slow, fast = (gemm_rows(folder, table) for table in ratio)
    both = slow.merge(fast, on=["m", "n", "k"], suffixes=("", "_fast"))
    flops = 2 * both.m * both.n * both.k
    both = both.loc[(flops >= HEAVY_FLOPS) & (flops < 5 * HEAVY_FLOPS)]
    return round(float(np.median(both.time_us / both.time_us_fast)), 4), len(both)


def headroom_ratio(gpu: str) -> Ratio:
    """Sustained over burst times of bf16: how much faster a kernel is that no power limit slows."""
    return HOPPER_RATIO if gpu.startswith("h") else BF16_RATIO


def exponent_of(folder: Path) -> tuple[float, float, int]:
    """ln(time ratio) / ln(power ratio) of B200 at 1,000 W over GB200 at 1,200 W: GEMMs, attention, rows.

    Only kernels count that reach the limit on both.
    """
    keys = {
        "gemm": ["collector", "dtype", "m", "n", "k"],
        "attention_forward": [
            *("collector", "causal", "dtype", "kv_dtype", "batch", "seq", "heads", "kv_heads", "head_dim"),
        ],
    }
    found, rows = [], 0
    for kind, columns in keys.items():
        tables = []
        for gpu in ("b200", "gb200"):
            table = read_rows(folder / f"{gpu}_{kind}_sustained_aiconfigurator.csv.gz", (*columns, "power_w"))
            table = table.loc[(table.dtype == "bfloat16") & (table.time_us >= LONG_US)]
            tables.append(table.loc[table.power_w >= 0.96 * table.power_limit_w])
        both = tables[0].merge(tables[1], on=columns, suffixes=("", "_more"))
        power = np.log(both.power_limit_w_more / both.power_limit_w)
        found.append(round(float(np.median(np.log(both.time_us / both.time_us_more) / power)), 3))
        rows += len(both)
    return found[0], found[1], rows
