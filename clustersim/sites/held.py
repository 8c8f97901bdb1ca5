"""Whether running jobs hold more than the limits of a site allow: site and jobs are then not of one time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from itertime.errors import UserError

from .limits import Limits, written_limits
from .slurm import SlurmSite, accounts_above

__all__ = ["HeldGpus", "refuse_exceeded_limits"]

_GPU = "gres/gpu"


class HeldGpus(NamedTuple):
    """The GPUs of a running job, and whose it is."""

    gpus: int
    user: str | None
    account: str | None
    qos: str | None


class _Use(NamedTuple):
    """Running jobs that a limit counts together: where the limit stands, its name, and the jobs."""

    place: str
    limits: Limits
    name: str
    jobs: Sequence[HeldGpus]


def refuse_exceeded_limits(site: SlurmSite, running_jobs: Sequence[HeldGpus]) -> None:
    """UserError for the first limit of a QOS or an association that the running jobs exceed, of their GPUs or
    their number. Nothing is refused where the site does not enforce limits.
    """
    if "limits" not in site.settings.AccountingStorageEnforce:
        return
    for use in (*_of_qos(site, running_jobs), *_of_associations(site, running_jobs)):
        limit = use.limits.get(use.name)
        in_gpus = "TRES" in use.name
        allowed = limit.get(_GPU) if in_gpus and not isinstance(limit, int | float | None) else limit
        held = sum(job.gpus for job in use.jobs) if in_gpus else len(use.jobs)
        if isinstance(allowed, int | float) and held > allowed:
            text = written_limits(use.limits)[use.name]
            remedy = f"{_GPU}={held}" if in_gpus else held
            raise UserError(
                f"site: {use.place}: {use.name}={text}: is below what runs, {held:,} "
                f"{'GPUs' if in_gpus else 'jobs'}; export the site again, or raise the limit: "
                f"--set site.{use.place}.limits.{use.name}={remedy}"
            )


def _of_qos(site: SlurmSite, running_jobs: Sequence[HeldGpus]) -> Iterator[_Use]:
    for name, qos in site.qos.items():
        place, jobs = f"qos.{name}", [job for job in running_jobs if job.qos == name]
        for limit in ("GrpTRES", "GrpJobs"):
            yield _Use(place, qos.limits, limit, jobs)
        for limit, owner in _OWNERS:
            for owned in _by_owner(jobs, owner):
                yield _Use(place, qos.limits, limit, owned)


def _user(job: HeldGpus) -> str | None:
    return job.user


def _account(job: HeldGpus) -> str | None:
    return job.account


_OWNERS: tuple[tuple[str, Callable[[HeldGpus], str | None]], ...] = (
    ("MaxTRESPerUser", _user),
    ("MaxJobsPerUser", _user),
    ("MaxTRESPerAccount", _account),
    ("MaxJobsPerAccount", _account),
)


def _by_owner(
    jobs: Iterable[HeldGpus], owner: Callable[[HeldGpus], str | None]
) -> Iterable[Sequence[HeldGpus]]:
    by_owner: dict[str | None, list[HeldGpus]] = {}
    for job in jobs:
        by_owner.setdefault(owner(job), []).append(job)
    return by_owner.values()


def _of_associations(site: SlurmSite, running_jobs: Sequence[HeldGpus]) -> Iterator[_Use]:
    parent_of = {entry.account: entry.parent for entry in site.associations if not entry.user}
    above = {account: frozenset(accounts_above(account, parent_of)) for account in parent_of}
    for entry in site.associations:
        if entry.partition or not entry.limits:
            continue
        if entry.user:
            jobs = [job for job in running_jobs if (job.account, job.user) == (entry.account, entry.user)]
            place = f"associations.{entry.account}/{entry.user}"
            yield _Use(place, entry.limits, "MaxJobs", jobs)
        else:
            place = f"associations.{entry.account}"
            jobs = [job for job in running_jobs if entry.account in above.get(job.account or "", ())]
        for limit in ("GrpTRES", "GrpJobs"):
            yield _Use(place, entry.limits, limit, jobs)
