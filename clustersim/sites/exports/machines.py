"""The nodes of a site from `scontrol show node`, or from the lines of slurm.conf and gres.conf.

Sources: slurm.conf(5), gres.conf(5), scontrol(1). A node is down in the states in which Slurm gives it no
job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path

from clustersim.sites.slurm import SiteNode
from clustersim.sites.units import memory_gb_of
from itertime.errors import UserError

from .configuration import Configuration
from .texts import Entry, entries_of, text_of

__all__ = ["gpu_types_of", "nodes_of_configuration", "nodes_of_file"]

_GRES = re.compile(r"gpu(?::([A-Za-z][^:()]*))?(?::no_consume)?(?::(\d{1,6}))?(?:\(.*\))?")
_MIG = re.compile(r"\dg\.\d+gb", re.IGNORECASE)
_DOWN = (
    "down",
    "drain",
    "drained",
    "draining",
    "fail",
    "failing",
    "error",
    "future",
    "not_responding",
    "inval",
)
_MOST_GPUS = 64
EVERY_NODE = ""
"""Stands for all nodes in place of a name."""
_UNCOMMON = {"mps": "parts of GPUs by MPS", "shard": "parts of GPUs by shards"}


def nodes_of_file(path: str | Path, gpu_types: Mapping[str, str], unmodelled: list[str]) -> list[SiteNode]:
    """The nodes in the output of `scontrol show node`, in its order."""
    text = text_of(path, "node")
    nodes: list[tuple[str, SiteNode]] = []
    for entry in entries_of(text, "NodeName"):
        nodes += _nodes_of(entry, gpu_types, unmodelled)
    return _without_repeats(nodes, unmodelled)


def nodes_of_configuration(
    configuration: Configuration, gpu_types: Mapping[str, str], unmodelled: list[str]
) -> list[SiteNode]:
    """The nodes in the lines of slurm.conf. A line for DEFAULT counts for those below it."""
    nodes: list[tuple[str, SiteNode]] = []
    default: dict[str, str] = {}
    for entry in configuration.lines.get("nodename", []):
        if (entry.stated("NodeName") or "").upper() == "DEFAULT":
            default |= entry.values
            continue
        nodes += _nodes_of(Entry(entry.where, {**default, **entry.values}), gpu_types, unmodelled)
    if not nodes:
        raise UserError(
            f"{configuration.path}: names no nodes; give the output of 'scontrol show node' with --nodes"
        )
    return _without_repeats(nodes, unmodelled)


def _without_repeats(nodes: Iterable[tuple[str, SiteNode]], unmodelled: list[str]) -> list[SiteNode]:
    where_of: dict[str, str] = {}
    unique_nodes = []
    for where, node in nodes:
        if node.name in where_of:
            raise UserError(
                f"{where}: node {node.name} is there twice, first at {where_of[node.name]}; keep one"
            )
        where_of[node.name] = where
        unique_nodes.append(node)
    return unique_nodes


def _nodes_of(
    entry: Entry, gpu_types: Mapping[str, str], unmodelled: list[str]
) -> Iterator[tuple[str, SiteNode]]:
    """The nodes of an entry, each with where it stands."""
    names = entry.hosts("NodeName")
    if not names:
        raise entry.fault("NodeName", "", "names no node; export the nodes again")
    gpus, gpu_type = _gpus_of(entry, names[0], unmodelled)
    if gpus > _MOST_GPUS:
        raise entry.fault("Gres", entry.stated("Gres"), f"is more than {_MOST_GPUS} GPUs of a node")
    values = {
        "name": "n",
        "gpus": gpus,
        "gpu_type": gpu_type,
        "cpus": _cpus_of(entry),
        "memory_gb": _memory_gb_of(entry),
        "weight": entry.whole("Weight", default=1) or 0,
        "state": "down" if _is_down(entry.stated("State") or "") else "up",
    }
    node = entry.made(SiteNode, values)
    for name in names:
        listed_type = gpu_types.get(name, gpu_types.get(EVERY_NODE, "")) if gpus else ""
        yield entry.where, replace(node, name=name, gpu_type=gpu_type or listed_type)


def _gpus_of(entry: Entry, name: str, unmodelled: list[str]) -> tuple[int, str]:
    """The GPUs of a node and their type. Of several types the most frequent one names them all."""
    counts: dict[str, int] = {}
    for part in re.split(r",(?![^(]*\))", entry.stated("Gres") or ""):
        kind = part.partition(":")[0]
        match = _GRES.fullmatch(part.strip())
        if kind in _UNCOMMON:
            unmodelled.append(f"{entry.where}: {name}: Gres={part}: {_UNCOMMON[kind]} are not modelled")
        elif match and _MIG.search(match[1] or ""):
            unmodelled.append(f"{entry.where}: {name}: Gres={part}: slices of GPUs are left out")
        elif match:
            counts[match[1] or ""] = counts.get(match[1] or "", 0) + int(match[2] or 1)
    if len(counts) > 1:
        unmodelled.append(
            f"{entry.where}: {name}: Gres={entry.stated('Gres')}: GPUs of several types count as one"
        )
    return sum(counts.values()), max(counts, key=lambda gpu_type: counts[gpu_type], default="")


def _cpus_of(entry: Entry) -> int:
    cpus = entry.whole("CPUEfctv", "CPUTot", "CPUs", "Procs", default=None)
    if cpus is not None:
        return cpus
    of_boards = prod(entry.whole(name, default=1) or 1 for name in ("SocketsPerBoard", "Boards"))
    sockets = entry.whole("Sockets", default=of_boards) or 1
    return sockets * prod(entry.whole(name, default=1) or 1 for name in ("CoresPerSocket", "ThreadsPerCore"))


def _memory_gb_of(entry: Entry) -> float | None:
    """The memory that jobs may have; None for the 1 MB that stands where none is stated."""
    memory = entry.stated("RealMemory")
    if memory is None or memory == "1":
        return None
    try:
        return memory_gb_of(memory) - memory_gb_of(entry.stated("MemSpecLimit") or "0")
    except ValueError as error:
        raise entry.fault("RealMemory", memory, str(error)) from None


def _is_down(state: str) -> bool:
    """Whether a node in this state gets no job: `IDLE+DRAIN`, `DOWN*`; * is a node that does not respond."""
    words = re.split(r"[+\s]", state.lower())
    return state.endswith("*") or any(word.rstrip("*~#!%$@^-") in _DOWN for word in words)


def gpu_types_of(path: str | Path) -> dict[str, str]:
    """The type of the GPUs of each node by gres.conf, for nodes whose Gres= states none. A line without
    NodeName is about `EVERY_NODE`.
    """
    types: dict[str, str] = {}
    for number, line in text_of(path, "gres.conf").lines:
        entry = Entry(f"{path}:{number}", _gres_pairs(line.partition("#")[0]))
        gpu_type = entry.stated("Type")
        if entry.stated("Name") == "gpu" and gpu_type:
            for name in entry.hosts("NodeName") or (EVERY_NODE,):
                types.setdefault(name, gpu_type)
    return types


def _gres_pairs(line: str) -> dict[str, str]:
    return {name.lower(): value for name, _, value in (word.partition("=") for word in line.split())}
