"""Steps to convergence by optimizer and batch, and start-up: what the shipped tables answer and refuse."""

from __future__ import annotations

import math

import pytest

from itertime.errors import UserError
from itertime.planning import list_convergence, load_convergence
from itertime.planning.convergence import Convergence, StepsRow, start_up


def row(optimizer: str, batch: int, steps: float, organisations: tuple[str, ...] = ("A", "B")) -> StepsRow:
    return StepsRow(optimizer, batch, 5, "1.0", organisations, 0.9 * steps, steps, 1.2 * steps)


TABLE = Convergence("m", (row("lamb", 100, 1000.0), row("lamb", 400, 500.0, ("B", "C"))))


def test_a_batch_of_the_table_has_its_own_steps():
    found = TABLE.steps("lamb", 100)
    assert (found.count, found.low, found.high) == (1000.0, 900.0, 1200.0)
    assert found.origin == "5 logs (MLPerf 1.0, A, B) at 100"
    assert found.organisations == ("A", "B")


def test_between_two_batches_logarithms_are_linear():
    """Half-way between 100 and 400 in logarithms is 200, and between 1000 and 500 their geometric mean."""
    found = TABLE.steps("lamb", 200)
    assert found.count == pytest.approx(math.sqrt(1000 * 500))
    assert found.low == pytest.approx(0.9 * found.count)
    assert found.high == pytest.approx(1.2 * found.count)
    assert found.organisations == ("A", "B", "C")
    assert "at 100 and" in found.origin
    assert "logarithms linear" in found.origin


def test_the_shipped_table_has_the_optimizers_of_the_logs():
    """Adam at 16,384 comes from Samsung alone: what is predicted of its systems from it is not held out."""
    assert list_convergence() == ("bert-large-wikipedia",)
    table = load_convergence("bert-large-wikipedia")
    assert {each.optimizer for each in table.rows} == {"adam", "lamb"}
    assert table.steps("fused-adam", 16_384).organisations == ("Samsung",)
    assert table.steps("adamw", 16_384) == table.steps("adam", 16_384)
    with pytest.raises(UserError, match="at 16,384 alone"):
        table.steps("adam", 8192)


def test_published_steps_lie_within_the_ranges_of_the_table():
    """MLPerf logs: Samsung 179 and 189 steps of Adam at 16,384; NVIDIA 855 to 969 of LAMB at 3,072 and 641 to
    728 at 4,096 (single runs, of which a log is the median).
    """
    table = load_convergence("bert-large-wikipedia")
    for optimizer, batch, least, most in (
        ("adam", 16_384, 179, 189),
        ("lamb", 3072, 855, 969),
        ("lamb", 4096, 641, 728),
    ):
        found = table.steps(optimizer, batch)
        assert found.low <= most
        assert found.high >= least
        assert found.low < found.count < found.high


def test_larger_batches_need_fewer_steps_and_more_samples():
    rows = [each for each in load_convergence("bert-large-wikipedia").rows if each.logs >= 5]
    assert [each.optimizer for each in rows] == ["lamb"] * len(rows)
    steps = [each.steps for each in rows]
    assert steps == sorted(steps, reverse=True)
    assert len(rows) >= 4


def test_start_up_is_shorter_with_one_graph_on_many_gpus():
    assert start_up(1024, one_graph=True).seconds < 1 < start_up(1024, one_graph=False).seconds < 4
    assert start_up(1, one_graph=False) == start_up(8, one_graph=False) != start_up(16, one_graph=False)
    for one_graph in (False, True):
        for gpus in (1, 8, 9, 64, 65, 100_000):
            found = start_up(gpus, one_graph)
            assert 0 <= found.low_s <= found.seconds <= found.high_s
            assert "logs" in found.origin
    assert start_up(1024, one_graph=False).organisations == ("Samsung",)
    assert "NVIDIA" in start_up(1024, one_graph=True).organisations
