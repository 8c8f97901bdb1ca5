"""The rows of iteration tables as runs that are evaluated together, under one site after another."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from itertime.errors import UserError
from itertime.measured import MeasuredRun, candidate_plans, measured_run
from itertime.model import ModelSpec
from itertime.plan import Plan
from itertime.planbatch import PlanBatch
from itertime.prediction import evaluate
from itertime.profile import Profile
from itertime.system import Site, System
from itertime.table import Cells

__all__ = ["RunSet"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Plans of one model on one system, and the rows of the set they belong to."""

    model: ModelSpec
    system: System
    profile: Profile
    plans: PlanBatch
    rows: NDArray[np.int64]


@dataclass(frozen=True)
class RunSet:
    """Runs that can be expressed, in order; `skipped` are (id, why) of those that cannot.

    `measured_s` in seconds and `measured_bytes` (NaN where memory was not measured): one element per run.
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
        return cls(tuple(kept), tuple(runs), tuple(skipped))

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

        An unstated micro-batch is the fastest power of two that fits in memory, or the smallest if none does.
        """
        seconds, memory = np.full(len(self), np.inf), np.zeros(len(self))
        for group in self._groups:
            result = evaluate(group.model, group.plans, replace(group.system, site=site), group.profile)
            stated = len(np.unique(group.rows)) == len(group.rows)
            for entry, row in enumerate(group.rows):
                possible = stated or result.memory.fits[entry] or seconds[row] == np.inf
                if possible and result.iteration_s[entry] < seconds[row]:
                    seconds[row], memory[row] = result.iteration_s[entry], result.memory.total[entry]
        return seconds, memory

    @functools.cached_property
    def _groups(self) -> list[_Group]:
        """Runs that differ in their plans only go through the formulas together."""
        members: dict[tuple[ModelSpec, System, str, str], list[tuple[int, Plan]]] = {}
        profiles: dict[tuple[str, str], Profile] = {}
        for row, (cells, run) in enumerate(zip(self.cells, self.runs, strict=True)):
            profile = (run.profile.name, run.profile.gpu)
            profiles[profile] = run.profile
            key = (replace(run.model, name="run"), replace(run.system, name="run"), *profile)
            members.setdefault(key, []).extend((row, plan) for plan in candidate_plans(cells, run))
        return [
            _Group(
                model,
                system,
                profiles[name, gpu],
                PlanBatch.of([plan for _, plan in entries]),
                np.array([row for row, _ in entries]),
            )
            for (model, system, name, gpu), entries in members.items()
        ]
