"""The names that an option takes, for completion in a shell.

A shell asks at every press of the tab key, so names are read from the metadata of packages and from the names
of files, and no policy or planner is loaded. A completion that fails offers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "overheads",
    "placements",
    "planners",
    "policies",
    "policy",
    "settings",
    "systems",
    "varied",
]


def policy(incomplete: str) -> list[str]:
    """The registered policies."""
    return _starting(incomplete, _policies())


def policies(incomplete: str) -> list[str]:
    """Policies separated by commas: the last one is completed, and none is offered twice."""
    complete, comma, beginning = incomplete.rpartition(",")
    names = complete.split(",")
    return [f"{complete}{comma}{name}" for name in _starting(beginning, _policies()) if name not in names]


def planners(incomplete: str) -> list[str]:
    """The planners of `itertime`."""
    from itertime.planning.planner import PLANNERS

    return _starting(incomplete, PLANNERS)


def placements(incomplete: str) -> list[str]:
    """The rules of placement."""
    from clustersim.placement.placers import PLACERS

    return _starting(incomplete, PLACERS)


def overheads(incomplete: str) -> list[str]:
    """The presets of overheads."""
    from clustersim.overheads.overheads import PRESETS

    return _starting(incomplete, PRESETS)


def systems(incomplete: str) -> list[str]:
    """The systems that ship."""
    from importlib.resources import files

    shipped = files("itertime").joinpath("systems").iterdir()
    return _starting(incomplete, sorted(f.name.removesuffix(".yaml") for f in shipped))


def settings(incomplete: str) -> list[str]:
    """The settings of a run and their parts, as `--set` takes them: `NAME=`."""
    from clustersim.runs import SETTINGS

    names = [name for name in SETTINGS if name not in ("policy", "params")]
    parts = [f"{name}.{part}" for name, setting in SETTINGS.items() for part in setting.parts]
    return _starting(incomplete, [f"{name}=" for name in sorted([*names, *parts])])


def varied(incomplete: str) -> list[str]:
    """What `--vary` takes: the settings, and the nodes of the cluster."""
    return [*_starting(incomplete, ["nodes="]), *settings(incomplete)]


def _policies() -> list[str]:
    from importlib.metadata import entry_points

    return sorted(entry.name for entry in entry_points(group="clustersim.schedulers"))


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
