"""Partitions, QOS and accounts that jobs name: whether a site has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from itertime.errors import shown
from traces.job import Job

from .slurm import SlurmSite

__all__ = ["NamesOfJob", "missing_names", "unknown_names"]

_MOST_NAMED = 8
_NO_ACCOUNT = "default"  # the tenant of jobs that state none


class NamesOfJob(NamedTuple):
    """What a job names. None: nothing."""

    partitions: tuple[str, ...]
    qos: str | None
    account: str | None

    @classmethod
    def of(cls, job: Job) -> NamesOfJob:
        """The account of a job that states none is its tenant, as for policies."""
        partitions = job.partitions or job.partition
        account = job.account or job.tenant
        return cls(
            () if partitions is None else tuple(partitions.split("|")),
            job.qos,
            None if account == _NO_ACCOUNT else account,
        )


def unknown_names(site: SlurmSite, names: NamesOfJob) -> Iterator[tuple[str, str, list[str]]]:
    """The kind of each name that the site does not have, the name, and the names that the site has. A site
    without QOS or without accounts, which were not exported, has any.
    """
    accounts = list(dict.fromkeys(entry.account for entry in site.associations))
    for name in names.partitions:
        if name not in site.partitions:
            yield "partition", name, list(site.partitions)
    if names.qos is not None and site.qos and names.qos not in site.qos:
        yield "QOS", names.qos, list(site.qos)
    if names.account is not None and accounts and names.account not in accounts:
        yield "account", names.account, accounts


def missing_names(site: SlurmSite, jobs: Iterable[Job]) -> str:
    """A sentence on the names of jobs that the site does not have; empty if it has all."""
    numbers = Counter(map(NamesOfJob.of, jobs))
    missing = Counter[tuple[str, str]]()
    for names, number in numbers.items():
        for kind, name, _ in unknown_names(site, names):
            missing[kind, name] += number
    if not missing:
        return ""
    listed = [
        f"{kind} {shown(name)} ({number:,} jobs)" for (kind, name), number in missing.most_common(_MOST_NAMED)
    ]
    tail = f" and {len(missing) - _MOST_NAMED:,} more" if len(missing) > _MOST_NAMED else ""
    return (
        f"site {shown(site.name)} has no {', '.join(listed)}{tail}: jobs of other QOS and accounts have no "
        "limits and no priority, and those of other partitions are declined by the policy slurm; export the "
        "site when the jobs were submitted, or correct the names"
    )
