"""HiveD and PAL: plain rewrites of their rules, virtual clusters kept safe, brute force over placements."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim.records import ALLOCATES
from tests.builders import drawn_jobs, rigid
from tests.effort import examples
from traces.job import Job

NODES, SIZE, SIZES = 7, 4, (1, 2, 4, 8, 16)
CELLS = {"a": [8, 4, 2], "b": [4, 1, 1]}  # others share 8 GPUs
Span = tuple[int, int]  # GPUs from the first to the last, which is excluded


def jobs_of(seed: int, tenants: str = "abc", count: int = 40) -> list[Job]:
    return drawn_jobs(seed, count, 60, (1, 1, 2, 3, 4, 5, 8, 12), (5, 300), tenant=tenants)


def run_of(jobs: list[Job], policy: Any = "hived", **params: Any) -> clustersim.Run:
    params = {"cells": CELLS, **params} if policy == "hived" else params
    return clustersim.run(
        jobs, policy, cluster=f"n{NODES}g{SIZE}", overheads=None, bound="none", params=params
    )


# A plain rewrite: the free cells are sought anew in every step, by trying all


class Plain:
    """HiveD on plain lists of GPUs: (start, finish, preemptions, GPUs by node at the first start) by job."""

    def __init__(self, jobs: list[Job], opportunistic: bool):
        self.jobs, self.opportunistic = {job.job_id: job for job in jobs}, opportunistic
        self.order = {job.job_id: i for i, job in enumerate(jobs)}
        rest = NODES * SIZE - sum(map(sum, CELLS.values()))
        assert rest == 8
        self.held: dict[str, tuple[Span, Span]] = {}  # the virtual cell, and the cell of the cluster
        self.at: dict[str, dict[int, int]] = {}  # GPUs by node of running jobs, in order of their start
        self.left = {job.job_id: job.duration_s or 0.0 for job in jobs}
        self.found: dict[str, list[Any]] = {job.job_id: [None, None, 0, None] for job in jobs}

    def run(self) -> dict[str, list[Any]]:
        arrivals, now = list(self.jobs), 0.0
        waiting: list[str] = []
        while arrivals or self.at:
            times = [self.jobs[arrivals[0]].submit_s] if arrivals else []
            then = min([*times, *(now + self.left[name] for name in self.at)])
            for name in list(self.at):
                self.left[name] -= then - now
                if self.left[name] == 0:
                    self.found[name][1] = then
                    del self.at[name]
                    self.held.pop(name, None)
            now = then
            while arrivals and self.jobs[arrivals[0]].submit_s == now:
                waiting.append(arrivals.pop(0))
            waiting = self.decide(now, waiting)
        return self.found

    def decide(self, now: float, waiting: list[str]) -> list[str]:
        before = dict(self.at)
        again = True
        while again:
            again = False
            for owner in (*CELLS, ""):
                mine = [name for name in [*before, *waiting] if self.owner(name) == owner]
                for name in sorted(mine, key=lambda name: self.order[name]):
                    if name not in self.held:
                        again = self.guarantee(name, before) or again
        if self.opportunistic:
            out = [name for name in before if name not in self.at]
            for group in (out, waiting):
                for name in sorted(group, key=lambda name: self.order[name]):
                    if name not in self.at and (place := self.packed(name, before.get(name, {}))):
                        self.at[name] = place
        for name in [*before, *waiting]:
            if name in self.at and name not in before and self.found[name][0] is None:
                self.found[name][0], self.found[name][3] = now, self.at[name]
            if name not in self.at and name in before:
                self.found[name][2] += 1
        kept = {name: self.at[name] for name in before if name in self.at}
        self.at = {**kept, **self.at}
        return sorted([name for name in [*before, *waiting] if name not in self.at], key=self.order.get)  # type: ignore[arg-type]

    def owner(self, name: str) -> str:
        return self.jobs[name].tenant if self.jobs[name].tenant in CELLS else ""

    def gpus(self, name: str) -> int:
        return self.jobs[name].gpus or 0

    def free_on(self, node: int) -> int:
        return SIZE - sum(at.get(node, 0) for at in self.at.values())

    def available(self, node: int) -> int:
        return SIZE - sum(at.get(node, 0) for name, at in self.at.items() if name in self.held)

    def options(self, name: str) -> list[tuple[int, int, int, Span, Span]]:
        """Every way to bind a free virtual cell: its GPUs and its first one, the GPUs of the free cell of the
        cluster that is split for it, the cell for the job, and the virtual cell.
        """
        owner = self.owner(name)
        size = next((size for size in SIZES if size >= self.gpus(name)), 99)
        own = [pair for other, pair in self.held.items() if self.owner(other) == owner]
        taken, found = [virtual for virtual, _ in own], []
        all_bound = [
            around(cell, root[1] - root[0])
            for other, (virtual, cell) in self.held.items()
            for root in roots(self.owner(other))
            if root[0] <= virtual[0] < root[1]
        ]
        for root in roots(owner):
            for virtual in spans(size):
                k = largest_free(virtual, taken, root)
                if k is None or virtual[0] % k:
                    continue
                for cell in spans(size):
                    whole = around(cell, k)
                    if k == root[1] - root[0]:
                        split = largest_free(whole, all_bound, (0, NODES * SIZE))
                    else:
                        above = SIZES[SIZES.index(k) + 1]
                        beside = [at for v, at in own if around(v, above) == around(virtual, above)]
                        inside = around(cell, above) == around(beside[0], above)
                        split = 0 if inside and whole not in [around(at, k) for at in beside] else None
                    if split is not None:
                        found.append((k, virtual[0], split, cell, virtual))
        return sorted(found)

    def guarantee(self, name: str, before: dict[str, dict[int, int]]) -> bool:
        options = self.options(name)
        if options and name in self.at:
            smallest = options[0][0]
            least = min((o[2] for o in options if o[0] == smallest and o[2]), default=0)
            here = [
                (cell, virtual)
                for k, _, split, cell, virtual in options
                if k == smallest and split in (0, least) and self.inside(self.at[name], cell)
            ]
            if here:
                cell, virtual = min(here)
                self.held[name] = virtual, cell
            return False
        for key in sorted({option[:3] for option in options}):
            fitting = []
            for *other, cell, virtual in options:
                place = self.place(self.gpus(name), cell)
                if tuple(other) == key and place:
                    taken = sum(max(n - self.free_on(node), 0) for node, n in place.items())
                    fitting.append((taken, cell, virtual, place))
            if fitting:
                _, cell, virtual, place = min(fitting, key=lambda entry: entry[:2])
                self.evict(place, before)
                self.held[name], self.at[name] = (virtual, cell), place
                for other_job, own in before.items():
                    if other_job not in self.at and all(self.free_on(n) >= count for n, count in own.items()):
                        self.at[other_job] = own
                return True
        return False

    def inside(self, place: dict[int, int], cell: Span) -> bool:
        return all(node in range(cell[0] // SIZE, -(-cell[1] // SIZE)) for node in place)

    def place(self, gpus: int, cell: Span) -> dict[int, int]:
        nodes = range(cell[0] // SIZE, -(-cell[1] // SIZE))
        count = -(-gpus // SIZE)
        emptiest = sorted(nodes, key=lambda node: (-self.free_on(node), node))[:count]
        place = {node: min(SIZE, gpus - i * SIZE) for i, node in enumerate(sorted(emptiest))}
        return place if all(self.available(node) >= n for node, n in place.items()) else {}

    def evict(self, place: dict[int, int], before: dict[str, dict[int, int]]) -> None:
        for node, count in place.items():
            for other in reversed(before):
                if self.free_on(node) < count and other not in self.held and node in self.at.get(other, {}):
                    del self.at[other]

    def packed(self, name: str, near: dict[int, int]) -> dict[int, int]:
        gpus, free = self.gpus(name), {node: self.free_on(node) for node in range(NODES)}
        whole, rest = divmod(gpus, SIZE)
        empty = sorted((n for n in free if free[n] == SIZE), key=lambda n: (n not in near, n))[:whole]
        place = dict.fromkeys(empty, SIZE)
        if rest:
            spots = [(n not in near, free[n], n) for n in free if free[n] >= rest and n not in place]
            place |= {min(spots)[2]: rest} if spots else {}
        return place if sum(place.values()) == gpus else {}


def roots(owner: str) -> list[Span]:
    """The virtual cells of a tenant, one after the other."""
    sizes = sorted(CELLS.get(owner, [8]), reverse=True)
    return [(sum(sizes[:i]), sum(sizes[: i + 1])) for i in range(len(sizes))]


def around(span: Span, size: int) -> Span:
    start = span[0] - span[0] % size
    return start, start + size


def spans(size: int) -> Iterator[Span]:
    return ((at, at + size) for at in range(0, NODES * SIZE - size + 1, size))


def largest_free(cell: Span, used: Any, within: Span) -> int | None:
    """The GPUs of the largest cell around a cell that overlaps none of `used`."""
    free = None
    for size in [size for size in SIZES if size >= cell[1] - cell[0]]:
        start = cell[0] - cell[0] % size
        inside = within[0] <= start and start + size <= within[1] and cell[1] <= start + size
        if inside and not any(start < end and first < start + size for first, end in used):
            free = size
    return free


@pytest.mark.parametrize("opportunistic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_schedules_are_those_of_a_plain_rewrite(seed: int, opportunistic: bool) -> None:
    jobs = jobs_of(seed)
    run = run_of(jobs, opportunistic=opportunistic)
    first: dict[str, dict[int, int]] = {}
    for event in run.events:
        if event.event in ALLOCATES:
            first.setdefault(event.job_id, dict(event.placement))
    found = {j.job_id: [j.start_s, j.finish_s, j.preemptions, first.get(j.job_id)] for j in run.jobs}
    declined = {job.job_id for job in run.jobs if job.state == "rejected"}
    expected = Plain([job for job in jobs if job.job_id not in declined], opportunistic).run()
    assert {name: found[name] for name in expected} == expected


# The safety of virtual clusters


@given(st.integers(0, 10**9))
@settings(max_examples=examples(40), deadline=None)
def test_a_virtual_cluster_is_as_good_as_a_private_one(seed: int) -> None:
    """Without opportunistic use, the jobs of a tenant start when they start with no other tenant's jobs."""
    jobs = jobs_of(seed)
    shared = {job.job_id: job.start_s for job in run_of(jobs, opportunistic=False).jobs}
    for tenant in "abc":
        own = [job for job in jobs if job.tenant == tenant]
        if own:
            alone = run_of(own, opportunistic=False)
            assert {job.job_id: job.start_s for job in alone.jobs} == {
                job.job_id: shared[job.job_id] for job in own
            }


@given(st.integers(0, 10**9), st.sampled_from(["pack", "spread", "any"]))
@settings(max_examples=examples(40), deadline=None)
def test_a_job_within_its_cells_starts_at_once_whatever_others_do(seed: int, placement: str) -> None:
    """Jobs of `a` come one after the other and fit its largest cell. All others want far more than theirs."""
    random, others = Random(seed), jobs_of(seed, "bcd", 60)
    own, now = [], 0.0
    for i in range(15):
        own.append(rigid(f"a{i}", now, random.choice((1, 2, 3, 4, 6, 8)), random.randint(5, 100), tenant="a"))
        now += (own[-1].duration_s or 0) + random.choice((0, random.randint(1, 100)))
    run = clustersim.run(
        [*own, *others], "hived", cluster=f"n{NODES}g{SIZE}", overheads=None, bound="none",
        placement=placement, params={"cells": CELLS},
    )  # fmt: skip
    assert all(job.state == "finished" for job in run.jobs)
    for job in run.jobs:
        if job.job_id.startswith("a"):
            assert (job.start_s, job.preemptions) == (job.submit_s, 0)


# By hand


PAL_NODES, PAL_SIZE = 4, 4
CLASSES = {"x": "heavy"}


def factors(seed: int) -> dict[str, list[float]]:
    random = Random(seed)
    return {name: [round(random.uniform(1, 2), 2) for _ in range(PAL_NODES)] for name in ("heavy", "other")}


def pal_jobs(seed: int) -> list[Job]:
    return drawn_jobs(seed, 40, 240, (1, 1, 2, 3, 4, 6, 8), (50, 400), model="xy")


def pal_run(jobs: list[Job], policy: str, by_class: Any, **params: Any) -> clustersim.Run:
    stated = {"classes": CLASSES, "factors": by_class}
    return clustersim.run(
        jobs, policy, cluster=f"n{PAL_NODES}g{PAL_SIZE}", overheads=None, placement="any", variability=stated,
        params=params,
    )  # fmt: skip


def cost(places: dict[int, int], slow: list[float], locality: float) -> float:
    fewest = -(-sum(places.values()) // PAL_SIZE)
    return max(slow[node] for node in places) * (locality if len(places) > fewest else 1.0)


def rewritten(
    jobs: list[Job], by_class: dict[str, list[float]], locality: float
) -> dict[str, tuple[float, dict[int, int]]]:
    """PAL over first come, first served in plain Python: (start, GPUs by node) by job."""
    slow_of = {job.job_id: by_class["heavy" if job.model == "x" else "other"] for job in jobs}
    free, found = dict.fromkeys(range(PAL_NODES), PAL_SIZE), {}
    arrivals, waiting, running = list(jobs), [], []
    while arrivals or waiting or running:
        now = min([job.submit_s for job in arrivals[:1]] + [end for end, _ in running])
        for end, job in [entry for entry in running if entry[0] == now]:
            running.remove((end, job))
            for node, count in found[job.job_id][1].items():
                free[node] += count
        while arrivals and arrivals[0].submit_s <= now:
            waiting.append(arrivals.pop(0))
        chosen: list[Job] = []
        while waiting and (waiting[0].gpus or 0) <= sum(free.values()) - sum(job.gpus or 0 for job in chosen):
            chosen.append(waiting.pop(0))

        def spread(job: Job) -> float:
            return max(slow_of[job.job_id]) / min(slow_of[job.job_id])

        for job in sorted(chosen, key=lambda job: (-spread(job), jobs.index(job))):
            slow, gpus = slow_of[job.job_id], job.gpus or 0
            order = sorted(free, key=lambda node: (slow[node], free[node], node))
            options = []
            together: dict[int, int] | None = {}
            for node in [node for node in order if free[node] == PAL_SIZE][: gpus // PAL_SIZE]:
                together[node] = PAL_SIZE
            if sum(together.values()) < gpus - gpus % PAL_SIZE:
                together = None
            elif gpus % PAL_SIZE:
                last = next((n for n in order if free[n] >= gpus % PAL_SIZE and n not in together), None)
                together = None if last is None else {**together, last: gpus % PAL_SIZE}
            if together is not None:
                options.append(together)
            anywhere: dict[int, int] = {}
            for node in order:
                if free[node] and sum(anywhere.values()) < gpus:
                    anywhere[node] = min(free[node], gpus - sum(anywhere.values()))
            options.append(anywhere)
            places = min(options, key=lambda at: (cost(at, slow, locality), sorted(at.items())))
            for node, count in places.items():
                free[node] -= count
            found[job.job_id] = now, places
            running.append((now + (job.duration_s or 0) * max(slow[node] for node in places), job))
    return found


@pytest.mark.parametrize("locality", [1.0, 1.2, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_every_start_is_that_of_a_plain_rewrite(seed: int, locality: float) -> None:
    jobs, by_class = pal_jobs(seed), factors(seed)
    run = pal_run(jobs, "pal", by_class, locality=locality)
    found = {e.job_id: (e.time_s, dict(e.placement)) for e in run.events if e.event in ALLOCATES}
    expected = rewritten(jobs, by_class, locality)
    assert found == {job: (pytest.approx(start), places) for job, (start, places) in expected.items()}


@pytest.mark.parametrize("seed", range(3))
def test_no_other_placement_costs_less(seed: int) -> None:
    """The first job of a cluster on which another one holds some GPUs, against all placements."""
    random, by_class = Random(seed), factors(seed)
    held = rigid("held", 0, random.choice((1, 5, 9)), 1000.0)
    for gpus in range(1, PAL_NODES * PAL_SIZE - (held.gpus or 0) + 1):
        run = pal_run([held, rigid("new", 10, gpus, 10.0, model="x")], "pal", by_class, locality=1.3)
        places = {e.job_id: dict(e.placement) for e in run.events if e.event in ALLOCATES}
        free = [PAL_SIZE - places["held"].get(node, 0) for node in range(PAL_NODES)]
        possible = (
            {node: count for node, count in enumerate(counts) if count}
            for counts in product(*(range(n + 1) for n in free))
            if sum(counts) == gpus
        )
        slow = by_class["heavy"]
        least = min(cost(at, slow, 1.3) for at in possible)
        assert cost(places["new"], slow, 1.3) == pytest.approx(least)


@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
def test_with_equal_nodes_jobs_run_when_the_base_policy_runs_them(order: str) -> None:
    jobs = pal_jobs(1)
    equal = {"heavy": [1.0] * PAL_NODES}
    one, other = pal_run(jobs, order, equal), pal_run(jobs, "pal", equal, order=order)
    assert [job.finish_s for job in one.jobs] == [job.finish_s for job in other.jobs]
