"""The partitions of a site from `scontrol show partition`, or from the lines of slurm.conf.

Source: slurm.conf(5), "PARTITION CONFIGURATION". A number as a time is in minutes, GraceTime in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from clustersim.sites.slurm import Partition, Settings
from clustersim.sites.units import seconds_of, weights_of
from itertime.errors import UnknownName, UserError
from traces.host_lists import hosts_of

from .configuration import Configuration
from .texts import Entry, entries_of, text_of

__all__ = ["partitions_of_configuration", "partitions_of_file"]

_NEUTRAL = {
    "AllowAccounts": ("all", "any account may use it here"),
    "AllowGroups": ("all", "which groups may use it is not known here"),
    "AllowQos": ("all", "jobs of any QOS may use it here"),
    "Alternate": ("none", "a full partition has no alternate here"),
    "DenyAccounts": ("none", "any account may use it here"),
    "DenyQos": ("none", "jobs of any QOS may use it here"),
    "ExclusiveUser": ("no", "nodes are not kept to one user here"),
    "MaxCPUsPerNode": ("unlimited", "cores of a node are not kept for other partitions here"),
    "MaxNodes": ("unlimited", "jobs may have more nodes here"),
    "MinNodes": ("0 or 1", "jobs may have fewer nodes here"),
    "OverTimeLimit": ("none", "the limit of the whole site counts here"),
    "ReqResv": ("no", "jobs need no reservation here"),
    "RootOnly": ("no", "any user may submit here"),
    "SelectTypeParameters": ("none", "the parameters of the whole site count here"),
    "SuspendTime": ("infinite", "nodes are never powered down here"),
}
"""What simulations leave out of a partition: the value without effect, and what is different here."""


def partitions_of_file(
    path: str | Path, nodes: Iterable[str], settings: Settings, unmodelled: list[str]
) -> dict[str, Partition]:
    """The partitions in the output of `scontrol show partition`. UserError for a node that is not there."""
    entries = entries_of(text_of(path, "partition"), "PartitionName")
    return _partitions(entries, list(nodes), {}, settings, unmodelled)


def partitions_of_configuration(
    configuration: Configuration, nodes: Iterable[str], settings: Settings, unmodelled: list[str]
) -> dict[str, Partition]:
    """The partitions in the lines of slurm.conf. A line for DEFAULT counts for those below it."""
    entries, default = [], dict[str, str]()
    for entry in configuration.lines.get("partitionname", []):
        if (entry.stated("PartitionName") or "").upper() == "DEFAULT":
            default |= entry.values
        else:
            entries.append(Entry(entry.where, {**default, **entry.values}))
    if not entries:
        remedy = "give the output of 'scontrol show partition' with --partitions"
        raise UserError(f"{configuration.path}: names no partitions; {remedy}")
    sets = {
        entry.stated("NodeSet") or "": entry.stated("Nodes") or ""
        for entry in configuration.lines.get("nodeset", [])
    }
    return _partitions(entries, list(nodes), sets, settings, unmodelled)


def _partitions(
    entries: Iterable[Entry],
    nodes: list[str],
    sets: Mapping[str, str],
    settings: Settings,
    unmodelled: list[str],
) -> dict[str, Partition]:
    partitions: dict[str, Partition] = {}
    node_names = frozenset(nodes)
    for entry in entries:
        name = entry.stated("PartitionName") or ""
        if name in partitions:
            raise entry.fault("PartitionName", name, "is there twice; keep one")
        hosts = _hosts_of(entry, nodes, sets)
        for host in hosts:
            if host not in node_names:
                reason = f"{UnknownName('node', host, nodes)}; export nodes and partitions of one cluster"
                raise entry.fault("PartitionName", name, reason)
        partitions[name] = _partition(entry, tuple(hosts), settings)
        for field, (neutral, consequence) in _NEUTRAL.items():
            value = entry.stated(field)
            if value is not None and value.lower() not in (*neutral.split(" or "), "no", "none"):
                unmodelled.append(f"partition {name}: {field}={value}: {consequence}")
        over = partitions[name].OverSubscribe
        if over != "NO":
            consequence = (
                "get whole nodes in Slurm alone" if over == "EXCLUSIVE" else "do not share cores here"
            )
            unmodelled.append(f"partition {name}: OverSubscribe={over}: jobs {consequence}")
    if not partitions:
        raise UserError("--partitions: names no partition; export it with scontrol -a show partition")
    return partitions


def _hosts_of(entry: Entry, nodes: list[str], sets: Mapping[str, str]) -> list[str]:
    host_text = entry.stated("Nodes")
    if host_text is None:
        return []
    if host_text.upper() == "ALL":
        return nodes
    try:
        hosts = [
            host
            for word in hosts_of(host_text)
            for host in (hosts_of(sets[word]) if word in sets else [word])
        ]
    except UserError as error:
        raise UserError(f"{entry.where}: PartitionName={entry.stated('PartitionName')}: {error}") from None
    return list(dict.fromkeys(hosts))


def _partition(entry: Entry, hosts: tuple[str, ...], settings: Settings) -> Partition:
    mode = (entry.stated("PreemptMode") or "").upper() or None
    values: dict[str, Any] = {
        "PriorityTier": entry.whole("PriorityTier", default=1),
        "PriorityJobFactor": entry.whole("PriorityJobFactor", default=1),
        "Default": (entry.stated("Default") or "no").lower() == "yes",
        "MaxTime": _time(entry, "MaxTime"),
        "DefaultTime": _time(entry, "DefaultTime"),
        "MaxNodes": entry.whole("MaxNodes", default=None),
        "MinNodes": entry.whole("MinNodes", default=0),
        "QOS": entry.stated("QoS"),
        "AllowAccounts": _names(entry, "AllowAccounts"),
        "DenyAccounts": _names(entry, "DenyAccounts") or (),
        "AllowQos": _names(entry, "AllowQos"),
        "DenyQos": _names(entry, "DenyQos") or (),
        "PreemptMode": None if mode == settings.PreemptMode else mode,
        "GraceTime": float(entry.whole("GraceTime", default=0) or 0),
        "LLN": (entry.stated("LLN") or "no").lower() == "yes",
        "OverSubscribe": (entry.stated("OverSubscribe", "Shared") or "NO").upper(),
        "State": (entry.stated("State") or "UP").upper(),
    }
    weights = entry.stated("TRESBillingWeights")
    if weights is not None:
        try:
            values["TRESBillingWeights"] = weights_of(weights)
        except ValueError as error:
            raise entry.fault("TRESBillingWeights", weights, str(error)) from None
    return entry.made(Partition, {"nodes": hosts, **values})


def _time(entry: Entry, name: str) -> float | None:
    value = entry.stated(name)
    try:
        return None if value is None else seconds_of(value)
    except ValueError as error:
        raise entry.fault(name, value, str(error)) from None


def _names(entry: Entry, name: str) -> tuple[str, ...] | None:
    value = entry.stated(name)
    return None if value is None or value.upper() == "ALL" else tuple(filter(None, value.split(",")))
