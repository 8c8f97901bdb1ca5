"""Making the cells of a grid that are missing from its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

from clustersim.runs import code_hash
from itertime.io import open_own

from .inputs import Inputs
from .making import CellOutcome, Progress, commands, run_orders
from .preflight import GridPlan
from .store import Store, write_json

__all__ = ["TIMINGS", "Campaign", "CellCounts", "Cost"]

TIMINGS = "timings.csv"


@dataclass
class CellCounts:
    """Numbers of distinct runs: found in the folder, made, failed. `damaged`: why some were made again."""

    cached: int = 0
    made: int = 0
    failed: int = 0
    damaged: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Cost:
    """What the last attempt at a cell took: wall-clock and processor time, and peak resident memory."""

    cell: str
    status: str
    attempts: int
    wall_s: float
    cpu_s: float
    peak_gb: float

    @classmethod
    def of(cls, outcome: CellOutcome) -> Cost:
        verdict = outcome.verdict
        return cls(
            cell=outcome.order["key"],
            status=verdict["status"],
            attempts=outcome.attempts,
            wall_s=round(verdict["wall_s"], 4),
            cpu_s=round(verdict["cpu_s"], 4),
            peak_gb=round(verdict["peak_gb"], 4),
        )


class Campaign:
    """One call of the grid command on a results folder. UserError if the folder cannot be used."""

    def __init__(self, plan: GridPlan, folder: Path):
        self.plan, self.store = plan, Store(folder)
        self.counts = CellCounts()
        self.labels: dict[str, str] = {}
        for planned in plan.cells:
            self.labels.setdefault(planned.key, planned.cell.label)
        self.missing: list[dict[str, Any]] = []
        self.costs: list[Cost] = []

    def open(self) -> None:
        """Write `grid.json`, and find the missing cells: every byte of the others is checked."""
        self.store.open()
        write_json(self.store.folder / "grid.json", self.plan.document())
        self.missing = []
        self.store.rows.refresh()
        self.counts.damaged += self.store.rows.damaged
        for order in self.plan.orders():
            key = order["key"]
            if key in self.store.rows:
                self.counts.cached += 1
                continue
            damage = self.store.damage(key) if self.store.has(key) else None
            if self.store.has(key) and damage is None:
                self.counts.cached += 1
                continue
            if damage is not None:
                self.counts.damaged.append(damage)
            self.missing.append(order)

    def run(
        self, *, workers: int | None = None, scheduler: str | None = None,
        on_failure: Callable[[str, str], None] = lambda label, reason: None,
        on_progress: Callable[[CellCounts, Progress], None] = lambda counts, progress: None,
    ) -> CellCounts:  # fmt: skip
        """Make the missing cells. `on_failure(label, reason)` is called for every cell that fails.

        Raises Unfinished if no more cells can be made; finished cells are kept.
        """
        limits = self.plan.file.limits
        batch = {
            "store": str(self.store.folder.resolve()), "base": str(self.plan.base), "code": code_hash(),
            "time_s": limits.time_s, "memory_gb": limits.memory_gb, "keep": self.plan.file.keep,
        }  # fmt: skip

        def decided(outcome: CellOutcome) -> None:
            key = outcome.order["key"]
            if "wall_s" in outcome.verdict:
                self.costs.append(Cost.of(outcome))
            if outcome.verdict["status"] != "failed":
                self.counts.made += 1
                self.store.forget_failure(key)
                return
            self.counts.failed += 1
            reason = str(outcome.verdict.get("reason", ""))
            self.store.record_failure(key, self._failure(outcome, reason))
            on_failure(self.labels[key], reason)

        try:
            run_orders(
                self.missing, batch, workers=workers, scheduler=scheduler, retries=limits.retries,
                on_outcome=decided, on_progress=lambda progress: on_progress(self.counts, progress),
            )  # fmt: skip
        finally:
            self._write_costs()
        for order in self.missing:
            self.store.drop_claim(order["key"])
        return self.counts

    def _write_costs(self) -> None:
        """Add the costs of the cells of this call to `timings.csv`, which helps to choose limits."""
        if not self.costs:
            return
        path = self.store.folder / TIMINGS
        header = ",".join(field.name for field in fields(Cost))
        with suppress(OSError), open_own(path) as file:  # a full disk has been reported already
            is_new = file.seek(0, os.SEEK_END) == 0
            lines = [",".join(str(value) for value in astuple(cost)) for cost in self.costs]
            file.write(("\n".join([*([header] if is_new else []), *lines]) + "\n").encode())
        self.costs = []

    def _failure(self, outcome: CellOutcome, reason: str) -> Mapping[str, Any]:
        key = outcome.order["key"]
        cells = [planned.cell for planned in self.plan.cells if planned.key == key]
        return {
            "cell": key,
            "axes": dict(cells[0].axes),
            "seed": cells[0].seed,
            "reason": reason,
            "attempts": outcome.attempts,
            "repeat": commands(Inputs.of(outcome.order["inputs"])),
            "traceback": str(outcome.verdict.get("traceback", "")).splitlines(),
            "output": str(outcome.verdict.get("output", "")).splitlines(),
        }

    def foreign_cells(self) -> int:
        """How many cells in the folder are not of this grid, but of an earlier state of file or program."""
        planned_keys = {planned.key for planned in self.plan.cells}
        names = [*(path.name for path in self.store.cells.iterdir()), *self.store.rows.keys()]
        return sum(name not in planned_keys for name in names if not name.startswith("."))
