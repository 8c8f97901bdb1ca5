"""Sites as files (`site.yaml`) and as plain data, which manifests keep. Untrusted: every name is checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from itertime.errors import UnknownName, UserError
from itertime.io import construct, quoted, read_mapping, write_text
from traces.host_lists import hostlist_of, hosts_of

from .slurm import (
    Association,
    Partition,
    Qos,
    Settings,
    SiteNode,
    SiteReservation,
    SlurmSite,
    accounts_above,
)

__all__ = ["checked_site", "document_of", "load_site", "site_of", "write_site"]

ALL = "ALL"
"""What a partition states in place of the names of all nodes."""

T = TypeVar("T")

_HEAD = """\
# A site of Slurm, for clustersim: --site FILE of run, compare, backtest, what-if and predict-start.
# The keys are those of slurm.conf and sacctmgr. A number that is a time is in seconds; texts are as Slurm
# writes them: 1-00:00:00, gres/gpu=64, n[01-16].
"""
_SITE = TypeAdapter(SlurmSite)
_SETTINGS = TypeAdapter(Settings)


def load_site(path: str | Path) -> SlurmSite:
    """The site of a file. UserError names the file and the key."""
    try:
        document = read_mapping(path)
    except UserError as error:
        raise UserError(f"{error}; 'clustersim site slurm' writes such a file") from None
    return site_of(document, str(path))


def write_site(site: SlurmSite, path: str | Path) -> None:
    """Write `site.yaml`, which `load_site` reads and which can be edited by hand."""
    import yaml

    text = yaml.safe_dump(document_of(site), sort_keys=False, allow_unicode=True, width=100)
    write_text(Path(path), _HEAD + text)


def document_of(site: SlurmSite) -> dict[str, Any]:
    """The site as plain data, without what has its default, but with all settings. Equal nodes that follow
    one another are one entry, whose name is a list of hosts.
    """
    document = _SITE.dump_python(site, mode="json", exclude_defaults=True)
    entries = []
    for equal_node, nodes in groupby(site.nodes, lambda node: replace(node, name="n")):
        names = hostlist_of(node.name for node in nodes)
        entries.append({**_NODE.dump_python(equal_node, exclude_defaults=True), "name": names})
    every_node = hostlist_of(node.name for node in site.nodes)
    for partition in document["partitions"].values():
        partition["nodes"] = ALL if partition["nodes"] == every_node else partition["nodes"]
    settings = _SETTINGS.dump_python(site.settings, mode="json")
    return {"name": site.name, **document, "nodes": entries, "settings": settings}


_NODE = TypeAdapter(SiteNode)


def site_of(document: Mapping[str, Any], where: str = "site") -> SlurmSite:
    """The site that a document states, in the form of `document_of` or written by hand.

    UserError begins with `where` and names the key: unknown keys and names, values that Slurm does not have,
    nodes that stand twice.
    """
    _refuse_unknown_keys(document, where)
    nodes = _nodes(_listed(document.get("nodes"), f"{where}: nodes"), where)
    every_node = [node.name for node in nodes]
    partitions = {
        name: construct(Partition, _with_all_nodes(values, every_node), place)
        for name, values, place in _named(document.get("partitions"), f"{where}: partitions")
    }
    qos = {
        name: construct(Qos, values, place)
        for name, values, place in _named(document.get("qos"), f"{where}: qos")
    }
    settings = _mapping(document.get("settings"), f"{where}: settings")
    site = construct(
        SlurmSite,
        {
            "name": document.get("name", "site"),
            "nodes": nodes,
            "partitions": partitions,
            "qos": qos,
            "associations": _all_of(Association, document, "associations", where),
            "reservations": _all_of(SiteReservation, document, "reservations", where),
            "settings": construct(Settings, settings, f"{where}: settings"),
            "unmodelled": _listed(document.get("unmodelled"), f"{where}: unmodelled"),
        },
        where,
    )
    return checked_site(site, where)


def checked_site(site: SlurmSite, where: str) -> SlurmSite:
    """The site, if all names in it are names of something: of nodes, QOS, accounts, users. UserError."""
    names = [node.name for node in site.nodes]
    if not names:
        raise UserError(f"{where}: nodes: is empty; list the nodes, as in - {{name: 'n[01-16]', gpus: 8}}")
    for name, count in Counter(names).items():
        if count > 1:
            raise UserError(f"{where}: node {quoted(name)} is listed {count} times; keep one")
    if not site.partitions:
        raise UserError(f"{where}: partitions: is empty; name at least one, with its nodes")
    known_nodes = frozenset(names)
    for name, partition in site.partitions.items():
        place = f"{where}: partitions.{name}"
        _refuse_unknown("node", partition.nodes, known_nodes, place)
        if site.qos and partition.QOS is not None:
            _refuse_unknown("QOS", [partition.QOS], site.qos, place)
    for name, qos in site.qos.items():
        _refuse_unknown("QOS", qos.Preempt, site.qos, f"{where}: qos.{name}.Preempt")
    for reservation in site.reservations:
        place = f"{where}: reservation {reservation.name}"
        _refuse_unknown("node", reservation.nodes, known_nodes, place)
        if reservation.end <= reservation.start:
            raise UserError(f"{place}: end={reservation.end:g}: must be after start={reservation.start:g}")
    _check_associations(site, where)
    return site


def _check_associations(site: SlurmSite, where: str) -> None:
    """UserError for an unknown parent, a user of an unknown account, or an account below itself."""
    parent_of = {entry.account: entry.parent for entry in site.associations if not entry.user}
    keys = Counter((entry.account, entry.user, entry.partition) for entry in site.associations)
    for entry in site.associations:
        place = f"{where}: association {'/'.join(filter(None, (entry.account, entry.user, entry.partition)))}"
        if keys[entry.account, entry.user, entry.partition] > 1:
            raise UserError(f"{place}: is listed twice; keep one")
        if entry.parent or entry.user:
            _refuse_unknown("account", [entry.account if entry.user else entry.parent], parent_of, place)
        if site.qos:
            _refuse_unknown("QOS", entry.QOS, site.qos, place)
            _refuse_unknown("QOS", [entry.DefaultQOS] if entry.DefaultQOS else [], site.qos, place)
        if entry.partition:
            _refuse_unknown("partition", [entry.partition], site.partitions, place)
    for account in parent_of:
        *_, top = accounts_above(account, parent_of)
        if parent_of[top]:
            raise UserError(f"{where}: account {quoted(account)} is below itself; correct its parents")


def _refuse_unknown(kind: str, names: Iterable[str], vocabulary: Iterable[str], where: str) -> None:
    for name in names:
        if name not in vocabulary:
            raise UserError(f"{where}: {UnknownName(kind, name, vocabulary)}")


def _refuse_unknown_keys(document: Mapping[str, Any], where: str) -> None:
    keys = [field.name for field in fields(SlurmSite)]
    for key in document:
        if key not in keys:
            raise UserError(f"{where}: {UnknownName('key', key, keys)}")


def _nodes(entries: Sequence[Any], where: str) -> tuple[SiteNode, ...]:
    """The nodes of all entries; the name of an entry may be a list of hosts."""
    nodes: list[SiteNode] = []
    for i, values in enumerate(entries):
        place = f"{where}: nodes[{i}]"
        entry = construct(SiteNode, _mapping(values, place), place)
        try:
            nodes += [replace(entry, name=name) for name in hosts_of(entry.name)]
        except UserError as error:
            raise UserError(f"{place}: {error}") from None
    return tuple(nodes)


def _with_all_nodes(values: Mapping[str, Any], every_node: Sequence[str]) -> Mapping[str, Any]:
    return {**values, "nodes": every_node} if values.get("nodes") == ALL else values


def _all_of(kind: type[T], document: Mapping[str, Any], key: str, where: str) -> tuple[T, ...]:
    place = f"{where}: {key}"
    entries = _listed(document.get(key), place)
    return tuple(
        construct(kind, _mapping(values, f"{place}[{i}]"), f"{place}[{i}]")
        for i, values in enumerate(entries)
    )


def _named(entries_by_name: Any, where: str) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Each name of a mapping with its mapping and where it stands; an empty entry has all its defaults."""
    for name, values in _mapping(entries_by_name, where).items():
        yield str(name), _mapping(values, f"{where}.{name}"), f"{where}.{name}"


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UserError(f"{where}: is {type(value).__name__}; write a mapping of keys to values")
    return {str(key): item for key, item in value.items()}


def _listed(value: Any, where: str) -> Sequence[Any]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise UserError(f"{where}: is {type(value).__name__}; write a list")
    return value
