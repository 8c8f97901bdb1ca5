"""A system: which GPU, how many a node has, what connects them, and the site's calibration constants."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from pydantic.dataclasses import dataclass

from itertime.datafile import CONFIG, Count, Fraction, Name, NonNegative, Positive, Share, construct, read_mapping
from itertime.errors import UnknownName

__all__ = ["Site", "System", "list_systems", "load_system"]

FOLDER = Path(__file__).parent / "systems"


@dataclass(frozen=True, config=CONFIG)
class Site:
    """What one site's software and network add to, or take from, the profile; the defaults are neutral.

    | field | unit | meaning | applied by |
    |---|---|---|---|
    | `gemm_multiplier` | 1 | GEMM time over the profile's | stage costs |
    | `attention_multiplier` | 1 | attention time (flash kernels) over the profile's | stage costs |
    | `hbm_fraction` | 1 | HBM bandwidth that element-wise kernels reach over the profile's; their time is divided by it | stage costs |
    | `network_efficiency` | 1 | achieved fraction of the NIC bandwidth | `collectives` |
    | `all_reduce_multiplier` | 1 | time of all-reduce, reduce-scatter, all-gather over the model's | `collectives` |
    | `layer_overhead_s` | s | added per layer and micro-batch (forward and backward together) | stage costs |
    | `iteration_overhead_s` | s | added per iteration | predict |
    | `p2p_exposure` | 1 | share of the point-to-point time that asynchronous sends do not hide | pipeline |
    | `memory_overhead_bytes` | bytes | CUDA context, NCCL buffers, fragmentation, per GPU | memory |

    The default `network_efficiency` of 0.8 is what NCCL reaches across two nodes of 4 x 100 Gb/s for large messages
    (0.82 for a 1 GB all-reduce, awsome-distributed-training's nccl-tests); a fifth of the point-to-point time stays
    exposed on the vTrain cluster's runs.
    """

    gemm_multiplier: Positive = 1.0
    attention_multiplier: Positive = 1.0
    hbm_fraction: Positive = 1.0
    network_efficiency: Fraction = 0.8
    all_reduce_multiplier: Positive = 1.0
    layer_overhead_s: NonNegative = 0.0
    iteration_overhead_s: NonNegative = 0.0
    p2p_exposure: Share = 0.2
    memory_overhead_bytes: NonNegative = 0.0


@dataclass(frozen=True, config=CONFIG)
class System:
    """A cluster's hardware as far as one training job sees it.

    Bandwidths are in bytes/s and one direction. `nic_bytes_per_s` is the sum over a node's NICs;
    `gpu_nic_bytes_per_s` is the most that a single GPU can move to and from the NICs (its PCIe link).
    `network_latency_s` is the time of one hop between nodes for a small message.
    """

    name: Name
    profile: Name
    gpus_per_node: Count
    nic_bytes_per_s: Positive
    nvlink_bytes_per_s: Positive
    source: Name
    gpu_nic_bytes_per_s: Positive = 31.5e9  # PCIe 4.0 x16: 16 GT/s x 16 lanes x 128/130 / 8
    network_latency_s: NonNegative = 10e-6
    site: Site = dataclasses.field(default_factory=Site)

    def with_nic(self, gbps: float) -> System:
        """The same system with `gbps` Gb/s of NICs per node, one direction."""
        return dataclasses.replace(self, nic_bytes_per_s=gbps * 1e9 / 8)


def list_systems() -> list[str]:
    """Names of the shipped systems, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_system(name_or_path: str | Path) -> System:
    """A shipped system by name, or one from a YAML (or JSON) file by its path.

    Raises `UnknownName` for a name that is not shipped, `UserError` naming file and key for a wrong file: an unknown key,
    a key without its unit, a value that is negative or not a number.

    >>> load_system("dgx-a100-80gb").nic_bytes_per_s
    200000000000.0
    """
    text = str(name_or_path)
    is_path = isinstance(name_or_path, Path) or "/" in text or text.endswith((".yaml", ".yml", ".json"))
    if not is_path and text not in list_systems():
        raise UnknownName("system", text, list_systems())
    path = Path(text) if is_path else FOLDER / f"{text}.yaml"
    return construct(System, read_mapping(path), path)
