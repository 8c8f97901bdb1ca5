"""The parts of a grid file, validated but not yet expanded (docs/grids.md is its manual)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from clustersim.metrics import METRICS
from itertime.datafile import NonNegative, Positive, Whole
from itertime.errors import UserError
from traces.files import shown

from .document import Document, Place, read_document, suggestion

__all__ = ["NUMERIC_METRICS", "GridFile", "Limits", "Window", "read_grid_file"]

NUMERIC_METRICS = tuple(name for name in METRICS if name not in ("covers", "wall_s", "policy_wall_s"))
"""The metrics of a cell: all but the one that is text, and the two that depend on the machine."""

SHOWN_METRICS = ("jct_mean_s", "makespan_s", "deadline_met_ratio", "rejected")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Limits(_Part):
    """Limits of one cell: seconds of wall-clock time, GB (1e9 bytes) of resident memory; None: no limit.

    `retries`: how often a failed cell is tried again within one call.
    """

    time_s: Positive | None = None
    memory_gb: Positive | None = None
    retries: Annotated[Whole, Field(le=100)] = 1


class Window(_Part):
    """Metrics cover jobs submitted from `warmup_s` after the first submission on, for `measure_s` seconds."""

    warmup_s: NonNegative = 0.0
    measure_s: Positive | None = None


def _seed_list(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | list):
        raise ValueError("must be a number of seeds, or a list of seeds")
    if isinstance(value, list):
        return value
    if not 1 <= value <= 100_000:
        raise ValueError("must be between 1 and 100000 seeds")
    return list(range(value))


class GridFile(_Part):
    """The parts of a grid file. `seeds`: a count N stands for 0 to N - 1."""

    matrix: dict[str, Any] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict, alias="set")
    include: list[dict[str, Any]] = Field(default_factory=list)
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    seeds: Annotated[tuple[Whole, ...], BeforeValidator(_seed_list), Field(min_length=1)] = (0,)
    limits: Limits = Limits()
    baseline: dict[str, Any] | None = None
    metrics: Annotated[tuple[str, ...], Field(min_length=1)] = SHOWN_METRICS
    window: Window | None = None


def read_grid_file(path: str | Path) -> tuple[GridFile, Document]:
    """Read and validate a grid file; the document has the lines for later errors.

    UserError, with file and line, for a file that cannot be read, unknown keys and values of a wrong kind.
    """
    document = read_document(path)
    if not isinstance(document.data, dict):
        raise document.error((), "must be a mapping with a matrix; see docs/grids.md")
    try:
        grid = GridFile.model_validate(document.data)
    except ValidationError as error:
        raise _complaint(document, error) from None
    if not grid.matrix and not grid.include:
        raise document.error((), "has neither a matrix nor an include: there is nothing to run")
    if len(set(grid.seeds)) < len(grid.seeds):
        raise document.error(("seeds",), "names a seed twice; remove one")
    for i, name in enumerate(grid.metrics):
        if name not in NUMERIC_METRICS:
            text = f"unknown metric {shown(name)}; {suggestion(name, NUMERIC_METRICS)}"
            raise document.error(("metrics", i), text)
    return grid, document


def _complaint(document: Document, error: ValidationError) -> UserError:
    complaints = error.errors(include_url=False)
    first = next((found for found in complaints if found["type"] == "extra_forbidden"), complaints[0])
    place: Place = tuple(first["loc"])
    if first["type"] == "extra_forbidden":
        kinds: dict[str, type[BaseModel]] = {"limits": Limits, "window": Window}
        kind = kinds.get(str(place[0]), GridFile)
        known = [field.alias or name for name, field in kind.model_fields.items()]
        return document.error(place, f"unknown key; {suggestion(str(place[-1]), known)}")
    message = first["msg"].removeprefix("Value error, ")
    value = first.get("input")
    stated = "" if isinstance(value, dict | list) else f"is {shown(value)}; "
    return document.error(place, f"{stated}{message[:1].lower()}{message[1:]}")
