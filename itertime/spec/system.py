"""A system: the GPU type, GPUs per node, the links between them, and the site's calibration constants."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator
from pydantic.dataclasses import dataclass

from itertime.errors import UserError, quoted
from itertime.io import (
    CONFIG,
    Count,
    Fraction,
    GpuPower,
    Latency,
    Name,
    NonNegative,
    Positive,
    Ratio,
    Share,
    construct,
    described,
    names_file,
    optional,
)

from .framework import NEUTRAL, Framework, load_framework
from .profile import Profile, load_profile, profile_state
from .references import Reference

SYSTEMS = Path(__file__).parents[1] / "systems"
SHIPPED_SYSTEMS = frozenset(path.stem for path in SYSTEMS.glob("*.yaml"))
"""The names of the shipped systems. Their files are part of the program, so each is read once."""
_CHANGES = re.compile(r",(?=[a-z][a-z0-9_.]*=)")
"""Where a change begins in the name of a system."""
Algorithm = Literal["ring", "tree", "nvls-tree", "hierarchical", "sharp"]
Algorithms = Annotated[tuple[Algorithm, ...], Field(min_length=1)]
NETWORK_EFFICIENCY = 0.8
"""Achieved fraction of the NICs where neither site nor system states one (sources: `Site`)."""


@dataclass(frozen=True, config=CONFIG)
class Site:
    """Corrections of the profile for one site's software and network; the defaults are neutral.

    Sources of the defaults. `launch_s`, 20 us: eager PyTorch on one core per counted kernel
    (`python benchmarks/eager.py`), without the driver's part and a framework's own work in every layer.
    `network_efficiency`, 0.8 where the system states none: NCCL reaches 0.82 of two nodes' 4 x 100 Gb/s in a
    1 GB all-reduce (nccl-tests in awsome-distributed-training). `p2p_exposure`, 0.2: observed in 1F1B runs
    with asynchronous sends.
    """

    gemm_multiplier: Positive = optional(1.0, "multiplies the profile's GEMM times", "1")
    attention_multiplier: Positive = optional(1.0, "multiplies the profile's flash attention times", "1")
    hbm_fraction: Positive = optional(
        1.0, "HBM bandwidth over the profile's; element-wise times are divided by it", "1"
    )
    network_efficiency: Fraction | None = optional(
        None, "achieved fraction of the NIC bandwidth; by default the system's", "1"
    )
    all_reduce_multiplier: Positive = optional(
        1.0, "multiplies the times of all-reduce, reduce-scatter and all-gather", "1"
    )
    launch_s: Latency = optional(
        20e-6, "CPU time to issue one kernel; a pass takes at least its number of kernels times this", "s"
    )
    layer_overhead_s: NonNegative = optional(
        0.0, "added per layer and micro-batch, forward and backward together", "s"
    )
    iteration_overhead_s: NonNegative = optional(0.0, "added per iteration", "s")
    p2p_exposure: Share = optional(
        0.2, "share of the point-to-point time that asynchronous sends do not hide", "1"
    )
    zero_broadcast_s: NonNegative = optional(
        0.0, "per iteration and rank of a ZeRO-1 or ZeRO-2 group: weights sent rank by rank", "s"
    )
    cpu_adam_s: Latency = optional(
        0.0,
        "time of a GPU's own CPU cores for one parameter of an offloaded step, added to that of the "
        "memory; 0: not measured",
        "s",
    )
    cpu_gradient_s: Latency = optional(
        0.0,
        "added for each parameter of a GPU's stage that an offloaded optimizer trains, however many "
        "ranks share them; 0: not measured",
        "s",
    )
    memory_multiplier: Positive = optional(
        1.0, "memory reserved over memory needed: the allocator's fragmentation", "1"
    )
    memory_overhead_bytes: NonNegative = optional(
        0.0, "CUDA context, NCCL buffers and the like beyond the assumed, per GPU", "bytes"
    )
    measured_over_predicted: tuple[Positive, Positive] | None = optional(
        None, "lowest and highest over nine tenths of the site's runs, if known", "1, 1"
    )


@dataclass(frozen=True, config=CONFIG)
class System:
    """A cluster's hardware as seen by one training job; bandwidths are those of one direction.

    `network_latency_s` is assumed: no table measures it on InfiniBand (NCCL over EFA shows 70 us, in the
    nccl-tests named at `Site`). `network_bulk_latency_s` belongs to the cost model of collectives. Defaults:
    `gpu_nic_bytes_per_s` is PCIe 4.0 x16, 16 GT/s x 16 lanes x 128/130 / 8; `cpu_link_bytes_per_s` is NCCL's
    own figure, AMD_BW in its src/graph/topo.h. `gpu_cpu_bytes_per_s` is PCIe 4.0 x16 too;
    `cpu_memory_bytes_per_s` is that of a DGX A100's two CPUs, 8 channels of DDR4-3200 each. `nvlink_slowdown`
    is 1.5 where a GPU has two thirds of the links of the one that was measured, as its `nvlink_bytes_per_s`
    says: bytes take longer, the latency of a message does not change. A file states it where the links are no
    measure, as behind switches of PCIe.
    `site_link_bytes_per_s` is what the link achieves, not what it is sold as: over long distances the two
    differ by the protocol's windows and losses, for which no default could hold. Its latency is assumed: some
    6,000 km of fibre.
    `power_w`, `hbm_bytes_per_s`, `memory_bytes` and `multiprocessors` describe a variant of the GPU that the
    profile measures (`profile_of`).
    """

    name: Annotated[Name, described("of the system")]
    profile: Annotated[
        Name,
        described("the profile of its GPUs: a shipped name, or a JSON file beside this one"),
    ]
    gpus_per_node: Annotated[Count, described("GPUs of a node")]
    nic_bytes_per_s: Annotated[
        Positive, described("sum over a node's NICs; also as `nic_gbps`, in Gb/s", "bytes/s")
    ]
    nvlink_bytes_per_s: Annotated[Positive, described("a GPU's sum over its links, one direction", "bytes/s")]
    source: Annotated[Name, described("where the figures come from")]
    framework: Name = optional(
        NEUTRAL,
        "software of its users: a shipped name (`itertime frameworks`), or a YAML file beside this one",
    )
    gpu_nic_bytes_per_s: Positive = optional(
        31.5e9, "most that one GPU moves to and from the NICs: its PCIe link", "bytes/s"
    )
    network_latency_s: Latency = optional(
        10e-6, "one hop of a collective between nodes, for a small message", "s"
    )
    network_bulk_latency_s: Latency = optional(
        0.0, "additional delay of a large message per hop; 0: not measured", "s"
    )
    stalling_nodes: Share = optional(
        0.0, "share of nodes whose NICs make sends between stages stall, where the framework's do", "1"
    )
    ring_step_s: Latency = optional(
        0.0,
        "one step of a ring within a node, where the ring spans nodes; 0: not measured, and delays of "
        "hops are added to the time of the bytes instead of overlapping it",
        "s",
    )
    network_efficiency: Fraction = optional(
        NETWORK_EFFICIENCY, "fraction of the NIC bandwidth that collectives achieve", "1"
    )
    nics_per_node: Count | None = optional(None, "NICs of a node; by default one per GPU")
    cpu_link_bytes_per_s: Positive = optional(16e9, "the link between a node's CPUs", "bytes/s")
    gpu_cpu_bytes_per_s: Positive = optional(
        31.5e9, "the link of one GPU to its CPU, one direction", "bytes/s"
    )
    cpu_memory_bytes_per_s: Positive = optional(
        409.6e9, "peak bandwidth of the memory of a node's CPUs together", "bytes/s"
    )
    cpu_memory_bytes: Positive | None = optional(
        None,
        "memory of a node that its GPUs share equally for what plans offload; by default not checked",
        "bytes",
    )
    nvlink_domain: Count | None = optional(
        None, "GPUs joined by NVLink, over nodes; a multiple of a node's, by default one node's", "GPUs"
    )
    nvlink_slowdown: Positive | None = optional(
        None,
        "bandwidth within the node in the profile's tables of collectives over this node's; by default that "
        "of the links there over these",
        "1",
    )
    power_w: GpuPower | None = optional(None, "power limit of a GPU; by default the profile's", "W")
    hbm_bytes_per_s: Positive | None = optional(
        None, "memory bandwidth of a GPU; by default the profile's", "bytes/s"
    )
    memory_bytes: Positive | None = optional(
        None, "memory of a GPU as CUDA reports it; by default the profile's", "bytes"
    )
    multiprocessors: Count | None = optional(None, "multiprocessors of a GPU; by default the profile's")
    usd_per_gpu_hour: Positive | None = optional(
        None, "price of a GPU-hour, on demand; by default unknown", "USD/h"
    )
    collective_algorithms: Algorithms = optional(
        ("ring", "tree"), "algorithms of collectives to choose the fastest of"
    )
    nodes_per_leaf: Count | None = optional(None, "nodes under one leaf switch; by default all are", "nodes")
    leaf_oversubscription: Ratio = optional(
        1.0, "what a leaf's nodes can send over what its uplinks carry", "1"
    )
    nodes_per_spine: Count | None = optional(
        None, "nodes under one block of spine switches; by default all are", "nodes"
    )
    spine_oversubscription: Ratio = optional(1.0, "the same for the uplinks of a block", "1")
    site_link_bytes_per_s: Positive | None = optional(
        None,
        "what all GPUs of a site together send to other sites; by default workers exchange over NICs",
        "bytes/s",
    )
    site_link_latency_s: Latency = optional(30e-3, "one message from site to site", "s")
    site: Annotated[Site, described("corrections for one site")] = dataclasses.field(default_factory=Site)

    @model_validator(mode="after")
    def _check(self) -> System:
        if self.nvlink_domain is not None and self.nvlink_domain % self.gpus_per_node:
            text = f"must be a multiple of gpus_per_node={self.gpus_per_node}"
            raise ValueError(f"nvlink_domain={self.nvlink_domain}: {text}")
        for tier in ("leaf", "spine"):
            name, ratio = f"nodes_per_{tier}", getattr(self, f"{tier}_oversubscription")
            if ratio > 1 and getattr(self, name) is None:
                raise ValueError(f"{tier}_oversubscription={ratio:g}: needs {name}, the nodes below a switch")
        return self

    @cached_property
    def domain_gpus(self) -> int:
        """GPUs joined by NVLink: the node of a collective, however many trays it is built of."""
        return self.nvlink_domain or self.gpus_per_node

    @property
    def achieved_network(self) -> float:
        """Achieved fraction of the NIC bandwidth: the site's, if it states one, else the system's."""
        return (
            self.network_efficiency if self.site.network_efficiency is None else self.site.network_efficiency
        )

    @cached_property
    def domain_nodes(self) -> int:
        """Nodes (trays) of an NVLink domain."""
        return self.domain_gpus // self.gpus_per_node

    @property
    def domain_nic_bytes_per_s(self) -> float:
        """Bytes/s, one direction: the sum over the NICs of all nodes of an NVLink domain."""
        return self.nic_bytes_per_s * self.domain_nodes

    def with_gpus(self, gpus_per_node: int) -> System:
        """The same system with so many of the GPUs of each node, and the same part of its NICs."""
        if gpus_per_node == self.gpus_per_node:
            return self
        share = gpus_per_node / self.gpus_per_node
        return dataclasses.replace(
            self,
            gpus_per_node=gpus_per_node,
            nic_bytes_per_s=self.nic_bytes_per_s * share,
            nics_per_node=self.nics_per_node and max(round(self.nics_per_node * share), 1),
        )

    def with_nic(self, gbps: float) -> System:
        """The same system with more or fewer of its NICs: `gbps` Gb/s per node, one direction."""
        nic_bytes_per_s = gbps * 1e9 / 8
        of_a_nic = self.nic_bytes_per_s / (self.nics_per_node or self.gpus_per_node)
        nics = max(round(nic_bytes_per_s / of_a_nic), 1)
        return dataclasses.replace(self, nic_bytes_per_s=nic_bytes_per_s, nics_per_node=nics)


def list_systems() -> list[str]:
    """Names of the shipped systems, sorted."""
    return sorted(SHIPPED_SYSTEMS)


def load_system(name_or_path: str | Path) -> System:
    """A shipped system by name, or one from a YAML (or JSON) file by its path.

    Changes may follow, as in `dgx-a100-80gb,nic_gbps=400,site.launch_us=30`. Raises `UnknownName` for a name
    that is not shipped. Raises `UserError`, naming file and key, for a wrong file: an unknown key, a key
    without its unit, a value that is negative or not a number.

    >>> load_system("dgx-a100-80gb").nic_bytes_per_s
    200000000000.0
    """
    if name_or_path in SHIPPED_SYSTEMS:
        return _shipped_system(str(name_or_path))
    return system_of(system_reference(name_or_path))


@cache
def _shipped_system(name: str) -> System:
    return system_of(system_reference(name))


def as_system(system: System | str | Path) -> System:
    """A system as it is, or the one that a name or a file states. Raises as `load_system` does, and UserError
    for anything else.
    """
    if isinstance(system, System):
        return system
    if isinstance(system, str | Path):
        return load_system(system)
    raise UserError(f"system={type(system).__name__}: must be a system, its name, or its file")


def profile_of(system: System) -> Profile:
    """The profile of a system's GPUs: the one that it names, with the power and memory that it states.

    It is read once, and again where its file changed. Raises as `load_profile` and `Profile.variant` do.
    """
    figures = system.power_w, system.hbm_bytes_per_s, system.memory_bytes, system.multiprocessors
    return variant_of(system.profile, profile_state(system.profile), *figures)


@cache
def variant_of(
    name: str,
    state: tuple[int, ...] | None,
    power_w: float | None,
    hbm_bytes_per_s: float | None,
    memory_bytes: float | None,
    multiprocessors: int | None,
) -> Profile:
    """The profile `name`, in a `profile_state`, with what a system states of its GPUs; kept by arguments."""
    profile = load_profile(name)
    if power_w is hbm_bytes_per_s is memory_bytes is multiprocessors is None:
        return profile
    return profile.variant(
        power_w=power_w,
        hbm_bytes_per_s=hbm_bytes_per_s,
        memory_bytes=memory_bytes,
        multiprocessors=multiprocessors,
    )


def is_system_file(name: str) -> bool:
    """Whether a file states the system `name`, which may have changes behind it."""
    return names_file(_CHANGES.split(name)[0])


def system_reference(name_or_path: str | Path) -> Reference:
    """The keys of a system, and the files that they come from. Raises as `load_system` does."""
    if isinstance(name_or_path, Path):
        return Reference.read("system", name_or_path, SYSTEMS, System)
    name, *changes = _CHANGES.split(name_or_path)
    return Reference.read("system", name, SYSTEMS, System).changed(changes, f"{name},")


_IDLE: tuple[tuple[str, Callable[[System], bool], str], ...] = (
    (
        "cpu_link_bytes_per_s",
        lambda system: (system.nics_per_node or system.gpus_per_node) >= system.gpus_per_node,
        "every GPU has a NIC of its own, so that no ring crosses the CPUs; change nics_per_node too",
    ),
    (
        "network_efficiency",
        lambda system: system.site.network_efficiency is not None,
        "the site has its own; change site.network_efficiency",
    ),
    (
        "site_link_latency_s",
        lambda system: system.site_link_bytes_per_s is None,
        "workers exchange over NICs; change site_link_bytes_per_s too",
    ),
)
"""Keys that no prediction on some systems depends on: the key, whether it is so, and the key that decides. A
file may state what is idle, as it describes a machine; a change of it is refused."""


def system_of(reference: Reference) -> System:
    """The system of these keys. UserError, naming file and key, if they are not those of a system, if a
    change of one of them would change nothing, or if its framework cannot be loaded.
    """
    system = construct(System, reference.content, reference.where)
    for key, idle, remedy in _IDLE:
        if key in reference.changes and idle(system):
            raise UserError(f"{reference.where}: {key} changes nothing: {remedy}")
    try:
        load_framework(system.framework)
    except UserError as error:
        raise UserError(f"{reference.where}: framework={quoted(system.framework)}: {error}") from None
    return system


DEFAULT_USD_PER_GPU_HOUR = 5.0
"""The price of vTrain's studies (Bang et al., MICRO 2024), for GPUs of which no price is known."""


class Price(NamedTuple):
    """US dollars of a GPU-hour, and in words what says so."""

    usd_per_gpu_hour: float
    origin: str

    def usd(self, gpus: int, seconds: float) -> float:
        """Dollars of so many GPUs for so many seconds."""
        return gpus * self.usd_per_gpu_hour * seconds / 3600


def checked_price(user_usd: float | None, where: str = "--price") -> float | None:
    """A price as a user states it; UserError for one that is out of range."""
    if user_usd is not None and not 0 < user_usd < 1e9:
        raise UserError(f"{where}={user_usd:g}: must be dollars per GPU-hour, above 0")
    return user_usd


def price_of(system: System | None, user_usd: float | None = None, where: str = "--price") -> Price:
    """The price that a user states, else that of the system, else the default. `where` the user states it."""
    if user_usd is not None:
        return Price(user_usd, f"as {where} says")
    if system is not None and system.usd_per_gpu_hour is not None:
        return Price(system.usd_per_gpu_hour, f"as system {system.name} says")
    return Price(DEFAULT_USD_PER_GPU_HOUR, "by default: the system states no price")


def stalled_sends(framework: Framework, system: System, plans: Any) -> tuple[Any, Any]:
    """Seconds that stalled sends add to an iteration of a `Plan`, or of each in a `PlanBatch`, and whether a
    run is likely to have a node that stalls them.

    They delay every step of the pipeline, of which it takes one for each micro-batch and pp - 1 to fill. A
    stage of two has one neighbour, those between have two; a run has such a node with probability
    1 - (1 - share)^nodes. Every run is in one of two modes, with these seconds or without.
    """
    nodes = np.ceil(plans.gpus / system.gpus_per_node)
    neighbours = np.minimum(plans.pp, 4) / 2
    crosses = (plans.pp > 1) & (plans.gpus > system.domain_gpus)
    steps = plans.microbatches + plans.pp - 1
    seconds = np.where(crosses, steps * neighbours * framework.stalled_send_s, 0.0)
    return seconds, 1 - (1 - system.stalling_nodes) ** nodes > 0.5
