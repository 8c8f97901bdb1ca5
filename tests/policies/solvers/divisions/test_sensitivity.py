"""Division by sensitivity: a slow model of the rule, and the optimum of small instances."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.solvers.divisions import Division, Ladder, Options, best_division, ladder, priced_division
from policies.solvers.divisions.cell_search import Changes, GpuCell
from tests.effort import examples

MARGIN = 1e-9


@dataclass(frozen=True)
class Holder:
    order: int


@dataclass(frozen=True)
class Case:
    """Jobs in order: ladder, GPUs held, settled, movable. Then ladders of newcomers, and free GPUs."""

    holders: tuple[tuple[Ladder, int, bool, bool], ...]
    newcomers: tuple[Ladder, ...]
    free: int


@st.composite
def curves(draw: st.DrawFn) -> dict[int, float]:
    counts = draw(st.sets(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1))
    steps = draw(st.lists(st.integers(1, 40), min_size=len(counts), max_size=len(counts)))
    speeds = {}
    total = 0
    for count, step in zip(sorted(counts), steps, strict=True):
        total += step
        speeds[count] = total / 16
    return speeds


@st.composite
def cases(draw: st.DrawFn) -> Case:
    holders = []
    for speeds in draw(st.lists(curves(), max_size=5)):
        least = draw(st.sampled_from([0, *speeds]))
        held = draw(st.sampled_from([n for n in speeds if n >= least]))
        holders.append((ladder(speeds, least), held, draw(st.booleans()), draw(st.booleans())))
    newcomers = [ladder(speeds, 0) for speeds in draw(st.lists(curves(), max_size=4))]
    newcomers.sort(key=lambda steps: -steps.slope(0, steps.counts[1]))
    return Case(tuple(holders), tuple(newcomers), draw(st.integers(0, 8)))


def divided(case: Case) -> Division[Holder]:
    division = Division[Holder](case.free)
    for order, (steps, held, settled, movable) in enumerate(case.holders):
        division.add(Holder(order), steps, held, settled=settled, movable=movable)
    return division


def arriving(case: Case) -> list[tuple[Holder, Ladder]]:
    return [(Holder(len(case.holders) + i), steps) for i, steps in enumerate(case.newcomers)]


class Slow:
    """The rule, in lists: every choice looks at every job."""

    def __init__(self, case: Case):
        self.free = case.free
        self.held = {order: held for order, (_, held, _, _) in enumerate(case.holders)}
        self.steps = {order: steps for order, (steps, _, _, _) in enumerate(case.holders)}
        self.settled = {order for order, holder in enumerate(case.holders) if holder[2]}
        self.movable = {order for order in self.settled if case.holders[order][3]}

    def up(self, job: int) -> int | None:
        return min((n for n in self.steps[job].counts if n > self.held[job]), default=None)

    def down(self, job: int) -> int | None:
        return max((n for n in self.steps[job].counts if n < self.held[job]), default=None)

    def take_back(self, gpus: int, givers: set[int], slope: float, gain: float) -> set[int]:
        before, freed, taken = dict(self.held), 0, []
        while freed < gpus:
            last = [
                (self.steps[job].slope(low, self.held[job]), -job)
                for job in givers
                if (low := self.down(job)) is not None
            ]
            if not last or min(last)[0] >= slope * (1 - MARGIN):
                self.held = before
                return set()
            job = -min(last)[1]
            low = self.down(job)
            assert low is not None
            taken.append((job, self.held[job], low))
            freed += self.held[job] - low
            self.held[job] = low
        gave, loss = set[int](), 0.0
        for job, high, low in reversed(taken):
            if job not in gave and freed - (high - low) >= gpus:
                self.held[job] = high
                freed -= high - low
            else:
                gave.add(job)
                loss += self.steps[job].speeds[high] - self.steps[job].speeds[low]
        if loss >= gain * (1 - MARGIN):
            self.held = before
            return set()
        self.free += freed
        return gave

    def make_room(self, gpus: int) -> bool:
        inf = float("inf")
        return gpus <= self.free or bool(self.take_back(gpus - self.free, self.settled, inf, inf))

    def exchange(self, newcomers: tuple[Ladder, ...]) -> None:
        moving = set(self.movable)
        for steps in newcomers:
            job = len(self.held)
            self.held[job], self.steps[job] = 0, steps
            moving.add(job)
        refused = set[int]()
        while True:
            nexts = [
                (self.steps[job].slope(self.held[job], high), -job)
                for job in moving - refused
                if (high := self.up(job)) is not None
            ]
            if not nexts:
                return
            slope, job = max(nexts)
            job = -job
            high = self.up(job)
            assert high is not None
            more = high - self.held[job]
            if more > self.free:
                gain = slope * more
                gave = self.take_back(more - self.free, moving - {job}, slope, gain)
                if not gave:
                    refused.add(job)
                    continue
                refused -= gave
            self.free -= more
            self.held[job] = high


def total(held: dict[int, int], steps: dict[int, Ladder]) -> float:
    return sum(steps[job].speeds[gpus] for job, gpus in held.items())


@given(cases())
def test_exchanges_are_those_of_the_slow_model(case: Case) -> None:
    division, slow = divided(case), Slow(case)
    division.exchange(arriving(case))
    slow.exchange(case.newcomers)
    assert {job.order: gpus for job, gpus in division.held.items() if gpus} == {
        job: gpus for job, gpus in slow.held.items() if gpus
    }
    assert division.free == slow.free >= 0


@given(cases(), st.integers(1, 12))
def test_room_is_made_as_in_the_slow_model(case: Case, gpus: int) -> None:
    division, slow = divided(case), Slow(case)
    before = dict(division.held)
    assert division.make_room(gpus) == slow.make_room(gpus)
    assert {job.order: n for job, n in division.held.items()} == slow.held
    assert division.free == slow.free
    if not division.make_room(gpus):
        assert division.held == before


@given(cases())
def test_nothing_is_lost_and_least_counts_are_kept(case: Case) -> None:
    division = divided(case)
    gpus = case.free + sum(held for _, held, _, _ in case.holders)
    steps = {order: holder[0] for order, holder in enumerate(case.holders)}
    before = total({order: holder[1] for order, holder in enumerate(case.holders)}, steps)
    division.exchange(arriving(case))
    assert division.free + sum(division.held.values()) == gpus
    for job, held in division.held.items():
        if job.order in steps:
            holder = case.holders[job.order]
            assert held >= holder[0].counts[0]
            assert held == holder[1] or (holder[2] and holder[3])
    steps |= {job.order: ladder for job, ladder in arriving(case)}
    after = total({job.order: held for job, held in division.held.items()}, steps)
    assert after >= before - 1e-9


@given(st.lists(st.lists(st.integers(1, 50), min_size=4, max_size=4), min_size=1, max_size=3), st.data())
def test_single_gpus_reach_the_largest_sum_of_speeds(gains: list[list[int]], data: st.DataObject) -> None:
    """Where speeds are concave in single GPUs, exchanges end at the optimum, wherever they begin."""
    ladders = []
    for steps in gains:
        falling = sorted(steps, reverse=True)
        ladders.append(ladder({n + 1: sum(falling[: n + 1]) / 8 for n in range(4)}, 0))
    held = [data.draw(st.integers(0, 4)) for _ in ladders]
    division = Division[Holder](2)
    for order, (steps, gpus) in enumerate(zip(ladders, held, strict=True)):
        division.add(Holder(order), steps, gpus)
    division.exchange()
    best = max(
        sum(steps.speeds[n] for steps, n in zip(ladders, counts, strict=True))
        for counts in product(range(5), repeat=len(ladders))
        if sum(counts) <= sum(held) + 2
    )
    found = sum(ladders[job.order].speeds[gpus] for job, gpus in division.held.items())
    assert found == pytest.approx(best)


def test_a_ladder_keeps_the_envelope_from_the_least_count_on() -> None:
    speeds = {1: 1.0, 2: 1.1, 4: 3.0, 8: 3.5}
    assert ladder(speeds, 0).counts == (0, 1, 4, 8)
    assert ladder(speeds, 2).counts == (2, 4, 8)
    assert ladder({4: 1.0, 8: 3.0}, 0).counts == (0, 8)
    assert ladder(speeds, 8).counts == (8,)


# Divisions by value


@st.composite
def some_jobs(draw: st.DrawFn) -> list[Options]:
    jobs: list[Options] = []
    for _ in range(draw(st.integers(0, 5))):
        counts = sorted(draw(st.sets(st.integers(1, 9), max_size=3)))
        values = [draw(st.sampled_from((-100.0, -4.0, 0.0))), *(draw(st.floats(-5, 9)) for _ in counts)]
        jobs.append(((0, *counts), values))
    return jobs


def worth(jobs: list[Options], way: Sequence[int]) -> float:
    return sum(float(values[k]) for (_, values), k in zip(jobs, way, strict=True))


def taken(jobs: list[Options], way: Sequence[int]) -> int:
    return sum(counts[k] for (counts, _), k in zip(jobs, way, strict=True))


@pytest.mark.parametrize("division", [best_division, priced_division])
@settings(max_examples=examples(200), deadline=None)
@given(some_jobs(), st.integers(0, 20))
def test_no_division_is_worth_more(
    division: Callable[[list[Options], int], list[int]], jobs: list[Options], gpus: int
) -> None:
    indices = division(jobs, gpus)
    ways = product(*(range(len(counts)) for counts, _ in jobs))
    assert taken(jobs, indices) <= gpus
    best = max(worth(jobs, way) for way in ways if taken(jobs, way) <= gpus)
    assert worth(jobs, indices) == pytest.approx(best, abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_prices_are_as_good_as_the_program_on_many_jobs(seed: int) -> None:
    """Speedups of 150 jobs, as Pollux states them, some of them alike."""
    rng = np.random.default_rng(seed)
    jobs: list[Options] = []
    for _ in range(150):
        counts = np.array([1 << k for k in range(rng.integers(1, 8))]) * int(rng.choice([1, 8]))
        speedup = rng.choice([0.3, 1.0, rng.random()]) * counts ** rng.choice([0.5, 0.9])
        jobs.append(((0, *counts.tolist()), [-100.0, *(-1 / speedup).tolist()]))
    indices = priced_division(jobs, 256)
    assert taken(jobs, indices) <= 256
    assert worth(jobs, indices) == pytest.approx(worth(jobs, best_division(jobs, 256)), rel=1e-9)


def test_ties_go_to_the_first_job_and_to_the_first_option() -> None:
    assert best_division([((0, 2), (0.0, 1.0)), ((0, 2), (0.0, 1.0))], 2) == [1, 0]
    assert best_division([((2, 0, 1), (1.0, 0.0, 1.0))], 2) == [0]


def test_room_takes_free_gpus_of_another_type_once() -> None:
    """Two jobs would move to the one free GPU of type b; one does, and the other shrinks."""
    big_cell, small_cell, moved_cell = GpuCell("a", 2, 2.0), GpuCell("a", 1, 1.0), GpuCell("b", 1, 1.9)
    search = Changes(
        [(name, i, big_cell, [small_cell, big_cell, moved_cell]) for i, name in enumerate("xy")], steps=2
    )
    changes = search.room("a", 3, {"a": 0, "b": 1})
    assert changes is not None
    assert [(change.job, change.cell) for change in changes] == [("x", moved_cell), ("y", small_cell)]
    assert search.room("a", 4, {"a": 0, "b": 1}) is None
