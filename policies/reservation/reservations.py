"""The jobs of a simulation in the tables of the kernels, and which of them have a reservation."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from clustersim.scheduler import Cluster, JobView, Kernels, State

from . import kernels
from .gpu_types import Values
from .tables import Change, Job, Pool, Range, Scope, Size, Slot, Stretch, Table, Tables, VirtualNode

__all__ = ["Placement", "Reservations", "Share"]

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Share(NamedTuple):
    """The GPUs that a job is to have, all of one type ("" on a cluster of one type)."""

    gpus: int
    gpu_type: str = ""


_KERNELS = Kernels(kernels.__name__)
_CLOSE = 1e-9  # relative; work and times that differ by less are the same


class Reservations:
    """The jobs that entered, and their rectangles. A job without one is *best effort*: it runs on spare GPUs.

    `short_s`: the deadline of the job for which too little was left when the last job was refused; of several
    ways to admit it, the latest one. Only reservations with deadlines up to then were in its way. `seated`:
    the rows of jobs that the last decision gave their address.
    """

    def __init__(self, cluster: Cluster, guard_s: float):
        self.guard_s, self.pools, self.short_s = guard_s, cluster.pools, -inf
        self.types = list(cluster.gpu_types) if cluster.mixed else [""]
        self.row: dict[JobView, int] = {}
        self.views: list[JobView | None] = []
        self.seated: set[int] = set()
        self._waiting: list[
            tuple[float, int, int]
        ] = []  # (deadline, order, row) of jobs without GPUs, sorted
        self._is_listed = False  # whether the tables have that list
        self._values = Values(self.types)
        self._kinds: dict[tuple[Any, ...], range] = {}
        self.sizes: list[Size] = []  # the rows of that table
        self._rows_by_size: list[dict[int, int]] = []  # by row of a job and type: the rows of its sizes
        self._guards: list[float] = []  # by row: the work of `guard_s` seconds
        self._entries: list[tuple[float, int, int]] = []  # by row: its entry among waiting jobs
        self._unused: list[int] = []  # rows of jobs that left
        self._spot, self._is_even = 0, True  # the row that is asked next, and whether all jobs work on evenly
        self._updated_at, self._gpus = -inf, dict[str, int]()  # of the last update
        self._compiled = _KERNELS.compiled
        kinds = (Scope, Pool, Job, Range, Size, Stretch, VirtualNode, Change, Change, Slot)
        self.tables = Tables(*(Table(kind, 0, self._compiled) for kind in kinds))
        self.tables.scope.grow(1)
        self.tables.pools.grow(len(self.types))
        for t, pool in enumerate(self.pools):
            self.tables.pools.write(t, node_gpus=pool.gpus_per_node)
        self.tables.scope.write(0, types=len(self.types), now_s=-inf)
        self._make_room(32)

    # Tables

    def _make_room(self, count: int) -> None:
        """Room for `count` jobs and all that they need."""
        tables, types = self.tables, len(self.types)
        width = 4 * count + len(tables.plans) + 8
        for table in (tables.jobs, tables.virtual, tables.slots):
            table.grow(count)
        tables.ranges.grow(count * types)
        tables.stretches.grow(width * types)
        tables.changes.grow(width)
        tables.scope.write(0, width=width)
        self._rows = Tables(*(table.rows for table in tables))

    def call(self, function: Callable[..., Any], *numbers: Any) -> Any:
        """The answer of a kernel. The kernels are compiled after it, where that pays."""
        answer = _KERNELS.call(function, *numbers, self._rows)
        if not self._compiled and (_KERNELS.compiled or _KERNELS.worth_compiling()):
            arrays = Tables(*(table.records() for table in self.tables))
            calls: dict[Callable[..., Any], tuple[Any, ...]] = {
                kernels.admit: (0, False, arrays),
                kernels.begin: (arrays,),
                kernels.decide: (arrays,),
                kernels.finish: (arrays,),
            }
            if _KERNELS.compile_for(calls):
                self._compiled = True
                for table in self.tables:
                    table.compile()
                self._rows = Tables(*(table.rows for table in self.tables))
        return answer

    def _sizes_of(self, job: JobView, t: int) -> range:
        """The rows of the sizes of a job on one GPU type. A job that requests a node or more is planned in
        whole nodes, if its fastest size is a number of whole nodes.
        """
        curve, node = job.curve_on(self.types[t]) if self.types[t] else job.curve, self.pools[t].gpus_per_node
        key = curve, job.requested >= node, job.node_counts
        if key not in self._kinds:
            sizes, first = curve.sizes, len(self.sizes)
            in_nodes = job.requested >= node and sizes and sizes[-1] % node == 0
            columns = zip(sizes, curve.rates, curve.restarts, curve.launches, strict=True)
            for size, rate, restart_s, launch_s in columns:
                asked = len(job.node_counts) if size == sum(job.node_counts) else 0
                nodes, is_part = max(-(-size // node), asked), size < node and asked < 2
                is_reservable = not in_nodes or size % node == 0
                kind = int(is_reservable), int(is_part)
                self.sizes.append(Size(size, rate, restart_s, launch_s, nodes, *kind))
            self.tables.sizes.extend(self.sizes[first:])
            self._rows = Tables(*(table.rows for table in self.tables))
            self._kinds[key] = range(first, len(self.sizes))
        return self._kinds[key]

    # Jobs that come and go

    def enter(self, job: JobView, now: float) -> None:
        """Take in a job as best effort."""
        if not self._unused:
            self._unused.append(len(self.views))
            self.views.append(None)
            self._guards.append(0.0)
            self._rows_by_size += [{}] * len(self.types)
            self._entries.append((0.0, 0, 0))
            if len(self.views) > len(self.tables.jobs):
                self._make_room(2 * len(self.tables.jobs))
            self.tables.scope.write(0, rows=len(self.views))
        i, deadline_s = self._unused.pop(), inf if job.deadline_s is None else job.deadline_s
        self.views[i], self.row[job], self._entries[i] = job, i, (deadline_s, job.order, i)
        self.tables.jobs.write(
            i, deadline_s=deadline_s, order=job.order, retry_s=-inf, size=0, on_launch=0, target=0
        )
        self._plan(i)
        if len(self.types) > 1:
            sizes = {name: self.reservable(i, t) for t, name in enumerate(self.types)}
            speeds = {name: [row.rate / row.size for row in rows] for name, rows in sizes.items() if rows}
            self._values.note({name: max(rates) for name, rates in speeds.items()})
            for t, name in enumerate(self.types):
                self.tables.pools.write(t, value=self._values.of[name])
        self._place(i, None, now)
        self._note_waiting(i, True)

    def leave(self, job: JobView) -> None:
        """Forget a job and its reservation."""
        i = self.row.pop(job)
        self._note_waiting(i, False)
        self.tables.jobs.write(i, size=0, held=0, on_launch=0, target=0)
        self.views[i] = None
        self._unused.append(i)

    def drop(self, job: JobView) -> None:
        """Free the reservation of a job, which stays as best effort."""
        self.tables.jobs.write(self.row[job], size=0, on_launch=0)

    def view(self, i: int) -> JobView:
        job = self.views[i]
        assert job is not None
        return job

    def _plan(self, i: int) -> None:
        """The sizes of a job, by its present phase, and the work of the guard."""
        types, before = len(self.types), self.tables.jobs[i]
        for t in range(types):
            rows = self._sizes_of(self.view(i), t)
            self._rows_by_size[i * types + t] = {self.sizes[k].size: k for k in rows}
            self.tables.ranges.write(i * types + t, first=rows.start, end=rows.stop)
        smallest = [sizes[0] for t in range(types) if (sizes := self.reservable(i, t))]
        self._guards[i] = self.guard_s * max(row.rate for row in smallest)
        if before.size:
            self.tables.jobs.write(i, row=self.size_row(i, before.size, before.type))

    def reservable(self, i: int, t: int) -> list[Size]:
        """The sizes that a job may be given of one type."""
        rows = self._rows_by_size[i * len(self.types) + t].values()
        return [self.sizes[k] for k in rows if self.sizes[k].reservable]

    def size_row(self, i: int, gpus: int, t: int) -> int:
        """The row of a size of a job on one type; -1 if it is none of its sizes."""
        return self._rows_by_size[i * len(self.types) + t].get(gpus, -1)

    def _note_waiting(self, i: int, waits: bool) -> None:
        entry = self._entries[i]
        at = bisect_left(self._waiting, entry)
        is_there = at < len(self._waiting) and self._waiting[at] == entry
        self._is_listed = self._is_listed and is_there == waits
        if is_there and not waits:
            del self._waiting[at]
        elif waits and not is_there:
            insort(self._waiting, entry)

    def list_waiting(self) -> None:
        """Tell the kernels which jobs wait, by deadline."""
        if not self._is_listed:
            self._is_listed = True
            self.tables.slots.write_column("waiting", [i for _, _, i in self._waiting])
            self.tables.scope.write(0, waiting=len(self._waiting))

    # What has happened since

    def update(self, state: State) -> None:
        """Take over what has happened. Only jobs that changed are asked; the others have worked on."""
        now = state.now
        if self._updated_at == now:
            return  # at an instant, all that happens happens before the policy is called
        self._updated_at = now
        for event in state.events:
            if event.kind == "finished" and event.job in self.row:
                self.leave(event.job)
        self._count_nodes(state)
        self.tables.scope.write(0, now_s=now)
        draft = state.proposal()
        for job in state.changed_jobs:
            if job in self.row:
                self._place(self.row[job], draft.placement(job), now)
        self._check(now)

    def _check(self, now: float) -> None:
        """Ask jobs that save now and then, or do more work than they stated: they do not work on evenly.
        Until there is such a job, one is asked now and then.
        """
        rows = range(len(self.views))
        if self._is_even:
            self._spot = (self._spot + 1) % (8 * len(self.views) + 1)
            rows = rows[self._spot // 8 : self._spot // 8 + (self._spot % 8 == 0)]
        for i in rows:
            job = self.tables.jobs[i]
            if job.held:
                end_s = job.then_s + job.paying_then + job.work_then / job.speed
                self._read(i, now)
                job = self.tables.jobs[i]
                if abs(now + job.paying_s + job.work / job.speed - end_s) > _CLOSE * (1.0 + abs(end_s)):
                    self._is_even = False

    def _count_nodes(self, state: State) -> None:
        """The nodes in service, and how that is planned to change."""
        tables, names = self.tables, self.types
        gpus = state.in_service_by_type() if len(names) > 1 else {"": state.in_service}
        if gpus != self._gpus:
            self._gpus = gpus
            for t, name in enumerate(names):
                tables.pools.write(t, gpus=gpus[name], nodes=gpus[name] // self.pools[t].gpus_per_node)
        changes = state.planned_changes()
        if changes or len(tables.plans):
            tables.plans.extend([Change()] * (len(changes) - len(tables.plans)))
            for k in range(len(tables.plans)):
                time_s, name, more = changes[k] if k < len(changes) else (-inf, names[0], 0)
                t = names.index(name) if len(names) > 1 else 0
                tables.plans.write(k, time_s=time_s, type=t, nodes=more // self.pools[t].gpus_per_node)
            self._make_room(len(tables.jobs))

    def _place(self, i: int, placement: Placement | None, now: float) -> None:
        """Take over which GPUs a job holds."""
        job, gpus = self.view(i), sum([count for _, count in placement or ()])
        if job.phases:
            self._plan(i)
        t = self.types.index(job.gpu_type or "") if gpus and len(self.types) > 1 else 0
        is_alone = placement is not None and len(placement) * self.pools[t].gpus_per_node == gpus
        self.tables.jobs.write(
            i, held=gpus, held_type=t, held_row=self.size_row(i, gpus, t), speed=job.speed,
            in_place=2 if is_alone else int(i in self.seated),
        )  # fmt: skip
        self._note_waiting(i, not gpus and job.in_system)
        self._read(i, now)

    def _work(self, i: int) -> float:
        """The units of work that a job has left, with the guard."""
        job = self.tables.jobs[i]
        worked_s = self._updated_at - job.then_s - job.paying_then
        return float(job.work_then - max(0.0, worked_s) * job.speed)

    def _read(self, i: int, now: float) -> None:
        """Take over what a job has done, and what it still owes."""
        job = self.view(i)
        work, paying_s = job.oracle_work_left + self._guards[i], job.paying_s
        if job.phases:  # what is left takes as long as all of its phases, at the present speed
            t = next(t for t in range(len(self.types)) if self.reservable(i, t))
            row = self.reservable(i, t)[0]
            work = job.oracle_remaining(row.size, self.types[t] or None) * row.rate + self._guards[i]
        self.tables.jobs.write(
            i, work=work, work_then=work, paying_s=paying_s, paying_then=paying_s, then_s=now
        )

    # Admission

    def try_admit(self, job: JobView, state: State) -> bool:
        """Reserve for a job if it can finish in time without making a job with a reservation late. Returns
        whether the job is admitted. A job without a deadline is admitted without a reservation.

        If not, everything is as before: the job stays best effort, or unknown if it was not entered. Other
        reservations are only cut to what their jobs still need.
        """
        entered = job in self.row
        if not entered:
            self.enter(job, state.now)
        if job.deadline_s is None or self._reserve(job, state):
            return True
        if not entered:
            self.leave(job)
        return False

    def try_replace(self, other: JobView, job: JobView, state: State) -> bool:
        """Drop the reservation of `other` if the best-effort job `job` then gets one. Returns whether it
        does. If not, everything is as before, as in `try_admit`.
        """
        before = self.tables.jobs[self.row[other]]
        size, on_launch = before.size, before.on_launch
        self.drop(other)
        if self._reserve(job, state):
            return True
        self.tables.jobs.write(self.row[other], size=size, on_launch=on_launch)
        return False

    def _reserve(self, job: JobView, state: State) -> bool:
        """Reserve for a best-effort job; one that never ran may count on a launch."""
        i, self.short_s = self.row[job], -inf
        self._read(i, state.now)
        for launch in (False,) if job.started else (False, True):
            answer = self.call(kernels.admit, i, launch)
            if answer == 1:
                return True
            self.short_s = max(self.short_s, self.tables.scope[0].short_s)
            if answer < 0:
                break
        return False

    # What the rule of a policy asks, and says

    def targets(self) -> dict[JobView, Share]:
        """The GPUs that jobs are to hold from now on, as far as that is decided."""
        rows = {job: self.tables.jobs[i] for job, i in self.row.items()}
        return {
            job: Share(row.target, self.types[row.target_type]) for job, row in rows.items() if row.target
        }

    def held_back(self) -> dict[str, int]:
        """The GPUs of each type that are kept for reservations that begin soon."""
        return {name: self.tables.pools[t].held_back for t, name in enumerate(self.types)}

    def give(self, job: JobView, gpus: int, gpu_type: str) -> None:
        """Let a job hold so many GPUs from now on, instead of its target."""
        i, t = self.row[job], self.types.index(gpu_type)
        before = self.tables.jobs[i]
        for name, more in ((before.target_type, before.target), (t, -gpus)):
            self.tables.pools.write(name, spare=self.tables.pools[name].spare + more)
        self.tables.jobs.write(i, target=gpus, target_type=t)

    def has(self, job: JobView) -> bool:
        """Whether a job has a reservation."""
        return bool(self.tables.jobs[self.row[job]].size)

    def reserved(self) -> list[JobView]:
        """The jobs with a reservation, in order of submission."""
        jobs = [job for job, i in self.row.items() if self.tables.jobs[i].size]
        return sorted(jobs, key=lambda job: job.order)

    def least_gpu_s(self, job: JobView) -> float:
        """The least GPU-seconds that the work left of a job takes, by worth."""
        i = self.row[job]
        return min(
            self.tables.pools[t].value * row.size * self._work(i) / row.rate
            for t in range(len(self.types))
            for row in self.reservable(i, t)
        )

    def is_hopeless(self, job: JobView, now: float) -> bool:
        """Whether a job is too late even on its fastest size."""
        i = self.row[job]
        rate = max(row.rate for t in range(len(self.types)) for row in self.reservable(i, t))
        return rate * (self._entries[i][0] - now) < self._work(i)

    def free_gpu_s(self, now: float, until: float) -> float:
        """GPU-seconds that are not reserved from `now` until then, by worth, with all nodes in service."""
        values = [self.tables.pools[t].value for t in range(len(self.types))]
        gpus = [pool.nodes * pool.gpus_per_node for pool in self.pools]
        free = sum(value * count * (until - now) for value, count in zip(values, gpus, strict=False))
        for i in self.row.values():
            job = self.tables.jobs[i]
            free -= values[job.type] * job.size * max(0.0, min(job.end_s, until) - max(job.start_s, now))
        return free

    def may_have(self, job: JobView, gpus: int, gpu_type: str) -> bool:
        """Whether a job may hold that many GPUs of that type without danger to its reservation."""
        i, t, now = self.row[job], self.types.index(gpu_type), self.tables.scope[0].now_s
        rows = [row for row in self.reservable(i, t) if row.size == gpus]
        return bool(rows) and kernels.may_have(self.tables.jobs[i], t, rows[0], True, now, self.sizes)
