"""Reservations by calendar: nodes that are for some jobs alone during some time.

    - {at_s: 86400, for_s: 7200, nodes: 0-3, tenants: [blue]}
    - {at_s: 604800, for_s: 7200, gpus: 64, jobs: [demo], others: preempt, every_s: 604800, times: 4}

`gpus` takes whole nodes, those with the highest numbers, of `gpu_type` if that is stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from itertime.errors import UnknownName, UserError, quoted
from itertime.io import names_file, read_mapping

from .maintenance import nodes_named, seconds_of, starts_of

__all__ = ["OTHERS", "Reservation", "read_reservations", "reservations_of"]

OTHERS = ("drain", "preempt", "kill")
"""What becomes of other jobs on the nodes: `drain` starts none there that would end after the beginning, as
far as users state run times, and those that still run then save and wait. `preempt` lets them start, and they
save and wait. `kill` lets them start, and they lose what they have not saved.
"""

_KEYS = ("at_s", "for_s", "nodes", "gpus", "gpu_type", "tenants", "jobs", "others", "every_s", "times")
_MOST, _MOST_NAMES = 100_000, 100_000


@dataclass(frozen=True)
class Reservation:
    """From `start_s` to `end_s` the `nodes` are for jobs of `tenants` and for `jobs` alone. `number`: its
    entry, counted from 1.
    """

    number: int
    start_s: float
    end_s: float
    nodes: frozenset[int]
    tenants: frozenset[str]
    jobs: frozenset[str]
    others: str = "drain"

    def admits(self, job_id: str, tenant: str) -> bool:
        """Whether the job may run on the nodes."""
        return tenant in self.tenants or job_id in self.jobs

    def within(self, first_node: int, nodes: int) -> Reservation | None:
        """The reservation for a cluster of a fleet, which has `nodes` nodes of it from `first_node` on; None
        if it concerns none of them.
        """
        cluster_nodes = frozenset(
            node - first_node for node in self.nodes if first_node <= node < first_node + nodes
        )
        if not cluster_nodes:
            return None
        return Reservation(
            self.number, self.start_s, self.end_s, cluster_nodes, self.tenants, self.jobs, self.others
        )


def reservations_of(
    entries: object, sizes: Sequence[int], pools: Mapping[str, range]
) -> tuple[Reservation, ...]:
    """Reservations in order of time, from entries as in the module's docstring. `sizes`: GPUs by node.
    `pools`: the nodes by GPU type. UserError names the entry, the field and the value.
    """
    if not isinstance(entries, list | tuple):
        raise UserError(f"reservations={quoted(entries)}: must be a list of entries")
    reservations: list[Reservation] = []
    for i, entry in enumerate(entries):
        where = f"reservations: entry {i + 1}"
        if not isinstance(entry, Mapping):
            raise UserError(f"{where}={quoted(entry)}: states no at_s, for_s, nodes or gpus, tenants or jobs")
        for key in entry:
            if key not in _KEYS:
                raise UserError(f"{where}: {UnknownName('field', str(key), _KEYS)}")
        at_s, for_s = (seconds_of(where, entry, key) for key in ("at_s", "for_s"))
        starts = starts_of(where, entry, at_s, for_s)
        if len(reservations) + len(starts) > _MOST:
            raise UserError(f"{where}: more than {_MOST:,} reservations; state fewer")
        nodes = _nodes(where, entry, sizes, pools)
        tenants, jobs = (_names(where, entry, key) for key in ("tenants", "jobs"))
        if not tenants and not jobs:
            raise UserError(f"{where}: states neither tenants nor jobs; name those that it is for")
        rule_for_others = entry.get("others", "drain")
        if rule_for_others not in OTHERS:
            raise UserError(f"{where}: {UnknownName('value of others', str(rule_for_others), OTHERS)}")
        reservations += [
            Reservation(i + 1, s, s + for_s, nodes, tenants, jobs, rule_for_others) for s in starts
        ]
    return tuple(sorted(reservations, key=lambda reservation: (reservation.start_s, reservation.number)))


def read_reservations(path: str) -> list[Any]:
    """The entries of a YAML or JSON file that holds them under `reservations`. UserError names the file."""
    if not names_file(path):
        raise UserError(f"reservations={quoted(path)}: must be a list of entries, or a file FILE.yaml")
    document = read_mapping(path)
    entries = document.get("reservations")
    if set(document) != {"reservations"} or not isinstance(entries, list):
        raise UserError(f"{path}: must hold one key, reservations, with the list of entries")
    return entries


def _nodes(
    where: str, entry: Mapping[str, Any], sizes: Sequence[int], pools: Mapping[str, range]
) -> frozenset[int]:
    if ("nodes" in entry) == ("gpus" in entry):
        raise UserError(
            f"{where}: states {'both' if 'nodes' in entry else 'neither'} nodes and gpus; state one"
        )
    if "nodes" in entry:
        if "gpu_type" in entry:
            raise UserError(f"{where}: gpu_type={quoted(entry['gpu_type'])}: belongs to gpus")
        return frozenset(nodes_named(f"{where}: nodes", entry["nodes"], len(sizes)))
    gpus, gpu_type = entry["gpus"], entry.get("gpu_type")
    if gpu_type is not None and gpu_type not in pools:
        raise UserError(f"{where}: {UnknownName('GPU type', str(gpu_type), pools)}")
    candidates = range(len(sizes)) if gpu_type is None else pools[gpu_type]
    available_gpus = sum(sizes[node] for node in candidates)
    if type(gpus) is not int or not 1 <= gpus <= available_gpus:
        raise UserError(f"{where}: gpus={quoted(gpus)}: must be a whole number from 1 to {available_gpus}")
    nodes: list[int] = []
    for node in reversed(candidates):
        if gpus <= 0:
            break
        nodes.append(node)
        gpus -= sizes[node]
    return frozenset(nodes)


def _names(where: str, entry: Mapping[str, Any], key: str) -> frozenset[str]:
    value = entry.get(key, [])
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{where}: {key}={quoted(value)}: must be a list of names, in quotes if numbers")
    if len(names) > _MOST_NAMES:
        raise UserError(f"{where}: {key}: has more than {_MOST_NAMES:,} names; name tenants instead")
    return frozenset(names)
