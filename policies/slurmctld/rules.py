"""The rules of a site, looked up once: sets of nodes as bit masks, settings with their defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from clustersim.sites import (
    FOLLOWED_OPTIONS,
    Association,
    Partition,
    Qos,
    Settings,
    SiteReservation,
    SlurmSite,
)

__all__ = ["DEFAULT_QOS", "ReservedNodes", "Rules"]

DEFAULT_QOS = "normal"
"""The QOS of jobs that name none; slurmdbd creates it with the first cluster."""

CLOSED = ("DOWN", "INACTIVE")
"""States of a partition in which none of its jobs starts."""

DEFAULT_PARAMETERS: Mapping[str, float] = {
    name: default for name, default in FOLLOWED_OPTIONS.items() if default is not None
}
"""The numbers among SchedulerParameters, by default: times in seconds, `bf_window` in minutes."""


class ReservedNodes(NamedTuple):
    """A reservation on the trace's clock; `nodes` is a bit mask."""

    start_s: float
    end_s: float
    known_s: float
    nodes: int
    rule: SiteReservation


class Rules:
    """A site for the scheduling rules: masks of nodes, and values that are stated or have a default.

    `numbers`: the number of each node, whose bit stands for it, by its name. `epoch_s`: the time at which the
    trace's clock shows 0, in seconds since 1970.

    | field | |
    |---|---|
    | `site`, `name`, `numbers` | the site, its name, and the numbers of its nodes |
    | `settings`, `qos`, `associations` | those of the site |
    | `unreserved_qos` | the QOS with the flag NoReserve |
    | `partitions`, `nodes_of` | the partitions, and their nodes that are up |
    | `weights` | the nodes of each weight, the lowest first |
    | `all_nodes`, `all_cpus` | the size of the site, in nodes and cores |
    | `reservations` | those of the site |
    """

    def __init__(self, site: SlurmSite, numbers: Mapping[str, int], epoch_s: float = 0.0):
        self.site, self.name, self.numbers = site, site.name, numbers
        self.settings: Settings = site.settings
        self.partitions: Mapping[str, Partition] = site.partitions
        self.qos: Mapping[str, Qos] = site.qos
        self.unreserved_qos = {
            name for name, qos in site.qos.items() if "noreserve" in {flag.lower() for flag in qos.Flags}
        }
        self.associations: Sequence[Association] = site.associations
        self.epoch_s = epoch_s
        self.parameters = {**DEFAULT_PARAMETERS, **site.settings.SchedulerParameters}
        up_nodes = {node.name for node in site.nodes if node.state == "up"}
        bits = {name: 1 << number for name, number in numbers.items()}
        self.nodes_of = {
            name: sum(bits[node] for node in partition.nodes if node in bits and node in up_nodes)
            * (partition.State.upper() not in CLOSED)
            for name, partition in site.partitions.items()
        }
        by_weight = sorted(site.nodes, key=lambda node: node.weight)
        self.weights = tuple(
            sum(bits.get(node.name, 0) for node in nodes)
            for _, nodes in groupby(by_weight, lambda node: node.weight)
        )
        self.all_nodes = max(1, len(site.nodes))
        self.all_cpus = max(1, sum(node.cpus for node in site.nodes))
        self.reservations = [
            ReservedNodes(
                rule.start - epoch_s,
                rule.end - epoch_s,
                -float("inf") if rule.known is None else rule.known - epoch_s,
                sum(bits.get(node, 0) for node in rule.nodes),
                rule,
            )
            for rule in site.reservations
        ]
        self._default_qos = {
            (entry.account, entry.user): entry.DefaultQOS for entry in site.associations if entry.DefaultQOS
        }
        stated_default = [name for name, partition in site.partitions.items() if partition.Default]
        self.default_partition = (stated_default or list(site.partitions))[0]

    @property
    def has_backfill(self) -> bool:
        return self.settings.SchedulerType == "sched/backfill" and self.number("bf_interval") > 0

    @property
    def is_multifactor(self) -> bool:
        return self.settings.PriorityType == "priority/multifactor"

    def number(self, parameter: str) -> float:
        """A number of SchedulerParameters, or its default."""
        return float(self.parameters[parameter])

    def has(self, parameter: str) -> bool:
        """Whether SchedulerParameters has this flag."""
        return bool(self.parameters.get(parameter, False))

    def barred(self, partition: str, account: str, qos: str, nodes: int) -> str:
        """Why a partition takes no such job, by its AllowAccounts, DenyAccounts, AllowQos, DenyQos, MaxNodes
        and MinNodes, in words; empty if it does.
        """
        rule = self.partitions[partition]
        for name, kind, allowed, denied in (
            (account, "account", rule.AllowAccounts, rule.DenyAccounts),
            (qos, "QOS", rule.AllowQos, rule.DenyQos),
        ):
            if (allowed is not None and name not in allowed) or name in denied:
                return f"partition {partition} is not for {kind} {name}"
        if nodes < rule.MinNodes or (rule.MaxNodes is not None and nodes > rule.MaxNodes):
            return f"partition {partition} takes no jobs of {nodes} nodes"
        return ""

    def default_qos(self, account: str, user: str) -> str | None:
        """The DefaultQOS of the association of a user, or of the account."""
        return self._default_qos.get((account, user)) or self._default_qos.get((account, ""))

    def qos_of(self, name: str) -> Qos:
        return self.qos.get(name) or _NO_QOS


_NO_QOS = Qos()
