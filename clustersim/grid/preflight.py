"""From a grid file to a grid plan: every cell resolved and checked before anything runs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from clustersim.errors import UnsuitedPolicy
from clustersim.runs import algorithm_of, find_policy, setup_of
from itertime.errors import TableError, UserError
from traces.synthetic import Recipe, generate

from .comparisons import CellFacts
from .expand import Cell, Grid, expand
from .gridfile import Document, GridFile, Place, parse_grid, read_document
from .inputs import Hashes, Inputs, key_of, resolve
from .making import load_trace, model_hashes
from .store import FORMAT

__all__ = ["GridPlan", "PlannedCell", "plan_of", "read_plan"]


@dataclass(frozen=True)
class PlannedCell:
    """A cell, its inputs and its key; `hashed` is the document that the key is the hash of."""

    cell: Cell
    inputs: Inputs
    key: str
    hashed: dict[str, Any]
    facts: CellFacts

    def order(self) -> dict[str, Any]:
        """What a worker needs to make the cell."""
        return {"key": self.key, "inputs": self.inputs.document(), "hashed": self.hashed}


@dataclass(frozen=True)
class GridPlan:
    """A grid file, read and expanded into cells. Relative paths in it start at `base`."""

    path: Path
    file: GridFile
    grid: Grid
    baseline: dict[str, Any] | None
    cells: tuple[PlannedCell, ...]

    @property
    def base(self) -> Path:
        return self.path.resolve().parent

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(self.path.suffix)

    def orders(self) -> list[dict[str, Any]]:
        """One order for each key, in the order of the grid; cells of equal inputs share one."""
        return list({planned.key: planned.order() for planned in self.cells}.values())

    def document(self) -> dict[str, Any]:
        """The content of `grid.json`: with it, the tables can be made again from the cells alone."""
        return {
            "format": FORMAT,
            "name": self.name,
            "axes": list(self.grid.axes),
            "baseline": self.baseline,
            "metrics": list(self.file.metrics),
            "window": self.file.window.model_dump() if self.file.window else None,
            "cells": [
                {
                    "cell": planned.key, "seed": planned.cell.seed, "axes": dict(planned.cell.axes),
                    "facts": asdict(planned.facts),
                }
                for planned in self.cells
            ],
        }  # fmt: skip


def read_plan(path: str | Path, settings: Mapping[str, Any] | None = None) -> GridPlan:
    """Read a grid file and check every cell. `settings` replace those of all cells.

    UserError (TableError for a trace) with file and line.
    """
    return plan_of(read_document(path), settings)


def plan_of(document: Document, settings: Mapping[str, Any] | None = None) -> GridPlan:
    """The plan of a grid file that is read already, as `read_plan`."""
    file = parse_grid(document)
    grid = expand(file, document)
    for name in settings or {}:
        if name in grid.axes:
            raise document.error(("matrix", name), "is an axis, and the command line sets it for all cells")
    if settings:
        changed = (replace(cell, settings={**cell.settings, **settings}) for cell in grid.cells)
        grid = replace(grid, cells=tuple(changed))
    plan = GridPlan(document.path, file, grid, _baseline(file, document, grid), ())
    checker = _Checker(document, _TraceCells(plan))
    with chdir(plan.base):
        cells = tuple(checker.plan_cell(cell) for cell in grid.cells)
    if checker.refusals and all(checker.is_refused(cell) for cell in cells):
        raise next(iter(checker.refusals.values()))
    return replace(plan, cells=cells)


class _TraceCells:
    """For each cell, the cell whose run its generated trace is for.

    Cells that are compared have the same jobs, so it is the cell with the values of the baseline, and with
    the first value of axes that state policies. If the grid lacks this cell, it is the cell itself.
    """

    def __init__(self, plan: GridPlan):
        grid, matrix = plan.grid, plan.file.matrix
        self._settings = {tuple(cell.axes.values()): cell.settings for cell in grid.cells}
        self._values = {
            name: levels[0]
            for name, levels in grid.levels.items()
            if _states_policies(name, matrix.get(name))
        } | (plan.baseline or {})

    def settings_for(self, cell: Cell) -> Mapping[str, Any]:
        """The settings of the run that the trace of `cell` is for."""
        return self._settings.get(tuple({**cell.axes, **self._values}.values()), cell.settings)


def _states_policies(axis: str, values: Any) -> bool:
    """Whether the values of an axis of the matrix are policies, or state policies beside other settings."""
    labelled = values.values() if isinstance(values, Mapping) else ()
    return axis == "policy" or any(isinstance(value, Mapping) and "policy" in value for value in labelled)


class _Checker:
    """Checks traces and settings, each of them once. `refusals`: the settings whose policies cannot run with
    them; cells with these settings fail, and the others are made.
    """

    def __init__(self, document: Document, trace_cells: _TraceCells):
        self.document, self.hashes, self.trace_cells = document, Hashes(), trace_cells
        self.find_policy = cache(find_policy)
        self.seen: set[str] = set()
        self.refusals: dict[str, UserError] = {}
        self.planners: dict[str, str] = {}  # by settings
        self.models: dict[str, dict[str, list[str]]] = {}  # hashes of models, by source

    def plan_cell(self, cell: Cell) -> PlannedCell:
        try:
            inputs = resolve(cell.settings, cell.seed, self.trace_cells.settings_for(cell))
            self._check(cell, inputs)
            key, hashed = key_of(inputs, self.hashes, self.models[_source(inputs)])
            facts = self._facts(inputs)
        except UserError as error:
            raise self._located(cell, error) from None
        except OSError as error:
            problem = UserError(f"{error.filename}: cannot be read: {error.strerror or error}")
            raise self._located(cell, problem) from None
        return PlannedCell(cell, inputs, key, hashed, facts)

    def _facts(self, inputs: Inputs) -> CellFacts:
        """What results say of the cell beside its metrics."""
        config, trace = inputs.config, inputs.trace
        policy = self.find_policy(config.policy)
        states_load = isinstance(trace, Recipe) and trace.load_of == "trace" and config.until_s is None
        return CellFacts(
            policy=config.policy,
            algorithm=algorithm_of(policy) or config.policy,
            elastic=policy.elastic,
            planner=self.planners.get(_settings_text(inputs), policy.planner),
            stated_load=trace.load if states_load and isinstance(trace, Recipe) else None,
        )

    def is_refused(self, planned: PlannedCell) -> bool:
        """Whether the policy of a cell cannot run with its settings."""
        return _settings_text(planned.inputs) in self.refusals

    def _check(self, cell: Cell, inputs: Inputs) -> None:
        config, trace = inputs.config.model_copy(update={"seed": 0}), inputs.trace
        if isinstance(trace, Recipe):
            trace = replace(trace, seed=0)
            sample = replace(trace, jobs=1, load=1.0)  # one job is enough to try planners, rules and sizes
            if self._first(("recipe", sample)):
                generate(sample)
        source = _source(inputs)
        if source not in self.models:
            is_file = isinstance(inputs.trace, str)
            self.models[source] = model_hashes(load_trace(inputs)) if is_file else {}
        if self._first(("config", _settings_text(inputs))):
            try:
                self.planners[_settings_text(inputs)] = setup_of(config).planner
            except UnsuitedPolicy as error:
                self.refusals[_settings_text(inputs)] = self._located(cell, error)

    def _first(self, key: Any) -> bool:
        """Whether `key` has not been checked before."""
        text = repr(key)
        new = text not in self.seen
        self.seen.add(text)
        return new

    def _located(self, cell: Cell, error: UserError) -> UserError:
        """The error with the line in the grid file of the value that caused it."""
        if isinstance(error, TableError):
            return error  # names file and line of the trace
        located = copy.copy(error)
        place = self._place(cell, str(error).removeprefix("setting "))
        text = str(error)
        if self.document.naming is None:
            text = f"{text} (cell {cell.label})"
        elif place == cell.place:  # no single value is to blame
            text = f"{text} (with {cell.label})"
        located.args = (str(self.document.error(place, text)),)
        return located

    def _place(self, cell: Cell, text: str) -> Place:
        """The place of the setting that caused an error: its name or its value is in the text."""
        stated_values = [(self._axis_place(cell, axis), axis, value) for axis, value in cell.axes.items()]
        set_values = self.document.data.get("set", {})
        stated_values += [(("set", name), name, value) for name, value in set_values.items()]
        for place, name, _ in sorted(
            stated_values, key=lambda entry: -len(entry[1])
        ):  # trace.load before trace
            if text.startswith(name) or repr(name.rpartition(".")[2]) in text:
                return place
        for place, _, value in stated_values:
            if isinstance(value, str) and value in text:
                return place
        return cell.place

    def _axis_place(self, cell: Cell, axis: str) -> Place:
        """The place of one value of an axis."""
        value = cell.axes[axis]
        values = self.document.data.get("matrix", {}).get(axis)
        if cell.place[0] == "matrix" and isinstance(values, list):
            return ("matrix", axis, values.index(value))
        return (*cell.place, axis, str(value)) if isinstance(values, dict) else (*cell.place, axis)


def _settings_text(inputs: Inputs) -> str:
    """The settings of a run without its seed."""
    return inputs.config.model_copy(update={"seed": 0}).model_dump_json()


def _source(inputs: Inputs) -> str:
    """What the jobs of a run, and the models that they name, are read from."""
    return repr((inputs.trace, inputs.config.table, inputs.config.model_path))


def _baseline(file: GridFile, document: Document, grid: Grid) -> dict[str, Any] | None:
    """The baseline that the file states, or the first of several policies, or none."""
    if file.baseline is None:
        policies = grid.levels.get("policy", ())
        return {"policy": policies[0]} if len(policies) > 1 else None
    for name, value in file.baseline.items():
        place = ("baseline", name)
        if name not in grid.axes:
            raise document.error(place, f"is no axis; the axes are {', '.join(grid.axes)}")
        if isinstance(value, list | dict) or value not in grid.levels[name]:
            values = ", ".join(str(level) for level in grid.levels[name])
            raise document.error(place, f"{value} is none of its values {values}")
    cell_values = {tuple(cell.axes.values()) for cell in grid.cells}
    against = {values: tuple({**dict(zip(grid.axes, values, strict=True)), **file.baseline}.values())
               for values in cell_values}  # fmt: skip
    if not any(
        other_values in cell_values and other_values != values for values, other_values in against.items()
    ):
        raise document.error(("baseline",), "no cell differs from it in these values alone")
    return file.baseline
