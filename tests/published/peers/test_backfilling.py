"""batsched and Alea: the starts of first come, first served and of backfilling."""

from pathlib import Path

import pytest

from experiments.peers.backfilling import FACTORS, GPUS, WITH_ESTIMATES, WITHOUT_ESTIMATES, beside, rows
from tests.published.peers.doubles import FixedShadow
from tests.tables import table_rows


@pytest.fixture(scope="module")
def peers(shared_reference: Path) -> Path:
    return shared_reference / "peers"


def test_without_estimates_every_start_is_equal(peers: Path) -> None:
    found = rows(peers, WITHOUT_ESTIMATES)
    assert len(found) == 2 * (3 + 3 + 1)
    assert all(row.equal == row.of for row in found), [row for row in found if row.equal < row.of]


@pytest.mark.parametrize("trace", GPUS)
@pytest.mark.parametrize("factor", FACTORS)
def test_easy_with_a_fixed_shadow_starts_as_easy_bf_fast(peers: Path, trace: str, factor: float) -> None:
    row = beside(peers, trace, f"easy_bf_fast:f{factor}", "easy", FixedShadow(factor))
    assert row.equal == row.of


@pytest.mark.parametrize(("there", "least", "most"), table_rows("mean waits of backfilling"))
def test_mean_waits_of_backfilling(peers: Path, there: str, least: float, most: float) -> None:
    """The range of our mean wait against theirs, over traces and factors; where each departs from Mu'alem and
    Feitelson is on the page. Alea's conservative backfilling is the one that waits longer throughout.
    """
    found = rows(peers, {there: WITH_ESTIMATES[there]})
    assert all(row.difference is not None and least <= row.difference <= most for row in found), found


def test_exact_estimates_on_the_small_trace(peers: Path) -> None:
    """With extra nodes that hardly matter, all 60 jobs start as under batsched's two exact programs."""
    both = {name: WITH_ESTIMATES[name] for name in ("easy_bf", "conservative_bf")}
    found = [row for row in rows(peers, both, factors=(1,)) if row.of == 60]
    assert [row.equal for row in found] == [60, 60]
