"""A system: the GPU type, GPUs per node, the links between them, and the site's calibration constants."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName
from itertime.io import (
    CONFIG,
    Count,
    Fraction,
    Latency,
    Name,
    NonNegative,
    Positive,
    Ratio,
    Share,
    construct,
    read_mapping,
)

__all__ = ["Site", "System", "list_systems", "load_system"]

FOLDER = Path(__file__).parents[1] / "systems"
Algorithms = Annotated[tuple[Literal["ring", "tree", "hierarchical"], ...], Field(min_length=1)]


@dataclass(frozen=True, config=CONFIG)
class Site:
    """Corrections of the profile for one site's software and network; the defaults are neutral.

    | field | unit | meaning |
    |---|---|---|
    | `gemm_multiplier` | 1 | multiplies the profile's GEMM times |
    | `attention_multiplier` | 1 | multiplies the profile's flash attention times |
    | `hbm_fraction` | 1 | HBM bandwidth over the profile's; element-wise times are divided by it |
    | `network_efficiency` | 1 | achieved fraction of the NIC bandwidth |
    | `all_reduce_multiplier` | 1 | multiplies the times of all-reduce, reduce-scatter and all-gather |
    | `launch_s` | s | CPU time to issue one kernel; a pass takes at least its number of kernels times this |
    | `layer_overhead_s` | s | added per layer and micro-batch, forward and backward together |
    | `iteration_overhead_s` | s | added per iteration |
    | `p2p_exposure` | 1 | share of the point-to-point time that asynchronous sends do not hide |
    | `zero_broadcast_s` | s | per iteration and rank of a ZeRO-1 or ZeRO-2 group: weights sent rank by rank |
    | `memory_multiplier` | 1 | memory reserved over memory needed: the allocator's fragmentation |
    | `memory_overhead_bytes` | bytes | CUDA context, NCCL buffers and the like beyond the assumed, per GPU |
    | `measured_over_predicted` | 1, 1 | lowest and highest over nine tenths of the site's runs, if known |

    Sources of the defaults. `launch_s`, 20 us: eager PyTorch on one core per counted kernel
    (`python benchmarks/eager.py`), without the driver's part and a framework's own work in every layer.
    `network_efficiency`, 0.8: NCCL reaches 0.82 of two nodes' 4 x 100 Gb/s in a 1 GB all-reduce
    (nccl-tests in awsome-distributed-training). `p2p_exposure`, 0.2: observed in 1F1B runs with asynchronous
    sends.
    """

    gemm_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    hbm_fraction: Positive = 1.0
    network_efficiency: Fraction = 0.8
    all_reduce_multiplier: Positive = 1.0
    launch_s: Latency = 20e-6
    layer_overhead_s: NonNegative = 0.0
    iteration_overhead_s: NonNegative = 0.0
    p2p_exposure: Share = 0.2
    zero_broadcast_s: NonNegative = 0.0
    memory_multiplier: Positive = 1.0
    memory_overhead_bytes: NonNegative = 0.0
    measured_over_predicted: tuple[Positive, Positive] | None = None


@dataclass(frozen=True, config=CONFIG)
class System:
    """A cluster's hardware as seen by one training job.

    Bandwidths are in bytes/s, one direction. `nic_bytes_per_s` is the sum over a node's NICs,
    `gpu_nic_bytes_per_s` the most that a single GPU moves to and from them (its PCIe link),
    `nvlink_bytes_per_s` a GPU's sum over its links. `network_latency_s` is one hop of a collective between
    nodes, for a small message. It is assumed: no table measures it on InfiniBand (NCCL over EFA shows 70 us,
    in the nccl-tests named at `Site`). `network_bulk_latency_s` is the additional delay of a large message
    per hop (see the cost model of collectives), 0 where no measurement exists.
    """

    name: Name
    profile: Name
    gpus_per_node: Count
    nic_bytes_per_s: Positive
    nvlink_bytes_per_s: Positive
    source: Name
    gpu_nic_bytes_per_s: Positive = 31.5e9  # PCIe 4.0 x16: 16 GT/s x 16 lanes x 128/130 / 8
    network_latency_s: Latency = 10e-6
    network_bulk_latency_s: Latency = 0.0
    nics_per_node: Count | None = None
    cpu_link_bytes_per_s: Positive = 16e9  # AMD; NCCL's own figure, AMD_BW in its src/graph/topo.h
    collective_algorithms: Algorithms = ("ring", "tree")
    nodes_per_leaf: Count | None = None
    leaf_oversubscription: Ratio = 1.0
    nodes_per_spine: Count | None = None
    spine_oversubscription: Ratio = 1.0
    site: Site = dataclasses.field(default_factory=Site)

    def with_nic(self, gbps: float) -> System:
        """The same system with more or fewer of its NICs: `gbps` Gb/s per node, one direction."""
        nic_bytes_per_s = gbps * 1e9 / 8
        one = self.nic_bytes_per_s / (self.nics_per_node or self.gpus_per_node)
        nics = max(round(nic_bytes_per_s / one), 1)
        return dataclasses.replace(self, nic_bytes_per_s=nic_bytes_per_s, nics_per_node=nics)


def list_systems() -> list[str]:
    """Names of the shipped systems, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_system(name_or_path: str | Path) -> System:
    """A shipped system by name, or one from a YAML (or JSON) file by its path.

    Raises `UnknownName` for a name that is not shipped. Raises `UserError`, naming file and key, for a wrong
    file: an unknown key, a key without its unit, a value that is negative or not a number.

    >>> load_system("dgx-a100-80gb").nic_bytes_per_s
    200000000000.0
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml", ".json"))
    if not is_path and text not in list_systems():
        raise UnknownName("system", text, list_systems())
    path = Path(text) if is_path else FOLDER / f"{text}.yaml"
    return construct(System, read_mapping(path), path)
