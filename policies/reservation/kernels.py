"""The rules on plain tables: what each job reserves, and which job gets the GPUs that are not reserved.

ElasticFlow (ASPLOS 2023) has two ideas. *Minimum satisfactory share*: a job reserves the fewest GPUs with
which it meets its deadline, and is declined if there are none (`minimum_share`, `admit`). *Marginal return*:
the other GPUs go, one step at a time, to the job whose GPU time grows least per GPU added (`next_step`,
`share_spare`). The rest of the module is bookkeeping for these four functions.

Every function here runs as it stands, and compiled (`clustersim.scheduler.Kernels`), with the same result.
Jobs, sizes and virtual nodes are numbers of rows (`tables`).
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from .tables import Job, Size, Tables

__all__ = ["admit", "begin", "decide", "finish", "least_s", "may_hold"]

INSTANT_S = 1e-6  # times this close are one: they differ by rounding
SLACK_S = 1e-3  # far more than the rounding of times
FILLS = 300  # jobs filled anew for one new job, about
LEAST_ATTEMPTS, MOST_ATTEMPTS = 3, 24
LEAD_RESTARTS = 3.0  # a reservation begins soon when it does so within this many restarts


# The calendar


class Rectangle(NamedTuple):
    """A reservation: a size (a row; -1 for none), when, and its virtual node (-1: whole nodes)."""

    row: int
    start_s: float
    end_s: float
    address: int


class Timeline(NamedTuple):
    """How many nodes or GPUs are `free` since each of these times, until the next one."""

    times: list[float]
    free: list[int]


class Calendar(NamedTuple):
    """The free whole nodes of each GPU type, and the free GPUs of each virtual node, which takes one node of
    its type from its first rectangle to its last (`opens_s`, `closes_s`; type -1: it has none).
    """

    pools: list[Timeline]
    virtual: list[Timeline]
    type: list[int]
    opens_s: list[float]
    closes_s: list[float]


def split(timeline: Timeline, time: float) -> int:
    """The place of a time in a timeline, entered if it is not there. Nothing lies before its first time."""
    times, free = timeline.times, timeline.free
    time = max(time, times[0])
    place = bisect_left(times, time)
    if place == len(times) or times[place] != time:
        times.insert(place, time)
        free.insert(place, free[place - 1])
    return place


def take(timeline: Timeline, amount: int, start: float, end: float) -> None:
    if end > start:
        free, place = timeline.free, split(timeline, start)
        for k in range(place, split(timeline, end)):
            free[k] -= amount


def latest_end(timeline: Timeline, amount: int, span: float, end: float, now: float) -> float:
    """The latest time until `end` that ends `span` seconds, from now on, in which so much is free all along;
    -inf if there is none.
    """
    times, free = timeline.times, timeline.free
    k = bisect_left(times, end) - 1
    while k >= 0 and end - span >= now:
        if free[k] < amount:
            end = times[k]
        elif end - times[k] >= span:
            return end
        k -= 1
    return -inf


def is_free(timeline: Timeline, amount: int, start: float, end: float) -> bool:
    times = timeline.times
    for k in range(max(0, bisect_left(times, start + INSTANT_S) - 1), bisect_left(times, end - INSTANT_S)):
        if timeline.free[k] < amount:
            return False
    return True


def latest_place(size: Size, span: float, end: float, now: float, calendar: Calendar) -> tuple[float, int]:
    """The latest start of `span` seconds on a size, to end by `end`; -inf if there is none from now on. And
    the virtual node, -1 for whole nodes: of a size smaller than a node the one that takes a further node of
    the cluster for the shortest time; a new one where no other has room.
    """
    pool = calendar.pools[size.type]
    if size.nodes > 0:
        return latest_end(pool, size.nodes, span, end, now) - span, -1
    extension_s, start_s, address, unused = inf, -inf, -1, len(calendar.virtual)
    for v in range(len(calendar.virtual)):
        if calendar.type[v] < 0:
            unused = min(unused, v)
        elif calendar.type[v] == size.type:
            opens, closes = calendar.opens_s[v], calendar.closes_s[v]
            v_end = latest_end(calendar.virtual[v], size.gpus, span, min(end, closes), now)
            v_start = v_end - span
            if v_end <= opens or (v_start < opens and not is_free(pool, 1, v_start, opens)):
                continue
            v_extension = max(0.0, opens - v_start)
            if v_extension < extension_s or (v_extension == extension_s and v_start > start_s):
                extension_s, start_s, address = v_extension, v_start, v
                if v_extension == 0.0 and v_start == end - span:
                    break
    if address >= 0:
        return start_s, address
    return latest_end(pool, 1, span, end, now) - span, unused


def reserve(rectangle: Rectangle, calendar: Calendar, tables: Tables) -> None:
    """Enter a rectangle into the calendar."""
    row, start, end, v = rectangle
    size = tables.sizes[row]
    pool, opens_s, closes_s = calendar.pools[size.type], calendar.opens_s, calendar.closes_s
    if v < 0:
        take(pool, size.nodes, start, end)
        return
    while len(calendar.type) <= v:
        calendar.virtual.append(Timeline([tables.now_s], [0]))
        calendar.type.append(-1)
        opens_s.append(inf)
        closes_s.append(-inf)
    if calendar.type[v] < 0:
        calendar.type[v], calendar.virtual[v].free[0] = size.type, tables.pools[size.type].node_gpus
        opens_s[v] = closes_s[v] = start
    take(pool, 1, start, opens_s[v])
    take(pool, 1, closes_s[v], end)
    take(calendar.virtual[v], size.gpus, start, end)
    opens_s[v], closes_s[v] = min(start, opens_s[v]), max(end, closes_s[v])


def calendar_of(reserved: list[int], tables: Tables) -> Calendar:
    """The calendar of the reservations of these jobs, first without virtual nodes."""
    pools = [Timeline([tables.now_s], [tables.pools[t].nodes]) for t in range(len(tables.pools))]
    calendar = Calendar(pools, pools[:0], [0][:0], [inf][:0], [inf][:0])
    for k in range(len(tables.plans)):
        plan = tables.plans[k]
        if plan.time_s > tables.now_s:
            take(pools[plan.type], -plan.nodes, plan.time_s, inf)
    for i in reserved:
        job = tables.jobs[i]
        reserve(Rectangle(job.row, job.start_s, job.end_s, job.address), calendar, tables)
    return calendar


def copy_of(calendar: Calendar) -> Calendar:
    pools = [Timeline(line.times.copy(), line.free.copy()) for line in calendar.pools]
    virtual = [Timeline(line.times.copy(), line.free.copy()) for line in calendar.virtual]
    return Calendar(pools, virtual, calendar.type.copy(), calendar.opens_s.copy(), calendar.closes_s.copy())


# Jobs and their reservations


def is_due(job: Job, now: float) -> bool:
    return job.row >= 0 and job.start_s <= now + INSTANT_S


def is_there(job: Job) -> bool:
    """Whether a job is in place for its rectangle, so that it pays no further restart to follow it."""
    return job.in_place > 0 and job.held_row == job.row


def need_s(job: Job, size: Size) -> float:
    """What the rectangle of a job takes from now on, if the job goes there now."""
    opening_s = size.launch_s if job.is_new == 1 else size.restart_s
    return (job.paying_s if is_there(job) else opening_s) + job.work / size.rate


def advance(job: Job, now: float) -> None:
    """Note what a job has done since it was last read."""
    if job.held > 0:
        worked_s = now - job.then_s - job.paying_then
        job.paying_s = max(0.0, -worked_s)
        if worked_s > 0.0:
            job.work = job.work_then - worked_s * job.speed


def renew(tables: Tables) -> list[int]:
    """Note what jobs have done since they were last read, and cut every rectangle to what its job still
    needs; what is over is no reservation any more. Returns the jobs with a reservation, by deadline.
    """
    now, reserved = tables.now_s, [0]
    reserved.clear()
    for i in tables.line:
        job = tables.jobs[i]
        advance(job, now)
        if job.row >= 0 and job.end_s <= now:
            job.row = -1
        if job.row >= 0:
            size = tables.sizes[job.row]
            reserved.append(i)
            if is_due(job, now):
                job.start_s, job.end_s = now, min(job.end_s, now + need_s(job, size))
            else:
                job.start_s = max(job.start_s, job.end_s - size.restart_s - job.work / size.rate)
    return reserved


def adopt(job: Job, rectangle: Rectangle) -> None:
    """Give a job a rectangle."""
    job.row, job.start_s, job.end_s, job.address = rectangle
    if job.in_place == 1:
        job.in_place = 0


def catch_up(reserved: list[int], tables: Tables) -> None:
    """Reserve anew for jobs that are behind: their GPUs were slower than predicted, or failed."""
    for i in reserved:
        job = tables.jobs[i]
        if tables.now_s + need_s(job, tables.sizes[job.row]) > job.end_s + SLACK_S:
            rectangle = minimum_share(job, calendar_of([j for j in reserved if j != i], tables), tables)
            if rectangle.row >= 0:
                adopt(job, rectangle)


# Minimum satisfactory share


def minimum_share(job: Job, calendar: Calendar, tables: Tables) -> Rectangle:
    """The rectangle of least GPU time that does the work of a job by its deadline, as late as possible. That
    is the one of fewest GPUs. GPU time counts as much as its type is worth.

    A rectangle begins with a restart. If none fits so, that of a job that never ran may begin with a launch,
    at once.
    """
    now, least_gpu_s, rectangle = tables.now_s, inf, Rectangle(-1, 0.0, 0.0, -1)
    for launch in range(1 + job.is_new):
        for row in range(job.first_row, job.end_row):
            size = tables.sizes[row]
            span = (size.launch_s if launch else size.restart_s) + job.work / size.rate
            end = min(job.deadline_s, now + span + INSTANT_S / 2) if launch else job.deadline_s
            gpu_s = tables.pools[size.type].value * size.gpus * span
            if end - span < now or gpu_s >= least_gpu_s:
                continue
            start, v = latest_place(size, span, end, now, calendar)
            if start > -inf:
                rectangle, least_gpu_s = Rectangle(row, start, start + span, v), gpu_s
        if rectangle.row >= 0:
            break
    return rectangle


def admit(new: int, tables: Tables) -> tuple[bool, float]:
    """Reserve for job `new` if it and all jobs with a reservation then finish in time: beside the others,
    else by filling anew those with later deadlines, else all. Returns whether that succeeds. If not, all is
    as before, but shorter (`renew`).

    Returns as well the latest deadline of a job that did not fit, -inf if all did; only reservations up to
    then were in the way.
    """
    reserved, jobs, short_s, former_count = renew(tables), tables.jobs, -inf, 0
    for from_s in (inf, jobs[new].deadline_s, -inf):
        anew = [i for i in tables.line if i == new or (jobs[i].row >= 0 and jobs[i].deadline_s >= from_s)]
        if len(anew) > former_count:
            staying, former_count = [i for i in reserved if jobs[i].deadline_s < from_s], len(anew)
            fits, failed_s = fill_anew(anew, staying, tables)
            short_s = max(short_s, failed_s)
            if fits:
                return True, short_s
    return False, short_s


def fill_anew(anew: list[int], staying: list[int], tables: Tables) -> tuple[bool, float]:
    """Fill jobs anew, by deadline, beside those `staying`. What does not fit comes first next time. The last
    attempt takes the latest deadline first, which is exact on one GPU: as rectangles end as late as they can,
    it leaves no gap that another order could use. Returns whether all fit, and the latest deadline of one
    that did not.
    """
    short_s, order, former_calendar, tried_orders = -inf, anew.copy(), calendar_of(staying, tables), [anew]
    tried_orders.clear()
    attempts = max(LEAST_ATTEMPTS, min(MOST_ATTEMPTS, FILLS // len(anew)))
    for attempt in range(attempts + 1):
        if attempt == attempts:
            order = anew[::-1]
        elif order in tried_orders:
            continue  # it would only come round again
        tried_orders.append(order.copy())
        calendar, rectangles = copy_of(former_calendar), [Rectangle(-1, 0.0, 0.0, -1)]
        rectangles.clear()
        for i in order:
            rectangle = minimum_share(tables.jobs[i], calendar, tables)
            if rectangle.row < 0:
                break
            reserve(rectangle, calendar, tables)
            rectangles.append(rectangle)
        fitting = len(rectangles)
        if fitting == len(order):
            for k in range(fitting):
                adopt(tables.jobs[order[k]], rectangles[k])
            return True, short_s
        failed = order.pop(fitting)
        order.insert(0, failed)
        short_s = max(short_s, tables.jobs[failed].deadline_s)
    return False, short_s


def least_s(i: int, tables: Tables) -> tuple[float, float]:
    """The least seconds of all GPUs together, by worth, that the work left of a job takes, and of the job."""
    job, unit_gpu_s, unit_s = tables.jobs[i], inf, inf
    advance(job, tables.now_s)
    for row in range(job.first_row, job.end_row):
        size = tables.sizes[row]
        unit_gpu_s = min(unit_gpu_s, tables.pools[size.type].value * size.gpus / size.rate)
        unit_s = min(unit_s, 1.0 / size.rate)
    return unit_gpu_s * job.work, unit_s * job.work


# Marginal return


def next_step(job: Job, now: float, sizes: Any, pools: Any) -> tuple[float, int]:
    """The step of a job beyond its target by which its GPU time grows least per GPU added: that growth, and
    the size; -1 if there is none. Only steps that finish the job earlier count.

    The GPU time of a size is that of finishing on it, with a restart unless the job holds it already. Without
    GPUs it is the least of all sizes, later on. GPUs count as much as their type is worth.
    """
    target_s, target_worth, target_type, target_gpus, cost = inf, 0.0, -1, 0, inf
    if job.target >= 0:
        target = sizes[job.target]
        target_type, target_gpus = target.type, target.gpus
        target_s = job.work / target.rate + (0.0 if job.target == job.held_row else target.restart_s)
        target_worth = pools[target_type].value * target_gpus
        cost = target_worth * target_s
    else:
        for row in range(job.first_row, job.end_row):
            size = sizes[row]
            if size.gpus <= pools[size.type].spare:
                cost = min(cost, pools[size.type].value * size.gpus * (job.work / size.rate + size.restart_s))
    stay_s = inf
    if job.held - (target_gpus if target_type == job.held_type else 0) <= pools[job.held_type].spare:
        stay_s = finish_s(job, sizes)
    least_growth, step = inf, -1
    for row in range(job.first_row, job.end_row):
        size = sizes[row]
        pool, gpus = pools[size.type], size.gpus - (target_gpus if size.type == target_type else 0)
        worth = pool.value * size.gpus
        if gpus <= 0 or worth <= target_worth or gpus > pool.spare:
            continue
        size_s = job.work / size.rate + (0.0 if row == job.held_row else size.restart_s)
        growth = (worth * size_s - cost) / (worth - target_worth)
        if growth < least_growth and size_s < target_s and may_have(job, row, stay_s, now, sizes):
            least_growth, step = growth, row
    return least_growth, step


def finish_s(job: Job, sizes: Any) -> float:
    """The seconds in which a job finishes on what it holds; infinite if that is none of its sizes."""
    return job.paying_s + job.work / sizes[job.held_row].rate if job.held_row >= 0 else inf


def may_have(job: Job, row: int, stay_s: float, now: float, sizes: Any) -> bool:
    """Whether a job may hold a size without danger to its reservation, and gains by it. `stay_s`: in how many
    seconds it finishes where it is; infinite if it cannot stay.

    Spare GPUs may be gone at the next event. So a job that is due may only stay on them, and only where it
    does not fall behind its rectangle.
    """
    size, is_held = sizes[row], row == job.held_row
    if is_due(job, now):
        return row == job.row or (is_held and job.paying_s == 0.0 and size.rate >= sizes[job.row].rate)
    is_larger = size.gpus > job.held or size.type != job.held_type
    if is_larger and size.restart_s + job.work / size.rate >= stay_s:
        return False
    is_soon = job.row >= 0 and job.start_s < now + size.restart_s
    return is_held or not is_soon or size.gpus <= sizes[job.row].gpus


def may_hold(i: int, row: int, tables: Tables) -> bool:
    """Whether job i may hold a size instead of what it holds (`may_have`)."""
    job = tables.jobs[i]
    return may_have(job, row, finish_s(job, tables.sizes), tables.now_s, tables.sizes)


def share_spare(tables: Tables) -> bool:
    """Give out spare GPUs step by step, the least growth of GPU time per GPU first; of equal ones first those
    that change nothing, then by deadline. Jobs without GPUs begin in the order of their deadlines, as their
    first step is the same for all. Returns whether a job has left GPUs for those of another type, with which
    others may go on.
    """
    jobs, sizes, pools, line = tables.jobs, tables.sizes, tables.pools, tables.line
    steps = [(0.0, False, 0, 0)]  # growth, whether it changes anything, place in line, size
    steps.clear()
    has_left = False
    for k in range(len(line)):
        if jobs[line[k]].held > 0 or jobs[line[k]].target >= 0:
            push_step(k, steps, tables)
    beginner = push_beginner(0, steps, tables)
    while len(steps) > 0 and has_spare(pools):
        _, _, k, row = heappop(steps)
        job, size = jobs[line[k]], sizes[row]
        leaves = job.target >= 0 and sizes[job.target].type != size.type
        left_gpus = sizes[job.target].gpus if job.target >= 0 else 0
        if size.gpus - (0 if leaves else left_gpus) <= pools[size.type].spare:
            if job.target >= 0:
                pools[sizes[job.target].type].spare += left_gpus
            pools[size.type].spare -= size.gpus
            job.target, has_left = row, has_left or leaves
        push_step(k, steps, tables)
        if k == beginner:
            beginner = push_beginner(k + 1, steps, tables)
    return has_left


def push_beginner(k: int, steps: list[tuple[float, bool, int, int]], tables: Tables) -> int:
    """Enter the first step of the next job without GPUs, from the k-th in line on. Returns its place."""
    while k < len(tables.line):
        job = tables.jobs[tables.line[k]]
        if job.waits == 1 and job.target < 0 and push_step(k, steps, tables):
            return k
        k += 1
    return k


def push_step(k: int, steps: list[tuple[float, bool, int, int]], tables: Tables) -> bool:
    """Enter the next step of the k-th job in line (`next_step`). Returns whether there is one."""
    job = tables.jobs[tables.line[k]]
    growth, row = next_step(job, tables.now_s, tables.sizes, tables.pools)
    if row >= 0:
        heappush(steps, (growth, tables.sizes[row].gpus != job.held, k, row))
    return row >= 0


def has_spare(pools: Any) -> bool:
    gpus = 0
    for t in range(len(pools)):
        gpus = max(gpus, pools[t].spare)
    return gpus > 0


# A decision


def begin(tables: Tables) -> None:
    """Give jobs what they have reserved for now (`target`). Reservations that begin soon begin early if what
    their jobs lack is idle.
    """
    jobs, sizes, pools, reserved = tables.jobs, tables.sizes, tables.pools, renew(tables)
    catch_up(reserved, tables)
    for t in range(len(pools)):
        pools[t].spare = pools[t].idle = pools[t].gpus
    for i in tables.line:
        jobs[i].target = -1
        pools[jobs[i].held_type].idle -= jobs[i].held
    for lead_restarts in (0.0, LEAD_RESTARTS):
        for i in reserved:
            job, size = jobs[i], sizes[jobs[i].row]
            pool, latest_s = pools[size.type], tables.now_s + INSTANT_S + lead_restarts * size.restart_s
            lacking = max(0, size.gpus - (job.held if job.held_type == size.type else 0))
            is_possible = lead_restarts == 0.0 or (size.gpus <= pool.spare and lacking <= pool.idle)
            if job.target < 0 and job.start_s <= latest_s and is_possible:
                job.target = job.row
                pool.spare -= size.gpus
                pool.idle -= lacking


def widen(tables: Tables) -> None:
    """Let jobs that are in place move to spare GPUs where they finish earlier: they reserve whole nodes of
    them until then.
    """
    now, jobs, sizes = tables.now_s, tables.jobs, tables.sizes
    calendar = calendar_of([i for i in tables.line if jobs[i].row >= 0], tables)
    for i in tables.line:
        job = jobs[i]
        if not (is_due(job, now) and job.target == job.held_row and job.target == job.row):
            continue
        held = sizes[job.row]
        for row in range(job.end_row - 1, job.first_row - 1, -1):
            size, is_larger = sizes[row], sizes[row].type == held.type
            pool, gpus = tables.pools[size.type], size.gpus - (held.gpus if is_larger else 0)
            nodes = size.nodes - (held.nodes if is_larger and job.address < 0 else 0)
            end_s = now + size.restart_s + job.work / size.rate
            if size.nodes == 0 or end_s >= job.end_s or gpus > pool.spare or pool.spare < pool.node_gpus:
                continue
            if is_free(calendar.pools[size.type], nodes, now, end_s):
                take(calendar.pools[size.type], nodes, now, end_s)
                tables.pools[held.type].spare += held.gpus
                pool.spare -= size.gpus
                adopt(job, Rectangle(row, now, end_s, -1))
                job.target = row
                break


def finish(tables: Tables) -> tuple[list[int], float]:
    """The jobs that change their GPUs, or are due and not in place; and when the next reservation begins."""
    if has_spare(tables.pools):
        widen(tables)
    now, jobs, wake_s, changed = tables.now_s, tables.jobs, inf, [0]
    changed.clear()
    for i in tables.line:
        job = jobs[i]
        is_job_due = is_due(job, now)
        if job.row >= 0 and not is_job_due:
            wake_s = min(wake_s, job.start_s)
        is_moving = job.target != job.held_row or (job.held_row < 0 and job.held > 0)
        if is_moving or (is_job_due and job.target == job.row and not is_there(job)):
            changed.append(i)
    return changed, wake_s


def decide(tables: Tables) -> tuple[list[int], float]:
    """A decision of ElasticFlow: reserved GPUs, then spare ones by marginal return. See `finish`."""
    begin(tables)
    while share_spare(tables):
        pass
    return finish(tables)
