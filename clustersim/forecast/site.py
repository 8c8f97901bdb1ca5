"""A site of Slurm in a forecast: which of its nodes take jobs now, and whether state, jobs and site agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clustersim.cluster import Placement
from clustersim.sites import (
    HeldGpus,
    NamesOfJob,
    SlurmSite,
    closed_numbers,
    node_numbers,
    refuse_exceeded_limits,
    unknown_names,
)
from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces.logs.log import LoggedJob

from .state import LiveState

__all__ = ["LiveSite"]

UP = "up"
"""The state of a node that takes jobs."""

CLOSED_PARTITIONS = ("DOWN", "INACTIVE")
"""States of a partition in which Slurm starts none of its jobs (scontrol(1))."""

NO_TENANT = "default"
"""The tenant of jobs that state none."""

_ACCOUNTS_AS_TENANTS = ("squeue", "scontrol", "slurm-json", "slurm")  # formats
_NEVER_S = 1e9  # from now on, until nodes that drain would be taken away from the jobs that still run there


@dataclass(frozen=True)
class LiveSite:
    """A site at the moment of a state. `numbers`: the number of each node with GPUs. `closed`: the numbers of
    those that are down or drain. `tenants_are_accounts`: whether jobs without account have it as tenant.
    """

    site: SlurmSite
    numbers: Mapping[str, int]
    closed: Sequence[int]
    tenants_are_accounts: bool

    @classmethod
    def of(cls, site: SlurmSite, state: LiveState) -> LiveSite:
        """UserError if a job runs on a node that the site lacks, or if running jobs exceed its limits."""
        nodes = [node.name for node in site.nodes]
        for job in state.running:
            for name in job.node_names:
                if name not in nodes:
                    place = f"{state.source['file']}:{job.line}: job {shown(job.job_id)}: runs on"
                    remedy = "export site and state of one cluster at the same time"
                    raise UserError(f"{place} {UnknownName('node', name, nodes)}; {remedy}")
        live_site = cls(
            site, node_numbers(site), closed_numbers(site), state.source["format"] in _ACCOUNTS_AS_TENANTS
        )
        refuse_exceeded_limits(
            site,
            [HeldGpus(job.gpus, job.user, live_site.account_of(job), job.qos) for job in state.running],
        )
        return live_site

    def account_of(self, job: LoggedJob) -> str | None:
        """The account that is charged for a job; None if the state does not say."""
        return job.account or (job.tenant if self.tenants_are_accounts and job.tenant != NO_TENANT else None)

    def calendar(
        self, entries: Sequence[Mapping[str, Any]], draining: Sequence[int], now_s: float
    ) -> list[Mapping[str, Any]]:
        """The entries of a calendar, in which nodes that are down are removed, so that those `draining` stay:
        from `now_s` on they get no further jobs, and those that run there run on.
        """
        removal = {"at_s": 0, "remove": ",".join(map(str, self.closed))}
        other_entries = [entry for entry in entries if entry != removal]
        down = [number for number in self.closed if number not in draining]
        if down:
            other_entries.append({"at_s": 0, "remove": ",".join(map(str, down))})
        if draining:
            nodes = ",".join(map(str, draining))
            notice = {"reclaim": nodes, "at_s": now_s + _NEVER_S, "for_s": 1.0, "notice_s": _NEVER_S}
            other_entries.append(notice)
        return other_entries

    def draining(self, places: Mapping[str, Placement]) -> list[int]:
        """The closed nodes on which jobs run. `places`: of the running jobs."""
        used_nodes = {node for place in places.values() for node, _ in place}
        return [number for number in self.closed if number in used_nodes]

    def partitions_of(self, job: LoggedJob) -> list[str]:
        """The partitions in which a job may run: those that it names, else the default of the site."""
        default = next(
            (name for name, rule in self.site.partitions.items() if rule.Default),
            next(iter(self.site.partitions)),
        )
        return (job.partitions or job.partition or default).split("|")

    def partitions_for(self, job: LoggedJob) -> list[str]:
        """The other partitions that take a job, by its account, QOS and GPUs."""
        gpus = {node.name: node.gpus for node in self.site.nodes}
        job_partitions = self.partitions_of(job)
        account, qos = self.account_of(job), job.qos
        return [
            name
            for name, rule in self.site.partitions.items()
            if name not in job_partitions
            and rule.State not in CLOSED_PARTITIONS
            and (account is None or rule.AllowAccounts is None or account in rule.AllowAccounts)
            and account not in rule.DenyAccounts
            and (qos is None or rule.AllowQos is None or qos in rule.AllowQos)
            and qos not in rule.DenyQos
            and sum(gpus.get(node, 0) for node in rule.nodes) >= job.gpus
        ]

    def check_job(self, job: LoggedJob) -> None:
        """UserError for a job whose partition, QOS or account the site does not have, and for one that cannot
        start: its partitions are all in a state in which no job does, or too few of their nodes are up.
        """
        site, partitions = self.site, self.partitions_of(job)
        names = NamesOfJob(tuple(partitions), job.qos, self.account_of(job))
        for kind, name, vocabulary in unknown_names(site, names):
            problem = UnknownName(f"{kind} of the site", shown(name), vocabulary)
            raise UserError(f"job {shown(job.job_id)}: {problem}")
        states = [site.partitions[name].State for name in partitions]
        if all(state in CLOSED_PARTITIONS for state in states):
            name, state = partitions[0], states[0]
            raise UserError(
                f"job {shown(job.job_id)}: partition {name} is {state}, so that none of its jobs starts; "
                f"ask when it is up: --set site.partitions.{name}.State=UP"
            )
        nodes = {name for partition in partitions for name in site.partitions[partition].nodes}
        gpus = sum(node.gpus for node in site.nodes if node.name in nodes and node.state == UP)
        if gpus < job.gpus:
            have = f"the nodes of partition {', '.join(partitions)} that are up have {gpus:,}"
            raise UserError(
                f"job {shown(job.job_id)}: needs {job.gpus:,} GPUs, and {have}; ask when more are up: "
                "--set site.nodes.HOSTS.state=up"
            )
