"""GPUs, cores and memory as Slurm writes them: lists of trackable resources, and requests of GRES.

Sources: sacct(1), sbatch(1), "Generic Resource (GRES) Scheduling" and "Trackable RESources (TRES)",
slurm.schedmd.com.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from traces.native import COLUMNS, whole

__all__ = ["GPUS", "Request", "Tres"]

GPUS = ("gpu",)
"""The generic resource that is GPUs, by its name in gres.conf."""

_CPUS = re.compile(r"(?:^|,)cpu=([0-9]+)", re.ASCII)
_MEMORY = re.compile(r"(?:^|,)mem=([0-9]+(?:\.[0-9]+)?)([KMGTP]?)", re.ASCII)
_NODES = re.compile(r"(?:^|,)node=([0-9]+)", re.ASCII)
_SLICE = re.compile(r"\dg\.\d+gb", re.ASCII | re.IGNORECASE)
_COMMA = re.compile(r",(?![^(]*\))")  # none of those in parentheses, as of (IDX:0-3,5)
_MOST_KEPT = 20_000  # lists that are remembered: a log has few of them


class Request(NamedTuple):
    """GPUs of a whole job, their type if there is one, and whether MIG slices are among them; cores, GB of
    1e9 bytes and nodes, None where the list does not name them.
    """

    gpus: int
    gpu_type: str | None = None
    part_of_gpu: bool = False
    cpus: float | None = None
    memory_gb: float | None = None
    nodes: int | None = None


class Tres:
    """Reads lists of resources, of which those with the given `names` are GPUs.

    >>> Tres().request("billing=64,cpu=64,gres/gpu:a100=6,gres/gpu:h100=2,mem=512G,node=1")
    Request(gpus=8, gpu_type=None, part_of_gpu=False, cpus=64.0, memory_gb=549.755813888, nodes=1)
    >>> Tres(("gaudi",)).request("cpu=1,gres/gaudi=8").gpus
    8
    """

    def __init__(self, names: Collection[str] = GPUS):
        alternatives = "|".join(re.escape(name) for name in names)
        self._total = re.compile(rf"(?:^|,)gres/(?:{alternatives})(:[^=,]+)?=([^,]*)")
        self._gres = re.compile(
            rf"(?:gres[:/])?(?:{alternatives})(?::([^:=,()\d][^:=,()]*))?(?:[:=](\d+))?(?:\(.*\))?", re.ASCII
        )
        self._kept: dict[str, Request | None] = {}

    def request(self, text: str) -> Request | None:
        """What a list asks for: the total of GPUs, or the sum over their types where only those are stated;
        None without GPUs. Raises ValueError for a number that is none.
        """
        if text in self._kept:
            return self._kept[text]
        request = self._request(text)
        if len(self._kept) < _MOST_KEPT:
            self._kept[text] = request
        return request

    def _request(self, text: str) -> Request | None:
        matches = self._total.findall(text)
        if not matches:
            return None
        totals = [whole(count) for gpu_type, count in matches if not gpu_type]
        types = [gpu_type[1:] for gpu_type, _ in matches if gpu_type]
        gpus = max(totals) if totals else sum(whole(count) for _, count in matches)
        part = any(_SLICE.search(gpu_type) for gpu_type in types)
        nodes = _NODES.search(text)
        return Request(
            int(COLUMNS["gpus"](str(gpus))) if gpus else 0,
            types[0] if len(types) == 1 and not part else None,
            part,
            _cpus(text),
            _memory_gb(text),
            int(nodes[1]) if nodes else None,
        )

    def units(self, text: str) -> Request:
        """The GPUs in a request by job, node, task or socket, such as `gres:gpu:a100:8,gres/shard:4` or, with
        what a job holds of a node, `gpu:h100:4(IDX:0-3)`; 0 if it names none.

        >>> Tres().units("gres:gpu:a100:8"), Tres().units("N/A").gpus
        (Request(gpus=8, gpu_type='a100', part_of_gpu=False, cpus=None, memory_gb=None, nodes=None), 0)
        """
        matches = [match for word in _COMMA.split(text) if (match := self._gres.fullmatch(word.strip()))]
        types = {match[1] for match in matches}
        gpu_type = types.pop() if len(types) == 1 else None
        part = gpu_type is not None and _SLICE.search(gpu_type) is not None
        return Request(sum(_counts(matches)), None if part else gpu_type, part)


def _counts(matches: list[re.Match[str]]) -> Iterator[int]:
    return (whole(match[2] or "1") for match in matches)


def _cpus(text: str) -> float | None:
    """The cores in a list; None if it names none."""
    match = _CPUS.search(text)
    return float(COLUMNS["cpus"](match[1])) if match and match[1] != "0" else None


def _memory_gb(text: str) -> float | None:
    """The memory in a list; None if it names none. Units are powers of 1024, M where none is stated."""
    match = _MEMORY.search(text)
    if not match or not float(match[1]):
        return None
    gb = float(match[1]) * 1024 ** ("KMGTP".index(match[2] or "M") + 1) / 1e9
    return float(COLUMNS["host_memory_gb"](repr(gb)))
