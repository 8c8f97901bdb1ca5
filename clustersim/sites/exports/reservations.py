"""The reservations of a site, from `scontrol show reservation`.

Source: scontrol(1). Times are of the zone of the controller. Of a reservation that repeats, the next one is
listed, and only that one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from pathlib import Path

from clustersim.sites.slurm import SiteReservation
from itertime.errors import UnknownName, UserError
from itertime.io import shown

from .texts import Entry, entries_of, text_of

__all__ = ["reservations_of_file"]

_REPEATED = ("HOURLY", "DAILY", "WEEKDAY", "WEEKEND", "WEEKLY")


def reservations_of_file(
    path: str | Path, nodes: Iterable[str], zone: tzinfo, unmodelled: list[str]
) -> Iterator[SiteReservation]:
    """The reservations in a file, with times in `zone`. UserError for unknown nodes and impossible times."""
    node_names = frozenset(nodes)
    for entry in entries_of(text_of(path, "reservation"), "ReservationName"):
        name = entry.stated("ReservationName") or ""
        if not name:
            raise entry.fault("ReservationName", "", "is missing; export the reservations again")
        host_text = entry.stated("Nodes")
        hosts = sorted(node_names) if host_text == "ALL" else entry.hosts("Nodes")
        for host in hosts:
            if host not in node_names:
                raise UserError(
                    f"{entry.where}: reservation {shown(name)}: {UnknownName('node', host, node_names)}"
                )
        flags = tuple(filter(None, (entry.stated("Flags") or "").split(",")))
        if not hosts:
            unmodelled.append(f"reservation {name}: holds no nodes, and is left out")
            continue
        for flag in flags:
            if flag.upper() in _REPEATED:
                unmodelled.append(f"reservation {name}: Flags={flag}: only the next one counts here")
        for field in ("Licenses", "BurstBuffer", "Groups"):
            if (value := entry.stated(field)) is not None:
                unmodelled.append(f"reservation {name}: {field}={value}: is left out")
        start_s, end_s = _moment(entry, "StartTime", zone), _moment(entry, "EndTime", zone)
        if end_s <= start_s:
            raise entry.fault("EndTime", entry.stated("EndTime"), "must be after StartTime")
        users, accounts = _names(entry, "Users", unmodelled), _names(entry, "Accounts", unmodelled)
        yield SiteReservation(name, start_s, end_s, tuple(hosts), users, accounts, flags)


def _names(entry: Entry, field: str, unmodelled: list[str]) -> tuple[str, ...]:
    """The names in a field; those with a minus, which are excluded, are left out."""
    names = [name for name in (entry.stated(field) or "").split(",") if name]
    excluded = [name for name in names if name.startswith("-")]
    if excluded:
        owner = f"reservation {entry.stated('ReservationName')}"
        unmodelled.append(f"{owner}: {field}={','.join(excluded)}: no names are excluded here")
    return tuple(name for name in names if not name.startswith("-"))


def _moment(entry: Entry, field: str, zone: tzinfo) -> float:
    text = entry.stated(field) or ""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise entry.fault(
            field, text, "is no date like 2024-05-01T13:30:00; unset SLURM_TIME_FORMAT"
        ) from None
    return (when if when.tzinfo else when.replace(tzinfo=zone)).timestamp()
