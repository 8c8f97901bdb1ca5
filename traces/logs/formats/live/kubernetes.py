"""What the objects of Kubernetes have in common, as `kubectl get KIND -A -o json` prints them.

A list is `{apiVersion: v1, kind: List, items: [...]}`, an object `{apiVersion, kind, metadata, spec,
status}`. Times are RFC 3339 dates with an offset. Sources: the API reference of Kubernetes, "Pod v1" and
"ObjectMeta" (kubernetes.io/docs/reference/kubernetes-api), and "Schedule GPUs" for the names of resources.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from itertime.io import shown
from traces.logs.cells import Moments
from traces.logs.json_entries import json_entries
from traces.logs.records import member, text_of
from traces.logs.source import Head, LogSource
from traces.native import whole

__all__ = [
    "GPU_TYPE_LABEL",
    "GpuResources",
    "condition",
    "conditions",
    "is_first_object",
    "items",
    "items_of",
    "name_of",
    "time_of",
]

GPU_TYPE_LABEL = "nvidia.com/gpu.product"
"""The label of nodes, and so of node selectors, that names the GPU type (NVIDIA's GPU feature discovery)."""

_WHOLE = (
    "nvidia.com/gpu", "nvidia.com/pgpu", "amd.com/gpu", "habana.ai/gaudi", "google.com/tpu",
    "gpu.intel.com/i915", "gpu.intel.com/xe", "aws.amazon.com/neuron", "cambricon.com/mlu",
    "qualcomm.com/qaic",
)  # fmt: skip
"""Resources that are whole accelerators, as the vendors' device plugins call them."""

_PREFIXES = ("huawei.com/Ascend",)
_PARTS = ("nvidia.com/mig-", "nvidia.com/gpu.shared", "volcano.sh/vgpu-number")
"""Slices, and shares of time."""

_GPU_WORD = re.compile(r"(?:^|[^a-z])gpus?(?:[^a-z]|$)", re.IGNORECASE)
_FIRST = re.compile(
    r'"apiVersion"\s*:\s*"([^"]*)"\s*,\s*"kind"\s*:\s*"([^"]*)"|"kind"\s*:\s*"([^"]*)"\s*,\s*"apiVersion"\s*:\s*"([^"]*)"'
)


def is_first_object(head: Head, group: str, kinds: Iterable[str]) -> bool:
    """Whether the first object of a JSON text that is no list is of an API group ("v1" for the core) and of
    one of the kinds.
    """
    if not head.text.lstrip().startswith("{"):
        return False
    for match in _FIRST.finditer(head.text):
        version, kind = (match[1], match[2]) if match[2] else (match[4], match[3])
        if not kind.endswith("List"):
            return version.partition("/")[0] == group and kind in kinds
    return False


def items(source: LogSource) -> Iterator[tuple[int, Any]]:
    """The objects of a list, or the one object, with the lines on which they begin."""
    return json_entries(source, "items")


def items_of(entry: Any, kind: str) -> Mapping[str, Any]:
    """The object, if it is of a kind. Raises ValueError if not."""
    if not isinstance(entry, dict) or entry.get("kind") != kind:
        kind_text = shown(str(member(entry, "kind")))[:80]
        raise ValueError(f"is of kind {kind_text}, not {kind}", f"is not of kind {kind}")
    return entry


def name_of(entry: Any) -> str:
    """Namespace and name of an object, which together are unique among its kind. Raises ValueError."""
    name = text_of(entry, "metadata", "name")
    if name is None:
        raise ValueError("has no metadata.name")
    return f"{text_of(entry, 'metadata', 'namespace') or 'default'}/{name}"


def time_of(times: Moments, entry: Any, *path: str) -> float | None:
    """The moment under a path of keys, None if there is none. Raises ValueError (reason, kind of reason)."""
    value = member(entry, *path)
    if value is None or value == "":
        return None
    try:
        return times(str(value))
    except ValueError as error:
        raise ValueError(f"{path[-1]}={shown(str(value)[:80])}: {error}", f"{path[-1]}: {error}") from None


def condition(entry: Any, kind: str) -> Mapping[str, Any]:
    """The condition of a type in an object's status; an empty mapping if it is not there."""
    conditions = member(entry, "status", "conditions")
    held = (
        [entry_condition for entry_condition in conditions if member(entry_condition, "type") == kind]
        if isinstance(conditions, list)
        else []
    )
    return held[0] if held else {}


def conditions(entry: Any) -> dict[Any, Mapping[str, Any]]:
    """The conditions in an object's status, the first of each type."""
    entries = member(entry, "status", "conditions")
    by_type: dict[Any, Mapping[str, Any]] = {}
    for condition in entries if isinstance(entries, list) else []:
        kind = member(condition, "type")
        if isinstance(kind, str):
            by_type.setdefault(kind, condition)
    return by_type


class GpuResources:
    """Reads requests for GPUs: of resources that are accelerators, and those whose names the user adds.

    >>> gpus = GpuResources(["example.com/npu"])
    >>> gpus.is_gpu("nvidia.com/gpu"), gpus.is_gpu("nvidia.com/mig-1g.5gb"), gpus.is_gpu("cpu")
    (True, True, False)
    >>> gpus.held({"example.com/npu": "2"})
    (2, False)
    """

    def __init__(self, names: Collection[str] = ()):
        self._names = frozenset((*_WHOLE, *names))
        self._own_names = frozenset(names)

    def is_gpu(self, resource: str) -> bool:
        """Whether a resource is accelerators, or parts of them."""
        return resource in self._names or resource.startswith(_PREFIXES) or self._is_part(resource)

    def _is_part(self, resource: str) -> bool:
        return resource not in self._own_names and resource.startswith(_PARTS)

    def held(self, resources: Any) -> tuple[int, bool]:
        """The GPUs in a mapping of resources to quantities, and whether parts of one are among them.
        ValueError (reason, kind of reason) for a quantity that is none.
        """
        total, part = 0, False
        for name, quantity in resources.items() if isinstance(resources, dict) else ():
            name = name.removeprefix("requests.")
            if not self.is_gpu(name):
                continue
            try:
                count = whole(str(quantity))
            except ValueError as error:
                raise ValueError(f"{name}={shown(str(quantity)[:80])}: {error}", f"{name}: {error}") from None
            if count < 0:
                raise ValueError(f"{name}={count}: must not be negative", f"{name}: must not be negative")
            total, part = total + count, part or (count > 0 and self._is_part(name))
        return total, part

    def of_pod(self, spec: Any) -> tuple[int, bool]:
        """The GPUs that a pod of this spec holds, and whether parts of one are among them.

        They are those of its containers and sidecars together, or of its largest init container, and one for
        each claim of a device that is a GPU by its name. A container that states limits only requests these
        ("Resource Management for Pods and Containers").
        """
        together, largest, part = self._claimed(spec), 0, False
        for name, restarts in (("containers", True), ("initContainers", False)):
            containers = member(spec, name)
            for container in containers if isinstance(containers, list) else []:
                requests = member(container, "resources", "requests")
                count, is_part = self.held(requests)
                if not count:
                    count, is_part = self.held(member(container, "resources", "limits"))
                part = part or is_part
                if restarts or member(container, "restartPolicy") == "Always":
                    together += count
                else:
                    largest = max(largest, count)
        return max(together, largest), part

    def _claimed(self, spec: Any) -> int:
        """The claims of devices (Dynamic Resource Allocation) that name a GPU, or what the user calls one."""
        claims = member(spec, "resourceClaims")
        return sum(
            any(_GPU_WORD.search(word) or word in self._own_names for word in _words(claim))
            for claim in (claims if isinstance(claims, list) else [])
        )


def _words(claim: Any) -> list[str]:
    keys = ("name", "resourceClaimName", "resourceClaimTemplateName")
    return [word for key in keys if isinstance(word := member(claim, key), str)]
