"""The rules on plain tables: what each job reserves, and which job gets the GPUs that are not reserved.

ElasticFlow (ASPLOS 2023) has two ideas. *Minimum satisfactory share*: a job reserves the fewest GPUs with
which it meets its deadline, and is declined if there are none (`minimum_share`, `admit`). *Marginal return*:
the other GPUs go, one step at a time, to the job whose GPU time grows least per GPU added (`next_step`,
`share_spare`). The rest of the module is bookkeeping for these four functions.

Every function here runs as it stands, and compiled (`clustersim.scheduler.Kernels`), with the same result.
Jobs, GPU types and virtual nodes are numbers of rows (`tables`).
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from .tables import Job, Pool, Range, Scope, Size, Tables

__all__ = ["admit", "begin", "decide", "finish", "is_due", "is_there", "may_have"]

INSTANT_S = 1e-6  # times this close are one: they differ by rounding
SLACK_S = 1e-3  # far more than the rounding of times
ATTEMPTS = 6  # orders in which jobs are filled anew
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


def latest(t: int, nodes: int, span: float, end: float, scope: Scope, pool: Pool, stretches: Any) -> float:
    """The latest start from which `nodes` of type t are free for `span` seconds, to end by `end`; -inf if
    there is none from now on.
    """
    first, now = t * scope.width, scope.now_s
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


def clash(head: int, gpus: int, node_gpus: int, start: float, end: float, jobs: Any) -> float:
    """Since when too many GPUs of a virtual node are taken for `gpus` more from `start` to `end`: the
    earliest such time, inf if there is none. `head`: the first of its jobs. Its use rises only where one
    begins.
    """
    earliest, j = inf, head
    while j >= 0:
        time = max(start, jobs[j].start_on)
        if jobs[j].start_on < end and jobs[j].end_on > start:
            used, since, k = gpus, -inf, head
            while k >= 0:
                if jobs[k].start_on <= time and time < jobs[k].end_on:
                    used += jobs[k].gpus_on
                    since = max(since, jobs[k].start_on)
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
        until = clash(node.job, gpus, node_gpus, end - span, end, tables.jobs)
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
    return latest(t, 1, span, deadline, tables.scope[0], tables.pools[t], tables.stretches), unused


def may_go_on(t: int, v: int, row: Size, end: float, tables: Tables) -> bool:
    """Whether a job in place may stay there until `end`, on whole nodes or on virtual node v."""
    now = tables.scope[0].now_s
    if v < 0:
        return is_free(t, row.nodes, now, end, tables)
    if v >= tables.scope[0].virtual_nodes or tables.virtual[v].job < 0:
        return is_free(t, 1, now, end, tables)
    node = tables.virtual[v]
    if node.type != t or clash(node.job, row.size, tables.pools[t].node_gpus, now, end, tables.jobs) < inf:
        return False
    return (now >= node.opens_s or is_free(t, 1, now, node.opens_s, tables)) and (
        end <= node.closes_s or is_free(t, 1, node.closes_s, end, tables)
    )


def join(i: int, v: int, t: int, start: float, end: float, gpus: int, tables: Tables) -> None:
    """Enter a rectangle of job i into the list of virtual node v."""
    scope, virtual, job = tables.scope[0], tables.virtual, tables.jobs[i]
    for k in range(scope.virtual_nodes, v + 1):
        virtual[k].job = -1
    scope.virtual_nodes = max(scope.virtual_nodes, v + 1)
    if virtual[v].job < 0:
        virtual[v].opens_s, virtual[v].closes_s, virtual[v].type = inf, -inf, t
    virtual[v].opens_s, virtual[v].closes_s = min(start, virtual[v].opens_s), max(end, virtual[v].closes_s)
    job.start_on, job.end_on, job.gpus_on = start, end, gpus
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
    join(i, v, t, start, end, job.new_size, tables)


def open_calendar(tables: Tables) -> None:
    """The calendar beside the reservations of all jobs but those to `skip`."""
    scope, pools, stretches, changes = tables.scope[0], tables.pools, tables.stretches, tables.changes
    jobs, sizes = tables.jobs, tables.sizes
    scope.virtual_nodes = scope.changes = 0
    for k in range(len(tables.plans)):
        if tables.plans[k].time_s > scope.now_s:
            note(tables.plans[k].time_s, tables.plans[k].type, tables.plans[k].nodes, scope, changes)
    for i in range(scope.rows):
        job = jobs[i]
        if job.size == 0 or job.skip == 1:
            continue
        if job.address < 0:
            nodes = sizes[job.row].nodes
            note(job.start_s, job.type, -nodes, scope, changes)
            note(job.end_s, job.type, nodes, scope, changes)
        else:
            join(i, job.address, job.type, job.start_s, job.end_s, job.size, tables)
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
    work_s = job.work / row.rate
    if is_there(job):
        return job.paying_s + work_s
    return work_s + (row.launch_s if job.on_launch == 1 else row.restart_s)


def shorten(tables: Tables) -> None:
    """Cut every rectangle to what its job still needs; what is over is no reservation any more."""
    now, jobs, sizes = tables.scope[0].now_s, tables.jobs, tables.sizes
    for i in range(tables.scope[0].rows):
        job = jobs[i]
        if job.size == 0:
            continue
        if job.on_launch == 1 and job.held > 0:
            job.on_launch = 0
        if job.end_s <= now:
            job.size = job.on_launch = 0
        elif job.start_s <= now + INSTANT_S:
            row = sizes[job.row]
            job.start_s, job.end_s = now, min(job.end_s, now + need_s(job, row))
        elif job.on_launch == 0:
            row = sizes[job.row]
            job.start_s = max(job.start_s, job.end_s - row.restart_s - job.work / row.rate)


# Minimum satisfactory share


def minimum_share(i: int, launch: bool, tables: Tables) -> bool:
    """Look for the rectangle of fewest GPUs that does the work of job i by its deadline, as late as possible;
    it is left in the scope. Of several GPU types it is the one on which the rectangle is worth least. Returns
    whether there is one.

    A rectangle begins with a restart, or with a `launch` for a job that never ran. Only a job that goes on
    where it is pays what it still owes.
    """
    scope, job, sizes, pools = tables.scope[0], tables.jobs[i], tables.sizes, tables.pools
    now, cheapest, stretches = scope.now_s, inf, tables.stretches
    for t in range(scope.types):
        choice = tables.ranges[i * scope.types + t]
        for k in range(choice.first, choice.end):
            row = sizes[k]
            work_s = job.work / row.rate
            if row.reservable == 0 or now + work_s > job.deadline_s:
                continue
            span, goes_on, v = work_s + (row.launch_s if launch else row.restart_s), 0, -1
            if row.is_part == 1:
                start, v = on_virtual_node(t, row.size, span, job.deadline_s, tables)
            else:
                start = latest(t, row.nodes, span, job.deadline_s, scope, pools[t], stretches)
            if start == -inf and job.in_place > 0 and job.held == row.size and job.held_type == t:
                end, own = now + job.paying_s + work_s, job.address if job.in_place == 1 else -1
                if end <= job.deadline_s and may_go_on(t, own, row, end, tables):
                    start, span, v, goes_on = now, end - now, own, 1
            if start == -inf:
                continue
            if pools[t].value * row.size * span < cheapest:
                cheapest = pools[t].value * row.size * span
                scope.start_s, scope.end_s, scope.size, scope.row = start, start + span, row.size, k
                scope.type, scope.address, scope.goes_on = t, v, goes_on
            break
    return cheapest < inf


def admit(new: int, launch: bool, tables: Tables) -> int:
    """Reserve for job `new` if it and all jobs with a reservation then finish in time. If it does not fit
    beside the others, those with later deadlines are filled anew, then all, in order of their deadlines.
    Returns 1 if that succeeds, 0 if not, -1 if no order helps. If not, all is as before, but shorter
    (`shorten`).

    `scope.short_s`: the latest deadline of a job that did not fit; only reservations up to then were in the
    way.
    """
    scope, jobs = tables.scope[0], tables.jobs
    progress(tables)
    shorten(tables)
    for i in range(scope.rows):
        jobs[i].skip = 0
    open_calendar(tables)
    scope.short_s, former_count = -inf, 1
    if minimum_share(new, launch, tables):
        begins_now = may_go_on(scope.type, scope.address, tables.sizes[scope.row], scope.start_s, tables)
        if launch and begins_now:  # it may not begin early on spare GPUs, so its reservation does
            scope.start_s, scope.end_s = scope.now_s, scope.now_s + scope.end_s - scope.start_s
        note_new(jobs[new], scope)
        adopt(jobs[new], launch)
        return 1
    if asks_too_much(new, tables):
        return -1
    for everything in range(2):
        count = 0
        for i in range(scope.rows):
            is_later = everything == 1 or jobs[i].deadline_s >= jobs[new].deadline_s
            jobs[i].skip = 1 if jobs[i].size > 0 and is_later else 0
            if jobs[i].skip == 1 or i == new:
                tables.slots[count].heap = i
                count += 1
        if count == former_count:
            scope.short_s = max(scope.short_s, jobs[new].deadline_s)
            continue
        former_count = count
        if fill_anew(count, new, launch, tables):
            return 1
    return 0


def fill_anew(count: int, new: int, launch: bool, tables: Tables) -> bool:
    """Fill `count` jobs anew, by deadline; what does not fit comes first next time, `ATTEMPTS` times."""
    scope, jobs, slots = tables.scope[0], tables.jobs, tables.slots
    sort_by_deadline(count, jobs, slots)
    for _ in range(ATTEMPTS):
        open_calendar(tables)
        failed = -1
        for k in range(count):
            i = slots[k].filled
            if not minimum_share(i, jobs[i].on_launch == 1 or (launch and i == new), tables):
                failed = k
                break
            note_new(jobs[i], scope)
            reserve(i, tables)
        if failed < 0:
            for k in range(count):
                i = slots[k].filled
                adopt(jobs[i], jobs[i].on_launch == 1 or (launch and i == new))
            return True
        i = slots[failed].filled
        scope.short_s = max(scope.short_s, jobs[i].deadline_s)
        if failed == 0:
            break
        for k in range(failed, 0, -1):
            slots[k].filled = slots[k - 1].filled
        slots[0].filled = i
    return False


def sort_by_deadline(count: int, jobs: Any, slots: Any) -> None:
    """List the `count` jobs of `heap` in `filled`, by deadline."""
    deadlines = np.empty(count)
    for k in range(count):
        deadlines[k] = jobs[slots[k].heap].deadline_s
    order = np.argsort(deadlines, kind="mergesort")
    for k in range(count):
        slots[k].filled = slots[order[k]].heap


def asks_too_much(new: int, tables: Tables) -> bool:
    """Whether jobs with a reservation and the `new` one that are due by some deadline need more worth of GPU
    time than there is until then. Then no order helps.
    """
    scope, pools, jobs, sizes, slots = tables.scope[0], tables.pools, tables.jobs, tables.sizes, tables.slots
    count, needed, worth = 0, 0.0, 0.0
    for i in range(scope.rows):
        if jobs[i].size > 0 or i == new:
            slots[count].heap = i
            count += 1
    sort_by_deadline(count, jobs, slots)
    for t in range(scope.types):
        worth += pools[t].value * pools[t].gpus
    for position in range(count):
        i, least = slots[position].filled, inf
        for t in range(scope.types):
            choice = tables.ranges[i * scope.types + t]
            for k in range(choice.first, choice.end):
                if sizes[k].reservable == 1:
                    least = min(least, pools[t].value * sizes[k].size / sizes[k].rate)
        needed += least * jobs[i].work
        until_s = jobs[i].deadline_s
        if (
            until_s >= jobs[new].deadline_s
            and needed > worth * (until_s - scope.now_s)
            and len(tables.plans) == 0
        ):
            scope.short_s = max(scope.short_s, until_s)
            return True
    return False


def note_new(job: Job, scope: Scope) -> None:
    """Keep the rectangle in the scope for a job."""
    job.new_start_s, job.new_end_s, job.new_size = scope.start_s, scope.end_s, scope.size
    job.new_type, job.new_row, job.new_address = scope.type, scope.row, scope.address
    job.new_goes_on = scope.goes_on


def adopt(job: Job, launch: bool) -> None:
    """Give a job the rectangle that was kept for it."""
    job.start_s, job.end_s, job.size = job.new_start_s, job.new_end_s, job.new_size
    job.type, job.row, job.address = job.new_type, job.new_row, job.new_address
    job.on_launch = 1 if launch else 0
    if job.new_goes_on == 0 and job.in_place == 1:
        job.in_place = 0


def catch_up(tables: Tables) -> None:
    """Reserve anew for jobs that are behind: their GPUs were slower than predicted, or failed."""
    now, jobs, sizes = tables.scope[0].now_s, tables.jobs, tables.sizes
    for i in range(tables.scope[0].rows):
        job = jobs[i]
        if not is_due(job, now) or job.retry_s > now:
            continue
        if now + need_s(job, sizes[job.row]) <= job.end_s + SLACK_S:
            continue
        job.retry_s = now + max(1.0, 0.05 * (job.end_s - now))
        for j in range(tables.scope[0].rows):
            jobs[j].skip = 1 if j == i else 0
        open_calendar(tables)
        if minimum_share(i, job.on_launch == 1, tables):
            note_new(job, tables.scope[0])
            adopt(job, job.on_launch == 1)


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
    if job.on_launch == 1:
        return False  # its rectangle would then begin with a restart
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
    """Give out spare GPUs step by step, the least growth of GPU time per GPU first. Jobs without GPUs begin
    in the order of their deadlines, as their first step is the same for all.
    """
    scope, jobs, slots, pools = tables.scope[0], tables.jobs, tables.slots, tables.pools
    ranges, sizes, count, w, pending = tables.ranges, tables.sizes, 0, 0, -1
    for i in range(scope.rows):
        job = jobs[i]
        job.step = 0
        if job.on_launch == 1 or (job.held == 0 and job.target == 0):
            continue
        if next_step(i, scope, pools, jobs, ranges, sizes) > 0:
            count = push(i, count, jobs, slots)
    while has_spare(pools):
        while pending < 0 and w < scope.waiting:
            i = slots[w].waiting
            w += 1
            if jobs[i].target > 0 or jobs[i].on_launch == 1 or jobs[i].step > 0:
                continue
            if next_step(i, scope, pools, jobs, ranges, sizes) > 0:
                count, pending = push(i, count, jobs, slots), i
        if count == 0:
            break
        i = slots[0].heap
        count, job, leaves = pop(count, jobs, slots), jobs[i], False
        more = job.step - job.target if job.step_type == job.target_type else job.step
        if more <= room(job, job.step_type, job.step, pools[job.step_type]):
            leaves = job.target > 0 and job.step_type != job.target_type
            if leaves:
                pools[job.target_type].spare += job.target
            pools[job.step_type].spare -= more
            job.target, job.target_type = job.step, job.step_type
        if next_step(i, scope, pools, jobs, ranges, sizes) > 0:
            count = push(i, count, jobs, slots)
        if i == pending:
            pending = -1
        if leaves:  # others may go on with the GPUs that it leaves
            w = 0
            for j in range(scope.rows):
                if jobs[j].step > 0 or jobs[j].target == 0 or jobs[j].on_launch == 1:
                    continue
                if next_step(j, scope, pools, jobs, ranges, sizes) > 0:
                    count = push(j, count, jobs, slots)


def has_spare(pools: Any) -> bool:
    gpus = 0
    for t in range(len(pools)):
        gpus = max(gpus, pools[t].spare)
    return gpus > 0


def comes_first(job: Job, other: Job) -> bool:
    """Whether the step of a job comes before that of another: the least growth, then steps that change
    nothing, then the earliest deadline.
    """
    if job.growth != other.growth:
        return job.growth < other.growth
    if (job.step != job.held) != (other.step != other.held):
        return job.step == job.held
    if job.deadline_s != other.deadline_s:
        return job.deadline_s < other.deadline_s
    return job.order < other.order


def push(i: int, count: int, jobs: Any, slots: Any) -> int:
    """Add job i to the heap of `count` steps. Returns how many there are now."""
    at = count
    while at > 0 and comes_first(jobs[i], jobs[slots[(at - 1) // 2].heap]):
        slots[at].heap = slots[(at - 1) // 2].heap
        at = (at - 1) // 2
    slots[at].heap = i
    return count + 1


def pop(count: int, jobs: Any, slots: Any) -> int:
    """Take the first step out of the heap. Returns how many are left."""
    count -= 1
    i, at, child = slots[count].heap, 0, 1
    while child < count:
        if child + 1 < count and comes_first(jobs[slots[child + 1].heap], jobs[slots[child].heap]):
            child += 1
        if not comes_first(jobs[slots[child].heap], jobs[i]):
            break
        slots[at].heap = slots[child].heap
        at, child = child, 2 * child + 1
    slots[at].heap = i
    return count


# A decision


def progress(tables: Tables) -> None:
    """What running jobs have done since they were last read."""
    jobs, now = tables.jobs, tables.scope[0].now_s
    for i in range(tables.scope[0].rows):
        job = jobs[i]
        if job.held > 0:
            worked_s = now - job.then_s - job.paying_then
            job.paying_s = max(0.0, -worked_s)
            if worked_s > 0.0:
                job.work = job.work_then - worked_s * job.speed


def begin(tables: Tables) -> None:
    """Give jobs what they have reserved for now (`target`). Reservations that begin soon begin early if GPUs
    are idle, else GPUs are held back for them.
    """
    scope, pools, jobs, sizes = tables.scope[0], tables.pools, tables.jobs, tables.sizes
    progress(tables)
    shorten(tables)
    catch_up(tables)
    for t in range(scope.types):
        pools[t].spare = pools[t].idle = pools[t].gpus
        pools[t].held_back = 0
    for i in range(scope.rows):
        job = jobs[i]
        job.target = 0
        if job.held > 0:
            pools[job.held_type].idle -= job.held
        if is_due(job, scope.now_s):
            job.target, job.target_type = job.size, job.type
            pools[job.type].spare -= job.size
            pools[job.type].idle -= lacking(job)
    for t in range(scope.types):
        pools[t].spare = max(0, pools[t].spare)
    for i in range(scope.rows):
        job = jobs[i]
        if job.size == 0 or job.target > 0:
            continue
        if job.start_s > scope.now_s + LEAD_RESTARTS * sizes[job.row].restart_s:
            continue
        pool = pools[job.type]
        if job.size <= pool.spare and lacking(job) <= pool.idle and job.on_launch == 0:
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
    scope, jobs, sizes = tables.scope[0], tables.jobs, tables.sizes
    for i in range(scope.rows):
        job, now, is_open = jobs[i], scope.now_s, False
        if (
            not is_due(job, now)
            or job.target != job.size
            or not (job.held == job.size and job.held_type == job.type)
        ):
            continue
        pool, choice = tables.pools[job.type], tables.ranges[i * scope.types + job.type]
        if job.target_type != job.type or pool.spare < pool.node_gpus:
            continue
        held = job.row
        latest_end = min(job.deadline_s, now + job.paying_s + job.work / sizes[held].rate)
        for k in range(choice.end - 1, held, -1):
            row = sizes[k]
            end = now + row.restart_s + job.work / row.rate
            if (
                row.size - job.held > pool.spare
                or end > latest_end
                or row.reservable == 0
                or row.is_part == 1
            ):
                continue
            if not is_open:
                for j in range(scope.rows):
                    jobs[j].skip = 1 if j == i else 0
                open_calendar(tables)
                is_open = True
            if is_free(job.type, row.nodes, now, end, tables):
                pool.spare -= row.size - job.held
                job.start_s, job.end_s, job.size, job.row, job.address = now, end, row.size, k, -1
                job.target = row.size
                break


def finish(tables: Tables) -> tuple[int, float]:
    """How many jobs change their GPUs, or are due and not in place: they are in the slots. And when the next
    reservation begins.
    """
    scope, jobs, slots, count, wake_at = tables.scope[0], tables.jobs, tables.slots, 0, inf
    scope.in_place = 0
    if has_spare(tables.pools):
        widen(tables)
    for i in range(scope.rows):
        job = jobs[i]
        changes = job.target != job.held or (job.held > 0 and job.target_type != job.held_type)
        if changes or (is_due(job, scope.now_s) and job.in_place == 0):
            slots[count].changed = i
            count += 1
        elif is_due(job, scope.now_s) and is_there(job):
            slots[scope.in_place].in_place = i
            scope.in_place += 1
        if job.size > 0 and job.start_s > scope.now_s + INSTANT_S:
            wake_at = min(wake_at, job.start_s)
    return count, wake_at


def decide(tables: Tables) -> tuple[int, float]:
    """A decision of ElasticFlow: reserved GPUs, then spare ones by marginal return. See `finish`."""
    begin(tables)
    share_spare(tables)
    return finish(tables)
