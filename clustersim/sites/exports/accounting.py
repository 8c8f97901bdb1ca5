"""QOS and the tree of shares, from `sacctmgr show qos -P` and `sacctmgr show assoc tree -P`.

Source: sacctmgr(1). The tree is in the column `Par Name`, if it was asked for, or in the blanks before the
names of accounts, which `tree` prints. Without either, all accounts are below root.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan
from pathlib import Path
from typing import Any

from clustersim.sites.limits import ALIASES, FOLLOWED_LIMITS, LIMITS, Limits, limits_of, written_limits
from clustersim.sites.slurm import Association, Qos
from clustersim.sites.units import seconds_of
from itertime.errors import UserError

from .texts import Entry, rows_of, text_of

__all__ = ["associations_of_file", "qos_of_file"]

ROOT = "root"
_LIMIT_OF_COLUMN = {name.lower(): name for name in (*LIMITS, *ALIASES)}
_OTHER_COLUMNS = {
    "usagethres": ("0.000000", "no threshold of fair share stops a job here"),
    "limitfactor": ("0.000000", "limits are not multiplied here"),
}


def qos_of_file(path: str | Path, unmodelled: list[str]) -> dict[str, Qos]:
    """Every QOS by its name. UserError names file, line, column and value."""
    kinds: dict[str, Qos] = {}
    for entry in rows_of(text_of(path, "qos"), "Name"):
        name = entry.stated("Name") or ""
        if name in kinds:
            raise entry.fault("Name", name, "is there twice; keep one")
        mode = (entry.stated("PreemptMode") or "cluster").lower()
        values: dict[str, Any] = {
            "Priority": _whole(entry, "Priority"),
            "Preempt": _names(entry, "Preempt"),
            "PreemptMode": None if mode == "cluster" else mode.upper(),
            "GraceTime": _seconds(entry, "GraceTime") or 0.0,
            "PreemptExemptTime": _seconds(entry, "PreemptExemptTime"),
            "Flags": _names(entry, "Flags"),
            "UsageFactor": _number(entry, "UsageFactor", 1.0),
            "limits": _limits(entry),
        }
        kinds[name] = entry.made(Qos, values)
        for column, (neutral, consequence) in _OTHER_COLUMNS.items():
            value = entry.stated(column)
            if value is not None and value != neutral:
                unmodelled.append(f"QOS {name}: {column}={value}: {consequence}")
        unmodelled += _other_limits(f"QOS {name}", kinds[name].limits)
    if not kinds:
        raise UserError(f"{path}: has no rows below its header; export it with sacctmgr show qos -P")
    return kinds


def associations_of_file(
    path: str | Path, cluster: str | None, sentences: list[str], unmodelled: list[str]
) -> tuple[str, list[tuple[str, Association]]]:
    """The name of the cluster, and its associations with where they stand. `cluster`: the name that the
    configuration states; rows of other clusters are left out. UserError if there are none of this one.
    """
    text = text_of(path, "assoc")
    entries = list(rows_of(text, "Account", "User"))
    names = list(dict.fromkeys(filter(None, (entry.stated("Cluster") for entry in entries))))
    name = _cluster_among(names, cluster, path)
    if len(names) > 1:
        sentences.append(f"{path}: associations of {len(names) - 1} other clusters are left out")
    own_rows = [entry for entry in entries if entry.stated("Cluster") in (None, name)]
    places_and_associations = list(_associations(own_rows))
    associations = [association for _, association in places_and_associations]
    for association in associations:
        owner = "/".join(filter(None, ("account " + association.account, association.user)))
        unmodelled += _other_limits(owner, association.limits)
    if not any(association.parent not in ("", ROOT) for association in associations):
        accounts = sum(not association.user for association in associations)
        flat = not any("parname" in entry.values or "parentname" in entry.values for entry in own_rows)
        if accounts > 2 and flat and not any(entry.values["account"].startswith(" ") for entry in own_rows):
            sentences.append(f"{path}: states no parents, so all accounts are below root; print it with tree")
    return name or cluster or "site", places_and_associations


def _cluster_among(names: list[str], cluster: str | None, path: str | Path) -> str | None:
    """The name in the column Cluster that is this cluster."""
    if cluster is None:
        if len(names) > 1:
            raise UserError(f"{path}: has clusters {', '.join(names[:8])}; name yours with --name")
        return names[0] if names else None
    match = next((name for name in names if name.lower() == cluster.lower()), None)
    if names and match is None:
        raise UserError(
            f"{path}: has associations of cluster {', '.join(names[:8])}, the configuration is of {cluster}; "
            f"export all files from one cluster"
        )
    return match


def _associations(entries: list[Entry]) -> Iterator[tuple[str, Association]]:
    """The associations, with where they stand. Blanks before an account say how deep in the tree it is."""
    path: list[tuple[int, str]] = []
    seen: dict[tuple[str, str, str], str] = {}
    for entry in entries:
        indented, user = entry.values["account"], entry.stated("User") or ""
        account = indented.strip()
        depth = len(indented) - len(indented.lstrip())
        parent = entry.stated("ParName", "ParentName") or ""
        if not user:
            while path and path[-1][0] >= depth:
                path.pop()
            parent = parent or (path[-1][1] if path else "") or (ROOT if account != ROOT else "")
            path.append((depth, account))
        key = (account, user, entry.stated("Partition") or "")
        if key in seen:
            raise UserError(
                f"{entry.where}: Account={account} User={user}: stands already at {seen[key]}; keep one"
            )
        seen[key] = entry.where
        share = entry.stated("Share", "Fairshare", "RawShares", "Shares") or "1"
        values: dict[str, Any] = {
            "account": account,
            "parent": "" if user else parent,
            "user": user,
            "partition": key[2],
            "Share": None if share.lower() == "parent" else _share(entry, share),
            "Priority": _whole(entry, "Priority"),
            "QOS": _names(entry, "QOS"),
            "DefaultQOS": entry.stated("DefQOS", "DefaultQOS"),
            "limits": _limits(entry),
        }
        yield entry.where, entry.made(Association, values)


def _share(entry: Entry, text: str) -> int:
    if not text.isdecimal() or len(text) > 10:
        raise entry.fault("Share", text, "must be a whole number or parent")
    return int(text)


def _other_limits(owner: str, limits: Limits) -> Iterator[str]:
    """A sentence for each limit that no simulation follows."""
    for name, value in written_limits(limits).items():
        if name not in FOLLOWED_LIMITS:
            yield f"{owner}: {name}={value}: no job waits for this limit here"


def _whole(entry: Entry, column: str) -> int:
    return int(_number(entry, column, 0.0))


def _number(entry: Entry, column: str, default: float) -> float:
    text = entry.stated(column)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise entry.fault(column, text, "must be a number")
    return value


def _seconds(entry: Entry, column: str) -> float | None:
    text = entry.stated(column)
    try:
        return None if text is None else seconds_of(text)
    except ValueError as error:
        raise entry.fault(column, text, str(error)) from None


def _names(entry: Entry, column: str) -> tuple[str, ...]:
    return tuple(filter(None, (entry.stated(column) or "").split(",")))


def _limits(entry: Entry) -> object:
    """The limits of a row by the names of `LIMITS`."""
    texts = {
        name: entry.values[column] for column, name in _LIMIT_OF_COLUMN.items() if entry.values.get(column)
    }
    try:
        return limits_of(texts)
    except ValueError as error:
        raise UserError(f"{entry.where}: {error}") from None
