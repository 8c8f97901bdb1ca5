"""The rows of iteration tables as a set of runs, evaluated together for any site."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from itertime.arrays import Array, Flags, Whole
from itertime.errors import UserError
from itertime.prediction import evaluate
from itertime.spec import (
    Framework,
    ModelSpec,
    Plan,
    PlanBatch,
    PlanOptions,
    Profile,
    Site,
    System,
    load_framework,
)

from .bert_run import bert_plans, bert_run
from .conventions import stated_gb
from .measured_run import MeasuredRun, candidate_plans, measured_run
from .table import BERT, Cells


def expressed(row: Cells, site: Site | None) -> tuple[MeasuredRun, list[Plan]]:
    """The run of a row of either kind of table, at a site, and all plans that it may have had. A site of None
    is that of the system that the row names, or a neutral one.

    Raises UserError, with the reason, if it cannot be expressed.
    """
    run = (bert_run if row.get("kind") == BERT else measured_run)(row, site)
    return run, _plans_of(row, run)


def _plans_of(row: Cells, run: MeasuredRun) -> list[Plan]:
    return (bert_plans if row.get("kind") == BERT else candidate_plans)(row, run)


@dataclass(frozen=True)
class _Group:
    """Plans of one model on one system; for each plan the row of its run in the set, and whether it is the
    first of that run, which needs the least memory.
    """

    model: ModelSpec
    system: System
    profile: Profile
    plans: PlanBatch
    rows: Whole
    leading: Flags


@dataclass(frozen=True)
class RunSet:
    """The runs that can be expressed, in order; `skipped` holds (id, reason) of the others.

    `measured_s` (seconds) and `measured_bytes` (NaN without a memory measurement) have one element per run.
    """

    cells: tuple[Cells, ...]
    runs: tuple[MeasuredRun, ...]
    skipped: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, rows: Sequence[Cells]) -> RunSet:
        cells, runs, skipped = [], [], []
        for row in rows:
            try:
                run, _ = expressed(row, Site())
                cells.append(row)
                runs.append(run)
            except UserError as error:
                skipped.append((str(row["id"]), str(error)))
        return cls(cells=tuple(cells), runs=tuple(runs), skipped=tuple(skipped))

    def __len__(self) -> int:
        return len(self.runs)

    def only(self, kept: Callable[[MeasuredRun], bool]) -> RunSet:
        """The runs of which `kept` is true."""
        pairs = [(cells, run) for cells, run in zip(self.cells, self.runs, strict=True) if kept(run)]
        return RunSet(tuple(cells for cells, _ in pairs), tuple(run for _, run in pairs), self.skipped)

    def on_measured_chips(self) -> RunSet:
        """The runs on chips with kernels of their own, without those that only data sheets describe."""
        return self.only(lambda run: not run.profile.chip_class)

    @functools.cached_property
    def measured_s(self) -> Array:
        return np.array([row["iteration_s"] for row in self.cells])

    @functools.cached_property
    def measured_bytes(self) -> Array:
        measured = [stated_gb(row) for row in self.cells]
        return np.array([np.nan if memory_gb is None else memory_gb * 1e9 for memory_gb in measured])

    @functools.cached_property
    def _with_evaluation(self) -> Array:
        """Measured seconds over those of the iteration in them."""
        return np.array([1 + run.evaluation for run in self.runs])

    @functools.cached_property
    def frameworks(self) -> tuple[str, ...]:
        """The framework of every run."""
        return tuple(run.system.framework for run in self.runs)

    def evaluate(
        self, site: Site | None = None, frameworks: Mapping[str, Framework] | None = None
    ) -> tuple[Array, Array]:
        """Predicted seconds and bytes of every run, as its row would state them, at a site (None: the neutral
        one), with the shipped frameworks or those in `frameworks`, by name.

        Where the source leaves open the micro-batch or what is recomputed, the run is the fastest that fits
        in memory of all that it can be, or the one that needs least if none fits.
        """
        seconds, needed, allocated = self._figures(site, frameworks or {})
        return seconds, np.where([run.allocated for run in self.runs], allocated, needed)

    def needed_bytes(self, site: Site | None = None) -> Array:
        """Predicted bytes of every run, with those beyond its tensors, whatever its row states."""
        return self._figures(site, {})[1]

    def _figures(self, site: Site | None, frameworks: Mapping[str, Framework]) -> tuple[Array, Array, Array]:
        """Predicted seconds of every run, its bytes, and those of its tensors alone."""
        seconds, memory = np.full(len(self), np.inf), np.zeros((2, len(self)))
        for group in self._groups:
            plan_s, plan_bytes, fits = self._evaluated(group, site, frameworks)
            fitting = np.zeros(len(self), dtype=bool)
            np.logical_or.at(fitting, group.rows, fits)
            possible = np.where(fitting[group.rows], fits, group.leading)
            np.minimum.at(seconds, group.rows[possible], plan_s[possible])
            fastest = possible & (plan_s == seconds[group.rows])
            memory[:, group.rows[fastest]] = plan_bytes[:, fastest]
        return seconds * self._with_evaluation, memory[0], memory[1]

    def _evaluated(
        self, group: _Group, site: Site | None, frameworks: Mapping[str, Framework]
    ) -> tuple[Array, Array, Flags]:
        """Seconds and bytes of a group's plans, and whether they fit. The last result of every group is kept:
        a fit that changes one framework evaluates the runs of that framework alone.
        """
        site = group.system.site if site is None else site
        name = group.system.framework
        arguments = site, frameworks.get(name) or load_framework(name)
        entry = self._last.get(id(group))
        if entry is None or entry[0] != arguments:
            system = replace(group.system, site=site)
            result = evaluate(
                group.model, group.plans, system, group.profile, framework=arguments[1], memory_headroom=0.0
            )
            needed = np.stack([result.memory.total, result.memory.allocated])
            figures = result.iteration_s, needed, result.memory.fits
            entry = self._last[id(group)] = arguments, figures
        return entry[1]

    @functools.cached_property
    def _last(self) -> dict[int, tuple[tuple[Site, Framework], tuple[Array, Array, Flags]]]:
        return {}

    @functools.cached_property
    def _groups(self) -> list[_Group]:
        """Runs that differ only in their plans, grouped so that each group is one evaluation."""
        members: dict[tuple[ModelSpec, System, int, PlanOptions], list[tuple[int, Plan]]] = {}
        profiles = {id(run.profile): run.profile for run in self.runs}
        for row, (cells, run) in enumerate(zip(self.cells, self.runs, strict=True)):
            model, system = replace(run.model, name="run"), replace(run.system, name="run")
            key = (model, system, id(run.profile), run.plan.options)
            members.setdefault(key, []).extend((row, plan) for plan in _plans_of(cells, run))
        groups = []
        for (model, system, profile, _), entries in members.items():
            rows = np.array([row for row, _ in entries])
            groups.append(
                _Group(
                    model=model,
                    system=system,
                    profile=profiles[profile],
                    plans=PlanBatch.of([plan for _, plan in entries]),
                    rows=rows,
                    leading=np.r_[True, rows[1:] != rows[:-1]],
                )
            )
        return groups
