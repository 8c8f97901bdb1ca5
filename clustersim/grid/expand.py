"""A grid file expanded: axes, their values, and the cells that remain.

An axis is a setting with several values (`policy: [fifo, srtf]`, or labelled, `trace: {small: a.csv}`), or a
new name whose labels each stand for several settings (`scheduler: {theirs: {policy: ...}}`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any, get_args, get_origin

from clustersim.runs import RunConfig
from itertime.io import shown
from traces.synthetic import Recipe

from .gridfile import NUMERIC_METRICS, Document, GridFile, Place, suggestion

__all__ = ["MAX_CELLS", "Axis", "Cell", "Grid", "expand", "text_of"]

MAX_CELLS = 100_000
RESERVED = ("cell", "seed", "status", *NUMERIC_METRICS)
"""Columns of the results; no axis may have such a name."""

_OF_WINDOW = ("warmup_s", "measure_s")
_AXIS_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")

Scalar = str | int | float | bool | None


def text_of(value: Scalar) -> str:
    """A value of an axis as a grid file states it; numbers are short where that changes none.

    >>> [text_of(value) for value in (None, True, 300e9, 0.1 + 0.2, "fifo")]
    ['null', 'true', '3e+11', '0.30000000000000004', 'fifo']
    """
    if isinstance(value, float):
        return short if float(short := f"{value:g}") == value else repr(value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Axis:
    """A name and its values: the label of each in the results, and the settings that it stands for."""

    name: str
    values: dict[Scalar, Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One run: its position in the grid, and its settings.

    `place`: the part of the file that the cell comes from.
    """

    axes: Mapping[str, Scalar]
    settings: Mapping[str, Any]
    seed: int
    place: Place = ()

    @property
    def label(self) -> str:
        """The cell in words: `policy=fifo, trace.load=0.5, seed=0`."""
        return ", ".join(
            f"{name}={shown(text_of(value))}" for name, value in (*self.axes.items(), ("seed", self.seed))
        )


@dataclass(frozen=True)
class Grid:
    """The axes (also those that only an include names), and the cells in the order of the file."""

    axes: tuple[str, ...]
    cells: tuple[Cell, ...]
    excluded: int = 0
    levels: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)


def expand(grid: GridFile, document: Document) -> Grid:
    """All cells of a grid file. UserError, with file and line, for invalid names and values."""
    for name in grid.settings:
        _check_setting(document, ("set", name), name)
    axes = [_axis(document, name, value) for name, value in grid.matrix.items()]
    combinations = math.prod(len(axis.values) for axis in axes) if axes else 0
    count = (combinations + len(grid.include)) * len(grid.seeds)
    if count > MAX_CELLS:
        text = f"makes {count:,} cells; a grid has at most {MAX_CELLS:,}: split it"
        raise document.error(("matrix",) if axes else ("include",), text)
    rules = [_exclusion(document, i, entry, axes) for i, entry in enumerate(grid.exclude)]
    all_cells, excluded = [], 0
    for combination in product(*(axis.values for axis in axes)) if axes else ():
        values = dict(zip((axis.name for axis in axes), combination, strict=True))
        if any(all(values[name] in allowed for name, allowed in rule.items()) for rule in rules):
            excluded += len(grid.seeds)
            continue
        settings = dict(grid.settings)
        for axis in axes:
            settings.update(axis.values[values[axis.name]])
        all_cells.append(Cell(values, settings, 0, ("matrix",)))
    all_cells += [_included(document, i, entry, axes, grid) for i, entry in enumerate(grid.include)]
    names = list(dict.fromkeys(name for cell in all_cells for name in cell.axes))
    all_cells = [_with_all_axes(cell, names) for cell in all_cells]
    _refuse_twins(document, all_cells)
    if not all_cells:
        raise document.error(("exclude",), "leaves no cell of the grid; loosen it")
    cells = [
        Cell(cell.axes, cell.settings, seed, cell.place) for cell in all_cells for seed in grid.seeds
    ]  # seeds innermost, so that the pairs of a comparison are completed one after the other
    levels = {name: tuple(dict.fromkeys(cell.axes[name] for cell in all_cells)) for name in names}
    return Grid(tuple(names), tuple(cells), excluded, levels)


def _axis(document: Document, name: str, value: Any) -> Axis:
    place: Place = ("matrix", name)
    if not _AXIS_NAME.fullmatch(name) or name in RESERVED:
        problem = (
            "is a column of the results" if name in RESERVED else "is not a name of letters, digits, _ . -"
        )
        hint = "; seeds are given by `seeds`" if name == "seed" else "; choose another"
        raise document.error(place, f"{problem}{hint}")
    if isinstance(value, list):
        _check_setting(document, place, name)
        return Axis(name, dict(_listed(document, place, name, value)))
    if not isinstance(value, dict) or not value:
        raise document.error(place, "must be a list of values, or labels with their values; it has none")
    if _is_setting(name):
        return Axis(name, {label: {name: inner} for label, inner in value.items()})
    for label, inner in value.items():
        if not isinstance(inner, dict):
            hint = suggestion(name, _settings())
            problem = f"{shown(name)} is no setting ({hint}), and {shown(label)} stands for none"
            raise document.error((*place, label), f"{problem}; write {shown(label)}: {{SETTING: VALUE, ...}}")
        for setting in inner:
            _check_setting(document, (*place, label, setting), setting)
    return Axis(name, {label: dict(inner) for label, inner in value.items()})


def _listed(
    document: Document, place: Place, name: str, values: list[Any]
) -> Iterator[tuple[Scalar, Mapping[str, Any]]]:
    if not values:
        raise document.error(place, "has no values; give at least one")
    seen: set[tuple[bool, Scalar]] = set()
    for i, value in enumerate(values):
        if isinstance(value, list | dict):
            text = f"write labels and values, as in {name}: {{small: VALUE, large: VALUE}}"
            raise document.error((*place, i), f"is not a plain value, so the results cannot name it; {text}")
        if (isinstance(value, bool), value) in seen:  # 10 and 10.0 are one value
            raise document.error((*place, i), f"{shown(value)} is given twice; remove one")
        seen.add((isinstance(value, bool), value))
        yield value, {name: value}


def _exclusion(
    document: Document, i: int, entry: Mapping[str, Any], axes: list[Axis]
) -> dict[str, list[Scalar]]:
    """For each axis in an exclude entry, the values that are left out."""
    axis_by_name = {axis.name: axis for axis in axes}
    rule: dict[str, list[Scalar]] = {}
    if not entry:
        raise document.error(("exclude", i), "names no axis, so it would leave out everything")
    for name, value in entry.items():
        place: Place = ("exclude", i, name)
        if name not in axis_by_name:
            raise document.error(place, f"is no axis of the matrix; {suggestion(name, axis_by_name)}")
        rule[name] = value if isinstance(value, list) else [value]
        for label in rule[name]:
            if isinstance(label, list | dict) or label not in axis_by_name[name].values:
                values = ", ".join(shown(v) for v in axis_by_name[name].values)
                raise document.error(place, f"{shown(label)} is none of its values {values}")
    return rule


def _included(document: Document, i: int, entry: Mapping[str, Any], axes: list[Axis], grid: GridFile) -> Cell:
    """An additional cell: for every axis a value, of the matrix or a new one, and other settings."""
    place: Place = ("include", i)
    axis_by_name = {axis.name: axis for axis in axes}
    missing = [name for name in axis_by_name if name not in entry]
    if missing:
        raise document.error(place, f"has no value for the axis {missing[0]}; an included cell states all")
    settings = dict(grid.settings)
    labels: dict[str, Scalar] = {}
    for name, value in entry.items():
        value_place = (*place, name)
        if isinstance(value, list | dict):
            raise document.error(value_place, "must be a plain value, or the label of an axis")
        if name in axis_by_name and value in axis_by_name[name].values:
            settings.update(axis_by_name[name].values[value])
        else:
            _check_setting(document, value_place, name)
            settings[name] = value
        if name in RESERVED:
            raise document.error(value_place, "is a column of the results; choose another name")
        labels[name] = value
    order = [*axis_by_name, *(name for name in labels if name not in axis_by_name)]
    return Cell({name: labels[name] for name in order}, settings, 0, place)


def _with_all_axes(cell: Cell, names: list[str]) -> Cell:
    """The cell with a value for every axis: those of other cells alone get the value in `set`, or none."""
    values = {name: cell.axes.get(name, _plain(cell.settings.get(name))) for name in names}
    return Cell(values, cell.settings, cell.seed, cell.place)


def _plain(value: Any) -> Scalar:
    return None if isinstance(value, list | dict) else value


def _refuse_twins(document: Document, cells: list[Cell]) -> None:
    seen: dict[tuple[Any, ...], Cell] = {}
    for cell in cells:
        key = tuple((type(value), value) for value in cell.axes.values())
        if key in seen:
            raise document.error(cell.place, f"{cell.label.rpartition(', ')[0]} is in the grid already")
        seen[key] = cell


def _settings() -> list[str]:
    elsewhere = ("seed", "params", *_OF_WINDOW)
    return ["trace", "nodes", *(name for name in RunConfig.model_fields if name not in elsewhere)]


def _is_setting(name: str) -> bool:
    head, dot, part_name = name.partition(".")
    if not dot:
        return name in _settings()
    return bool(part_name) and (head in ("policy", "trace", "system") or _holds_settings(head))


def _holds_settings(name: str) -> bool:
    """Whether the setting is a mapping, of other settings as `overheads`, or by tenant as `quotas`."""
    if name not in RunConfig.model_fields:
        return False
    kind = RunConfig.model_fields[name].annotation
    return any(get_origin(part) is dict for part in (kind, *get_args(kind)))


def _check_setting(document: Document, place: Place, name: str) -> None:
    head, _, part_name = name.partition(".")
    if head == "seed" or name == "trace.seed":
        raise document.error(place, "seeds are given by `seeds`, for runs and generated traces alike")
    if name in _OF_WINDOW:
        raise document.error(place, f"is stated under `window`, for all cells: window: {{{name}: ...}}")
    if head == "trace" and part_name:
        recipe = [f"trace.{f.name}" for f in fields(Recipe) if f.name != "seed"]
        if name not in recipe:
            raise document.error(place, f"unknown setting; {suggestion(name, recipe)}")
    elif not _is_setting(name):
        raise document.error(place, f"unknown setting; {suggestion(name, _settings())}")
