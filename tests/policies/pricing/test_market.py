"""Division at a price: each step against its definition, and what holds of every division; and the work left
of jobs that do more than they state.
"""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.pricing import Claim, ClaimCurve, Market, PricedShare, Prices, StatedWork
from tests.effort import examples

SIZES = (1, 2, 4, 8, 16)


def power(exponent: float, restart_s: float = 0.0, most: int = 16) -> ClaimCurve:
    """A speed of n^exponent; a launch takes half a restart."""
    sizes = [size for size in SIZES if size <= most]
    restarts = [restart_s] * len(sizes)
    return ClaimCurve(sizes, [n**exponent for n in sizes], restarts, [s / 2 for s in restarts])


def claim(job: str, curve: ClaimCurve, work: float, price: float = 0.0, **more: object) -> Claim[str]:
    return Claim(job, {"": curve}, work, price, **more)  # type: ignore[arg-type]


# One job


@pytest.mark.parametrize("exponent", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("price", [0.01, 0.1, 0.5, 2.0])
def test_the_size_is_where_the_next_gpu_costs_others_what_it_saves(exponent: float, price: float) -> None:
    """For a speed of n^p, (1 + lam n) / n^p is least at n = p / (1 - p) / lam; of powers of two, one of its
    neighbours.
    """
    best = exponent / (1 - exponent) / price
    market: Market[str] = Market({"": 16}, [])
    size = market.serve(claim("a", power(exponent), 1000.0, price)).gpus
    assert best / 2 <= size <= best * 2 or (size == 1 and best < 1) or (size == 16 and best > 16)


def test_a_running_job_moves_only_where_that_pays_its_restart() -> None:
    """On 8 instead of 4 GPUs the job saves 30 of 60 s at a price of 0."""
    for restart_s, gpus in [(29.0, 8), (31.0, 4)]:
        held = claim("a", power(1.0, restart_s, most=8), 240.0, held=4)
        assert Market({"": 8}, [held]).serve(held).gpus == gpus


# Harm


def contest(restart_s: float, **running: float) -> dict[str, PricedShare]:
    """`new`, of 100 s on 8 GPUs, comes where `old` works on all 8 for 1,000 s more."""
    curve = ClaimCurve((4, 8), (4.0, 8.0), (restart_s, restart_s), (0.0, 0.0))
    old = claim("old", curve, 8000.0, 0.0, held=8, **running)
    market = Market({"": 8}, [old])
    for one in (claim("new", curve, 800.0, 0.1, fresh=True), old):
        market.serve(one)
    return market.shares


def test_a_short_job_takes_gpus_if_it_gains_more_than_the_others_lose() -> None:
    """`new` costs (1 + 0.8) x 100 = 180 s on 8 GPUs. Waiting for `old` costs 1,000 s more than harm of less
    than 1,000 s. While `old` is still paying its start, it would have to pay the same again.
    """
    assert contest(990.0)["new"] == PricedShare(8)
    assert "new" not in contest(1010.0)
    assert contest(1010.0, paying_s=900.0)["new"] == PricedShare(8)


def test_gpus_are_taken_from_the_last_job_first() -> None:
    curve = power(1.0, 10.0, most=4)
    running = [claim(name, curve, work, held=4) for name, work in [("a", 100.0), ("b", 200.0)]]
    market = Market({"": 8}, running)
    for one in (claim("new", ClaimCurve((4,), (4.0,), (10.0,), (5.0,)), 10.0, fresh=True), *running):
        market.serve(one)
    assert market.shares == {"new": PricedShare(4), "a": PricedShare(4)}


def test_harm_is_counted_once() -> None:
    """Two short jobs together take the GPUs of one long job, which loses them to the first."""
    long = claim("long", ClaimCurve((8,), (8.0,), (150.0,), (0.0,)), 8e4, held=8)
    four = ClaimCurve((4,), (4.0,), (0.0,), (0.0,))
    market = Market({"": 8}, [long])
    shares = [market.serve(claim(name, four, 400.0, fresh=True)) for name in ("a", "b")]
    assert shares == [PricedShare(4), PricedShare(4)]


# Waiting


FOUR = ClaimCurve((4,), (4.0,), (60.0,), (0.0,))


@pytest.mark.parametrize(
    ("left_s", "wait_s", "gets"),
    [(1.0, inf, 0), (50.0, inf, 0), (70.0, inf, 4), (50.0, 51.0, 0), (50.0, 49.0, 4)],
)
def test_a_job_waits_for_gpus_that_are_free_soon(left_s: float, wait_s: float, gets: int) -> None:
    """Taking the GPUs costs 60 s of harm. They are free in `left_s`; the job waits for up to `wait_s`."""
    market = Market({"": 4}, [claim("soon", FOUR, 4 * left_s, held=4)])
    assert market.serve(claim("new", FOUR, 40.0, fresh=True), wait_s).gpus == gets


def test_two_jobs_do_not_wait_for_the_same_gpus() -> None:
    """Jobs of 4 GPUs end after 10 and after 100 s; taking them costs 60 s."""
    running = [claim("soon", FOUR, 40.0, held=4), claim("later", FOUR, 400.0, held=4)]
    market = Market({"": 8}, running)
    assert [market.serve(claim(name, FOUR, 4.0, fresh=True)).gpus for name in ("a", "b")] == [0, 4]


def test_a_job_waits_for_as_many_gpus_as_it_needs() -> None:
    """2 GPUs are free at once, 8 after 5 s. On 2 the job takes 100 s, on 8 it takes 25."""
    pair, eight = ClaimCurve((8,), (8.0,), (999.0,), (0.0,)), power(1.0, most=8)
    running = [claim("soon", pair, 40.0, held=8)]
    market = Market({"": 10}, running)
    assert market.serve(claim("new", eight, 200.0, fresh=True)).gpus == 0


# The rest


def test_the_rest_goes_to_the_job_with_the_most_time_left() -> None:
    curve = power(0.5)
    market: Market[str] = Market({"": 9}, [])
    for name, work in [("short", 10.0), ("long", 1000.0)]:
        market.serve(claim(name, curve, work, price=9.0, fresh=True))
    assert market.shares == {"short": PricedShare(1), "long": PricedShare(1)}
    market.give_rest()
    assert market.shares == {"short": PricedShare(1), "long": PricedShare(8)}
    assert market.left == {"": 0}


@pytest.mark.parametrize(("restart_s", "held", "kept"), [(100.0, 4, False), (0.0, 2, True)])
def test_the_rest_stays_free_where_no_job_gets_it(restart_s: float, held: int, kept: bool) -> None:
    """A restart of 100 s saves 60 s at most; a job that is kept keeps what it holds."""
    job = claim("a", power(1.0, restart_s, most=8), 240.0, held=held)
    market = Market({"": 8}, [job])
    (market.keep if kept else market.serve)(job)
    market.give_rest()
    assert market.shares == {"a": PricedShare(held)}
    assert market.left == {"": 8 - held}


# Several types


def test_the_rest_moves_a_job_to_a_type_where_it_is_done_earlier() -> None:
    fast = ClaimCurve(SIZES, [4 * n**0.5 for n in SIZES], [0.0] * 5, [0.0] * 5)
    market: Market[str] = Market({"a": 16, "h": 16}, [], worth={"a": 0.1, "h": 1.0})
    assert market.serve(Claim("job", {"a": power(0.5), "h": fast}, 100.0, 100.0)).gpu_type == "a"
    market.give_rest()
    assert market.shares == {"job": PricedShare(16, "h")}
    assert market.left == {"a": 16, "h": 0}


def test_a_job_takes_the_type_on_which_its_gpu_seconds_are_worth_least() -> None:
    """`even` is as fast on both types, `picky` four times as fast on the better one."""
    slow, fast = power(0.5), ClaimCurve(SIZES, [4 * n**0.5 for n in SIZES], [0.0] * 5, [0.0] * 5)
    market: Market[str] = Market({"a": 16, "h": 16}, [], worth={"a": 0.5, "h": 1.0})
    assert market.serve(Claim("even", {"h": slow, "a": slow}, 100.0, 0.2)).gpu_type == "a"
    assert market.serve(Claim("picky", {"a": slow, "h": fast}, 100.0, 0.2)).gpu_type == "h"


# Every division


@st.composite
def scenes(draw: st.DrawFn) -> tuple[dict[str, int], list[Claim[int]], dict[int, PricedShare]]:
    """GPUs of one or two types, jobs in order, some of which run, and floors for some."""
    types = draw(st.sampled_from([("",), ("a", "h")]))
    total = dict.fromkeys(types, 16)
    free = dict(total)
    claims, floors = [], {}
    for number in range(draw(st.integers(1, 6))):
        exponent = draw(st.floats(0.1, 1.0))
        curves = {name: power(exponent, draw(st.floats(0.0, 50.0))) for name in types}
        name = draw(st.sampled_from(types))
        held = draw(st.sampled_from([0, *(size for size in SIZES if size <= free[name])]))
        free[name] -= held
        one = Claim(number, curves, draw(st.floats(0.1, 1e4)), draw(st.floats(0.0, 3.0)))
        one.held, one.gpu_type, one.fresh = held, name if held else "", not held and draw(st.booleans())
        one.paying_s = draw(st.floats(0.0, 50.0)) if held else 0.0
        claims.append(one)
    spare = dict(total)
    for one in claims:
        name = one.gpu_type or draw(st.sampled_from(types))
        size = draw(st.sampled_from([0, *(size for size in SIZES if size <= spare[name])]))
        if size and draw(st.booleans()):
            floors[one.job] = PricedShare(size, name)
            spare[name] -= size
    return total, claims, floors


@settings(max_examples=examples(200), deadline=None)
@given(scenes())
def test_no_gpu_is_given_twice_and_floors_hold(
    scene: tuple[dict[str, int], list[Claim[int]], dict[int, PricedShare]],
) -> None:
    total, claims, floors = scene
    market = Market(total, [one for one in claims if one.held], floors=floors)
    for one in claims:
        market.serve(one)
    market.give_rest()
    for name, gpus in total.items():
        given_out = sum(share.gpus for share in market.shares.values() if share.gpu_type == name)
        assert given_out + market.left[name] == gpus
        assert market.left[name] >= 0
    for share in market.shares.values():
        assert share.gpus in SIZES
    for job, floor in floors.items():
        assert market.shares[job].gpu_type == floor.gpu_type
        assert market.shares[job].gpus >= floor.gpus


# Prices


def test_prices_fall_with_rank() -> None:
    prices = Prices(price=2.0, floor=1.0)
    assert [prices.of(rank, 3, 10) for rank in range(3)] == [0.5, 0.3, 0.1]
    assert {Prices(2.0, 1.0, ranked=False).of(rank, 3, 10) for rank in range(3)} == {0.7}


# Stated work


def test_a_job_that_tells_the_truth_has_what_it_states() -> None:
    work = StatedWork(100.0)
    assert [work.left(left, 100.0 - left, 1.0) for left in (100.0, 11.0, 9.0, 0.5)] == [100.0, 11.0, 9.0, 0.5]


def test_the_last_tenth_is_counted_down_while_the_job_works_and_then_half_is_left() -> None:
    """It does 2 units a GPU-second."""
    work = StatedWork(100.0, again=0.5)
    looks = [(20.0, 40.0), (10.0, 47.0), (10.0, 47.0), (10.0, 50.0), (10.0, 70.0)]
    assert [work.left(left, gpu_s, 2.0) for left, gpu_s in looks] == [20.0, 6.0, 6.0, 50.0, 50.0]


def test_a_job_that_loses_work_states_more_again() -> None:
    work = StatedWork(100.0)
    looks = [(10.0, 90.0), (40.0, 90.0), (10.0, 120.0)]
    assert [work.left(left, gpu_s, 1.0) for left, gpu_s in looks] == [10.0, 40.0, 10.0]
