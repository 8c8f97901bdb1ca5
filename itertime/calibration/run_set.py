"""The rows of iteration tables as a set of runs, evaluated together for any site."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.prediction import evaluate
from itertime.spec import ModelSpec, Plan, PlanBatch, Profile, Site, System

from .measured_run import MeasuredRun, candidate_plans, measured_run
from .table import Cells

__all__ = ["RunSet"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Plans of one model on one system, and for each plan the row of its run in the set."""

    model: ModelSpec
    system: System
    profile: Profile
    plans: PlanBatch
    rows: NDArray[np.int64]


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
        kept, runs, skipped = [], [], []
        for row in rows:
            try:
                run = measured_run(row, Site())
                candidate_plans(row, run)
                kept.append(row)
                runs.append(run)
            except UserError as error:
                skipped.append((str(row["id"]), str(error)))
        return cls(cells=tuple(kept), runs=tuple(runs), skipped=tuple(skipped))

    def __len__(self) -> int:
        return len(self.runs)

    @functools.cached_property
    def measured_s(self) -> Array:
        return np.array([row["iteration_s"] for row in self.cells])

    @functools.cached_property
    def measured_bytes(self) -> Array:
        measured = [row["memory_gb"] for row in self.cells]
        return np.array([np.nan if each is None else each * 1e9 for each in measured])

    def evaluate(self, site: Site) -> tuple[Array, Array]:
        """Predicted seconds and bytes of every run at a site.

        An unstated micro-batch is the fastest power of two that fits in memory, or the smallest if none fits.
        """
        seconds, memory = np.full(len(self), np.inf), np.zeros(len(self))
        for group in self._groups:
            system = replace(group.system, site=site)
            result = evaluate(group.model, group.plans, system, group.profile, memory_headroom=0.0)
            stated = len(np.unique(group.rows)) == len(group.rows)
            for entry, row in enumerate(group.rows):
                possible = stated or result.memory.fits[entry] or seconds[row] == np.inf
                if possible and result.iteration_s[entry] < seconds[row]:
                    seconds[row], memory[row] = result.iteration_s[entry], result.memory.total[entry]
        return seconds, memory

    @functools.cached_property
    def _groups(self) -> list[_Group]:
        """Runs that differ only in their plans, grouped so that each group is one evaluation."""
        members: dict[tuple[ModelSpec, System, str, str], list[tuple[int, Plan]]] = {}
        profiles: dict[tuple[str, str], Profile] = {}
        for row, (cells, run) in enumerate(zip(self.cells, self.runs, strict=True)):
            profile = (run.profile.name, run.profile.gpu)
            profiles[profile] = run.profile
            key = (replace(run.model, name="run"), replace(run.system, name="run"), *profile)
            members.setdefault(key, []).extend((row, plan) for plan in candidate_plans(cells, run))
        return [
            _Group(
                model=model,
                system=system,
                profile=profiles[name, gpu],
                plans=PlanBatch.of([plan for _, plan in entries]),
                rows=np.array([row for row, _ in entries]),
            )
            for (model, system, name, gpu), entries in members.items()
        ]
