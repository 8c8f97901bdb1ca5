"""How fast a job runs on how many GPUs.

Three sources, asked in this order: a throughput table that names the job's model; `itertime` (through a
planner), for a job that states model, global batch and iterations; the logged duration, for a job of which
nothing else is known. All three answer with a `Curve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from itertime.errors import TableError, UserError
from traces.columns import number, whole
from traces.files import Table, open_table, shown
from traces.job import Job

from .cluster import Cluster

if TYPE_CHECKING:
    from itertime.planner import Planner

__all__ = ["CannotRun", "Curve", "Speed", "read_throughput_table"]

TABLE_COLUMNS = ("model", "global_batch", "gpus", "iterations_per_s")
_LEAST_RATE = 1e-12  # one iteration in 30,000 years

Value = TypeVar("Value", int, float, str)


class CannotRun(Exception):
    """No GPU count of this cluster can run the job; the text is the reason for its rejection."""


@dataclass(frozen=True)
class Curve:
    """Speed of one kind of job by GPU count.

    `unit_s`: seconds per unit of work (an iteration, or a second of logged duration) at each count that can
    run it. `sizes`: the counts worth giving, ascending, each strictly faster than the one before. `plans`:
    what runs there, as text.
    """

    unit_s: Mapping[int, float]
    sizes: tuple[int, ...]
    plans: Mapping[int, str] = field(default_factory=dict)
    parameters: float = 0.0


def regular_counts(cluster: Cluster) -> tuple[int, ...]:
    """1, 2, 4, ... GPUs within a node, then 1, 2, 4, ... whole nodes, up to the cluster."""
    node = cluster.gpus_per_node
    small = [1 << k for k in range(node.bit_length()) if 1 << k < node]
    return (*small, *(node << k for k in range(cluster.nodes.bit_length())))


def _worthwhile(unit_s: Mapping[int, float], counts: Iterable[int]) -> tuple[int, ...]:
    """The counts that are strictly faster than every smaller one."""
    sizes: list[int] = []
    best = float("inf")
    for n in sorted(counts):
        if n in unit_s and unit_s[n] < best:
            sizes.append(n)
            best = unit_s[n]
    return tuple(sizes)


class Speed:
    """Curves for the jobs of one run, each computed once per kind of job.

    The counts offered to elastic policies are those of `regular_counts`, within the job's `min_gpus` and
    `max_gpus`, and the count it asks for.
    """

    def __init__(
        self,
        cluster: Cluster,
        planner: Planner,
        table: Mapping[tuple[str, int], Mapping[int, float]] | None = None,
    ):
        self.cluster, self.planner, self.table = cluster, planner, table or {}
        self._counts = regular_counts(cluster)
        self._tabled_models = {model for model, _ in self.table}
        self._curves: dict[object, Curve | CannotRun] = {}

    def curve(self, job: Job) -> Curve:
        """The curve of `job`. CannotRun, with the reason, if no number of GPUs here can run it."""
        key: object
        if job.kind == "duration":
            key = job.gpus
        else:
            key = (job.model, job.global_batch, job.seq_len, job.gpus, job.min_gpus, job.max_gpus)
        curve = self._curves.get(key)
        if curve is None:
            try:
                curve = self._make(job)
            except CannotRun as reason:
                curve = reason
            self._curves[key] = curve
        if isinstance(curve, CannotRun):
            raise CannotRun(str(curve))  # anew: a raised exception keeps the frames of all its callers
        return curve

    def requested(self, job: Job, curve: Curve) -> tuple[int, str]:
        """The GPUs a rigid policy gives the job, with a note where that is not what it asked for.

        A request that no plan fits into is raised to the smallest count that holds the model; a job without
        a request gets its smallest count. CannotRun for a request that is larger than the cluster.
        """
        if job.gpus is not None and job.gpus > self.cluster.gpus:
            raise CannotRun(f"asks for {job.gpus} GPUs, the cluster has {self.cluster.gpus}")
        if job.gpus in curve.unit_s:
            assert job.gpus is not None
            return job.gpus, ""
        larger = [n for n in curve.sizes if job.gpus is None or n >= job.gpus]
        gpus = larger[0] if larger else curve.sizes[-1]
        if job.gpus is None:
            return gpus, f"no GPU count requested; {gpus} is the smallest that can run it"
        return gpus, f"asked for {job.gpus} GPUs, which cannot run it; given {gpus}"

    def _make(self, job: Job) -> Curve:
        if job.kind == "duration":
            return self._rigid(job)
        if job.model in self._tabled_models:
            return self._from_table(job)
        return self._from_planner(job)

    def _rigid(self, job: Job) -> Curve:
        assert job.gpus is not None
        if job.gpus > self.cluster.gpus:
            raise CannotRun(f"asks for {job.gpus} GPUs, the cluster has {self.cluster.gpus}")
        return Curve({job.gpus: 1.0}, (job.gpus,))

    def _offered(self, job: Job) -> list[int]:
        low, high = job.min_gpus or 1, min(job.max_gpus or self.cluster.gpus, self.cluster.gpus)
        asked = [
            n for n in (job.gpus, job.min_gpus, job.max_gpus) if n is not None and n <= self.cluster.gpus
        ]
        return sorted({n for n in (*self._counts, *asked) if low <= n <= high or n == job.gpus})

    def _from_table(self, job: Job) -> Curve:
        assert job.model is not None
        assert job.global_batch is not None
        rates = self.table.get((job.model, job.global_batch))
        if not rates:
            raise CannotRun(
                f"the throughput table has no row for {job.model} with global batch {job.global_batch}"
            )
        low, high = job.min_gpus or 1, min(job.max_gpus or self.cluster.gpus, self.cluster.gpus)
        unit_s = {n: 1.0 / rate for n, rate in sorted(rates.items()) if low <= n <= high and rate > 0}
        if not unit_s:
            raise CannotRun(
                f"the throughput table has no speed for {job.model} between {low} and {high} GPUs"
            )
        return Curve(unit_s, _worthwhile(unit_s, unit_s))

    def _from_planner(self, job: Job) -> Curve:
        from itertime import load_model

        assert job.model is not None
        assert job.global_batch is not None
        model = load_model(job.model)
        offered = self._offered(job)
        regular = set(self._counts)
        runs = dict(self.planner.curve(model, job.global_batch, self._counts, job.seq_len))
        odd = tuple(n for n in offered if n not in regular)
        if odd:
            runs.update(self.planner.curve(model, job.global_batch, odd, job.seq_len))
        unit_s = {n: runs[n].iteration_s for n in offered if n in runs}
        if not unit_s:
            raise CannotRun(self._why_no_plan(job, offered, runs))
        sizes = _worthwhile(unit_s, unit_s)
        plans = {n: runs[n].plan.label for n in unit_s}
        return Curve(unit_s, sizes, plans, float(model.parameters))

    def _why_no_plan(self, job: Job, offered: Sequence[int], runs: Mapping[int, object]) -> str:
        if not offered:
            low, high = job.min_gpus or 1, job.max_gpus or self.cluster.gpus
            return f"allows {low} to {high} GPUs, the cluster has {self.cluster.gpus}"
        where = f"{offered[0]} to {offered[-1]} GPUs" if len(offered) > 1 else f"{offered[0]} GPUs"
        text = (
            f"no {self.planner.name} plan of {job.model} with global batch {job.global_batch} fits on {where}"
        )
        return f"{text}; the smallest count that does is {min(runs)}" if runs else text


def read_throughput_table(path: str | Path) -> dict[tuple[str, int], dict[int, float]]:
    """Read `model,global_batch,gpus,iterations_per_s`: {(model, global batch): {GPUs: iterations/s}}.

    A rate of 0 or an empty one means "does not run there"; other columns are ignored. UserError for a file
    that cannot be read, TableError with file, line and column for what cannot be used.
    """
    rates: dict[tuple[str, int], dict[int, float]] = {}
    with open_table(path) as table:
        _check_columns(table)
        for line, cells in table.rows:
            at = f"{path}:{line}"
            if len(cells) != len(table.columns):
                what = f"has {len(cells)} cells where the header has {len(table.columns)}"
                raise TableError(f"{at}: {what}; look for a stray comma")
            row = dict(zip(table.columns, cells, strict=True))
            model = _cell(row, "model", _name, at)
            batch, gpus = (_cell(row, column, _count, at) for column in ("global_batch", "gpus"))
            speeds = rates.setdefault((model, batch), {})
            if gpus in speeds:
                what = f"stated twice for {shown(model)} with global batch {batch}"
                raise TableError(f"{at}: gpus={gpus}: {what}; keep one")
            speeds[gpus] = _cell(row, "iterations_per_s", _rate, at)
    if not rates:
        raise TableError(f"{path}: holds no rows")
    return rates


def _check_columns(table: Table) -> None:
    missing = [column for column in TABLE_COLUMNS if column not in table.columns]
    if missing:
        what = f"missing column {', '.join(missing)}"
        raise TableError(f"{table.path}:1: {what}; a throughput table has {','.join(TABLE_COLUMNS)}")
    for column in TABLE_COLUMNS:
        if table.columns.count(column) > 1:
            raise TableError(f"{table.path}:1: column {column} appears twice; keep one")


def _cell(row: Mapping[str, str], column: str, parse: Callable[[str], Value], at: str) -> Value:
    try:
        return parse(row[column].strip())
    except ValueError as error:
        raise TableError(f"{at}: {column}={shown(row[column])}: {error}") from None


def _name(text: str) -> str:
    if not text:
        raise ValueError("is empty; name the model")
    return text


def _count(text: str) -> int:
    value = whole(text)
    if value < 1:
        raise ValueError("must be a whole number of at least 1")
    return value


def _rate(text: str) -> float:
    rate = number(text or "0")
    if rate < 0 or 0 < rate < _LEAST_RATE:
        raise ValueError("must be a finite number, 0 where the job cannot run")
    return rate


def speed_for(cluster: Cluster, planner: str, table: str | Path | None = None) -> Speed:
    """The speeds of a run: a planner by name on the cluster's system, and a throughput table if there is
    one. UserError for unknown names.
    """
    from itertime import load_system
    from itertime.curvecache import default_cache
    from itertime.planner import make_planner

    system = load_system(cluster.system)
    if cluster.gpus_per_node > system.gpus_per_node:
        raise UserError(
            f"cluster {cluster.shape}: nodes of system {system.name} have {system.gpus_per_node} GPUs; "
            f"use a shape that ends in g{system.gpus_per_node}"
        )
    share = cluster.gpus_per_node / system.gpus_per_node  # part of a node, with its part of the NICs
    system = replace(
        system, gpus_per_node=cluster.gpus_per_node, nic_bytes_per_s=system.nic_bytes_per_s * share
    )
    planned = make_planner(planner, system, cache=default_cache())
    return Speed(cluster, planned, read_throughput_table(table) if table else None)
