"""Whether two runs are the same but for the last digits of numbers, which another numpy may compute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import zip_longest
from typing import Any

from clustersim.rundir import StreamedRun
from itertime.io import shown

from .evidence import RESOLUTION_S, agrees

__all__ = ["NOT_COMPARED", "first_difference"]

NOT_COMPARED = (
    "command", "timings", "versions", "trace", "policy", "policy_sha256", "systems_sha256", "files",
    "manifest_sha256",
)  # fmt: skip
"""Entries of a manifest that may differ between equal runs, or that describe compared files."""

_EXACT = "unit_s"  # the field that its table does not round


def first_difference(recorded: StreamedRun, again: StreamedRun) -> str:
    """The first difference between two runs that is more than rounding; empty if there is none."""
    return next(_differences(recorded, again), "")


def _differences(recorded: StreamedRun, again: StreamedRun) -> Iterator[str]:
    for name in ("events", "jobs", "snapshots", "plans"):
        yield from _of_rows(name, getattr(recorded, name), getattr(again, name))
    yield from _of_values("summary.json", recorded.summary, again.summary)
    manifests = [
        {name: value for name, value in run.manifest.items() if name not in (*NOT_COMPARED, "result_hash")}
        for run in (recorded, again)
    ]
    yield from _of_values("manifest.json", *manifests)


def _of_rows(table: str, recorded: Iterable[Any], again: Iterable[Any]) -> Iterator[str]:
    for i, (ours, theirs) in enumerate(zip_longest(recorded, again), start=1):
        if ours is None or theirs is None:
            yield f"{table}: the {'replay' if ours is None else 'run'} has a row {i:,}, the other has not"
            return
        for name, value in _fields(ours).items():
            error = 0.0 if name == _EXACT else 2 * RESOLUTION_S
            if not _is_close(value, _fields(theirs)[name], error):
                difference = f"{name} is {shown(value)}; by the replay {shown(_fields(theirs)[name])}"
                yield f"{table}, row {i:,}: {difference}"


def _fields(record: Any) -> Mapping[str, Any]:
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _of_values(where: str, recorded: Any, again: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(again, dict):
        for name in dict.fromkeys([*recorded, *again]):
            yield from _of_values(f"{where}: {shown(name)}", recorded.get(name), again.get(name))
    elif isinstance(recorded, list) and isinstance(again, list) and len(recorded) == len(again):
        for i, (ours, theirs) in enumerate(zip(recorded, again, strict=True)):
            yield from _of_values(f"{where}[{i}]", ours, theirs)
    elif not _is_close(recorded, again, 2 * RESOLUTION_S):
        yield f"{where} is {shown(recorded)}; by the replay {shown(again)}"


def _is_close(recorded: Any, again: Any, error: float) -> bool:
    if isinstance(recorded, float) and isinstance(again, float):
        return agrees(recorded, again, error)
    return type(recorded) is type(again) and recorded == again
