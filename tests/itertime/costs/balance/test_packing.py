"""Packing: published efficiencies, and nothing lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from itertime.costs.balance.drawn_work import rows_of
from itertime.costs.balance.packing import packs_of
from itertime.spec import Lengths, load_lengths

PUBLISHED = {
    1: (50.0, 1.00),
    2: (80.5, 1.61),
    3: (89.4, 1.79),
    4: (93.9, 1.88),
    8: (98.9, 1.98),
    16: (99.6, 1.99),
}
"""Krell et al. 2021 (arXiv 2107.02027), table 1: efficiency in percent and packing factor of Wikipedia at 512
tokens, by most samples of a pack; the last row is theirs without a limit.
"""


@pytest.mark.parametrize("most", PUBLISHED)
def test_published_efficiency(most: int, shared_dir: Path) -> None:
    path = shared_dir / "data" / "mlperf" / "wikipedia_length_histogram_512.csv"
    if not path.is_file():
        pytest.skip(f"no histogram of lengths at {path}")
    packs = packs_of(load_lengths(str(path), 512), 512, most)
    efficiency, factor = PUBLISHED[most]
    assert 100 * packs.efficiency == pytest.approx(efficiency, abs=0.06)
    assert packs.samples == pytest.approx(factor, abs=0.006)


@pytest.mark.parametrize("most", PUBLISHED)
def test_the_shipped_table_packs_nearly_as_well(most: int) -> None:
    packs = packs_of(load_lengths("wikipedia-512"), 512, most)
    assert 100 * packs.efficiency == pytest.approx(PUBLISHED[most][0], abs=0.2)


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
