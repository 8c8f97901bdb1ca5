"""A site among the settings of a run: its nodes are the cluster, its rules those of the policy.

The setting holds the document of the site, so a manifest needs no file for a replay. Nodes that are down are
out of service from the beginning, by an entry of the calendar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.failures import read_calendar
from clustersim.scheduler import Scheduler
from clustersim.sites import changed_document, closed_numbers, document_of, load_site, site_of
from itertime.errors import UserError
from itertime.io import quoted

from .policies import find_policy, parameters_of

__all__ = [
    "changed_site",
    "closures_of",
    "document_of_site",
    "epoch_of",
    "has_dates",
    "params_with_site",
    "with_site",
]

Document = dict[str, Any]

UNDATED_PERIODS = ("NONE", "NOW")
"""Values of PriorityUsageResetPeriod that name no dates."""


def document_of_site(stated: Any) -> Document:
    """The document of a site, from its file or from a mapping. UserError for anything else."""
    if isinstance(stated, str):
        return document_of(load_site(stated))
    if not isinstance(stated, Mapping):
        raise UserError(f"site={quoted(stated)}: must be a file (site.yaml) or a mapping as in one")
    return document_of(site_of(stated))


def changed_site(stated: Any, path: str, value: Any) -> Document:
    """The document with one value changed, as by `--set site.PATH=VALUE`. UserError if no site is stated."""
    if stated is None:
        raise UserError(f"site.{path}: no site is stated; give its file with --site")
    return changed_document(document_of_site(stated), path, value)


def closures_of(document: Mapping[str, Any]) -> list[Document]:
    """The entries of a calendar that keep the nodes that are down out of service."""
    numbers = closed_numbers(site_of(document))
    return [{"at_s": 0, "remove": ",".join(map(str, numbers))}] if numbers else []


def with_site(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of settings with the document of their site, and with its closed nodes in the calendar.

    Overheads are none where none are stated: the run times of a site's log have its launches in them.
    """
    document = document_of_site(values["site"])
    calendar = values.get("calendar") or []
    entries: Sequence[Any] = read_calendar(calendar) if isinstance(calendar, str) else calendar
    missing = [entry for entry in closures_of(document) if entry not in entries]
    return {"overheads": None, **values, "site": document, "calendar": [*missing, *entries]}


def has_dates(site: Mapping[str, Any] | None) -> bool:
    """Whether a site, as its document, has reservations, or forgets usage at the end of a period: its runs
    then depend on the date at which the clock of the trace shows 0.
    """
    if site is None:
        return False
    period = site.get("settings", {}).get("PriorityUsageResetPeriod", UNDATED_PERIODS[0])
    return bool(site.get("reservations")) or period not in UNDATED_PERIODS


def epoch_of(policy: str | type[Scheduler], since_1970_s: float | None) -> dict[str, float]:
    """The parameter of a policy that states when the clock of the trace shows 0, in seconds since 1970; empty
    for a policy without it, and for a trace without dates.
    """
    if since_1970_s is None:
        return {}
    kind = find_policy(policy) if isinstance(policy, str) else policy
    names = parameters_of(kind)  # type: ignore[arg-type]  # mypy looks for the hash of an instance
    return {"epoch_s": since_1970_s} if "epoch_s" in names else {}


def params_with_site(
    policy: str | type[Scheduler], params: Mapping[str, Any], site: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The parameters of a policy, with the site if it has a parameter of this name that is not stated."""
    if site is None or "site" in params:
        return dict(params)
    kind = find_policy(policy) if isinstance(policy, str) else policy
    names = parameters_of(kind)  # type: ignore[arg-type]  # mypy looks for the hash of an instance
    return {**params, "site": site} if "site" in names else dict(params)
