"""The calendar of free GPUs against a plain model."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.toolkit.gpu_calendar import FreeGpus

GPUS = 32
Booking = tuple[float, float, int]
"""(from, to, GPUs)."""
times = st.integers(0, 200).map(float)


@st.composite
def bookings(draw: st.DrawFn) -> list[Booking]:
    """Stretches that overlap as they like, but never take more than there is."""
    found: list[Booking] = []
    for _ in range(draw(st.integers(0, 8))):
        start = draw(times)
        end = start + draw(st.integers(1, 80))
        gpus = draw(st.sampled_from((1, 2, 3, 8, 16, 32)))
        if all(taken(found, t) + gpus <= GPUS for t in range(int(start), int(end))):
            found.append((start, end, gpus))
    return found


def taken(booked: list[Booking], time: float) -> int:
    return sum(gpus for start, end, gpus in booked if start <= time < end)


def calendar(booked: list[Booking]) -> FreeGpus:
    free = FreeGpus(0.0, GPUS)
    for booking in booked:
        free.take(*booking)
    return free


@given(bookings(), st.integers(0, 150), st.data())
@settings(deadline=None)
def test_the_calendar_counts(booked: list[Booking], now: int, data: st.DataObject) -> None:
    assume(len(set(booked)) == len(booked))
    free = calendar(booked)
    kept = [booking for booking in booked if not data.draw(st.booleans())]
    for booking in booked:
        if booking not in kept:
            free.give_back(*booking)
    twin = free.copy()
    free.advance(float(now))
    for time in range(now, 300):
        assert free.least(time, time + 0.5) == twin.least(time, time + 0.5) == GPUS - taken(kept, time)
    assert free.times == sorted(set(free.times))
    assert free.times[0] == now
    assert all(a != b for a, b in pairwise(free.free)), "equal neighbours are joined"


@given(bookings(), st.integers(0, 60), st.integers(1, 60), st.integers(1, GPUS))
@settings(deadline=None)
def test_looking_forwards(booked: list[Booking], start: int, length: int, gpus: int) -> None:
    """Second t stands for the time from t to t + 1; all bookings begin and end at whole seconds."""
    free = calendar(booked)
    counts = [GPUS - taken(booked, t) for t in range(450)]
    room = [count >= gpus for count in counts]
    assert free.least(start, start + length) == min(counts[start : start + length])
    assert free.earliest(gpus, length, start) == next(
        t for t in range(start, 400) if all(room[t : t + length])
    )
    assert free.earliest(GPUS + 1, 1.0) == float("inf")
    gaps = list(free.gaps(gpus, start))
    assert seconds_of(gaps) == [t for t in range(start, 450) if room[t]]
    assert all(a[1] < b[0] for a, b in pairwise(gaps)), "as long as they last"
    stretches = free.stretches(gpus, start, start + length)
    assert seconds_of(stretches) == [t for t in range(start, start + length) if counts[t] == gpus]
    assert free.full_s() == counts[:300].count(0)


def seconds_of(spans: list[tuple[float, float]]) -> list[int]:
    return [t for t in range(450) for start, end in spans if start <= t < end]


@given(bookings(), st.integers(0, 300), st.integers(0, 300), st.integers(1, GPUS), st.booleans())
@settings(deadline=None)
def test_looking_backwards(booked: list[Booking], now: int, end: int, gpus: int, begins_now: bool) -> None:
    free = calendar(booked)
    room = [GPUS - taken(booked, t) >= gpus for t in range(end)]
    if end:
        assert free.before(end) == GPUS - taken(booked, end - 1)
        since_s = next((t + 1 for t in range(end - 1, -1, -1) if not room[t]), 0)
        assert free.since(gpus, float(end)) == since_s
        last_s = next((t + 1 for t in range(end - 1, -1, -1) if room[t]), -float("inf"))
        assert free.last(gpus, float(end)) == last_s
    at_once = FreeGpus.beside(float(now), GPUS, booked)
    if begins_now:
        free.advance(float(now))
        at_once.advance(float(now))
        assert (at_once.times, at_once.free) == (free.times, free.free)
    counts, upper = [], end
    for lower, count in free.backwards(float(end), float(now)):
        assert now <= lower < upper
        counts += [count] * int(upper - lower)
        upper = int(lower)
    assert counts == [GPUS - taken(booked, t) for t in range(end - 1, now - 1, -1)]


def test_a_copy_is_independent_and_what_is_past_is_not_booked() -> None:
    free = calendar([(10.0, 20.0, 8)])
    free.copy().take(0.0, 30.0, 8)
    assert (free.times, free.free) == ([0.0, 10.0, 20.0], [32, 24, 32])
    free = FreeGpus(50.0, 8)
    free.take(0.0, 40.0, 8)
    free.take(45.0, 60.0, 4)
    assert (free.times, free.free) == ([50.0, 60.0], [4, 8])
