"""Packs, strata and dealing, and the slowest rank: published figures, small cases in full, laws."""

import itertools
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from itertime.costs.balance.drawn_work import Dealt, drawn_work, rows_of, sampled_work
from itertime.costs.balance.hulls import stacked, upper_hull
from itertime.costs.balance.imbalance import exchange_bytes
from itertime.costs.balance.order_statistics import Part, sum_distribution
from itertime.costs.balance.packing import packs_of
from itertime.costs.balance.sampling import deal, draw
from itertime.costs.balance.slowest import IndependentRanks, SlowestRank, UnitPart
from itertime.costs.balance.strata import apportioned, bin_edges, stratified_counts
from itertime.spec import Lengths, PlanOptions, load_lengths
from tests.effort import examples
from tests.tables import table_rows


@pytest.mark.parametrize(("most", "efficiency", "factor"), table_rows("efficiency of packs"))
def test_published_efficiency(most: int, efficiency: float, factor: float, histogram: Lengths) -> None:
    packs = packs_of(histogram, 512, most)
    assert 100 * packs.efficiency == pytest.approx(efficiency, abs=0.06)
    assert packs.samples == pytest.approx(factor, abs=0.006)
    shipped = packs_of(load_lengths("wikipedia-512"), 512, most)
    assert 100 * shipped.efficiency == pytest.approx(efficiency, abs=0.2)


@given(st.dictionaries(st.integers(1, 64), st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 6))
def test_every_sequence_is_packed_once(counts: dict[int, int], most: int) -> None:
    total = sum(counts.values())
    lengths = Lengths("t", "t", tuple(sorted(counts)), tuple(counts[t] / total for t in sorted(counts)))
    packs = packs_of(lengths, 64, most)
    rows = total / packs.samples
    packed = dict.fromkeys(counts, 0.0)
    for pack, share in zip(packs.packs, packs.shares, strict=True):
        assert sum(pack) <= 64
        assert 1 <= len(pack) <= most
        for tokens in pack:
            packed[tokens] += share * rows
    assert packed == pytest.approx(counts)
    assert packs.squares == tuple(sum(t * t for t in pack) for pack in packs.packs)
    assert 1 / 64 <= packs.efficiency <= 1
    assert packs.efficiency * 64 == pytest.approx(packs.samples * lengths.mean)


def test_by_hand() -> None:
    """Of 7 and 5 in rows of 10 nothing fits together; two 5 are not put together, as they come at once."""
    lengths = Lengths("t", "t", (3, 5, 7), (0.5, 0.25, 0.25))
    packs = packs_of(lengths, 10, 3)
    assert dict(zip(packs.packs, packs.shares, strict=True)) == pytest.approx({(7, 3): 0.5, (5, 3): 0.5})
    assert packs_of(lengths, 10, 1).samples == 1


def test_rows_are_those_of_the_submissions() -> None:
    """NVIDIA's packed runs: 4 samples a GPU in 2 rows (v2.0), 96 in 48, 224 in 112 (v3.0 and v3.1)."""
    lengths = load_lengths("wikipedia-512")
    assert [rows_of(lengths, "packed", samples, 512) for samples in (1, 4, 96, 224)] == [1, 2, 48, 112]
    assert rows_of(lengths, "unpadded", 7, 512) == 7


def test_many_lengths_and_long_rows_are_packed_at_once() -> None:
    """The work grows with the lengths, not with the tokens of a row: a billion would take minutes."""
    tokens = tuple(range(1, 20_001))
    lengths = Lengths("many", "an example", tokens, (1 / len(tokens),) * len(tokens))
    started = time.process_time()
    packs = packs_of(lengths, 10**9)
    assert time.process_time() - started < 10
    assert packs.samples == pytest.approx(16)
    assert packs.efficiency == pytest.approx(16 * lengths.mean / 10**9)


SUBMITTED = {16: [6, 3, 2, 5], 12: [4, 2, 2, 4]}
"""Samsung's `--split_batch_cnt`, by samples of a GPU."""


@pytest.mark.parametrize("samples", SUBMITTED)
def test_counts_are_those_submitted(samples: int, histogram: Lengths) -> None:
    assert bin_edges(512) == [128, 256, 384, 512]
    for lengths in (load_lengths("wikipedia-512"), histogram):
        assert stratified_counts(lengths, samples, 512) == SUBMITTED[samples]


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=4), st.integers(0, 12))
def test_no_move_of_a_sample_makes_two_bins_more_equal(weights: list[int], more: int) -> None:
    """Huntington's test of pairs: of two ways to split, the one taken has the least relative difference."""
    seats = len(weights) + more
    counts = apportioned([weight / sum(weights) for weight in weights], seats)
    assert sum(counts) == seats
    assert min(counts) >= 1

    def difference(a: float, b: float) -> float:
        return max(a, b) / min(a, b)

    for one, other in itertools.permutations(range(len(weights)), 2):
        if counts[one] > 1:
            now = difference(weights[one] / counts[one], weights[other] / counts[other])
            moved = difference(weights[one] / (counts[one] - 1), weights[other] / (counts[other] + 1))
            assert now <= moved * (1 + 1e-9)


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_units_are_drawn_with_their_probabilities(weights: list[float], seed: int) -> None:
    count = 20_000
    shares = np.array(weights) / sum(weights)
    drawn = draw(np.random.default_rng(seed), weights, (count,), start=3)
    found = np.bincount(drawn - 3, minlength=len(weights)) / count
    # Six standard deviations, and two units more, as a rare one is not normal.
    assert (abs(found - shares) <= 6 * np.sqrt(shares * (1 - shares) / count) + 2 / count).all()


def test_many_units_need_more_bits() -> None:
    rng = np.random.default_rng(0)
    assert draw(rng, np.ones(100), (3,)).dtype == np.int16
    large = draw(rng, np.ones(40_000), (100_000,))
    assert large.dtype == np.int32
    assert (large.min(), large.max()) == (0, 39_999)


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_dealing_keeps_all_and_forgets_the_order(pools: int, ranks: int, rounds: int, order) -> None:  # type: ignore[no-untyped-def]
    units = np.array([order.randrange(9) for _ in range(pools * ranks * rounds)], dtype=np.int16)
    units = units.reshape(pools, ranks * rounds)
    dealt = deal(units, ranks)
    assert dealt.shape == (pools, ranks, rounds)
    assert (np.sort(dealt.reshape(pools, -1)) == np.sort(units)).all()
    assert (np.diff(dealt.astype(int), axis=2) <= 0).all()
    shuffled = np.array([order.sample(row, len(row)) for row in units.tolist()], dtype=np.int16)
    assert (deal(shuffled, ranks) == dealt).all()


POINTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=30)


@given(st.lists(POINTS, min_size=1, max_size=4), st.floats(0, 1e3), st.floats(0, 1e3))
def test_hulls_hold_the_maximum_of_any_work(clouds: list[list[tuple[int, int]]], a: float, b: float) -> None:
    points = [np.array(cloud, dtype=float) for cloud in clouds]
    hulls = [upper_hull(cloud) for cloud in points]
    for cloud, hull in zip(points, hulls, strict=True):
        assert {*map(tuple, hull.tolist())} <= {*map(tuple, cloud.tolist())}
        assert len(hull) == len({*map(tuple, hull.tolist())})
        slopes = np.diff(hull[:, 1]) / np.diff(hull[:, 0])
        assert (np.diff(slopes) > 0).all()  # ever flatter, so no corner is on the line of others
    weights = np.array((a, b))
    best = (stacked(hulls) @ weights).max(axis=1)
    assert best == pytest.approx(np.array([(cloud @ weights).max() for cloud in points]))


def test_an_exchange_gathers_four_arrays_of_two_bytes() -> None:
    assert exchange_bytes("exchanged", 16, 512) == (4 * 2 * 16 * 512, True)
    assert exchange_bytes("stratified-exchanged", 16, 512) == (65_536, True)
    assert exchange_bytes("sorted", 56, 512) == (229_376, False)
    assert exchange_bytes("stratified", 16, 512) == exchange_bytes("drawn", 16, 512) == (0, True)


BALANCES = ("drawn", "sorted", "exchanged", "stratified", "stratified-exchanged")
HIDDEN = 1024
LINEAR, QUADRATIC = 24 * HIDDEN**2, 4 * HIDDEN  # multiply-adds of a layer of BERT-Large
SIGMAS = 5  # one false alarm in a million


def slowest(
    lengths: Lengths, balance: str, ranks: int, samples: int, node_ranks: int = 8, batching: str = "unpadded",
    micro_batch: int = 1, seq_len: int = 512, work: tuple[float, float] = (LINEAR, QUADRATIC),
) -> SlowestRank:  # fmt: skip
    options = PlanOptions(batching=batching, balance=balance)  # type: ignore[arg-type]
    return drawn_work(lengths, options, ranks, samples, node_ranks, micro_batch, seq_len).slowest(*work)


@pytest.mark.parametrize(("balance", "imbalance"), table_rows("imbalance by balance"))
def test_published_imbalance_from_the_shipped_table(balance: str, imbalance: float) -> None:
    found = slowest(load_lengths("wikipedia-512"), balance, 1024, 16)
    assert found.imbalance == pytest.approx(imbalance, abs=0.01)
    assert found.error < 0.003 * found.average


@pytest.mark.parametrize(("balance", "imbalance"), table_rows("imbalance by balance"))
def test_published_imbalance_from_the_histogram(balance: str, imbalance: float, histogram: Lengths) -> None:
    assert slowest(histogram, balance, 1024, 16).imbalance == pytest.approx(imbalance, abs=0.01)


def test_padding_to_512_doubles_the_work(histogram: Lengths) -> None:
    padded = slowest(histogram, "drawn", 1024, 16, batching="padded")
    assert padded.mean / slowest(histogram, "drawn", 1024, 16).average == pytest.approx(2.04, abs=0.01)
    assert padded == (padded.average, padded.average, padded.average, 0.0, padded.average)


SMALL = Lengths("small", "here", (1, 2, 5), (0.5, 0.3, 0.2))
BINNED = Lengths("binned", "here", (1, 2, 3, 4, 5, 6, 7, 8), (0.2, 0.1, 0.1, 0.1, 0.05, 0.15, 0.1, 0.2))


def snake(samples: Sequence[int], ranks: int) -> list[list[int]]:
    """Dealt by hand."""
    hands: list[list[int]] = [[] for _ in range(ranks)]
    ordered = sorted(samples, reverse=True)
    for number, sample in enumerate(ordered):
        turn, place = divmod(number, ranks)
        hands[place if turn % 2 == 0 else ranks - 1 - place].append(sample)
    return hands


def drawn_iterations(
    lengths: Lengths, balance: str, ranks: int, samples: int, seq_len: int
) -> Iterator[tuple[float, list[list[int]]]]:
    """Every possible draw with its probability: the samples of each rank."""
    every = list(zip(lengths.tokens, lengths.shares, strict=True))
    choices = [every] * samples
    if balance.startswith("stratified"):
        edges = [0, *(seq_len * part // 4 for part in (1, 2, 3, 4))]
        choices = []
        for number, count in enumerate(stratified_counts(lengths, samples, seq_len)):
            own = [(t, share) for t, share in every if edges[number] < t <= edges[number + 1]]
            total = sum(share for _, share in own)
            choices += [[(t, share / total) for t, share in own]] * count
    for drawn in itertools.product(*choices * ranks):
        probability = math.prod(share for _, share in drawn)
        tokens = [t for t, _ in drawn]
        yield probability, [tokens[rank * samples : (rank + 1) * samples] for rank in range(ranks)]


def enumerated(
    lengths: Lengths, balance: str, ranks: int, samples: int, node: int, micro_batch: int, seq_len: int
) -> tuple[float, float]:
    """Mean of the slowest rank and of all ranks, for work 3 t + 0.5 t^2 of a sample, by trying all draws."""
    worst = average = 0.0
    for probability, hands in drawn_iterations(lengths, balance, ranks, samples, seq_len):
        if balance in ("sorted", "exchanged", "stratified-exchanged"):
            group = ranks if balance == "sorted" else node
            pools = [
                [t for hand in hands[first : first + group] for t in hand] for first in range(0, ranks, group)
            ]
            hands = [hand for pool in pools for hand in snake(pool, min(group, len(pool) // samples))]
        elif balance == "stratified":
            hands = [sorted(hand) for hand in hands]
        works = []
        for hand in hands:
            batches = [hand[first : first + micro_batch] for first in range(0, samples, micro_batch)]
            works.append(sum(len(batch) * (3 * max(batch) + 0.5 * max(batch) ** 2) for batch in batches))
        worst += probability * max(works)
        average += probability * sum(works) / ranks
    return worst, average


CASES = [
    (SMALL, "drawn", 2, 3, 2, 1, 5), (SMALL, "drawn", 5, 1, 2, 1, 5), (SMALL, "drawn", 3, 2, 2, 2, 5),
    (SMALL, "sorted", 2, 3, 2, 1, 5), (SMALL, "sorted", 4, 2, 2, 2, 5), (SMALL, "exchanged", 4, 2, 2, 1, 5),
    (SMALL, "exchanged", 3, 2, 2, 1, 5), (SMALL, "exchanged", 2, 4, 2, 2, 5),
    (BINNED, "stratified", 2, 4, 2, 1, 8), (BINNED, "stratified", 2, 4, 2, 2, 8),
    (BINNED, "stratified-exchanged", 2, 4, 2, 1, 8), (BINNED, "stratified-exchanged", 2, 4, 2, 2, 8),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[1]}-{case[2]}x{case[3]}-{case[5]}")
def test_small_cases_against_enumeration(case: tuple[Lengths, str, int, int, int, int, int]) -> None:
    """What is computed is exact but for its grid; what is sampled is within its stated error."""
    lengths, balance, ranks, samples, node, micro_batch, seq_len = case
    worst, average = enumerated(*case)
    found = slowest(lengths, balance, ranks, samples, node, "longest", micro_batch, seq_len, (3.0, 0.5))
    assert (found.error == 0) == (balance != "exchanged" or ranks % node == 0)
    gridded = balance == "drawn" or (balance == "stratified" and micro_batch == 1)
    assert found.mean == pytest.approx(worst, rel=1e-4 if gridded else 1e-9, abs=SIGMAS * found.error)
    assert found.average == pytest.approx(average, rel=1e-9)
    drawn = sampled_work(Dealt(lengths, "longest", *case[1:])).slowest(3.0, 0.5)
    assert drawn.error > 0
    assert drawn.mean == pytest.approx(worst, abs=SIGMAS * drawn.error)
    assert drawn.average == pytest.approx(average, rel=1e-9, abs=SIGMAS * drawn.error * (micro_batch > 1))


def test_few_outcomes_of_large_nodes_are_exact_too() -> None:
    """Of two lengths 64 samples make 65 pools; percentiles against those of the draws."""
    lengths = Lengths("two", "here", (100, 400), (0.7, 0.3))
    exact = slowest(lengths, "exchanged", 32, 8, work=(1.0, 0.01))
    drawn = sampled_work(Dealt(lengths, "unpadded", "exchanged", 32, 8, 8, 1, 512)).slowest(1.0, 0.01)
    assert exact.error == 0 < drawn.error
    assert exact.mean == pytest.approx(drawn.mean, abs=SIGMAS * drawn.error)
    assert exact.low < exact.mean < exact.high


@pytest.mark.parametrize(
    ("ranks", "samples", "micro_batch"), [(8, 4, 1), (64, 16, 4), (256, 8, 8), (1024, 16, 1)]
)
@pytest.mark.parametrize("batching", ["unpadded", "longest", "packed"])
def test_draws_agree_with_order_statistics(ranks: int, samples: int, micro_batch: int, batching: str) -> None:
    lengths = load_lengths("wikipedia-512")
    dealt = Dealt(lengths, batching, "drawn", ranks, samples, 8, micro_batch, 512, seed=1)
    options = PlanOptions(batching=batching)  # type: ignore[arg-type]
    exact = drawn_work(lengths, options, *dealt[3:8])
    sampled = sampled_work(dealt)
    for work in ((1.0, 0.0), (LINEAR, QUADRATIC), (0.0, 1.0)):
        known, drawn = exact.slowest(*work), sampled.slowest(*work)
        assert known.error == 0
        assert drawn.mean == pytest.approx(known.mean, abs=SIGMAS * drawn.error + 1e-4 * known.mean)
        each = (sampled.hulls @ np.array(work)).max(axis=1)
        for quantile, q in ((known.low, 0.05), (known.high, 0.95)):
            spread = SIGMAS * math.sqrt(q * (1 - q) / len(each))
            assert (each <= quantile * (1 + 1e-4)).mean() >= q - spread
            assert (each < quantile * (1 - 1e-4)).mean() <= q + spread


SIZES = st.tuples(st.sampled_from([1, 2, 3, 8, 20, 64]), st.sampled_from([4, 6, 16]))
TABLES = st.dictionaries(st.integers(1, 512), st.integers(1, 1000), min_size=1, max_size=20)


def table(counts: dict[int, int]) -> Lengths:
    total = sum(counts.values())
    return Lengths("t", "t", tuple(sorted(counts)), tuple(counts[t] / total for t in sorted(counts)))


@settings(max_examples=examples(60))
@given(
    TABLES,
    SIZES,
    st.sampled_from(BALANCES[:3]),
    st.sampled_from(["longest", "unpadded"]),
    st.sampled_from([1, 2]),
)
def test_the_slowest_is_never_below_the_mean(
    counts: dict[int, int], sizes: tuple[int, int], balance: str, batching: str, micro_batch: int
) -> None:
    for work in ((1.0, 0.0), (LINEAR, QUADRATIC), (0.0, 1.0)):
        found = slowest(table(counts), balance, *sizes, 4, batching, micro_batch, work=work)
        assert found.low <= found.mean <= found.high
        assert found.mean >= found.average > 0
        if len(counts) == 1 or (sizes[0] == 1 and found.error == 0):
            assert found.imbalance == pytest.approx(1, abs=1e-9)


@settings(max_examples=examples(30))
@given(TABLES, st.sampled_from([4, 8, 32]), st.sampled_from([4, 16]))
def test_dealing_among_more_ranks_balances_better(counts: dict[int, int], ranks: int, samples: int) -> None:
    """In expectation, for an even number of samples: sorted <= exchanged <= drawn."""
    over_all, in_node, drawn = (
        slowest(table(counts), balance, ranks, samples, 4) for balance in ("sorted", "exchanged", "drawn")
    )
    rounding = 1e-4 * drawn.average
    assert over_all.mean <= in_node.mean + SIGMAS * (over_all.error + in_node.error) + rounding
    assert in_node.mean <= drawn.mean + SIGMAS * in_node.error + rounding


@settings(max_examples=examples(20))
@given(TABLES, st.sampled_from(BALANCES[:3]), st.floats(1e-6, 1e6), st.floats(0, 1))
def test_the_unit_of_work_does_not_matter(
    counts: dict[int, int], balance: str, unit: float, part: float
) -> None:
    """Neither that of seconds, nor that of tokens: twice as long samples are twice the linear work."""
    lengths = table(counts)
    one = slowest(lengths, balance, 16, 4, work=(1 - part, part))
    scaled = slowest(lengths, balance, 16, 4, work=((1 - part) * unit, part * unit))
    assert np.array(scaled) == pytest.approx(np.array(one) * unit, rel=1e-9)
    double = Lengths("d", "d", tuple(2 * t for t in lengths.tokens), lengths.shares)
    doubled = slowest(double, balance, 16, 4, seq_len=1024, work=((1 - part) / 2, part / 4))
    assert np.array(doubled) == pytest.approx(np.array(one), rel=1e-9)


def test_the_same_seed_draws_the_same_in_any_process() -> None:
    code = (
        "from itertime.costs.balance.drawn_work import *; from itertime.spec import *;"
        "o = PlanOptions(batching='unpadded', balance='exchanged');"
        "print(drawn_work(load_lengths('wikipedia-512'), o, 64, 8, 8, 1, 512).slowest(1.0, 0.01))"
    )
    printed = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed})
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    lengths = load_lengths("wikipedia-512")
    options = PlanOptions(batching="unpadded", balance="exchanged")
    first, other = (
        drawn_work(lengths, options, 64, 8, 8, 1, 512, seed).slowest(1.0, 0.01) for seed in (0, 1)
    )
    assert first != other
    assert f"{first}\n".encode() in printed


def test_work_is_drawn_once() -> None:
    lengths = load_lengths("wikipedia-512")
    options = PlanOptions(batching="unpadded", balance="sorted")
    found = drawn_work(lengths, options, 16, 8, 8, 1, 512)
    assert found is drawn_work(lengths, options, 16, 8, 8, 1, 512)
    assert found is drawn_work(lengths, options, 16, 8, 4, 2, 512), (
        "sorting knows no nodes and no micro-batches"
    )


# The largest of several sums


WORKS = st.dictionaries(st.integers(0, 20), st.integers(1, 9), min_size=1, max_size=4)


def part(counts: dict[int, int], number: int) -> Part:
    return Part(
        np.array(sorted(counts), dtype=float),
        np.array([counts[w] for w in sorted(counts)], dtype=float),
        number,
    )


@settings(max_examples=examples(60))
@given(WORKS, WORKS, st.integers(1, 2), st.integers(1, 2), st.integers(1, 3))
def test_whole_numbers_are_exact(
    one: dict[int, int], other: dict[int, int], first: int, second: int, ranks: int
) -> None:
    """Two kinds of parts; every outcome of every rank is tried."""
    sums: dict[int, float] = {}
    draws = [one] * first + [other] * second
    for drawn in itertools.product(*draws):
        probability = math.prod(c[w] / sum(c.values()) for c, w in zip(draws, drawn, strict=True))
        sums[sum(drawn)] = sums.get(sum(drawn), 0.0) + probability
    distribution = sum_distribution([part(one, first), part(other, second)], step=1.0)
    assert distribution.mean == pytest.approx(sum(w * p for w, p in sums.items()), abs=1e-9)
    outcomes = [
        (max(each), math.prod(sums[w] for w in each)) for each in itertools.product(sums, repeat=ranks)
    ]
    found = distribution.maximum(ranks)
    assert found.mean == pytest.approx(sum(w * p for w, p in outcomes), abs=1e-9)
    for quantile, q in ((found.low, 0.05), (found.high, 0.95)):
        assert sum(p for w, p in outcomes if w <= quantile + 0.5) >= q - 1e-9
        assert sum(p for w, p in outcomes if w < quantile - 0.5) <= q + 1e-9


@settings(max_examples=examples(40))
@given(WORKS, st.integers(1, 30), st.integers(1, 500), st.randoms())
def test_a_grid_changes_little_and_order_nothing(
    counts: dict[int, int], number: int, ranks: int, order
) -> None:  # type: ignore[no-untyped-def]
    exact = sum_distribution([part(counts, number)], step=1.0).maximum(ranks)
    works = sorted(counts)
    order.shuffle(works)
    shuffled = Part(np.array(works, dtype=float), np.array([counts[w] for w in works], dtype=float), number)
    found = sum_distribution([shuffled]).maximum(ranks)
    span = number * (max(works) - min(works))
    assert found.mean == pytest.approx(exact.mean, abs=1e-3 * span + 1e-9)


@pytest.mark.parametrize("number", [1_000, 30_000, 1_000_000])
def test_large_sums_are_normal(number: int) -> None:
    """The largest of n sums of many draws is that of n normal ones: half the mean range of n, which is 3.0775
    standard deviations for n = 10 and 6.4829 for n = 1000 (Tippett 1925).
    """
    works, shares = np.array([0.0, 1.0, 2.0]), np.array([0.25, 0.5, 0.25])
    distribution = sum_distribution([Part(works, shares, number)])
    assert len(distribution.probabilities) < 2**18
    assert distribution.mean == pytest.approx(number, rel=1e-9)
    for ranks, deviations in ((10, 3.0775 / 2), (1000, 6.4829 / 2)):
        above = distribution.maximum(ranks).mean - number
        assert above / math.sqrt(number / 2) == pytest.approx(deviations, rel=0.01)


def test_sums_of_any_number_take_little_memory() -> None:
    works, shares = np.array([0.0, 2.0]), np.array([0.5, 0.5])
    for number in (10**8, 10**9):
        distribution = sum_distribution([Part(works, shares, number)])
        assert len(distribution.probabilities) <= 2**20
        above = distribution.maximum(1000).mean - number
        assert above / math.sqrt(number) == pytest.approx(6.4829 / 2, rel=0.2)


def test_rare_long_parts_are_not_cut_off() -> None:
    works, shares = np.array([1.0, 1000.0]), np.array([0.9999, 0.0001])
    for number in (1, 100, 10_000):
        found = sum_distribution([Part(works, shares, number)]).maximum(1000).mean
        exact = sum_distribution([Part(works, shares, number)], step=999.0).maximum(1000).mean
        assert found == pytest.approx(exact, rel=0.003)


def test_uniform_draws_have_the_known_maximum() -> None:
    """The largest of n uniform draws is n / (n + 1) on average, its quantile q is q^(1/n)."""
    steps = 100_000
    uniform = Part((np.arange(steps) + 0.5) / steps, np.full(steps, 1 / steps), 1)
    for draws in (1, 2, 9, 100):
        found = sum_distribution([uniform]).maximum(draws)
        expected = (draws / (draws + 1), 0.05 ** (1 / draws), 0.95 ** (1 / draws))
        assert np.array(found) == pytest.approx(np.array(expected), abs=1e-4)


@settings(max_examples=examples(40))
@given(
    st.dictionaries(st.integers(1, 512), st.integers(1, 9), min_size=1, max_size=9),
    st.integers(1, 40), st.integers(1, 5000), st.floats(0, 1),
)  # fmt: skip
def test_between_two_ratios_the_maximum_is_nearly_linear(
    counts: dict[int, int], number: int, ranks: int, share: float
) -> None:
    """`IndependentRanks` against the same computation for the very ratio asked for."""
    tokens = np.array(sorted(counts), dtype=float)
    shares = np.array([counts[t] for t in sorted(counts)], dtype=float)
    independent = IndependentRanks.of(
        [UnitPart(np.stack([tokens, tokens**2], axis=1), shares, number)], ranks
    )
    linear, quadratic = (1 - share) / independent.tokens, share / independent.squares
    found = independent.slowest(linear, quadratic)
    work = linear * tokens + quadratic * tokens**2
    direct = sum_distribution([Part(work, shares, number)])
    assert found.average == pytest.approx(1)
    assert found.mean == pytest.approx(direct.maximum(ranks).mean, abs=3e-4)
    assert found.average == pytest.approx(direct.mean)
