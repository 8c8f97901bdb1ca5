"""A site with one value changed, as a what-if asks: another limit, other shares, more nodes.

| path | what it changes |
|---|---|
| `nodes` | the number of nodes with GPUs; more are copies of the last one, in the same partitions |
| `nodes.HOSTS.KEY` | a value of some nodes, as in `nodes.n[01-04].state` |
| `partitions.NAME.KEY`, `qos.NAME.KEY`, `qos.NAME.limits.LIMIT` | a value of a partition or of a QOS |
| `associations.ACCOUNT.KEY`, `associations.ACCOUNT/USER.KEY` | a value of an account, or of a user in it |
| `reservations.NAME.KEY` | a value of a reservation; its times are dates, or seconds since 1970 |
| `settings.KEY`, `settings.SchedulerParameters.NAME` | a setting |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces.host_lists import hosts_of

from .document import document_of, site_of
from .slurm import SiteNode, SlurmSite

__all__ = ["changed_document", "with_nodes"]

_MOST_NODES = 1_000_000
_NUMBER = re.compile(r"(.*?)(\d+)(\D*)", re.ASCII | re.DOTALL)
_PARTS = ("nodes", "partitions", "qos", "associations", "reservations", "settings")


def changed_document(document: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The document of a site with `value` at `path` (see the table above). UserError for a path that leads
    nowhere; what the value may be, `site_of` checks.
    """
    part, _, subpath = path.partition(".")
    if part not in _PARTS or (not subpath and part != "nodes"):
        if part in _PARTS:
            raise UserError(f"site.{path}: names no value; write site.{part}.NAME.KEY")
        raise UserError(f"site.{path}: {UnknownName('part of a site', part, _PARTS)}")
    if part == "nodes":
        site = site_of(document)
        return document_of(
            with_nodes(site, value) if not subpath else _with_node_values(site, subpath, value)
        )
    changed = dict(document)
    if part == "settings":
        changed[part] = _assigned(document.get(part, {}), subpath.split(".", 1), value)
    elif part in ("associations", "reservations"):
        changed[part] = _with_entry(part, document.get(part, []), subpath, value)
    else:
        entries = dict(document.get(part, {}))
        name, keys = _named(subpath, entries, path, part)
        entries[name] = _assigned(entries[name] or {}, keys.split(".", 1), value)
        changed[part] = entries
    return document_of(site_of(changed))


def _named(subpath: str, names: Iterable[str], path: str, part: str) -> tuple[str, str]:
    """The name at the beginning of a path, which may itself have dots, and what follows it."""
    for name in sorted(names, key=len, reverse=True):
        if subpath.startswith(f"{name}."):
            return name, subpath[len(name) + 1 :]
    first_word = subpath.partition(".")[0]
    raise UserError(f"site.{path}: {UnknownName(f'name in {part}', first_word, names)}; write NAME.KEY")


def _assigned(values: Mapping[str, Any], keys: list[str], value: Any) -> dict[str, Any]:
    """Values with one of them replaced, which may be in a mapping inside."""
    if len(keys) == 1:
        return {**values, keys[0]: value}
    inner = values.get(keys[0]) or {}
    if not isinstance(inner, Mapping):
        raise UserError(f"site: {keys[0]}={shown(str(inner))}: has no {keys[1]}; it is one value")
    return {**values, keys[0]: {**inner, keys[1]: value}}


def _with_entry(
    part: str, entries: list[Mapping[str, Any]], subpath: str, value: Any
) -> list[Mapping[str, Any]]:
    """The entries of a list, with a value in the one that the path names."""
    keys_of_names = ("name",) if part == "reservations" else ("account", "user")
    names = ["/".join(str(entry[key]) for key in keys_of_names if entry.get(key)) for entry in entries]
    name, keys = _named(subpath, names, f"{part}.{subpath}", part)
    return [
        _assigned(entry, keys.split(".", 1), value) if name == of_entry else entry
        for entry, of_entry in zip(entries, names, strict=True)
    ]


def _with_node_values(site: SlurmSite, subpath: str, value: Any) -> SlurmSite:
    hosts, dot, key = subpath.rpartition(".")
    names = [node.name for node in site.nodes]
    chosen_hosts = hosts_of(hosts) if dot else []
    for host in chosen_hosts or [subpath]:
        if host not in names:
            raise UserError(
                f"site.nodes.{subpath}: {UnknownName('node', host, names)}; write nodes.HOSTS.KEY"
            )
    if key not in ("gpus", "gpu_type", "cpus", "memory_gb", "weight", "state"):
        raise UserError(f"site.nodes.{subpath}: {UnknownName('key of a node', key, vars(site.nodes[0]))}")
    try:
        nodes = [
            replace(node, **{key: value}) if node.name in frozenset(chosen_hosts) else node
            for node in site.nodes
        ]
    except ValueError:
        example = f"{names[0]} has {shown(str(vars(site.nodes[0])[key]))}"
        raise UserError(
            f"site.nodes.{subpath}={shown(str(value))}: is no value of {key}, of which {example}"
        ) from None
    return replace(site, nodes=tuple(nodes))


def with_nodes(site: SlurmSite, count: Any) -> SlurmSite:
    """The site with this number of nodes that have GPUs. More are copies of the last one, with the next
    numbers, in its partitions; fewer lack the last ones. UserError for no number of nodes.
    """
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_NODES:
        raise UserError(f"site.nodes={shown(str(count))}: must be a whole number, at least 1")
    with_gpus = [node for node in site.nodes if node.gpus]
    if not with_gpus:
        raise UserError(f"site {site.name}: no node has GPUs; check Gres= of the nodes")
    if count <= len(with_gpus):
        return _without(site, frozenset(node.name for node in with_gpus[count:]))
    last_node = with_gpus[-1]
    new_names = _next_names(last_node.name, count - len(with_gpus), {node.name for node in site.nodes})
    new_nodes = [replace(last_node, name=name, state="up") for name in new_names]
    place = site.nodes.index(last_node) + 1
    partitions = {
        name: replace(partition, nodes=(*partition.nodes, *new_names))
        if last_node.name in partition.nodes
        else partition
        for name, partition in site.partitions.items()
    }
    nodes: tuple[SiteNode, ...] = (*site.nodes[:place], *new_nodes, *site.nodes[place:])
    return replace(site, nodes=nodes, partitions=partitions)


def _without(site: SlurmSite, names: frozenset[str]) -> SlurmSite:
    def remaining(hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host for host in hosts if host not in names)

    return replace(
        site,
        nodes=tuple(node for node in site.nodes if node.name not in names),
        partitions={
            name: replace(partition, nodes=remaining(partition.nodes))
            for name, partition in site.partitions.items()
        },
        reservations=tuple(
            replace(reservation, nodes=remaining(reservation.nodes)) for reservation in site.reservations
        ),
    )


def _next_names(name: str, count: int, names: set[str]) -> list[str]:
    """Names with the numbers after that of `name` which are not names yet."""
    match = _NUMBER.fullmatch(name)
    prefix, digits, suffix = match.groups() if match else (f"{name}-", "0", "")
    new_names: list[str] = []
    number = int(digits)
    while len(new_names) < count:
        number += 1
        new_name = f"{prefix}{str(number).zfill(len(digits))}{suffix}"
        if new_name not in names:
            new_names.append(new_name)
    return new_names
