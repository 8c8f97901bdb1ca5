"""The jobs of a simulation in the tables of the rules, and which of them have a reservation."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from clustersim.scheduler import Cluster, JobCurve, JobView, Kernels, State
from policies.toolkit.gpu_values import Values

from . import kernels
from .tables import Job, Plan, Pool, Size, Table, Tables

__all__ = ["Placement", "Reservations"]

Placement = tuple[tuple[int, int], ...]
"""(node, GPUs there) pairs."""


class Kind(NamedTuple):
    """Jobs with the same sizes: the row of each (GPU type, size), the rows that a job with a reservation may
    be given, and the fastest rate (units/s) of the smallest of them on a type.
    """

    row_of: dict[tuple[int, int], int]
    rows: range
    guard_rate: float


_KERNELS = Kernels(kernels.__name__)
_NUMBERS: dict[Callable[..., Any], tuple[int, ...]] = {  # of each rule that is called from here
    kernels.admit: (0,),
    kernels.least_s: (0,),
    kernels.may_hold: (0, 0),
    kernels.begin: (),
    kernels.decide: (),
    kernels.finish: (),
}
_CLOSE = 1e-9  # relative; times that differ by less are the same


class Reservations:
    """The jobs that entered, and their rectangles. A job without one is *best effort*: it runs on spare GPUs.

    `short_s`: the deadline of the job for which too little was left when the last job was refused; of several
    ways to admit it, the latest one. Only reservations with deadlines up to then were in its way.
    """

    def __init__(self, cluster: Cluster, guard_s: float):
        self.cluster, self.pools, self.guard_s, self.short_s = cluster, cluster.pools, guard_s, -inf
        self.types = list(cluster.gpu_types) if cluster.mixed else [""]
        self.row: dict[JobView, int] = {}
        self.views: dict[int, JobView] = {}
        self.kind_of: dict[int, Kind] = {}  # by row of a job
        self.now_s = -inf
        self._tables: list[Any] = [Table(kind) for kind in (Job, Size, Pool, Plan)]
        self.jobs, self.sizes, self.gpu_pools, self._plans = self._tables
        self.gpu_pools.extend([Pool(node_gpus=pool.gpus_per_node) for pool in self.pools[: len(self.types)]])
        self._line: list[tuple[float, int]] = []  # deadline and order of each job, sorted
        self._line_rows = array("q")  # its row
        self._unused_rows: list[int] = []
        self._kinds: dict[tuple[Any, ...], Kind] = {}
        self._values = Values(self.types)
        self._gpus: dict[str, int] = {}  # in service
        self._decision = -1  # of the last update
        self._updates, self._is_even = 0, True  # whether all jobs work on evenly, as far as is known

    def call(self, rule: Callable[..., Any], *numbers: int) -> Any:
        """The answer of a rule. The rules are compiled before it, where that pays."""
        line: Any = np.asarray(self._line_rows)
        if not self.jobs.compiled and (_KERNELS.compiled or _KERNELS.worth_compiling()):
            arrays = Tables(0.0, line, *[table.array_of(table.rows) for table in self._tables])
            if _KERNELS.compile_for({rule: (*some, arrays) for rule, some in _NUMBERS.items()}):
                for table, array_of_rows in zip(self._tables, arrays[2:], strict=True):
                    table.show(array_of_rows)
        if not self.jobs.compiled:
            line = self._line_rows
        return _KERNELS.call(
            rule, *numbers, Tables(self.now_s, line, *[table.rows for table in self._tables])
        )

    # Jobs that come and go

    def enter(self, job: JobView) -> None:
        """Take in a job as best effort."""
        if not self._unused_rows:
            count = len(self.jobs.rows)
            self._unused_rows = list(reversed(range(count, 2 * count + 32)))
            self.jobs.extend([Job() for _ in self._unused_rows])
        i = self._unused_rows.pop()
        self.views[i], self.row[job] = job, i
        deadline_s = inf if job.deadline_s is None else job.deadline_s
        self.jobs.deadline_s[i], self.jobs.row[i], self.jobs.target[i] = deadline_s, -1, -1
        place = bisect_left(self._line, (deadline_s, job.order))
        self._line.insert(place, (deadline_s, job.order))
        self._line_rows.insert(place, i)
        self._plan(i)
        if len(self.types) > 1:
            self._note_values(self.kind_of[i])
        self._hold(i, None)
        self.jobs.waits[i] = 1

    def leave(self, job: JobView) -> None:
        """Forget a job and its reservation."""
        i = self.row.pop(job)
        place = bisect_left(self._line, (self.jobs.deadline_s[i], job.order))
        del self.views[i], self._line[place], self._line_rows[place]
        self._unused_rows.append(i)

    def _plan(self, i: int) -> None:
        """The sizes of a job, by its present phase."""
        job, row = self.views[i], self.jobs.row[i]
        curves = [self.curve_of(job, name) for name in self.types]
        in_nodes = [job.requested >= pool.gpus_per_node for pool in self.pools]
        key = (*curves, *in_nodes, job.node_counts)
        if key not in self._kinds:
            self._kinds[key] = self._new_kind(curves, in_nodes, job.node_counts)
        self.kind_of[i] = kind = self._kinds[key]
        self.jobs.first_row[i], self.jobs.end_row[i] = kind.rows.start, kind.rows.stop
        if row >= 0:
            self.jobs.row[i] = kind.row_of.get((self.sizes.type[row], self.sizes.gpus[row]), -1)

    def curve_of(self, job: JobView, gpu_type: str) -> JobCurve:
        """The speeds and costs by which a job is planned."""
        return job.curve_on(gpu_type) if gpu_type else job.curve

    def _new_kind(
        self, curves: Sequence[JobCurve], in_nodes: Sequence[bool], node_counts: Sequence[int]
    ) -> Kind:
        """Enter the sizes of a kind of jobs. A job that requests a node or more is planned in whole nodes, if
        its fastest size is a number of whole nodes.
        """
        rows, others = list[Size](), list[Size]()
        for t, curve in enumerate(curves):
            node = self.pools[t].gpus_per_node
            step = node if in_nodes[t] and curve.sizes and curve.sizes[-1] % node == 0 else 1
            columns = zip(curve.sizes, curve.rates, curve.restarts, curve.launches, strict=True)
            for gpus, rate, restart_s, launch_s in columns:
                asked_nodes = len(node_counts) if gpus == sum(node_counts) else 0
                nodes = 0 if gpus < node and asked_nodes < 2 else max(-(-gpus // node), asked_nodes)
                size = Size(t, gpus, rate, restart_s, launch_s, nodes)
                (others if gpus % step else rows).append(size)
        first = len(self.sizes.rows)
        self.sizes.extend(rows + others)
        row_of = {(size.type, size.gpus): first + k for k, size in enumerate(rows + others)}
        rates = {size.type: size.rate for size in reversed(rows)}
        return Kind(row_of, range(first, first + len(rows)), max(rates.values()))

    def _note_values(self, kind: Kind) -> None:
        """Let a job of this kind count in what GPUs are worth."""
        speeds: dict[str, float] = {}
        for row in kind.rows:
            name = self.types[self.sizes.type[row]]
            speeds[name] = max(speeds.get(name, 0.0), self.sizes.rate[row] / self.sizes.gpus[row])
        self._values.note(speeds)
        for t, name in enumerate(self.types):
            self.gpu_pools.value[t] = self._values.of[name]

    # What has happened since

    def update(self, state: State) -> None:
        """Take over what has happened. Only jobs that changed are asked; the others have worked on."""
        draft = state.proposal()
        if draft.decision == self._decision:
            return
        self._decision, self.now_s = draft.decision, float(state.now)
        for event in state.events:
            if event.kind == "finished" and event.job in self.row:
                self.leave(event.job)
        self._count_nodes(state)
        for job in state.changed_jobs:
            if job in self.row:
                self._hold(self.row[job], draft.placement(job))
        self._updates += 1
        self._check()

    def _check(self) -> None:
        """Ask jobs that save now and then, or do more work than they stated: they do not work on evenly.
        Until there is such a job, one is asked now and then.
        """
        turn, jobs = divmod(self._updates, 8), self.jobs
        if self._is_even and (turn[1] or not self.kind_of):
            return
        for i in [turn[0] % len(self.kind_of)] if self._is_even else self.views:
            if i in self.views and jobs.held[i]:
                end_s = jobs.then_s[i] + jobs.paying_then[i] + jobs.work_then[i] / jobs.speed[i]
                self._read(i)
                later_s = self.now_s + jobs.paying_s[i] + jobs.work[i] / jobs.speed[i] - end_s
                self._is_even = self._is_even and abs(later_s) <= _CLOSE * (1.0 + abs(end_s))

    def _count_nodes(self, state: State) -> None:
        """The nodes in service, and how that is planned to change."""
        names = self.types
        gpus = state.in_service_by_type() if len(names) > 1 else {"": state.in_service}
        if gpus != self._gpus:
            self._gpus = gpus
            for t, name in enumerate(names):
                self.gpu_pools.gpus[t] = gpus[name]
                self.gpu_pools.nodes[t] = gpus[name] // self.pools[t].gpus_per_node
        changes = state.planned_changes()
        if len(changes) > len(self._plans.rows):
            self._plans.extend([Plan() for _ in changes[len(self._plans.rows) :]])
        for k in range(len(self._plans.rows)):
            time_s, name, more = changes[k] if k < len(changes) else (-inf, names[0], 0)
            t = names.index(name) if len(names) > 1 else 0
            self._plans.time_s[k], self._plans.type[k] = time_s, t
            self._plans.nodes[k] = more // self.pools[t].gpus_per_node

    def row_on(self, i: int, placement: Placement | None) -> int:
        """The size of a job that runs on `placement`; -1 if none."""
        return self.kind_of[i].row_of.get(self._type_and_gpus(placement), -1)

    def _type_and_gpus(self, placement: Placement | None) -> tuple[int, int]:
        if not placement:
            return 0, 0
        t = self.types.index(self.cluster.type_of(placement[0][0])) if len(self.types) > 1 else 0
        return t, sum([gpus for _, gpus in placement])

    def _hold(self, i: int, placement: Placement | None) -> None:
        """Take over which GPUs a job holds."""
        job, jobs, (t, gpus) = self.views[i], self.jobs, self._type_and_gpus(placement)
        if job.phases:
            self._plan(i)
        is_alone = placement is not None and len(placement) * self.pools[t].gpus_per_node == gpus
        jobs.held[i], jobs.held_type[i] = gpus, t
        jobs.held_row[i] = self.kind_of[i].row_of.get((t, gpus), -1)
        jobs.in_place[i] = 2 if is_alone else jobs.in_place[i] % 2 if gpus else 0
        jobs.is_new[i], jobs.waits[i] = not job.started, not gpus and job.in_system
        self._read(i)

    def _read(self, i: int) -> None:
        """Take over what a job has done, and what it still owes."""
        job, jobs, kind = self.views[i], self.jobs, self.kind_of[i]
        work = job.oracle_work_left
        if job.phases:  # what is left takes as long as all of its phases, at the present speed
            row = kind.rows[0]
            size = self.sizes.gpus[row], self.types[self.sizes.type[row]] or None
            work = job.oracle_remaining(*size) * job.rate(*size)
        jobs.work[i] = jobs.work_then[i] = work + self.guard_s * kind.guard_rate
        jobs.paying_s[i] = jobs.paying_then[i] = job.paying_s
        jobs.then_s[i], jobs.speed[i] = self.now_s, job.speed

    # Admission

    def try_admit(self, job: JobView) -> bool:
        """Reserve for a job if it can finish in time without making a job with a reservation late. Returns
        whether the job is admitted. A job without a deadline is admitted without a reservation.

        If not, everything is as before: the job stays best effort, or unknown if it was not entered. Other
        reservations are only cut to what their jobs still need.
        """
        is_entered = job in self.row
        if is_entered:
            self._read(self.row[job])
        else:
            self.enter(job)
        if job.deadline_s is None or self.reserve(job):
            return True
        if not is_entered:
            self.leave(job)
        return False

    def reserve(self, job: JobView) -> bool:
        """Reserve for a best-effort job."""
        is_admitted, self.short_s = self.call(kernels.admit, self.row[job])
        return is_admitted
