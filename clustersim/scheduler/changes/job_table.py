"""The running jobs as vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler.internal import AnyView, active_of

__all__ = ["JobTable"]

Vector = NDArray[np.float64]

_ATTRIBUTES = (
    "work_left",
    "ready_s",
    "since_s",
    "unit_s",
    "left_at_phase_end",
    "misstated",
    "least_left",
    "predicted",
    "work",
    "held",
    "gpu_seconds",
    "paid_gpu_s",
    "gpus",
    "order",
    "states_work",
)
_numbers_of = attrgetter(*_ATTRIBUTES)
_COLUMN_OF = {name: i for i, name in enumerate((*_ATTRIBUTES, "restart_s"))}
_FIRST_ROWS = 64


class _Facts(Protocol[AnyView]):
    """A `ClusterState`."""

    now_s: float
    oracle_used: bool
    running: dict[AnyView, int]

    @property
    def restart_s(self) -> Mapping[tuple[float, int], float]: ...


class JobTable(Generic[AnyView]):
    """The running jobs, one a row. Each property is a new vector with a number for every row, as of now, to
    the last bit what the view of the job answers.

    | member | type | of each job |
    |---|---|---|
    | `jobs` | list | the views in the order of the rows; it is not to be changed |
    | `order` | int64 | `JobView.order` |
    | `gpus` | int64 | GPUs held |
    | `work_left` | float64 | units of work left by what the job states; infinite if it states none |
    | `oracle_work_left` | float64 | likewise, with the truth for jobs that state none, which is noted |
    | `speed` | float64 | units of work per second once the overhead is paid |
    | `paying_s`, `productive_s` | float64 | seconds of overhead still to pay, and since it was paid |
    | `restart_s` | float64 | the most seconds of a restart on as many GPUs |
    | `attained`, `productive_gpu_s` | float64 | GPU-seconds held, and those without starts and resizes |
    | `of(function)` | float64 | `function(job)`, looked up when the job starts or changes |

    The order of the rows follows from what happened, not from the jobs: a job that starts gets the last row,
    and the last job the row of one that stops. Sort by `order` where equal jobs are to be told apart.
    """

    def __init__(self, facts: _Facts[AnyView]):
        self._facts = facts
        self.jobs: list[AnyView] = []
        self._row_of: dict[AnyView, int] = {}
        self._numbers = np.zeros((_FIRST_ROWS, len(_COLUMN_OF)))
        self._columns: dict[Callable[[AnyView], float], Vector] = {}
        self._cycling: dict[AnyView, None] = {}  # jobs with checkpoints, whose progress is no line
        self._misstated = False  # whether the work of any job is

    def update(self, changed_jobs: Iterable[AnyView]) -> None:
        """Bring the rows of these jobs up to date."""
        running, row_of = self._facts.running, self._row_of
        for job in changed_jobs:
            row = row_of.get(job)
            if job not in running:
                if row is not None:
                    self._remove(job, row)
                continue
            if row is None:
                row = row_of[job] = len(self.jobs)
                self.jobs.append(job)
                if row == len(self._numbers):
                    self._numbers = _doubled(self._numbers)
                    self._columns = {of: _doubled(column) for of, column in self._columns.items()}
            self._fill(job, row)

    def _fill(self, job: AnyView, row: int) -> None:
        active = active_of(job)
        restart_s = self._facts.restart_s[active.curve.parameters, active.gpus]
        self._numbers[row] = (*_numbers_of(active), restart_s)
        for function, column in self._columns.items():
            column[row] = function(job)
        if active.checkpoints is not None:
            self._cycling[job] = None
        if active.misstated:
            self._misstated = True

    def _remove(self, job: AnyView, row: int) -> None:
        """The last job moves to the row of one that is gone."""
        del self._row_of[job]
        self._cycling.pop(job, None)
        last_job, last_row = self.jobs.pop(), len(self.jobs)
        if last_row != row:
            self.jobs[row], self._row_of[last_job] = last_job, row
            self._numbers[row] = self._numbers[last_row]
            for column in self._columns.values():
                column[row] = column[last_row]

    def row(self, job: AnyView) -> int:
        """The row of a running job. KeyError for one that does not run."""
        return self._row_of[job]

    def of(self, function: Callable[[AnyView], float]) -> Vector:
        """`function(job)` of each job. It is the same object at every call, and depends on nothing that
        changes while the job runs and is not among `State.changed_jobs`.
        """
        column = self._columns.get(function)
        if column is None:
            column = self._columns[function] = np.zeros(len(self._numbers))
            column[: len(self.jobs)] = [function(job) for job in self.jobs]
        return column[: len(self.jobs)].copy()

    def _column(self, name: str) -> Vector:
        column: Vector = self._numbers[: len(self.jobs), _COLUMN_OF[name]]
        return column

    @property
    def order(self) -> NDArray[np.int64]:
        return self._column("order").astype(np.int64)

    @property
    def gpus(self) -> NDArray[np.int64]:
        return self._column("gpus").astype(np.int64)

    @property
    def restart_s(self) -> Vector:
        return self._column("restart_s").copy()

    @property
    def speed(self) -> Vector:
        return 1.0 / self._column("unit_s")

    @property
    def work_left(self) -> Vector:
        return np.where(self._column("states_work") > 0.0, self._stated(), inf)

    @property
    def oracle_work_left(self) -> Vector:
        if not self._column("states_work").all():
            self._facts.oracle_used = True
        return self._stated()

    @property
    def paying_s(self) -> Vector:
        now = self._facts.now_s
        paying_s = np.maximum(self._column("ready_s") - now, 0.0)
        for job in self._cycling:
            paying_s[self._row_of[job]] = active_of(job).paying_s(now)
        return paying_s

    @property
    def productive_s(self) -> Vector:
        return np.maximum(self._facts.now_s - self._column("ready_s"), 0.0)

    @property
    def attained(self) -> Vector:
        since_s = self._facts.now_s - self._column("since_s")
        return self._column("gpu_seconds") + since_s * self._column("held")

    @property
    def productive_gpu_s(self) -> Vector:
        productive_s = self._facts.now_s - np.maximum(self._column("since_s"), self._column("ready_s"))
        gpu_s = np.where(productive_s > 0.0, productive_s * self._column("held"), 0.0)
        return self._column("gpu_seconds") - self._column("paid_gpu_s") + gpu_s

    def _stated(self) -> Vector:
        """As `ActiveJob.as_stated` of `ActiveJob.work_left_at` now."""
        units = self._units()
        if not self._misstated:
            return units
        misstated, predicted = self._column("misstated"), self._column("predicted")
        stated = np.maximum(units + misstated, self._column("least_left"))
        stated = np.where((predicted != 0.0) & (units == self._column("work")), predicted, stated)
        return np.where(misstated == 0.0, units, stated)

    def _units(self) -> Vector:
        """As `ActiveJob.work_left_at` now."""
        now, work_left, ready_s = self._facts.now_s, self._column("work_left"), self._column("ready_s")
        ran_s = now - np.maximum(ready_s, self._column("since_s"))
        units = np.maximum(work_left - ran_s / self._column("unit_s"), self._column("left_at_phase_end"))
        units = np.where(now <= ready_s, work_left, units)
        for job in self._cycling:
            units[self._row_of[job]] = active_of(job).work_left_at(now)
        return units


def _doubled(rows: Vector) -> Vector:
    """The same rows, and as many more."""
    return np.concatenate([rows, np.zeros_like(rows)])
