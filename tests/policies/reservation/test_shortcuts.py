"""What decisions leave out to be fast changes nothing: without it, every event is the same."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.elasticflow import ElasticFlow
from policies.reservation import marginal_return
from policies.reservation.demand import Demand, Kind, Outlook
from policies.reservation.gpu_types import Share
from tests.deadlines import hostile_bench, mixed_bench, random_bench
from tests.effort import examples

RESERVATION = "policies.reservation."
SHORTCUTS = {
    "marginal_return._StepsOnOneType": marginal_return._Steps,
    "demand._AHEAD": 0.0,
    "refilling._Attempt._differs": lambda *_: True,
    "refilling._changed_until": lambda *_: inf,
    "refilling._Attempt._full_before": lambda *_: 0.0,
    "calendar.FreeGpus.most": lambda *_: inf,
    "following._Following.stands": lambda *_: False,
    "spare_gpus.SpareGpus.is_tied": lambda *_: False,
}


@pytest.mark.parametrize(("shortcut", "plain"), SHORTCUTS.items())
@given(
    seed=st.integers(0, 10**9),
    scale=st.sampled_from((0, 1, 10)),
    bench=st.sampled_from((random_bench, hostile_bench, mixed_bench)),
    placement=st.sampled_from(("pack", "any", "spread", "buddy")),
)
@settings(max_examples=examples(30), deadline=None)
def test_decisions_are_the_same_without_a_shortcut(
    shortcut: str, plain: object, seed: int, scale: float, bench: Callable[..., Any], placement: str
) -> None:
    on, jobs = bench(seed, scale, placement)
    events = on.run(jobs, ElasticFlow()).events
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RESERVATION + shortcut, plain)
        assert on.run(jobs, ElasticFlow()).events == events


@st.composite
def running(draw: st.DrawFn) -> Demand:
    """The demand of a job that holds one of its sizes, at any speeds and restarts."""
    sizes = sorted(draw(st.sets(st.integers(1, 64), min_size=2, max_size=6)))
    positive = st.floats(1e-3, 1e3)
    return Demand(
        job=cast(Any, SimpleNamespace(phases=())),
        deadline_s=0.0,
        kind=Kind(
            tuple(sizes),
            tuple(sizes),
            rates={n: draw(positive) for n in sizes},
            restarts={n: draw(st.sampled_from((0.0, 1.0, 30.0, 31.5))) for n in sizes},
        ),
        guard_s=0.0,
        work=10 ** draw(st.floats(-3, 6)),
        gpus=draw(st.sampled_from(sizes)),
    )


@given(running())
@settings(max_examples=examples(200), deadline=None)
def test_growth_is_bounded(demand: Demand) -> None:
    held, work = demand.gpus, demand.work
    holding = demand.kind.holding(held)
    assert holding is not None
    prices = {n: n * (work / r + (0.0 if n == held else s)) for n, r, s in demand.table}
    larger = [n for n in demand.reservable if n > held]
    assert holding.needs == min((n - held for n in larger), default=inf)
    for size in larger:
        assert holding.least_growth(work) <= (prices[size] - prices[held]) / (size - held)
    least, rate, restart_s = demand.table[0]
    cost = least * (work / rate + restart_s)
    growth = {n: (price - cost) / n for n, price in prices.items()}
    assert growth[held] == demand.growth_of_staying(held, work)
    if holding.is_first(work):
        assert all(growth[held] < growth[n] for n in demand.reservable if n != held)


@given(running(), st.floats(0.0, 1.0))
@settings(max_examples=examples(200), deadline=None)
def test_an_outlook_holds_while_the_job_works(demand: Demand, share: float) -> None:
    held, work = demand.gpus, demand.work
    demand.job.oracle_remaining = lambda gpus, _: work / demand.rates[gpus]  # type: ignore[method-assign]
    outlook = demand.look_ahead(held, 100.0)
    assert (outlook.share.gpus, demand.outlook) == (held, outlook)
    later = work - share * (outlook.until_s - 100.0) * demand.rates[held]
    holding = demand.kind.holding(held)
    assert holding is not None
    assert 0.8 * work <= later <= work
    assert outlook.needs == holding.needs
    close = 1e-12 * work * sum(1 / rate for rate in demand.rates.values())
    assert outlook.least_to_grow <= holding.least_growth(later) + close
    assert outlook.most_to_stay >= demand.growth_of_staying(held, later) - close
    assert outlook.most_to_stay == inf or holding.is_first(later)


def test_the_outlook_of_a_job_in_phases_is_over_at_once() -> None:
    job = cast(Any, SimpleNamespace(phases=("one", "two"), oracle_remaining=lambda *_: 100.0))
    demand = Demand(job, 0.0, Kind((1, 2), (1, 2), {1: 1.0, 2: 1.5}, {1: 0.0, 2: 0.0}), 0.0)
    assert demand.look_ahead(1, 5.0).until_s == 5.0


class Working:
    """A job with this work left."""

    def __init__(self, work: float, kind: Kind):
        self.work, self.kind = work, kind

    def oracle_remaining(self, gpus: int, _: str | None) -> float:
        return self.work / self.kind.rates[gpus]


def test_jobs_stay_in_order_of_growth_where_not_all_of_them_fit() -> None:
    """The second job has the smaller bound, but the first one has worked since its outlook."""
    kind, kept = Kind((8, 16), (1, 2), {8: 1.0, 16: 1.5}, {8: 30.0, 16: 30.0}), dict[Any, Share]()
    demands = []
    for order, (work, most) in enumerate(((72.0, 0.0), (84.0, -1.0))):
        job = cast(Any, Working(work, kind))
        outlook = Outlook(Share(16), 100.0, inf, most, inf)
        demands.append(Demand(job, 500.0, kind, 0.0, order=order, outlook=outlook))
    first, second = demands
    assert first.growth_of_staying(16, 72.0) == pytest.approx(-3.0)
    assert second.growth_of_staying(16, 84.0) == pytest.approx(-1.0)
    gpus = SimpleNamespace(
        state=None, reservations=SimpleNamespace(demands={d.job: d for d in demands}), spare={"": 16},
        held_back={"": 0}, held={d.job: 16 for d in demands}, keep=kept.update,
    )  # fmt: skip
    steps = marginal_return._StepsOnOneType(cast(Any, gpus))
    steps._let_stay(demands, [], lowest=-0.5)
    assert not kept
    assert [demand for *_, demand in sorted(steps._steps)] == [first, second]
