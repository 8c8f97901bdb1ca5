"""The GPUs that profiles are built for: figures of their data sheets, and the tables that measure them."""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import CONFIG, Count, Name, Positive, construct, read_mapping

__all__ = ["CHIPS", "HBM_BYTES_PER_S", "Chip", "chip_named"]

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
    backward attention, which is assumed for this GPU if its own is not measured.
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
        collective_tables=("h100_collectives",),
        forward_like="a100-80gb",
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
