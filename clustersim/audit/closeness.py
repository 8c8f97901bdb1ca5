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


def first_difference(stated: StreamedRun, again: StreamedRun) -> str:
    """The first difference between two runs that is more than rounding; empty if there is none."""
    return next(_differences(stated, again), "")


def _differences(stated: StreamedRun, again: StreamedRun) -> Iterator[str]:
    for name in ("events", "jobs", "snapshots", "plans"):
        yield from _of_rows(name, getattr(stated, name), getattr(again, name))
    yield from _of_values("summary.json", stated.summary, again.summary)
    manifests = [
        {name: value for name, value in run.manifest.items() if name not in (*NOT_COMPARED, "result_hash")}
        for run in (stated, again)
    ]
    yield from _of_values("manifest.json", *manifests)


def _of_rows(table: str, stated: Iterable[Any], again: Iterable[Any]) -> Iterator[str]:
    for i, (ours, theirs) in enumerate(zip_longest(stated, again), start=1):
        if ours is None or theirs is None:
            yield f"{table}: the {'replay' if ours is None else 'run'} has a row {i:,}, the other has not"
            return
        for name, value in _fields(ours).items():
            error = 0.0 if name == _EXACT else 2 * RESOLUTION_S
            if not _is_close(value, _fields(theirs)[name], error):
                what = f"{name} is {shown(value)}; by the replay {shown(_fields(theirs)[name])}"
                yield f"{table}, row {i:,}: {what}"


def _fields(record: Any) -> Mapping[str, Any]:
    if hasattr(record, "_asdict"):
        return dict(record._asdict())
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _of_values(where: str, stated: Any, again: Any) -> Iterator[str]:
    if isinstance(stated, dict) and isinstance(again, dict):
        for name in dict.fromkeys([*stated, *again]):
            yield from _of_values(f"{where}: {shown(name)}", stated.get(name), again.get(name))
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for i, (ours, theirs) in enumerate(zip(stated, again, strict=True)):
            yield from _of_values(f"{where}[{i}]", ours, theirs)
    elif not _is_close(stated, again, 2 * RESOLUTION_S):
        yield f"{where} is {shown(stated)}; by the replay {shown(again)}"


def _is_close(stated: Any, again: Any, error: float) -> bool:
    if isinstance(stated, float) and isinstance(again, float):
        return agrees(stated, again, error)
    return type(stated) is type(again) and stated == again
