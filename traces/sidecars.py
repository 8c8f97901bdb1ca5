"""The report beside a trace: where it came from, as NAME.KIND.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from itertime.io import read_bytes, sha256

__all__ = ["KINDS", "report_of", "sidecar", "since_1970"]

KINDS = ("import", "generate", "slice", "scale")
_MOST_BYTES = 100_000_000
_EPOCH_S = 5e8  # a clock that was shifted by more counts from 1970


def sidecar(trace: Path, kind: str) -> Path:
    """The path of the report of a kind beside a trace.

    >>> sidecar(Path("jobs.csv.gz"), "import").name
    'jobs.import.json'
    """
    name = trace.name
    for ending in (".gz", ".csv", ".parquet", ".yaml", ".yml"):
        name = name.removesuffix(ending)
    return trace.with_name(f"{name}.{kind}.json")


def report_of(trace: Path) -> tuple[str, dict[str, Any]] | None:
    """Kind and content of the report about exactly this file, by its hash; None if there is none."""
    digest = None
    for kind in KINDS:
        path = sidecar(trace, kind)
        try:
            report = json.loads(read_bytes(path, _MOST_BYTES))
            digest = digest or sha256(trace)
            if report["output"]["sha256"] == digest:
                return kind, report
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def since_1970(report: dict[str, Any]) -> float | None:
    """Seconds since 1970 at which the clock of a reported trace starts; None if that is not known."""
    try:
        shift_s, scale = float(report["clock"]["shift_s"]), report["clock"]["time_scale"]
    except (KeyError, TypeError, ValueError):
        return None
    return shift_s if _EPOCH_S < shift_s < 1e11 and scale == 1.0 else None
