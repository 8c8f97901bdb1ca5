"""Max-min fair shares: by definition, by the textbook algorithm, and after any sequence of small changes."""

import doctest
from collections.abc import Mapping, Sequence
from math import fsum
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import clustersim.speed.network.fair_sharing
from clustersim.speed.network.fair_sharing import MaxMinLinks
from tests.effort import examples, first

Demand = Mapping[int, float]
LINKS = range(5)
amounts = st.floats(0.01, 100.0)
jobs_on_links = st.lists(st.dictionaries(st.sampled_from(LINKS), amounts, max_size=4), max_size=8)
capacities = st.fixed_dictionaries(dict.fromkeys(LINKS, amounts))


def shares_of(demands: Sequence[Demand], capacity: Demand) -> list[float]:
    """The shares of jobs that are all added at once."""
    links: MaxMinLinks[int] = MaxMinLinks(capacity)
    for job, demand in enumerate(demands):
        links.add(job, demand)
    reported = dict(links.settle())
    return [reported[job] for job in range(len(demands))]


def progressive_filling(demands: Sequence[Demand], capacity: Demand) -> list[float]:
    """The textbook algorithm (Bertsekas and Gallager, Data Networks, 2nd edition, 1992, section 6.5.2): all
    shares grow together from 0; when a link is full, the shares of its jobs are final; the others grow on.
    """
    shares = [1.0] * len(demands)
    growing = dict.fromkeys(range(len(demands)))
    while growing:
        full = {}
        for link in capacity:
            asked = sum(demands[job].get(link, 0.0) for job in growing)
            taken = sum(
                shares[job] * demand.get(link, 0.0)
                for job, demand in enumerate(demands)
                if job not in growing
            )
            if asked:
                full[link] = (capacity[link] - taken) / asked
        level = min(full.values(), default=1.0)
        if level >= 1.0:
            break
        first = {link for link in full if full[link] <= level * (1 + 1e-13)}
        for job in [job for job in growing if first & demands[job].keys()]:
            shares[job] = level
            del growing[job]
    return shares


def _used(demands: Sequence[Demand], shares: Sequence[float], link: int) -> float:
    return sum(share * demand.get(link, 0.0) for share, demand in zip(shares, demands, strict=True))


@given(jobs_on_links, capacities)
@settings(max_examples=examples(300), deadline=None)
def test_every_job_has_its_demand_or_a_full_link_on_which_no_job_has_more(
    demands: list[dict[int, float]], capacity: dict[int, float]
) -> None:
    """This defines the max-min fair allocation (Bertsekas and Gallager 1992, section 6.5.2)."""
    shares = shares_of(demands, capacity)
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


@pytest.mark.parametrize("shares", [shares_of, progressive_filling])
def test_by_hand(shares) -> None:  # type: ignore[no-untyped-def]
    assert shares([], {0: 1.0}) == []
    assert shares([{}], {0: 1.0}) == [1.0]
    assert shares([{0: 1.0}], {0: 1.0}) == [1.0], "a link that is just full limits no job"
    assert shares([{0: 4.0}, {0: 4.0}], {0: 4.0}) == [0.5, 0.5], "two jobs on one link"
    assert shares([{0: 3.0}, {0: 1.0}], {0: 2.0}) == [0.5, 0.5], "three NICs and one: equal per NIC"
    assert shares([{0: 2.0}, {0: 2.0, 1: 2.0}, {1: 2.0}], {0: 1.0, 1: 3.0}) == [0.25, 0.25, 1.0]
    thirds = [{0: 0.1, 1: 1.0}] * 3 + [{0: 0.2, 1: 0.3}] * 3
    assert max(shares(thirds, {0: 0.3, 1: 1.3})) < 1, "a link that rounding leaves a hair too full"
    assert shares([{7: 5.0}], {0: 1.0}) == [1.0], "a link that nothing is known of"


def test_a_link_that_rounding_leaves_a_hair_too_full_limits_no_job() -> None:
    assert fsum([0.1, 0.2]) > 0.3
    assert shares_of([{0: 0.1}, {0: 0.2}], {0: 0.3}) == [1.0, 1.0]


def test_traffic_of_very_unequal_sizes() -> None:
    """The small job disappears in the rounding of the sums; the large jobs do not."""
    assert shares_of([{0: 1e20, 1: 1.0}, {0: 1.0}], {0: 1e20, 1: 0.5})[0] == 0.5
    assert shares_of([{0: 1e20, 1: 4.0}, {0: 1.0}, {1: 4.0}], {0: 0.5e20, 1: 4.0}) == [0.5, 0.5, 0.5]


# Fabrics: the capacity of each link, and one job's demand on them.

coins = st.integers(1, 6).map(float)  # few different numbers: links that are just full, levels that are equal
ROUGH = {link: 10.0 * (link + 1) for link in LINKS}
rough = st.dictionaries(st.sampled_from(range(6)), st.floats(0.1, 30.0), max_size=4)
EVEN = dict.fromkeys(range(6), 6.0)
even = st.dictionaries(st.sampled_from(range(6)), coins, max_size=5)
# Eight leaves of 32 nodes under two spine blocks, 4 and 2 times oversubscribed; a NIC is 25e9 bytes/s.
TREE = dict.fromkeys(range(8), 8 * 200e9) | {-1 - block: 16 * 200e9 for block in range(2)}


@st.composite
def tree(draw: st.DrawFn) -> dict[int, float]:
    """As `demand_of`: equal parts, except for a leaf with few of the GPUs."""
    leaves = draw(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
    if len(leaves) == 1:
        return {}
    nodes = draw(st.sampled_from((1, 2, 4, 8)))
    demand = dict.fromkeys(leaves, nodes * 200e9)
    demand[leaves[0]] = draw(st.integers(1, 8 * nodes)) * 25e9
    if len({leaf // 4 for leaf in leaves}) > 1:
        demand |= {-1 - leaf // 4: nodes * 200e9 for leaf in leaves}
    return demand


class LinksMachine(RuleBasedStateMachine):
    """Jobs come and go; after each step the shares equal those computed from scratch."""

    fabrics = (ROUGH, rough, 1e-9), (EVEN, even, 1e-12), (TREE, tree(), 1e-12)

    @initialize(number=st.integers(0, 2))
    def build(self, number: int) -> None:
        self.capacity, self.demands, self.precision = self.fabrics[number]
        self.links: MaxMinLinks[int] = MaxMinLinks(self.capacity)
        self.here: dict[int, Demand] = {}
        self.reported: dict[int, float] = {}
        self.count = 0

    @rule(data=st.data(), many=st.integers(1, 4))
    def add(self, data: st.DataObject, many: int) -> None:
        for _ in range(many):
            self.here[self.count] = data.draw(self.demands)
            self.links.add(self.count, self.here[self.count])
            self.count += 1

    @precondition(lambda self: self.here)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.here)))
        del self.here[job]
        self.reported.pop(job, None)
        self.links.remove(job)

    @rule()
    def settle(self) -> None:
        for job, share in self.links.settle():
            assert self.reported.get(job) != share, "only what has changed is reported"
            self.reported[job] = share
        demands = list(self.here.values())
        by_the_book = dict(zip(self.here, progressive_filling(demands, self.capacity), strict=True))
        assert self.reported == pytest.approx(by_the_book, rel=self.precision)
        at_once = dict(zip(self.here, shares_of(demands, self.capacity), strict=True))
        assert self.reported == pytest.approx(at_once, rel=1e-12)
        levels = {job: self.links._flows[job].lowest for job in self.here}
        assert levels == at_once, "to the last bit"

    @invariant()
    def remembers(self) -> None:
        for job, share in self.reported.items():
            assert self.links.share(job) == share


LinksMachine.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)
TestLinks = LinksMachine.TestCase


@pytest.mark.parametrize(("capacity", "wide"), [(TREE, True), (EVEN, False)])
@pytest.mark.parametrize("seed", first(1, range(4)))
def test_long_histories(capacity: Demand, wide: bool, seed: int) -> None:
    """As above, for hundreds of changes in a row: the state kept between changes stays right."""
    random = Random(seed)
    links: MaxMinLinks[int] = MaxMinLinks(capacity)
    here: dict[int, Demand] = {}
    for job in range(500):
        for other in random.sample(sorted(here), len(here) > 12 and random.choice((1, 1, 2))):
            links.remove(other)
            del here[other]
        chosen = random.sample(sorted(capacity), random.randint(1, 4))
        here[job] = {link: random.choice((1, 2, 4, 5)) * (25e9 * 8 if wide else 1.0) for link in chosen}
        links.add(job, here[job])
        links.settle()
        levels = [links._flows[job].lowest for job in here]
        assert levels == shares_of(list(here.values()), capacity)


def test_jobs_elsewhere_are_left_alone() -> None:
    links: MaxMinLinks[str] = MaxMinLinks({0: 1.0, 1: 1.0, 2: 100.0})
    for name, demand in {"a": {0: 1.0}, "b": {0: 1.0, 2: 1.0}, "c": {1: 1.0, 2: 1.0}, "d": {1: 1.0}}.items():
        links.add(name, demand)
    assert links.settle() == [("a", 0.5), ("b", 0.5), ("c", 0.5), ("d", 0.5)]
    links.remove("d")
    before = links.levels_computed
    assert links.settle() == [("c", 1.0)]
    assert links.levels_computed == before + 1, "link 1; link 2 has room for all, and link 0 is elsewhere"


def test_work_goes_by_what_changes_and_not_by_what_is_connected() -> None:
    """A long chain of full links, each shared by two jobs: a new job at one end changes only links nearby."""
    links: MaxMinLinks[int] = MaxMinLinks({link: 1.0 + link % 3 for link in range(1000)})
    for job in range(999):
        links.add(job, {job: 1.5, job + 1: 1.5})
    links.settle()
    before = links.levels_computed
    links.add(1000, {500: 1.5})
    changed = links.settle()
    assert 2 <= len(changed) < 10
    assert links.levels_computed - before < 40


def test_the_example() -> None:
    assert doctest.testmod(clustersim.speed.network.fair_sharing).attempted > 4
    assert not doctest.testmod(clustersim.speed.network.fair_sharing).failed
