"""The GPUs that profiles are built for: figures of their data sheets, and the tables that measure them."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import CONFIG, Count, Name, Positive, construct, read_mapping

__all__ = ["CHIPS", "HBM_BYTES_PER_S", "IN_TRAINING_ROWS", "Chip", "chip_named"]

# HBM bandwidth of the GPUs that the element-wise tables name, bytes/s (NVIDIA's data sheets).
HBM_BYTES_PER_S = {
    "A100-80GB(4x NVLink node)": 2039e9,
    "A100-80GB(PCIe/SXM unspecified)": 2039e9,
    "NVIDIA A100 80GB PCIe": 1935e9,
    "NVIDIA A100-PCIE-40GB": 1555e9,
    "H100-80GB": 3352e9,
}


@dataclass(frozen=True, config=CONFIG)
class Chip:
    """One GPU type.

    Rates are dense, 16 bit, per second. `memory_bytes` is the total that CUDA reports. `tables` is the first
    part of the file names of its tables. `forward_like` names a GPU with a measured split between forward and
    backward attention, which is assumed for this GPU if its own is not measured. `serving_tables` is the
    first part of the file names of aiconfigurator's tables; `power_w` the limit they ran at, the part's
    default. `like` names the chip whose attention and element-wise kernels stand for this one's, at the ratio
    of peaks and of bandwidths, where no table measures them. `gemm_in_training` as in `Profile`.
    `nvlink_bytes_per_s`: of the GPUs whose collectives the tables measure, one direction; None: as in the
    profile that lends what they lack. `reductions`: the GPU's name in vTrain's measured all-reduces, which
    stand for its other collectives too.
    """

    name: Name
    gpu: Name
    source: Name
    peak_flops_per_s: Positive
    hbm_bytes_per_s: Positive
    multiprocessors: Count
    memory_bytes: Positive
    tables: str = ""
    collective_tables: tuple[str, ...] = ()
    forward_like: str | None = None
    serving_tables: str = ""
    power_w: Positive | None = None
    like: str | None = None
    gemm_in_training: Positive = 1.0
    nvlink_bytes_per_s: Positive | None = None
    reductions: str = ""


IN_TRAINING = 1.13
"""Of GEMMs at the power limit, fitted to iterations on H100 (`python -m experiments.evidence.fit_frameworks`)
and assumed for later chips. The A100 does not reach its limit: its iterations ask for 1."""
IN_TRAINING_ROWS = 229
"""Iterations that it is fitted to: those of dense models on H100 under te, compile and eager."""

CHIPS = (
    Chip(
        name="a100-80gb",
        gpu="NVIDIA A100-SXM4-80GB",
        tables="a100",
        source=(
            "NVIDIA A100 data sheet: 312 TFLOP/s dense bf16, 2,039 GB/s HBM2e, 108 multiprocessors; "
            "79.15 GiB usable"
        ),
        peak_flops_per_s=312e12,
        hbm_bytes_per_s=2039e9,
        multiprocessors=108,
        memory_bytes=84.99e9,
        nvlink_bytes_per_s=300e9,
        power_w=400.0,
        collective_tables=("a100_allreduce", "a100_allgather_reducescatter_alltoall", "a100_sendrecv"),
    ),
    Chip(
        name="h100-80gb",
        gpu="NVIDIA H100-SXM5-80GB",
        tables="h100",
        source=(
            "NVIDIA H100 data sheet: 989.4 TFLOP/s dense bf16, 3,352 GB/s HBM3, 132 multiprocessors; "
            "79.11 GiB usable"
        ),
        peak_flops_per_s=989.4e12,
        hbm_bytes_per_s=3352e9,
        multiprocessors=132,
        memory_bytes=84.94e9,
        nvlink_bytes_per_s=450e9,
        gemm_in_training=IN_TRAINING,
        collective_tables=("h100_collectives",),
        forward_like="a100-80gb",
        serving_tables="h100",
        power_w=700.0,
    ),
    Chip(
        name="v100-32gb",
        gpu="NVIDIA V100-SXM2-32GB",
        tables="v100",
        source=(
            "NVIDIA V100 data sheet: 125 TFLOP/s fp16 (no bf16), 900 GB/s HBM2, 80 multiprocessors, 300 W; "
            "31.7 GiB usable. Collectives of a DGX-1 are measured; all else is the A100's by data sheets. "
            "FlashAttention-2 does not run on it; another attention kernel is assumed to reach the same "
            "share of the peak"
        ),
        peak_flops_per_s=125e12,
        hbm_bytes_per_s=900e9,
        multiprocessors=80,
        memory_bytes=34.08e9,
        power_w=300.0,
        like="a100-80gb",
        nvlink_bytes_per_s=150e9,
        reductions="v100",
    ),
    Chip(
        name="v100-pcie-32gb",
        gpu="NVIDIA V100-PCIE-32GB",
        tables="v100",
        source=(
            "NVIDIA V100 data sheet: 125 TFLOP/s fp16 (no bf16), 900 GB/s HBM2, 80 multiprocessors, 300 W; "
            "31.7 GiB usable. Nothing is measured: all of it is the A100's by data sheets. "
            "FlashAttention-2 does not run on it; another attention kernel is assumed to reach the same "
            "share of the peak"
        ),
        peak_flops_per_s=125e12,
        hbm_bytes_per_s=900e9,
        multiprocessors=80,
        memory_bytes=34.08e9,
        power_w=300.0,
        like="a100-80gb",
    ),
    Chip(
        name="h200-141gb",
        gpu="NVIDIA H200-SXM5-141GB",
        source=(
            "NVIDIA H200 data sheet: 989.4 TFLOP/s dense bf16, 4.8 TB/s HBM3e, 132 multiprocessors, 700 W; "
            "139.8 GiB usable"
        ),
        peak_flops_per_s=989.4e12,
        hbm_bytes_per_s=4800e9,
        multiprocessors=132,
        memory_bytes=150.1e9,
        nvlink_bytes_per_s=450e9,
        gemm_in_training=IN_TRAINING,
        serving_tables="h200",
        power_w=700.0,
        like="h100-80gb",
    ),
    Chip(
        name="b200-180gb",
        gpu="NVIDIA B200-SXM-180GB",
        source=(
            "NVIDIA HGX B200 data sheet: 2,250 TFLOP/s dense bf16, 8 TB/s HBM3e, 1,000 W; "
            "148 multiprocessors and 178.4 GiB as CUDA reports them"
        ),
        peak_flops_per_s=2250e12,
        hbm_bytes_per_s=8000e9,
        multiprocessors=148,
        memory_bytes=191.5e9,
        nvlink_bytes_per_s=900e9,
        gemm_in_training=IN_TRAINING,
        serving_tables="b200",
        power_w=1000.0,
        like="h100-80gb",
    ),
    Chip(
        name="gb200-186gb",
        gpu="NVIDIA GB200-186GB",
        source=(
            "NVIDIA GB200 NVL72 data sheet: 2,500 TFLOP/s dense bf16, 8 TB/s HBM3e, 1,200 W; "
            "152 multiprocessors and 184.3 GiB as CUDA reports them"
        ),
        peak_flops_per_s=2500e12,
        hbm_bytes_per_s=8000e9,
        multiprocessors=152,
        memory_bytes=197.9e9,
        nvlink_bytes_per_s=900e9,
        gemm_in_training=IN_TRAINING,
        serving_tables="gb200",
        power_w=1200.0,
        like="h100-80gb",
    ),
    Chip(
        name="b300-270gb",
        gpu="NVIDIA B300-SXM-270GB",
        source=(
            "NVIDIA HGX B300 data sheet: 2,250 TFLOP/s dense bf16, 8 TB/s HBM3e, 1,100 W; "
            "148 multiprocessors and 267.7 GiB as CUDA reports them"
        ),
        peak_flops_per_s=2250e12,
        hbm_bytes_per_s=8000e9,
        multiprocessors=148,
        memory_bytes=287.4e9,
        nvlink_bytes_per_s=900e9,
        gemm_in_training=IN_TRAINING,
        serving_tables="b300",
        power_w=1100.0,
        like="h100-80gb",
    ),
    Chip(
        name="gb300-280gb",
        gpu="NVIDIA GB300-280GB",
        source=(
            "NVIDIA GB300 NVL72 data sheet: 2,500 TFLOP/s dense bf16, 8 TB/s HBM3e, 1,400 W; "
            "152 multiprocessors and 276.6 GiB as CUDA reports them"
        ),
        peak_flops_per_s=2500e12,
        hbm_bytes_per_s=8000e9,
        multiprocessors=152,
        memory_bytes=297.0e9,
        nvlink_bytes_per_s=900e9,
        gemm_in_training=IN_TRAINING,
        serving_tables="gb300",
        power_w=1400.0,
        like="h100-80gb",
    ),
)


def chip_named(name: str) -> Chip:
    """One of `CHIPS` by name, or the chip in a YAML file by its path.

    Raises `UnknownName` for another name, `UserError` naming file and key for a wrong file.
    """
    if name.endswith((".yaml", ".yml")):
        return construct(Chip, read_mapping(name), name)
    for chip in CHIPS:
        if chip.name == name:
            return chip
    raise UnknownName("GPU", name, [chip.name for chip in CHIPS])
