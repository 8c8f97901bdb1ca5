"""Tables of sample lengths: what they say, what is wrong with them, and where the shipped one comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.evidence.build_lengths import class_table
from experiments.evidence.build_lengths import main as build
from itertime.errors import UserError
from itertime.spec import Lengths, list_lengths, load_lengths
from itertime.spec.lengths import LENGTHS
from tests.effort import examples

HISTOGRAM = Path("mlperf") / "wikipedia_length_histogram_512.csv"


def write(folder: Path, text: str, name: str = "lengths.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_histogram_becomes_shares(tmp_path: Path) -> None:
    lengths = load_lengths(write(tmp_path, "tokens,sequences\n2,1\n3,0\n5,3\n"))
    assert (lengths.name, lengths.tokens, lengths.shares) == ("lengths", (2, 5), (0.25, 0.75))
    assert lengths.source == str(tmp_path / "lengths.csv")
    assert (lengths.mean, lengths.mean_square, lengths.longest) == (4.25, 19.75, 5)
    assert [lengths.quantile(q) for q in (0, 0.25, 0.26, 1)] == [2, 2, 5, 5]


def test_shares_and_classes_are_read_too(tmp_path: Path) -> None:
    shares = load_lengths(write(tmp_path, "share,tokens\n0.25,2\n0.75,5\n"))
    assert (shares.tokens, shares.shares) == ((2, 5), (0.25, 0.75))
    classes = load_lengths(
        write(tmp_path, "# why\nfirst,last,mean,share\n1,3,2.25,0.5\n9,9,9,0.5\n", "c.csv")
    )
    assert classes.tokens == (1, 2, 3, 9)
    assert classes.shares == pytest.approx((0.5 * 5 / 24, 0.5 / 3, 0.5 * 11 / 24, 0.5))
    assert classes.mean == pytest.approx((2.25 + 9) / 2)


HEAD = "tokens,sequences\n"


@given(st.text("0123456789,-.e\n tokensquc", max_size=60) | st.text(max_size=20))
def test_any_text_is_a_table_or_told(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "l.csv"
    path.write_text(HEAD + text, encoding="utf-8", newline="")
    try:
        lengths = load_lengths(str(path))
    except UserError as error:
        told = str(error)
        assert "l.csv" in told
        return
    assert 1 <= lengths.tokens[0] <= lengths.mean <= lengths.longest


def test_the_shipped_table_is_small_and_has_a_source() -> None:
    assert list_lengths() == ["wikipedia-512"]
    text = (LENGTHS / "wikipedia-512.csv").read_text()
    assert len(text.splitlines()) < 64
    assert "python -m experiments.evidence.build_lengths" in text
    assert "graphcore/examples @ 2d8b5653" in text
    lengths = load_lengths("wikipedia-512", 512)
    assert lengths.source == "lengths/wikipedia-512.csv of itertime"
    assert lengths.longest == 512
    assert lengths.shares[-1] == pytest.approx(0.234, abs=5e-4)  # published: 23.4 %


def test_the_shipped_table_follows_from_the_histogram(shared_dir: Path, tmp_path: Path) -> None:
    """The program's own table: mean, mean square and the share at 512 tokens are those of the histogram."""
    histogram = shared_dir / "data" / HISTOGRAM
    if not histogram.is_file():
        pytest.skip(f"no histogram of lengths at {histogram}")
    assert build([str(histogram), "-o", str(tmp_path / "l.csv")]) == 0
    assert (tmp_path / "l.csv").read_text() == (LENGTHS / "wikipedia-512.csv").read_text()
    exact, shipped = load_lengths(str(histogram)), load_lengths("wikipedia-512")
    assert shipped.mean == pytest.approx(exact.mean, rel=1e-6)
    assert shipped.mean_square == pytest.approx(exact.mean_square, rel=1e-5)
    assert shipped.shares[-1] == pytest.approx(exact.shares[-1], rel=1e-8)
    far = max(abs(shipped.quantile(q) - exact.quantile(q)) for q in np.linspace(0, 1, 201))
    assert far <= 1


@settings(max_examples=examples(50))
@given(
    counts=st.dictionaries(st.integers(1, 300), st.integers(1, 10**6), min_size=1), classes=st.integers(1, 80)
)
def test_classes_keep_mean_and_share(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[int, int], classes: int
) -> None:
    """Of any histogram: the mean is kept, also with gaps and peaks."""
    folder = tmp_path_factory.mktemp("classes")
    rows = "".join(f"{tokens},{count}\n" for tokens, count in sorted(counts.items()))
    exact = load_lengths(write(folder, HEAD + rows))
    classed = load_lengths(write(folder, class_table(exact, classes), "c.csv"))
    assert classed.mean == pytest.approx(exact.mean, rel=1e-5)
    peaks = [tokens for tokens, share in zip(exact.tokens, exact.shares, strict=True) if share >= 1 / classes]
    for tokens in peaks:
        share = classed.shares[classed.tokens.index(tokens)]
        assert share == pytest.approx(exact.shares[exact.tokens.index(tokens)], abs=1e-8)


def test_equal_tables_are_one_key() -> None:
    one, same = (Lengths("a", "b", (1, 2), (0.5, 0.5)) for _ in range(2))
    assert len({one, same, Lengths("a", "b", (1, 2), (0.4, 0.6))}) == 2
