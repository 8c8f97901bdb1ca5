"""The jobs of a simulation in the tables of the kernels, and which of them have a reservation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from clustersim.scheduler import Cluster, JobView, Kernels, State

from . import kernels
from .gpu_types import Values
from .tables import Change, Job, Pool, Range, Scope, Size, Stretch, Table, Tables, VirtualNode

__all__ = ["Placement", "Reservations", "Share"]

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Share(NamedTuple):
    """The GPUs that a job is to have, all of one type ("" on a cluster of one type)."""

    gpus: int
    gpu_type: str = ""


class SizeTable(NamedTuple):
    """The sizes of a kind of jobs on one GPU type: rows `first` to `end`, the row by size, and the sizes that
    a job may be given.
    """

    first: int
    end: int
    row_of: dict[int, int]
    reservable: list[Size]


_KERNELS = Kernels(kernels.__name__)
_CLOSE = 1e-9  # relative; times that differ by less are the same


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
        self._line: list[tuple[float, int]] = []  # deadline and order of the jobs in the table `line`
        self._values = Values(self.types)
        self.sizes: list[Size] = []  # the rows of that table
        self._kinds: dict[tuple[Any, ...], SizeTable] = {}
        self._sizes_of: list[list[SizeTable]] = []  # by row of a job, for each type
        self._guards: list[float] = []  # by row: the work of `guard_s` seconds
        self._unused: list[int] = []  # rows of jobs that left
        self._updates, self._is_even = 0, True  # whether all jobs work on evenly, as far as is known
        self._updated_at, self._gpus = -inf, dict[str, int]()  # of the last update
        kinds = (Scope, Pool, Job, Range, Size, Stretch, VirtualNode, Change, Change, int, int, int)
        self.tables = Tables(*map(Table, kinds))
        self.tables.scope.grow(1)
        self.tables.pools.grow(len(self.types))
        for t, pool in enumerate(self.pools):
            self.tables.pools.write(t, node_gpus=pool.gpus_per_node)
        self.tables.scope.write(0, types=len(self.types))
        self._make_room(32)
        if _KERNELS.compiled:
            self._compile()

    # Tables

    def _make_room(self, count: int) -> None:
        """Room for `count` jobs and all that they need."""
        tables, types = self.tables, len(self.types)
        width = 4 * count + len(tables.plans) + 8
        for table in (tables.jobs, tables.virtual, tables.line, tables.listed, tables.staying):
            table.grow(count)
        tables.ranges.grow(count * types)
        tables.stretches.grow(width * types)
        tables.changes.grow(width)
        tables.scope.write(0, width=width)
        self._rows = Tables(*(table.rows for table in tables))

    def _compile(self) -> None:
        for table in self.tables:
            table.compile()
        self._rows = Tables(*(table.rows for table in self.tables))

    def call(self, function: Callable[..., Any], *numbers: Any) -> Any:
        """The answer of a kernel. The kernels are compiled after it, where that pays."""
        answer = _KERNELS.call(function, *numbers, self._rows)
        if not self.tables.scope.compiled and (_KERNELS.compiled or _KERNELS.worth_compiling()):
            arrays = Tables(*(table.array() for table in self.tables))
            calls: dict[Callable[..., Any], tuple[Any, ...]] = {kernels.admit: (0, arrays)}
            calls |= dict.fromkeys((kernels.begin, kernels.decide, kernels.finish), (arrays,))
            if _KERNELS.compile_for(calls):
                self._compile()
        return answer

    def _size_table(self, job: JobView, t: int) -> SizeTable:
        """The sizes of a job on one GPU type. A job that requests a node or more is planned in whole nodes,
        if its fastest size is a number of whole nodes.
        """
        curve, node = job.curve_on(self.types[t]) if self.types[t] else job.curve, self.pools[t].gpus_per_node
        key = curve, job.requested >= node, job.node_counts
        if key not in self._kinds:
            rows, first = [], len(self.sizes)
            in_nodes = job.requested >= node and curve.sizes and curve.sizes[-1] % node == 0
            columns = zip(curve.sizes, curve.rates, curve.restarts, curve.launches, strict=True)
            for size, rate, restart_s, launch_s in columns:
                asked = len(job.node_counts) if size == sum(job.node_counts) else 0
                nodes, is_part = max(-(-size // node), asked), size < node and asked < 2
                is_reservable = not in_nodes or size % node == 0
                rows.append(Size(size, rate, restart_s, launch_s, nodes, int(is_reservable), int(is_part)))
            self.sizes += rows
            self.tables.sizes.extend(rows)
            self._rows = Tables(*(table.rows for table in self.tables))
            row_of = {row.size: first + k for k, row in enumerate(rows)}
            reservable = [row for row in rows if row.reservable]
            self._kinds[key] = SizeTable(first, len(self.sizes), row_of, reservable)
        return self._kinds[key]

    # Jobs that come and go

    def enter(self, job: JobView, now: float) -> None:
        """Take in a job as best effort."""
        if not self._unused:
            self._unused.append(len(self.views))
            self.views.append(None)
            self._guards.append(0.0)
            self._sizes_of.append([])
            if len(self.views) > len(self.tables.jobs):
                self._make_room(2 * len(self.tables.jobs))
        i, deadline_s = self._unused.pop(), inf if job.deadline_s is None else job.deadline_s
        self.views[i], self.row[job] = job, i
        self.tables.jobs.write(i, deadline_s=deadline_s, retry_s=-inf, size=0, target=0)
        self._plan(i)
        if len(self.types) > 1:
            tables = zip(self.types, self._sizes_of[i], strict=True)
            speeds = {name: [row.rate / row.size for row in table.reservable] for name, table in tables}
            self._values.note({name: max(rates) for name, rates in speeds.items() if rates})
            for t, name in enumerate(self.types):
                self.tables.pools.write(t, value=self._values.of[name])
        self._place(i, None, now)
        self.tables.jobs.write(i, waits=1)
        position, count = bisect_left(self._line, (deadline_s, job.order)), len(self._line)
        self._line.insert(position, (deadline_s, job.order))
        line = self.tables.line.rows
        line[position + 1 : count + 1] = line[position:count]
        line[position] = i
        self.tables.scope.write(0, rows=count + 1)

    def leave(self, job: JobView) -> None:
        """Forget a job and its reservation."""
        i, line, count = self.row.pop(job), self.tables.line.rows, len(self._line)
        entry = inf if job.deadline_s is None else job.deadline_s, job.order
        position = bisect_left(self._line, entry)
        del self._line[position]
        line[position : count - 1] = line[position + 1 : count]
        self.tables.scope.write(0, rows=count - 1)
        self.views[i] = None
        self._unused.append(i)

    def drop(self, job: JobView) -> None:
        """Free the reservation of a job, which stays as best effort."""
        self.tables.jobs.write(self.row[job], size=0)

    def view(self, i: int) -> JobView:
        job = self.views[i]
        assert job is not None
        return job

    def _plan(self, i: int) -> None:
        """The sizes of a job, by its present phase, and the work of the guard."""
        types, before = len(self.types), self.tables.jobs[i]
        self._sizes_of[i] = [self._size_table(self.view(i), t) for t in range(types)]
        for t, table in enumerate(self._sizes_of[i]):
            self.tables.ranges.write(i * types + t, first=table.first, end=table.end)
        smallest = [table.reservable[0] for table in self._sizes_of[i] if table.reservable]
        self._guards[i] = self.guard_s * max(row.rate for row in smallest)
        if before.size:
            self.tables.jobs.write(i, row=self._sizes_of[i][before.type].row_of.get(before.size, -1))

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
        changed = [job for job in state.changed_jobs if job in self.row]
        if changed:
            draft = state.proposal()
            for job in changed:
                self._place(self.row[job], draft.placement(job), now)
        self._check(now)

    def _check(self, now: float) -> None:
        """Ask jobs that save now and then, or do more work than they stated: they do not work on evenly.
        Until there is such a job, one is asked now and then.
        """
        self._updates += 1
        rows = range(len(self.views))
        if self._is_even:
            if self._updates % 8 or not rows:
                return
            rows = rows[self._updates // 8 % len(rows) :][:1]
        for i in rows:
            if self.views[i] is None or not (before := self.tables.jobs[i]).held:
                continue
            end_s = before.then_s + before.paying_then + before.work_then / before.speed
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
            tables.plans.grow(len(changes))
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
            i, held=gpus, held_type=t, held_row=self._sizes_of[i][t].row_of.get(gpus, -1), speed=job.speed,
            in_place=2 if is_alone else int(i in self.seated), is_new=int(not job.started),
            waits=int(not gpus and job.in_system),
        )  # fmt: skip
        self._read(i, now)

    def _read(self, i: int, now: float) -> None:
        """Take over what a job has done, and what it still owes."""
        job = self.view(i)
        work, paying_s = job.oracle_work_left + self._guards[i], job.paying_s
        if job.phases:  # what is left takes as long as all of its phases, at the present speed
            t = next(t for t, table in enumerate(self._sizes_of[i]) if table.reservable)
            row = self._sizes_of[i][t].reservable[0]
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
        else:
            self._read(self.row[job], state.now)
        if job.deadline_s is None or self._reserve(job, state):
            return True
        if not entered:
            self.leave(job)
        return False

    def try_replace(self, other: JobView, job: JobView, state: State) -> bool:
        """Drop the reservation of `other` if the best-effort job `job` then gets one. Returns whether it
        does. If not, everything is as before, as in `try_admit`.
        """
        size = self.tables.jobs[self.row[other]].size
        self.drop(other)
        if self._reserve(job, state):
            return True
        self.tables.jobs.write(self.row[other], size=size)
        return False

    def _reserve(self, job: JobView, state: State) -> bool:
        """Reserve for a best-effort job."""
        is_admitted = bool(self.call(kernels.admit, self.row[job]))
        self.short_s = self.tables.scope[0].short_s
        return is_admitted

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
        for type_row, more in ((before.target_type, before.target), (t, -gpus)):
            self.tables.pools.write(type_row, spare=self.tables.pools[type_row].spare + more)
        self.tables.jobs.write(i, target=gpus, target_type=t)

    def has(self, job: JobView) -> bool:
        """Whether a job has a reservation."""
        return bool(self.tables.jobs[self.row[job]].size)

    def reserved(self) -> list[JobView]:
        """The jobs with a reservation, in order of submission."""
        return sorted([job for job in self.row if self.has(job)], key=lambda job: job.order)

    def least_gpu_s(self, job: JobView) -> float:
        """The least GPU-seconds that the work left of a job takes, by worth."""
        work = self._work(job)
        return min(
            self.tables.pools[t].value * row.size * work / row.rate
            for t, table in enumerate(self._sizes_of[self.row[job]])
            for row in table.reservable
        )

    def is_hopeless(self, job: JobView, now: float) -> bool:
        """Whether a job is too late even on its fastest size."""
        rate = max(row.rate for table in self._sizes_of[self.row[job]] for row in table.reservable)
        return job.deadline_s is not None and rate * (job.deadline_s - now) < self._work(job)

    def _work(self, job: JobView) -> float:
        """The units of work that a job has left, with the guard."""
        row = self.tables.jobs[self.row[job]]
        worked_s = self._updated_at - row.then_s - row.paying_then
        return float(row.work_then - max(0.0, worked_s) * row.speed * bool(row.held))

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
        rows = [row for row in self._sizes_of[i][t].reservable if row.size == gpus]
        return bool(rows) and kernels.may_have(self.tables.jobs[i], t, rows[0], True, now, self.sizes)
