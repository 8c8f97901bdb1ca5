"""Inference services whose need for GPUs follows a time series, as instances: jobs that come and go.

A series says how many GPUs a service needs from a time on, until the next time. When the need rises,
instances begin; when it falls, those that began last end first. So an instance lasts from a rise to the
matching fall, and there are always as many as are needed. An instance ends at its time whether it got GPUs or
not (docs/sharing.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import cos, exp, inf, pi
from pathlib import Path

from itertime.errors import TableError, UserError
from itertime.io import open_table, shown
from traces.job import MAX_GPUS, Job, submission_order
from traces.native import MAX_SECONDS, number, whole
from traces.workload import stream

__all__ = ["Diurnal", "Need", "instances_of", "read_needs"]

DAY_S = 86_400.0
_COLUMNS = ("service", "time_s", "gpus")
_MOST_INSTANCES = 1_000_000


@dataclass(frozen=True)
class Need:
    """From `time_s` on `service` needs `gpus` GPUs."""

    service: str
    time_s: float
    gpus: int


@dataclass(frozen=True)
class Diurnal:
    """The need of one service through the day, every `step_s` seconds for `days` days:

        mean_gpus x (1 + swing x cos(2 pi (t - peak_s) / day)) x noise, rounded

    `noise` is log-normal of median 1 and standard deviation `sigma` of its logarithm, drawn at each step.
    UserError for parameters out of range.
    """

    service: str = "service"
    mean_gpus: float = 8.0
    swing: float = 0.5
    peak_s: float = 14 * 3600.0
    sigma: float = 0.1
    step_s: float = 900.0
    days: float = 1.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("mean_gpus", 0.0, MAX_GPUS), ("swing", 0.0, 1.0), ("peak_s", 0.0, DAY_S), ("sigma", 0.0, 3.0),
            ("step_s", 1.0, DAY_S), ("days", 0.0, 1000.0),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise UserError(f"services: {name}={value!r}: must be from {low:g} to {high:g}")

    def needs(self, seed: int) -> list[Need]:
        """The series; it ends with a need of 0. Each service has its own random stream of `seed`."""
        noise = stream(seed, f"service {self.service}")
        steps = round(self.days * DAY_S / self.step_s)
        needs = []
        for i in range(steps):
            time_s = i * self.step_s
            level = self.mean_gpus * (1 + self.swing * cos(2 * pi * (time_s - self.peak_s) / DAY_S))
            needs.append(Need(self.service, time_s, round(level * exp(self.sigma * noise.standard_normal()))))
        return [*needs, Need(self.service, steps * self.step_s, 0)]


def read_needs(path: str | Path) -> list[Need]:
    """A table with the columns `service`, `time_s` (s) and `gpus`, in any order of rows. TableError with
    file, line, column and value for a row that is not such a need.
    """
    needs: list[Need] = []
    with open_table(path) as table:
        missing = [name for name in _COLUMNS if name not in table.columns]
        if missing:
            raise TableError(f"{path}:1: missing column {missing[0]}; a series has {', '.join(_COLUMNS)}")
        places = [table.columns.index(name) for name in _COLUMNS]
        for line, row in table.rows:
            if len(row) != len(table.columns):
                raise TableError(
                    f"{path}:{line}: has {len(row)} cells where the header has {len(table.columns)}"
                )
            service, time_s, gpus = (row[place] for place in places)
            if not service.strip():
                raise TableError(f"{path}:{line}: service is empty; name the service")
            need_s = _number(path, line, "time_s", time_s, MAX_SECONDS)
            needs.append(Need(service, need_s, int(_number(path, line, "gpus", gpus, MAX_GPUS))))
    return needs


def instances_of(needs: Iterable[Need], gpus_per_instance: int = 1, priority: int = 0) -> list[Job]:
    """The instances of services with these needs, in order of submission. The last need of a service ends its
    series and must be 0. A need is rounded up to whole instances of `gpus_per_instance` GPUs. UserError for a
    series that does not end, or states two needs at one time.
    """
    if not 1 <= gpus_per_instance <= MAX_GPUS:
        raise UserError(f"gpus_per_instance={gpus_per_instance}: must be from 1 to {MAX_GPUS:,}")
    series: dict[str, list[Need]] = {}
    for need in needs:
        series.setdefault(need.service, []).append(need)
    jobs: list[Job] = []
    for service in sorted(series):
        steps = sorted(series[service], key=lambda need: need.time_s)
        _check(service, steps)
        began: list[float] = []
        for step in steps:
            count = -(-step.gpus // gpus_per_instance)
            if count + len(jobs) > _MOST_INSTANCES:
                raise UserError(f"service {shown(service)}: more than {_MOST_INSTANCES:,} instances")
            while len(began) > count:
                from_s = began.pop()
                jobs.append(
                    Job(
                        f"{service}-{len(jobs)}", from_s, tenant=service, gpus=gpus_per_instance,
                        duration_s=step.time_s - from_s, priority=priority, service=service,
                    )
                )  # fmt: skip
            began += [step.time_s] * (count - len(began))
    return submission_order(jobs)


def _check(service: str, steps: Sequence[Need]) -> None:
    before_s = -inf
    for step in steps:
        if step.time_s == before_s:
            raise UserError(f"service {shown(service)}: states two needs at t={step.time_s:g}; keep one")
        before_s = step.time_s
    if steps[-1].gpus:
        problem = f"needs {steps[-1].gpus} GPUs from t={steps[-1].time_s:g} on, without an end"
        raise UserError(f"service {shown(service)}: {problem}; add a last row with gpus=0")


def _number(path: str | Path, line: int, name: str, cell: str, maximum: float) -> float:
    try:
        value = whole(cell) if name == "gpus" else number(cell)
        if not 0 <= value <= maximum:
            raise ValueError(f"must be from 0 to {maximum:g}")
    except ValueError as error:
        raise TableError(f"{path}:{line}: {name}={shown(cell)}: {error}") from None
    return value
