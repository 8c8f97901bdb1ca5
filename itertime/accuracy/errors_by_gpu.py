"""How wrong predictions on a GPU were, from the measured runs that ship as `residuals/errors_by_gpu.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ERRORS", "LARGE_PCT", "MeasuredErrors", "errors_on"]

ERRORS = Path(__file__).parents[1] / "residuals" / "errors_by_gpu.json"
LARGE_PCT = 20.0
"""Mean absolute error, in percent, from which predictions on a GPU are called unreliable."""


@dataclass(frozen=True)
class MeasuredErrors:
    """Errors of predictions with neutral constants on one GPU.

    `rows` measured runs; `mape_pct`: mean absolute error of predicted seconds in percent, by set in `sets`;
    `median`: measured over predicted seconds. `beside_sd`: standard deviation of a plan's error beside other
    plans for the same work, as a logarithm of measured over predicted seconds; None where none is known.
    """

    rows: int
    mape_pct: float
    median: float
    sets: Mapping[str, float]
    beside_sd: float | None

    @property
    def large(self) -> bool:
        """Whether the predictions are too wrong to be relied on."""
        return self.mape_pct >= LARGE_PCT


def errors_on(profile: str) -> MeasuredErrors | None:
    """The errors on the GPU of a profile, by its name; None without measured runs."""
    found = _document()["profiles"].get(profile)
    if found is None:
        return None
    return MeasuredErrors(
        rows=found["rows"],
        mape_pct=found["mape"],
        median=found["median"],
        sets={name: each["mape"] for name, each in found["sets"].items()},
        beside_sd=found["beside_others"]["sd"],
    )


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ERRORS.read_text(encoding="utf-8"))
    return document
