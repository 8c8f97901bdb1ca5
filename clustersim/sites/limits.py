"""Limits of associations and QOS: their names, their aliases in sacctmgr, and their units.

Source: sacctmgr(1), "GENERAL SPECIFICATIONS FOR ASSOCIATION BASED ENTITIES" and "SPECIFICATIONS FOR QOS".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from itertime.errors import UnknownName
from itertime.io import quoted

from .units import UNLIMITED, seconds_of, time_text, tres_of, tres_text

__all__ = ["ALIASES", "FOLLOWED_LIMITS", "LIMITS", "Limits", "Tres", "Unit", "limits_of", "written_limits"]

Tres = Mapping[str, float]
"""Trackable resources by name: `gres/gpu`, `gres/gpu:a100`, `cpu`, `mem` (GB), `node`, `billing`."""


class Unit(Enum):
    """What a limit counts."""

    NUMBER = "number"
    SECONDS = "seconds"
    TRES = "TRES"
    TRES_SECONDS = "TRES-seconds"


LIMITS: Mapping[str, Unit] = {
    "GrpTRES": Unit.TRES,
    "GrpTRESMins": Unit.TRES_SECONDS,
    "GrpTRESRunMins": Unit.TRES_SECONDS,
    "GrpJobs": Unit.NUMBER,
    "GrpJobsAccrue": Unit.NUMBER,
    "GrpSubmit": Unit.NUMBER,
    "GrpWall": Unit.SECONDS,
    "MaxTRES": Unit.TRES,
    "MaxTRESPerNode": Unit.TRES,
    "MaxTRESMins": Unit.TRES_SECONDS,
    "MaxTRESPerUser": Unit.TRES,
    "MaxTRESPerAccount": Unit.TRES,
    "MaxTRESRunMinsPerUser": Unit.TRES_SECONDS,
    "MaxTRESRunMinsPerAccount": Unit.TRES_SECONDS,
    "MaxJobs": Unit.NUMBER,
    "MaxJobsPerUser": Unit.NUMBER,
    "MaxJobsPerAccount": Unit.NUMBER,
    "MaxJobsAccrue": Unit.NUMBER,
    "MaxJobsAccruePerUser": Unit.NUMBER,
    "MaxJobsAccruePerAccount": Unit.NUMBER,
    "MaxSubmit": Unit.NUMBER,
    "MaxSubmitPerUser": Unit.NUMBER,
    "MaxSubmitPerAccount": Unit.NUMBER,
    "MaxWall": Unit.SECONDS,
    "MinTRES": Unit.TRES,
    "MinPrioThreshold": Unit.NUMBER,
}
"""The limits by the names that site.yaml and the policy use. `MaxTRES`, `MaxTRESMins`, `MaxWall` and
`MinTRES` are of a job. Names with Mins are minutes in Slurm, and seconds here.
"""

FOLLOWED_LIMITS = (
    "GrpTRES",
    "GrpTRESMins",
    "GrpTRESRunMins",
    "GrpJobs",
    "GrpSubmit",
    "GrpWall",
    "MaxTRES",
    "MaxTRESMins",
    "MaxTRESPerUser",
    "MaxTRESPerAccount",
    "MaxJobs",
    "MaxJobsPerUser",
    "MaxJobsPerAccount",
    "MaxSubmit",
    "MaxSubmitPerUser",
    "MaxSubmitPerAccount",
    "MaxWall",
)
"""The limits that the policy `slurm` follows."""

ALIASES: Mapping[str, str] = {
    "GrpSubmitJobs": "GrpSubmit",
    "MaxTRESPerJob": "MaxTRES",
    "MaxTRESMinsPerJob": "MaxTRESMins",
    "MaxTRESPU": "MaxTRESPerUser",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MaxTRESRunMinsPU": "MaxTRESRunMinsPerUser",
    "MaxTRESRunMinsPA": "MaxTRESRunMinsPerAccount",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxJobsAccruePU": "MaxJobsAccruePerUser",
    "MaxJobsAccruePA": "MaxJobsAccruePerAccount",
    "MaxSubmitJobs": "MaxSubmit",
    "MaxSubmitPU": "MaxSubmitPerUser",
    "MaxSubmitPA": "MaxSubmitPerAccount",
    "MaxSubmitJobsPerUser": "MaxSubmitPerUser",
    "MaxSubmitJobsPerAccount": "MaxSubmitPerAccount",
    "MaxWallDurationPerJob": "MaxWall",
    "MinTRESPerJob": "MinTRES",
    "MinPrioThresh": "MinPrioThreshold",
}
"""Other names of sacctmgr for these limits."""

Limits = Mapping[str, int | float | Tres]
"""Limits by the names of `LIMITS`. Wall times are in seconds, TRES-minutes in TRES-seconds."""


def limits_of(document: object) -> object:
    """Limits as a file states them: numbers and mappings in the units of `Limits`, texts in those of Slurm
    (`GrpTRES: gres/gpu=64`, `MaxWall: 1-00:00:00`). ValueError names the limit.
    """
    if not isinstance(document, Mapping):
        return document
    limits: dict[str, int | float | dict[str, float]] = {}
    for name, value in document.items():
        name = ALIASES.get(name, name)
        if name not in LIMITS:
            raise ValueError(str(UnknownName("limit", name, LIMITS)))
        try:
            limit = _limit(value, LIMITS[name])
        except ValueError as error:
            raise ValueError(f"limit {name}={quoted(value)}: {error}") from None
        if limit is not None:
            limits[name] = limit
    return limits


def _limit(value: Any, unit: Unit) -> int | float | dict[str, float] | None:
    """A limit of this unit; None where there is none."""
    if value is None or value == "" or (isinstance(value, str) and value.upper() in UNLIMITED):
        return None
    if unit in (Unit.TRES, Unit.TRES_SECONDS):
        if isinstance(value, Mapping):
            amounts = {str(name): float(amount) for name, amount in value.items()}
        elif isinstance(value, str):
            amounts = tres_of(value, 60.0 if unit is Unit.TRES_SECONDS else 1.0)
        else:
            raise ValueError("must name what is limited, as in gres/gpu=64")
        if any(amount < 0 for amount in amounts.values()):
            raise ValueError("must not be negative; leave out what has no limit")
        return amounts
    if isinstance(value, str):
        value = seconds_of(value) if unit is Unit.SECONDS else float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise ValueError("must be a number from 0; leave the limit out for none")
    return int(value) if unit is Unit.NUMBER else float(value)


def written_limits(limits: Limits) -> dict[str, Any]:
    """Limits as a file states them, in the units of Slurm."""
    return {name: _written(value, LIMITS[name]) for name, value in limits.items()}


def _written(value: int | float | Tres, unit: Unit) -> Any:
    if isinstance(value, Mapping):
        return tres_text(value, 60.0 if unit is Unit.TRES_SECONDS else 1.0) or dict(value)
    return time_text(value) if unit is Unit.SECONDS and value == int(value) else value
