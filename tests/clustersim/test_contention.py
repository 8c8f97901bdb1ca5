"""Max-min fair shares: what defines them, on random jobs and links; and that small changes are enough."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from clustersim.contention import Links, max_min_shares

LINKS = range(5)
amounts = st.floats(0.01, 100.0)
jobs_on_links = st.lists(st.dictionaries(st.sampled_from(LINKS), amounts, max_size=4), max_size=8)
capacities = st.fixed_dictionaries(dict.fromkeys(LINKS, amounts))


def _used(demands: list[dict[int, float]], shares: list[float], link: int) -> float:
    return sum(share * demand.get(link, 0.0) for share, demand in zip(shares, demands, strict=True))


@given(jobs_on_links, capacities)
@settings(max_examples=400, deadline=None)
def test_everybody_has_all_it_asks_for_or_a_full_link_on_which_nobody_has_more(
    demands: list[dict[int, float]], capacity: dict[int, float]
) -> None:
    """This defines the max-min fair allocation (Bertsekas and Gallager 1992, section 6.5.2)."""
    shares = max_min_shares(demands, capacity)
    for link in LINKS:
        assert _used(demands, shares, link) <= capacity[link] * (1 + 1e-9)
    for demand, share in zip(demands, shares, strict=True):
        assert 0 < share <= 1
        bottlenecks = [
            link
            for link in demand
            if _used(demands, shares, link) >= capacity[link] * (1 - 1e-9)
            and all(
                other <= share * (1 + 1e-9) for other, d in zip(shares, demands, strict=True) if link in d
            )
        ]
        assert share == 1 or bottlenecks


@given(jobs_on_links, capacities, st.floats(0.001, 1000.0))
@settings(max_examples=200, deadline=None)
def test_scale_does_not_matter(
    demands: list[dict[int, float]], capacity: dict[int, float], factor: float
) -> None:
    larger = [{link: factor * amount for link, amount in demand.items()} for demand in demands]
    bigger = {link: factor * amount for link, amount in capacity.items()}
    assert max_min_shares(larger, bigger) == pytest.approx(max_min_shares(demands, capacity), rel=1e-9)


@given(jobs_on_links, capacities, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_order_does_not_matter(demands: list[dict[int, float]], capacity: dict[int, float], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(len(demands)))
    random.shuffle(order)
    shares = max_min_shares(demands, capacity)
    shuffled = max_min_shares([demands[i] for i in order], capacity)
    assert shuffled == pytest.approx([shares[i] for i in order], rel=1e-9)


@given(jobs_on_links.filter(bool), capacities)
@settings(max_examples=200, deadline=None)
def test_the_worst_off_is_not_worse_off_without_another_job(
    demands: list[dict[int, float]], capacity: dict[int, float]
) -> None:
    before, after = max_min_shares(demands, capacity)[:-1], max_min_shares(demands[:-1], capacity)
    assert min(after, default=1) >= min(before, default=1) * (1 - 1e-9)


def test_by_hand() -> None:
    assert max_min_shares([], {0: 1.0}) == []
    assert max_min_shares([{}], {0: 1.0}) == [1.0]
    assert max_min_shares([{0: 1.0}], {0: 1.0}) == [1.0], "a link that is just full holds nobody back"
    assert max_min_shares([{0: 4.0}, {0: 4.0}], {0: 4.0}) == [0.5, 0.5], "two jobs on one link"
    assert max_min_shares([{0: 3.0}, {0: 1.0}], {0: 2.0}) == [0.5, 0.5], "three NICs and one: equal per NIC"
    assert max_min_shares([{0: 2.0}, {0: 2.0, 1: 2.0}, {1: 2.0}], {0: 1.0, 1: 3.0}) == [0.25, 0.25, 1.0]
    thirds = [{0: 0.1, 1: 1.0}] * 3 + [{0: 0.2, 1: 0.3}] * 3
    assert max(max_min_shares(thirds, {0: 0.3, 1: 1.3})) < 1, "a link that rounding leaves a hair too full"
    assert max_min_shares([{7: 5.0}], {0: 1.0}) == [1.0], "a link that nothing is known of"


class LinksMachine(RuleBasedStateMachine):
    """Jobs come and go; after each step the shares are those worked out from nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.capacity = {link: 10.0 * (link + 1) for link in LINKS}
        self.links: Links[int] = Links(self.capacity)
        self.here: dict[int, dict[int, float]] = {}
        self.told: dict[int, float] = {}
        self.count = 0

    @rule(demand=st.dictionaries(st.sampled_from(range(6)), st.floats(0.1, 30.0), max_size=3))
    def add(self, demand: dict[int, float]) -> None:
        self.links.add(self.count, demand)
        self.here[self.count] = demand
        self.count += 1

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.here)))
        del self.here[job]
        self.told.pop(job, None)
        self.links.remove(job)

    @rule()
    def settle(self) -> None:
        for job, share in self.links.settle():
            assert self.told.get(job) != share, "only what has changed is told"
            self.told[job] = share
        expected = max_min_shares(list(self.here.values()), self.capacity)
        assert self.told == pytest.approx(dict(zip(self.here, expected, strict=True)), rel=1e-9)

    @invariant()
    def remembers(self) -> None:
        for job, share in self.told.items():
            assert self.links.share(job) == share


LinksMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestLinks = LinksMachine.TestCase


def test_jobs_elsewhere_are_left_alone() -> None:
    links: Links[str] = Links({0: 1.0, 1: 1.0, 2: 100.0})
    for name, demand in {"a": {0: 1.0}, "b": {0: 1.0, 2: 1.0}, "c": {1: 1.0, 2: 1.0}, "d": {1: 1.0}}.items():
        links.add(name, demand)
    assert dict(links.settle()) == {"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.5}
    links.remove("d")
    assert links._connected([1]) == {"c": None}, "link 2 has room for everybody, so it connects nobody"
    assert links.settle() == [("c", 1.0)]
