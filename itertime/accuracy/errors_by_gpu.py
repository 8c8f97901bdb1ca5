"""How wrong predictions on a GPU were, from the measured runs that ship as `residuals/errors_by_gpu.json`."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itertime.io import MAX_BYTES, read_text

ERRORS = Path(__file__).parents[1] / "residuals" / "errors_by_gpu.json"
LARGE_PCT = 20.0
"""Mean absolute error, in percent, from which predictions on a GPU are called unreliable."""


@dataclass(frozen=True)
class MeasuredErrors:
    """Errors of predictions with neutral constants on one GPU, of one framework or of all.

    `rows` measured runs; `mape_pct`: mean absolute error of predicted seconds in percent, the mean over
    `sources`, which holds it by source; `median`: measured over predicted seconds, the middle one of the
    sources' medians. `beside_sd`: standard deviation of a plan's error beside other plans for the same work,
    as a logarithm of measured over predicted seconds; None where none is known. `framework`: empty for all.
    """

    framework: str
    rows: int
    mape_pct: float
    median: float
    sources: Mapping[str, float]
    beside_sd: float | None

    @property
    def large(self) -> bool:
        """Whether the predictions are too wrong to be relied on."""
        return self.mape_pct >= LARGE_PCT


def errors_on(profile: str, framework: str = "") -> MeasuredErrors | None:
    """The errors on the GPU of a profile, by its name, with a framework; with any if its runs are unknown.

    None without measured runs.
    """
    entry_of_profile = _document()["profiles"].get(profile)
    if entry_of_profile is None:
        return None
    framework_name = framework if framework in entry_of_profile["frameworks"] else ""
    entry = entry_of_profile["frameworks"][framework] if framework_name else entry_of_profile["all"]
    spread = (
        entry["beside_others"]["sd"]
        or _elsewhere(framework)
        or entry_of_profile["all"]["beside_others"]["sd"]
    )
    return MeasuredErrors(
        framework=framework_name,
        rows=entry["rows"],
        mape_pct=entry["mape"],
        median=entry["median"],
        sources={name: source_errors["mape"] for name, source_errors in entry["sources"].items()},
        beside_sd=spread,
    )


def _elsewhere(framework: str) -> float | None:
    """The spread of a framework's plans over all GPUs."""
    deviation: float | None = _document()["beside_others"].get(framework, {}).get("sd")
    return deviation


@functools.cache
def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(read_text(ERRORS, MAX_BYTES))
    return document
