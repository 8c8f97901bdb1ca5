"""The backfill scheduler: a plan for every waiting job, made anew in each cycle.

Sources: sched_config, "Backfill Scheduling"; slurm.conf(5), the parameters `bf_*`. A plan takes whole nodes
for the time limit of its job, however few of their GPUs it needs. A job with a plan for now starts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import pairwise
from math import inf
from typing import NamedTuple, Protocol

from .main_scheduler import Starter, reserves
from .outlook import Outlook
from .records import Entry, JobRecord, Placement
from .reservations import Reservations
from .rules import Rules

__all__ = ["NodeSpace", "Plan", "Planner", "run_backfill"]

MOST_TRIES = 10_000
"""Of times at which a cycle tries to plan a job: an assumption, which ends what would not end. Each try is at
the end of a job, a plan or a reservation, later than the last one.
"""


class Plan(NamedTuple):
    """When and where a cycle plans to start a job."""

    job: JobRecord
    partition: str
    start_s: float
    end_s: float
    placement: Placement


class Planner(Starter, Protocol):
    """What backfill needs of the controller besides."""

    reservations: Reservations

    def preemptable(self, job: JobRecord, partition: str, usable: int) -> Sequence[JobRecord]:
        """The running jobs that `job` may preempt."""

    def tasks_held_back(self, job: JobRecord) -> int:
        """How many further tasks of the array of a job wait for its limit alone."""

    def outlook(self, now: float) -> Outlook:
        """Expected starts, from the state as it is."""


class NodeSpace:
    """The nodes without a plan in each span of time, in order and without gaps: `free[i]` from `times[i]` to
    `times[i + 1]`.
    """

    def __init__(self, begin_s: float, end_s: float):
        self.times, self.free = [begin_s, end_s], [-1]

    def usable(self, nodes: int, start_s: float, end_s: float) -> tuple[int, float]:
        """Those of `nodes` that have no plan from `start_s` to `end_s`, and the next time worth a try: the
        end of the first span after which nodes become free; infinite if none do.

        A span that begins at `end_s` counts, as in Slurm.
        """
        times, free, later_s, open_nodes = self.times, self.free, inf, nodes
        for place in range(self._span_at(start_s), len(free)):
            free_nodes = open_nodes & free[place]
            if later_s == inf and place + 1 < len(free) and nodes & free[place + 1] & ~free_nodes:
                later_s = times[place + 1]
            if times[place] > end_s:
                break
            open_nodes = free_nodes
        return open_nodes, later_s

    def overlaps(self, nodes: int, start_s: float, end_s: float) -> bool:
        """Whether one of `nodes` has a plan between these times."""
        for place in range(self._span_at(start_s), len(self.free)):
            if self.times[place] >= end_s:
                return False
            if nodes & ~self.free[place]:
                return True
        return False

    def reserve(self, nodes: int, start_s: float, end_s: float) -> None:
        """Plan `nodes` from `start_s` to `end_s`."""
        start_s, end_s = max(start_s, self.times[0]), min(end_s, self.times[-1])
        if start_s < end_s:
            begin_place, end_place = self._cut(start_s), self._cut(end_s)
            for place in range(begin_place, end_place):
                self.free[place] &= ~nodes

    def _span_at(self, time_s: float) -> int:
        """The first span that ends after a time."""
        return max(0, bisect_right(self.times, time_s) - 1)

    def _cut(self, time_s: float) -> int:
        """Let a span begin at a time. Returns its place."""
        place = bisect_left(self.times, time_s)
        if self.times[place] != time_s:
            self.times.insert(place, time_s)
            self.free.insert(place, self.free[place - 1])
        return place


class _Counts:
    """The entries tested by user, partition and account, against `bf_max_job_*`.

    `reserved`, `of_array`: plans by partition, and by array. `plans_all`: whether no parameter keeps a job
    from having a plan, but for the tasks of arrays.
    """

    def __init__(self, rules: Rules):
        names = ("bf_max_job_user", "bf_max_job_part", "bf_max_job_assoc", "bf_max_job_user_part")
        self._limits = {name: limit for name in names if (limit := rules.number(name))}
        self._tested = Counter[tuple[str, ...]]()
        self.reserved, self.of_array = Counter[str](), Counter[str]()
        self.plans_all = not rules.has("bf_one_resv_per_job") and not any(
            map(rules.number, ("bf_min_age_reserve", "bf_min_prio_reserve", "bf_job_part_count_reserve"))
        )

    def exceeded(self, job: JobRecord, partition: str) -> bool:
        """Whether one entry more is too many; otherwise it is counted."""
        if not self._limits:
            return False
        keys = {
            "bf_max_job_user": ("user", job.user),
            "bf_max_job_part": ("partition", partition),
            "bf_max_job_assoc": ("association", job.account, job.user),
            "bf_max_job_user_part": ("both", job.user, partition),
        }
        if any(self._tested[keys[parameter]] >= limit for parameter, limit in self._limits.items()):
            return True
        self._tested.update(keys.values())
        return False


def run_backfill(queue: Iterable[Entry], controller: Planner, now: float) -> list[Plan]:
    """One cycle: start what can start without moving a plan, and plan the rest. Returns the plans.

    `now`: a whole second.
    """
    rules = controller.rules
    space = NodeSpace(now, now + rules.number("bf_window") * 60)
    counts, outlook = _Counts(rules), controller.outlook(now)
    most_tests, most_starts = int(rules.number("bf_max_job_test")), int(rules.number("bf_max_job_start"))
    plans: list[Plan] = []
    tests = starts = 0
    started_jobs, rejected_arrays = set[JobRecord](), set[tuple[str, str]]()
    for job, partition, may_start in _entries(queue, controller, started_jobs):
        if job in started_jobs:
            continue
        if controller.limit_reason(job, partition):
            continue
        array = (job.array, partition) if job.array is not None else None
        if array in rejected_arrays:
            continue
        if tests >= most_tests:
            break
        tests += 1
        if counts.exceeded(job, partition):
            continue
        plan = _Search(controller, outlook, space, job, partition, now, may_start).plan(counts)
        if plan is None:
            if array is not None:
                rejected_arrays.add(array)
        elif job.mask:
            started_jobs.add(job)
            outlook = controller.outlook(now)
            starts += 1
            if most_starts and starts >= most_starts:
                break
        else:
            plans.append(plan)
    return plans


def _entries(
    queue: Iterable[Entry], controller: Planner, started_jobs: Set[JobRecord]
) -> Iterator[tuple[JobRecord, str, bool]]:
    """The queue, and whether an entry may start. Behind the last waiting task of an array come those that are
    held back for the limit of the array: while that is not reached, they are planned, too.
    """
    for entry, successor in pairwise([*queue, None]):
        assert entry is not None
        job, partition = entry
        yield job, partition, True
        is_last = successor is None or (successor.job.array, successor.partition) != (job.array, partition)
        if job.array is not None and is_last and job not in started_jobs:
            for _ in range(controller.tasks_held_back(job)):
                yield job, partition, False


class _Search:
    """The search for a plan of one job in one partition."""

    def __init__(
        self,
        controller: Planner,
        outlook: Outlook,
        space: NodeSpace,
        job: JobRecord,
        partition: str,
        now: float,
        may_start: bool = True,
    ):
        self.may_start = may_start
        self.controller, self.outlook, self.space, self.now = controller, outlook, space, now
        self.job, self.partition = job, partition
        self.rules = controller.rules
        self.no_reserve = job.qos in self.rules.unreserved_qos
        self.limit_s = 60.0 if self.no_reserve and _site_preempts(self.rules) else job.limit_s

    def plan(self, counts: _Counts) -> Plan | None:
        """The plan of the job, which it has started to follow if it begins now. None if it has none."""
        rules, now, job = self.rules, self.now, self.job
        now_only = self._now_only(counts)
        later_s = self.controller.reservations.begin_s(job, now)
        for _ in range(MOST_TRIES):
            asked_s = later_s
            usable, later_s = self._usable(asked_s)
            expected = None
            if usable.bit_count() >= job.nodes:
                preemptable = self.controller.preemptable(job, self.partition, usable)
                expected = self.outlook.start_of(job, usable, preemptable)
            if expected is None:
                if later_s == inf or now_only:
                    return None
                continue
            start_s, placement = max(expected[0], asked_s), expected[1]
            if start_s <= now:
                if self.may_start and self.controller.start_now(job, self.partition, usable):
                    return Plan(job, self.partition, now, now + job.limit_s, placement)
                later_s = inf  # the place is not free yet: planned as if it were
            elif now_only:
                return None
            elif start_s > later_s:
                continue
            if start_s > now + rules.number("bf_window") * 60:
                return None
            plan = self._reserved(start_s, placement, counts)
            if plan is not None:
                return plan
            later_s = start_s
        return None

    def _now_only(self, counts: _Counts) -> bool:
        """Whether the job may start now or else gets no plan."""
        rules, job = self.rules, self.job
        if counts.plans_all and job.array is None:
            return False
        most_plans = rules.number("bf_job_part_count_reserve")
        most_of_array = rules.number("bf_max_job_array_resv")
        return (
            not reserves(job, self.partition, rules, self.now)
            or (rules.has("bf_one_resv_per_job") and job.planned_s is not None)
            or bool(most_plans and counts.reserved[self.partition] >= most_plans)
            or (job.array is not None and counts.of_array[job.array] >= most_of_array)
        )

    def _usable(self, asked_s: float) -> tuple[int, float]:
        """The nodes that the job may use from `asked_s` on for its limit, and the next time worth a try."""
        nodes, freed_s = self.controller.reservations.open_nodes(
            self.job, self.controller.usable_nodes(self.partition), asked_s, self.now
        )
        usable, later_s = self.space.usable(nodes, asked_s, asked_s + self.limit_s)
        if freed_s + 1 < later_s:
            later_s = freed_s + 1
        return usable, later_s

    def _reserved(self, start_s: float, placement: Placement, counts: _Counts) -> Plan | None:
        """The plan at this place, with its nodes reserved; None if another plan has one of them."""
        job, step_s = self.job, self.rules.number("bf_resolution") or 1.0
        nodes = sum(1 << node for node, _ in placement)
        begin_s = self._rounded(start_s, step_s)
        end_s = max(self._rounded(start_s + self.limit_s, step_s), begin_s + step_s)
        if self.space.overlaps(nodes, begin_s, end_s):
            return None
        if not self.no_reserve:
            self.space.reserve(nodes, begin_s, end_s)
            counts.reserved[self.partition] += 1
            if job.array is not None:
                counts.of_array[job.array] += 1
        job.planned_s = start_s
        return Plan(job, self.partition, start_s, end_s, placement)

    def _rounded(self, time_s: float, step_s: float) -> float:
        """A time rounded down to a multiple of `bf_resolution` on Slurm's clock."""
        epoch_s = self.rules.epoch_s
        return (time_s + epoch_s) // step_s * step_s - epoch_s


def _site_preempts(rules: Rules) -> bool:
    return rules.settings.PreemptMode.upper() != "OFF"
