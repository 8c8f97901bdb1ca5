"""The rules on plain tables: what each job reserves, and which job gets the GPUs that are not reserved.

ElasticFlow (ASPLOS 2023) has two ideas. *Minimum satisfactory share*: a job reserves the fewest GPUs with
which it meets its deadline, and is declined if there are none (`minimum_share`, `admit`). *Marginal return*:
the other GPUs go, one step at a time, to the job whose GPU time grows least per GPU added (`next_step`,
`share_spare`). The rest of the module is bookkeeping for these four functions.

Every function here runs as it stands, and compiled (`clustersim.scheduler.Kernels`), with the same result.
Jobs, GPU types and virtual nodes are numbers of rows (`tables`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Any

import numpy as np

from .tables import Job, Pool, Range, Scope, Size, Tables

__all__ = ["admit", "begin", "decide", "finish", "is_due", "is_there", "may_have"]

INSTANT_S = 1e-6  # times this close are one: they differ by rounding
SLACK_S = 1e-3  # far more than the rounding of times
ROUND, ROUNDS = 6, 6  # attempts to fill jobs anew from one order, and how often that order is taken
FILLS = 600  # jobs filled anew for one new job, about
LEAST_ATTEMPTS = 4
LEAD_RESTARTS = 3.0  # a reservation begins soon when it does so within this many restarts


# The calendar: free whole nodes of each type over time, and virtual nodes


def stretch_before(stretches: Any, first: int, count: int, time: float) -> int:
    """The last of `count` stretches from `first` on that begins before `time`; the first one if none does."""
    low, high = first, first + count
    while low < high:
        middle = (low + high) // 2
        if stretches[middle].time_s < time:
            low = middle + 1
        else:
            high = middle
    return max(first, low - 1)


def split(pool: Pool, stretches: Any, first: int, time: float) -> int:
    """The stretch of a type that begins at `time`, made if there is none."""
    at = stretch_before(stretches, first, pool.stretches, time)
    if stretches[at].time_s >= time:
        return at
    at, end = at + 1, first + pool.stretches
    if at == end or stretches[at].time_s != time:
        for k in range(end, at, -1):
            stretches[k].time_s, stretches[k].free = stretches[k - 1].time_s, stretches[k - 1].free
        stretches[at].time_s, stretches[at].free = time, stretches[at - 1].free
        pool.stretches += 1
    return at


def take(t: int, nodes: int, start: float, end: float, tables: Tables) -> None:
    """Take whole nodes of type t from `start` to `end`."""
    if end > start:
        first, stretches = t * tables.scope[0].width, tables.stretches
        begin_at = split(tables.pools[t], stretches, first, start)
        for k in range(begin_at, split(tables.pools[t], stretches, first, end)):
            stretches[k].free -= nodes


def latest_place(t: int, row: Size, span: float, deadline: float, tables: Tables) -> tuple[float, int]:
    """The latest start of `span` seconds on a size of type t, to end by `deadline`, -inf if there is none
    from now on; and the virtual node, -1 for whole nodes.
    """
    if row.is_part == 1:
        return on_virtual_node(t, row.size, span, deadline, tables)
    return latest(t, row.nodes, span, deadline, tables), -1


def latest(t: int, nodes: int, span: float, end: float, tables: Tables) -> float:
    """The latest start from which `nodes` of type t are free for `span` seconds, to end by `end`; -inf if
    there is none from now on.
    """
    first, now = t * tables.scope[0].width, tables.scope[0].now_s
    pool, stretches = tables.pools[t], tables.stretches
    k, until = stretch_before(stretches, first, pool.stretches, end), end
    while k >= first and until - span >= now:
        if stretches[k].free < nodes:
            until = stretches[k].time_s
        elif until - stretches[k].time_s >= span:
            return until - span
        k -= 1
    return -inf


def is_free(t: int, nodes: int, start: float, end: float, tables: Tables) -> bool:
    first, stretches, count = t * tables.scope[0].width, tables.stretches, tables.pools[t].stretches
    k = stretch_before(stretches, first, count, start + INSTANT_S)
    while k < first + count and stretches[k].time_s < end - INSTANT_S:
        if stretches[k].free < nodes:
            return False
        k += 1
    return True


def clash(head: int, gpus: int, node_gpus: int, start: float, end: float, tables: Tables) -> float:
    """Since when too many GPUs of a virtual node are taken for `gpus` more from `start` to `end`: the
    earliest such time, inf if there is none. `head`: the first of its jobs. Its use rises only where one
    begins.
    """
    jobs, earliest, j = tables.jobs, inf, head
    while j >= 0:
        time = max(start, jobs[j].new_start_s)
        if jobs[j].new_start_s < end and jobs[j].new_end_s > start:
            used, since, k = gpus, -inf, head
            while k >= 0:
                if jobs[k].new_start_s <= time and time < jobs[k].new_end_s:
                    used += tables.sizes[jobs[k].new_row].size
                    since = max(since, jobs[k].new_start_s)
                k = jobs[k].next_on
            if used > node_gpus:
                earliest = min(earliest, since)
        j = jobs[j].next_on
    return earliest


def latest_on(v: int, gpus: int, span: float, deadline: float, tables: Tables) -> float:
    """The latest start of `span` seconds on virtual node v, to end by `deadline` and before v closes; -inf if
    there is none from now on.
    """
    node, now = tables.virtual[v], tables.scope[0].now_s
    node_gpus, end = tables.pools[node.type].node_gpus, min(deadline, node.closes_s)
    while end > node.opens_s and end - span >= now:
        until = clash(node.job, gpus, node_gpus, end - span, end, tables)
        if until == inf:
            is_open = end - span >= node.opens_s or is_free(node.type, 1, end - span, node.opens_s, tables)
            return end - span if is_open else -inf
        end = until
    return -inf


def on_virtual_node(t: int, gpus: int, span: float, deadline: float, tables: Tables) -> tuple[float, int]:
    """The start and the virtual node of a rectangle smaller than a node: where it takes a further node of the
    cluster for the shortest time, then as late as possible; a new virtual node where no other has room.
    """
    least, best_start, best, unused = inf, -inf, -1, tables.scope[0].virtual_nodes
    for v in range(tables.scope[0].virtual_nodes):
        node = tables.virtual[v]
        if node.job < 0:
            unused = min(unused, v)
        elif node.type == t:
            start = latest_on(v, gpus, span, deadline, tables)
            further = max(0.0, node.opens_s - start)
            if start > -inf and (further < least or (further == least and start > best_start)):
                least, best_start, best = further, start, v
                if further == 0.0 and start == deadline - span:
                    break
    if best >= 0:
        return best_start, best
    return latest(t, 1, span, deadline, tables), unused


def join(i: int, tables: Tables) -> None:
    """Enter job i into the list of its virtual node."""
    scope, virtual, job = tables.scope[0], tables.virtual, tables.jobs[i]
    v, start, end = job.new_address, job.new_start_s, job.new_end_s
    for k in range(scope.virtual_nodes, v + 1):
        virtual[k].job = -1
    scope.virtual_nodes = max(scope.virtual_nodes, v + 1)
    if virtual[v].job < 0:
        virtual[v].opens_s, virtual[v].closes_s, virtual[v].type = inf, -inf, job.new_type
    virtual[v].opens_s, virtual[v].closes_s = min(start, virtual[v].opens_s), max(end, virtual[v].closes_s)
    job.next_on, virtual[v].job = virtual[v].job, i


def reserve(i: int, tables: Tables) -> None:
    """Enter the new rectangle of job i into the calendar."""
    job = tables.jobs[i]
    start, end, t, v = job.new_start_s, job.new_end_s, job.new_type, job.new_address
    if v < 0:
        take(t, tables.sizes[job.new_row].nodes, start, end, tables)
        return
    if v >= tables.scope[0].virtual_nodes or tables.virtual[v].job < 0:
        take(t, 1, start, end, tables)
    else:
        take(t, 1, start, tables.virtual[v].opens_s, tables)
        take(t, 1, tables.virtual[v].closes_s, end, tables)
    join(i, tables)


def open_calendar(tables: Tables) -> None:
    """The calendar beside the reservations of all jobs but those to `skip`."""
    scope, pools, stretches, changes = tables.scope[0], tables.pools, tables.stretches, tables.changes
    jobs, sizes = tables.jobs, tables.sizes
    scope.virtual_nodes = scope.changes = 0
    for k in range(len(tables.plans)):
        if tables.plans[k].time_s > scope.now_s:
            note(tables.plans[k].time_s, tables.plans[k].type, tables.plans[k].nodes, scope, changes)
    for k in range(scope.rows):
        i = tables.line[k]
        job = jobs[i]
        if job.size == 0 or job.skip == 1:
            continue
        job.new_start_s, job.new_end_s, job.new_row = job.start_s, job.end_s, job.row
        job.new_type, job.new_address = job.type, job.address
        if job.address < 0:
            nodes = sizes[job.row].nodes
            note(job.start_s, job.type, -nodes, scope, changes)
            note(job.end_s, job.type, nodes, scope, changes)
        else:
            join(i, tables)
    for v in range(scope.virtual_nodes):
        node = tables.virtual[v]
        if node.job >= 0:
            note(node.opens_s, node.type, -1, scope, changes)
            note(node.closes_s, node.type, 1, scope, changes)
    for t in range(scope.types):
        pools[t].stretches = 1
        stretches[t * scope.width].time_s, stretches[t * scope.width].free = scope.now_s, pools[t].nodes
    times = np.empty(scope.changes)
    for k in range(scope.changes):
        times[k] = changes[k].time_s
    for k in np.argsort(times, kind="mergesort"):
        change = changes[k]
        at = change.type * scope.width + pools[change.type].stretches - 1
        if change.time_s > stretches[at].time_s:
            stretches[at + 1].time_s, stretches[at + 1].free = change.time_s, stretches[at].free
            pools[change.type].stretches += 1
            at += 1
        stretches[at].free += change.nodes


def note(time: float, t: int, nodes: int, scope: Scope, changes: Any) -> None:
    """Note a change of the free nodes of type t."""
    change = changes[scope.changes]
    change.time_s, change.type, change.nodes = time, t, nodes
    scope.changes += 1


# Jobs


def row_of(choice: Range, size: int, sizes: Any) -> int:
    """The row of a size; -1 if it is none."""
    for row in range(choice.first, choice.end):
        if sizes[row].size == size:
            return row
    return -1


def is_due(job: Job, now: float) -> bool:
    return job.size > 0 and job.start_s <= now + INSTANT_S


def is_there(job: Job) -> bool:
    """Whether a job is in place for its rectangle, so that it pays no further restart to follow it."""
    return job.in_place > 0 and job.held == job.size and job.held_type == job.type


def need_s(job: Job, row: Size) -> float:
    """What the rectangle of a job takes from now on, if the job goes there now."""
    opening_s = row.launch_s if job.is_new == 1 else row.restart_s
    return (job.paying_s if is_there(job) else opening_s) + job.work / row.rate


def renew(tables: Tables) -> None:
    """Note what running jobs have done since they were last read. Cut every rectangle to what its job still
    needs; what is over is no reservation any more.
    """
    now, sizes = tables.scope[0].now_s, tables.sizes
    for k in range(tables.scope[0].rows):
        job = tables.jobs[tables.line[k]]
        if job.held > 0:
            worked_s = now - job.then_s - job.paying_then
            job.paying_s = max(0.0, -worked_s)
            if worked_s > 0.0:
                job.work = job.work_then - worked_s * job.speed
        if job.size == 0:
            continue
        row = sizes[job.row]
        if job.end_s <= now:
            job.size = 0
        elif job.start_s <= now + INSTANT_S:
            job.start_s, job.end_s = now, min(job.end_s, now + need_s(job, row))
        else:
            job.start_s = max(job.start_s, job.end_s - row.restart_s - job.work / row.rate)


# Minimum satisfactory share


def minimum_share(i: int, leeway: float, tables: Tables) -> bool:
    """Look for the new rectangle of job i, that of least GPU time (`least_rectangle`). It begins with a
    restart. If none fits so, that of a job that never ran may begin with a launch, at once. Returns whether
    there is one.
    """
    return least_rectangle(i, leeway, False, tables) or (
        tables.jobs[i].is_new == 1 and least_rectangle(i, 0.0, True, tables)
    )


def least_rectangle(i: int, leeway: float, launch: bool, tables: Tables) -> bool:
    """Look for the rectangle of least GPU time that does the work of job i by its deadline, as late as
    possible; it is the new one of the job. That is the one of fewest GPUs. With a `leeway`, of the rectangles
    with so much more GPU time (a share) the one that begins last, on more GPUs. GPU time counts as much as
    its type is worth. Returns whether there is a rectangle.
    """
    scope, job, sizes, pools = tables.scope[0], tables.jobs[i], tables.sizes, tables.pools
    now, least = scope.now_s, inf
    for t in range(scope.types):
        choice = tables.ranges[i * scope.types + t]
        for k in range(choice.first, choice.end):
            row = sizes[k]
            if row.reservable == 0 or now + job.work / row.rate > job.deadline_s:
                continue
            span = (row.launch_s if launch else row.restart_s) + job.work / row.rate
            end = min(job.deadline_s, now + span + INSTANT_S / 2) if launch else job.deadline_s
            start, v = latest_place(t, row, span, end, tables)
            if start == -inf:
                continue
            gpu_s = pools[t].value * row.size * span
            if gpu_s < least or (gpu_s <= (1.0 + leeway) * least and start > job.new_start_s):
                least = min(least, gpu_s)
                job.new_start_s, job.new_end_s, job.new_row = start, start + span, k
                job.new_type, job.new_address = t, v
            if leeway == 0.0:
                break
    return least < inf


def admit(new: int, tables: Tables) -> bool:
    """Reserve for job `new` if it and all jobs with a reservation then finish in time. If it does not fit
    beside the others, those with later deadlines are filled anew, then all. Returns whether that succeeds. If
    not, all is as before, but shorter (`renew`).

    `scope.short_s`: the latest deadline of a job that did not fit; only reservations up to then were in the
    way.
    """
    scope, jobs, former_count = tables.scope[0], tables.jobs, 1
    renew(tables)
    open_without(new, tables)
    scope.short_s = -inf
    if minimum_share(new, 0.0, tables):
        adopt(jobs[new], tables.sizes)
        return True
    if asks_too_much(new, tables):
        return False
    for everything in range(2):
        count = 0
        for k in range(scope.rows):
            job, is_later = jobs[tables.line[k]], everything == 1 or tables.line[k] == new
            is_later = is_later or job.deadline_s >= jobs[new].deadline_s
            job.skip = 1 if tables.line[k] == new or (job.size > 0 and is_later) else 0
            count += job.skip
        if count == former_count:
            scope.short_s = max(scope.short_s, jobs[new].deadline_s)
        elif fill_anew(count, tables):
            return True
        former_count = count
    return False


def fill_anew(count: int, tables: Tables) -> bool:
    """Fill the `count` jobs to `skip` anew, by deadline. What does not fit comes first next time. After a
    round of attempts all begins anew with more leeway: larger and later rectangles leave other gaps.
    """
    scope, jobs, leeway = tables.scope[0], tables.jobs, 0.0
    for attempt in range(max(LEAST_ATTEMPTS, min(ROUND * ROUNDS, FILLS // count))):
        if attempt % ROUND == 0:
            leeway = 0.0 if attempt == 0 else 0.0125 * 2.0 ** (attempt // ROUND)
            listed = 0
            for k in range(scope.rows):
                if jobs[tables.line[k]].skip == 1:
                    tables.listed[listed] = tables.line[k]
                    listed += 1
        open_calendar(tables)
        failed = 0
        while failed < count and minimum_share(tables.listed[failed], leeway, tables):
            reserve(tables.listed[failed], tables)
            failed += 1
        if failed == count:
            for k in range(count):
                adopt(jobs[tables.listed[k]], tables.sizes)
            return True
        i = tables.listed[failed]
        scope.short_s = max(scope.short_s, jobs[i].deadline_s)
        if failed == 0:
            return False  # it does not even fit beside those that stay
        for k in range(failed, 0, -1):
            tables.listed[k] = tables.listed[k - 1]
        tables.listed[0] = i
    return False


def asks_too_much(new: int, tables: Tables) -> bool:
    """Whether jobs with a reservation and the `new` one that are due by some deadline need more worth of GPU
    time than there is until then. Then no order helps.
    """
    scope, pools, jobs, needed, worth = tables.scope[0], tables.pools, tables.jobs, 0.0, 0.0
    if len(tables.plans) > 0:
        return False
    for t in range(scope.types):
        worth += pools[t].value * pools[t].gpus
    for position in range(scope.rows):
        i = tables.line[position]
        if jobs[i].size == 0 and i != new:
            continue
        needed += least_gpu_s(i, tables)
        until_s = jobs[i].deadline_s
        if until_s >= jobs[new].deadline_s and needed > worth * (until_s - scope.now_s):
            scope.short_s = max(scope.short_s, until_s)
            return True
    return False


def least_gpu_s(i: int, tables: Tables) -> float:
    """The least GPU-seconds that the work left of a job takes, by worth."""
    scope, sizes, least = tables.scope[0], tables.sizes, inf
    for t in range(scope.types):
        choice = tables.ranges[i * scope.types + t]
        for k in range(choice.first, choice.end):
            if sizes[k].reservable == 1:
                least = min(least, tables.pools[t].value * sizes[k].size / sizes[k].rate)
    return least * tables.jobs[i].work


def adopt(job: Job, sizes: Any) -> None:
    """Give a job its new rectangle."""
    job.start_s, job.end_s, job.size = job.new_start_s, job.new_end_s, sizes[job.new_row].size
    job.type, job.row, job.address = job.new_type, job.new_row, job.new_address
    if job.in_place == 1:
        job.in_place = 0


def open_without(i: int, tables: Tables) -> None:
    """The calendar beside the reservations of all jobs but one."""
    for k in range(tables.scope[0].rows):
        tables.jobs[tables.line[k]].skip = 0
    tables.jobs[i].skip = 1
    open_calendar(tables)


def catch_up(tables: Tables) -> None:
    """Reserve anew for jobs that are behind: their GPUs were slower than predicted, or failed."""
    now = tables.scope[0].now_s
    for k in range(tables.scope[0].rows):
        i = tables.line[k]
        job = tables.jobs[i]
        if not is_due(job, now) or job.retry_s > now:
            continue
        if now + need_s(job, tables.sizes[job.row]) <= job.end_s + SLACK_S:
            continue
        job.retry_s = now + max(1.0, 0.05 * (job.end_s - now))
        open_without(i, tables)
        if minimum_share(i, 0.0, tables):
            adopt(job, tables.sizes)


# Marginal return


def next_step(i: int, scope: Scope, pools: Any, jobs: Any, ranges: Any, sizes: Any) -> int:
    """The step of job i beyond its target by which its GPU time grows least per GPU added, into its `growth`,
    `step` and `step_type`. Only steps that finish the job earlier count. Returns the size, 0 if there is
    none.

    The GPU time of a size is that of finishing on it, with a restart unless the job holds it already. Without
    GPUs it is that of finishing on the smallest size later on. GPUs count as much as their type is worth.
    Growths are rounded, since jobs of a kind often have the same and their deadlines then decide.
    """
    job, base_s, gpus, cost = jobs[i], inf, 0.0, inf
    may_stay = (
        job.held - (job.target if job.target_type == job.held_type else 0) <= pools[job.held_type].spare
    )
    if job.target > 0:
        row = sizes[row_of(ranges[i * scope.types + job.target_type], job.target, sizes)]
        base_s = finish_s(job, job.target_type, row)
        gpus = pools[job.target_type].value * job.target
        cost = gpus * base_s
    else:
        for t in range(scope.types):
            k = least_row(ranges[i * scope.types + t], sizes)
            if k >= 0 and sizes[k].size <= room(job, t, sizes[k].size, pools[t]):
                least_s = job.work / sizes[k].rate + sizes[k].restart_s
                cost = min(cost, pools[t].value * sizes[k].size * least_s)
        if cost == inf:
            cost = 0.0
    job.growth, job.step = inf, 0
    for t in range(scope.types):
        choice, own = ranges[i * scope.types + t], job.target if t == job.target_type else 0
        for k in range(choice.first, choice.end):
            row = sizes[k]
            worth = pools[t].value * row.size
            if row.reservable == 0 or row.size <= own or worth <= gpus:
                continue
            if row.size - own > room(job, t, row.size, pools[t]):
                break
            then_s = finish_s(job, t, row)
            growth = (worth * then_s - cost) / (worth - gpus) + INSTANT_S / 2
            growth -= growth % INSTANT_S
            if (
                growth < job.growth
                and then_s < base_s
                and may_have(job, t, row, may_stay, scope.now_s, sizes)
            ):
                job.growth, job.step, job.step_type = growth, row.size, t
    return job.step


def finish_s(job: Job, t: int, row: Size) -> float:
    """The seconds in which a job finishes on a size of type t."""
    restart_s = 0.0 if row.size == job.held and t == job.held_type else row.restart_s
    return job.work / row.rate + restart_s


def room(job: Job, t: int, size: int, pool: Pool) -> int:
    """The spare GPUs for a size. Those held back may serve sizes up to the one that the job holds."""
    if job.held_type == t and size <= job.held:
        return pool.spare
    return pool.spare - pool.held_back


def least_row(choice: Range, sizes: Any) -> int:
    """The row of the smallest size that a job may be given; -1 if there is none."""
    for k in range(choice.first, choice.end):
        if sizes[k].reservable == 1:
            return k
    return -1


def may_have(job: Job, t: int, row: Size, may_stay: bool, now: float, sizes: Any) -> bool:
    """Whether a job may hold a size of type t without danger to its reservation, and gains by it. `may_stay`:
    whether what it holds is not taken yet.

    Spare GPUs may be gone at the next event. So a job that is due can afford them only if its rectangle
    leaves time for the restart there, which is time without work, and for the one back.
    """
    due, stays = is_due(job, now), row.size == job.held and t == job.held_type
    if due and row.size == job.size and t == job.type:
        return True
    if not stays and job.held > 0 and (row.size > job.held or t != job.held_type):
        then_s, stays_on = row.restart_s + job.work / row.rate, may_stay and job.held_row >= 0
        if stays_on and then_s >= job.paying_s + job.work / sizes[job.held_row].rate:
            return False
    if job.size == 0:
        return True
    away_s = job.paying_s if stays else row.restart_s
    if not due:
        return stays or row.size <= job.size or job.start_s >= now + away_s
    back = sizes[job.row]
    if row.rate < back.rate:
        return False  # it would fall behind its reservation
    return away_s == 0.0 or now + away_s + back.restart_s + job.work / back.rate + SLACK_S <= job.end_s


def share_spare(tables: Tables) -> None:
    """Give out spare GPUs step by step, the least growth of GPU time per GPU first; of equal ones first those
    that change nothing, then by deadline. Jobs without GPUs begin in the order of their deadlines, as their
    first step is the same for all.
    """
    scope, jobs, pools = tables.scope[0], tables.jobs, tables.pools
    waiting_at, pending, heap = 0, -1, [(0.0, False, 0)]
    heap.clear()
    if not has_spare(pools):
        return
    for k in range(scope.rows):
        job = jobs[tables.line[k]]
        job.step = 0
        if (job.held > 0 or job.target > 0) and has_step(k, tables):
            heap.append((job.growth, job.step != job.held, k))
    heapify(heap)
    while has_spare(pools):
        while pending < 0 and waiting_at < scope.rows:
            job = jobs[tables.line[waiting_at]]
            if job.waits == 1 and job.target == 0 and job.step == 0 and has_step(waiting_at, tables):
                heappush(heap, (job.growth, job.step != job.held, waiting_at))
                pending = waiting_at
            waiting_at += 1
        if len(heap) == 0:
            break
        _, _, k = heappop(heap)
        job, leaves = jobs[tables.line[k]], False
        more = job.step - (job.target if job.step_type == job.target_type else 0)
        if more <= room(job, job.step_type, job.step, pools[job.step_type]):
            leaves = job.target > 0 and job.step_type != job.target_type
            if leaves:
                pools[job.target_type].spare += job.target
            pools[job.step_type].spare -= more
            job.target, job.target_type = job.step, job.step_type
        if has_step(k, tables):
            heappush(heap, (job.growth, job.step != job.held, k))
        if k == pending:
            pending = -1
        if leaves:  # others may go on with the GPUs that it leaves
            waiting_at = 0
            for k in range(scope.rows):
                job = jobs[tables.line[k]]
                if job.step == 0 and job.target > 0 and has_step(k, tables):
                    heappush(heap, (job.growth, job.step != job.held, k))


def has_step(k: int, tables: Tables) -> bool:
    """Whether there is a next step of the k-th job in line; see `next_step`."""
    scope, pools, jobs = tables.scope[0], tables.pools, tables.jobs
    return next_step(tables.line[k], scope, pools, jobs, tables.ranges, tables.sizes) > 0


def has_spare(pools: Any) -> bool:
    gpus = 0
    for t in range(len(pools)):
        gpus = max(gpus, pools[t].spare)
    return gpus > 0


# A decision


def begin(tables: Tables) -> None:
    """Give jobs what they have reserved for now (`target`). Reservations that begin soon begin early if GPUs
    are idle, else GPUs are held back for them.
    """
    scope, pools, jobs, sizes = tables.scope[0], tables.pools, tables.jobs, tables.sizes
    renew(tables)
    catch_up(tables)
    for t in range(scope.types):
        pools[t].spare = pools[t].idle = pools[t].gpus
        pools[t].held_back = 0
    for k in range(scope.rows):
        job = jobs[tables.line[k]]
        job.target = 0
        if job.held > 0:
            pools[job.held_type].idle -= job.held
        if is_due(job, scope.now_s):
            job.target, job.target_type = job.size, job.type
            pools[job.type].spare -= job.size
            pools[job.type].idle -= lacking(job)
    for t in range(scope.types):
        pools[t].spare = max(0, pools[t].spare)
    for k in range(scope.rows):
        job = jobs[tables.line[k]]
        if job.size == 0 or job.target > 0:
            continue
        if job.start_s > scope.now_s + LEAD_RESTARTS * sizes[job.row].restart_s:
            continue
        pool = pools[job.type]
        if job.size <= pool.spare and lacking(job) <= pool.idle:
            job.target, job.target_type = job.size, job.type
            pool.spare -= job.size
            pool.idle -= lacking(job)
        else:
            pool.held_back += lacking(job)


def lacking(job: Job) -> int:
    """The GPUs that a job lacks for its rectangle."""
    return max(0, job.size - (job.held if job.held_type == job.type else 0))


def widen(tables: Tables) -> None:
    """Let due jobs that cannot afford spare GPUs reserve whole nodes of them until they finish."""
    now, sizes = tables.scope[0].now_s, tables.sizes
    for position in range(tables.scope[0].rows):
        i = tables.line[position]
        job = tables.jobs[i]
        pool, is_open = tables.pools[job.type], False
        stays = job.target == job.held == job.size and job.target_type == job.held_type == job.type
        if not (is_due(job, now) and stays) or pool.spare < pool.node_gpus:
            continue
        latest_end = min(job.deadline_s, now + job.paying_s + job.work / sizes[job.row].rate)
        for k in range(tables.ranges[i * tables.scope[0].types + job.type].end - 1, job.row, -1):
            row = sizes[k]
            end = now + row.restart_s + job.work / row.rate
            if row.reservable == 0 or row.is_part == 1 or end > latest_end:
                continue
            if row.size - job.held > pool.spare:
                continue
            if not is_open:
                open_without(i, tables)
                is_open = True
            if is_free(job.type, row.nodes, now, end, tables):
                pool.spare -= row.size - job.held
                job.start_s, job.end_s, job.size, job.row, job.address = now, end, row.size, k, -1
                job.target = row.size
                break


def finish(tables: Tables) -> tuple[int, int, float]:
    """How many jobs change their GPUs, or are due and not in place; how many are due and stay in place. The
    slots list both. And when the next reservation begins.
    """
    scope, changed, staying, wake_at = tables.scope[0], 0, 0, inf
    if has_spare(tables.pools):
        widen(tables)
    for k in range(scope.rows):
        i = tables.line[k]
        job = tables.jobs[i]
        due = is_due(job, scope.now_s)
        moves = job.target != job.held or (job.held > 0 and job.target_type != job.held_type)
        if moves or (due and job.in_place == 0):
            tables.listed[changed] = i
            changed += 1
        elif due and is_there(job):
            tables.staying[staying] = i
            staying += 1
        if job.size > 0 and job.start_s > scope.now_s + INSTANT_S:
            wake_at = min(wake_at, job.start_s)
    return changed, staying, wake_at


def decide(tables: Tables) -> tuple[int, int, float]:
    """A decision of ElasticFlow: reserved GPUs, then spare ones by marginal return. See `finish`."""
    begin(tables)
    share_spare(tables)
    return finish(tables)
