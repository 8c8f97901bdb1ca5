"""The page on accuracy: what its program writes, and that the page in the repository is whole."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys

import pytest

from tests.places import ROOT, TABLES

SET = "a100_internevo_zero1"

_spec = importlib.util.spec_from_file_location("accuracy", ROOT / "docs" / "accuracy.py")
assert _spec is not None
assert _spec.loader is not None
accuracy = importlib.util.module_from_spec(_spec)
sys.modules["accuracy"] = accuracy  # its dataclasses look their module up
_spec.loader.exec_module(accuracy)


@pytest.fixture(scope="module")
def tables():
    if not TABLES.exists():
        pytest.skip(f"{TABLES} is not here")
    return TABLES


def test_the_page_has_everything_for_a_set(tables):
    text = accuracy.page(tables, [SET], pictures=None)
    assert "<!--" not in text
    assert f"| {SET} | 27 | 0 |" in text
    assert "zero_broadcast_s" in text
    assert "| pp 1 | 27 |" in text
    assert re.search(rf"\| {SET} \| 8.24 \| .* \| yes \|", text)


def test_constants_that_calibrate_refuses_are_marked(tables, monkeypatch):
    worse = accuracy.calibrate([tables / f"{SET}.csv"], ("launch_s",))
    refused = dataclasses.replace(worse, held_out=2 * worse.neutral)
    monkeypatch.setattr(accuracy, "calibrate", lambda *_, **__: refused)
    assert accuracy.chosen_anew(tables, [SET]).endswith("| no: refused |")
    assert "; those of time refused |" in accuracy.calibrated([(SET, refused)])


def test_a_picture_is_the_same_on_every_run(tables, tmp_path):
    pytest.importorskip("matplotlib")
    measured = accuracy.read(tables, SET)
    for name in ("one.svg", "two.svg"):
        accuracy.draw(measured, tmp_path / name, None)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert b"measured, s per iteration" in (tmp_path / "one.svg").read_bytes()


def test_the_page_in_the_repository_is_whole():
    text = (ROOT / "docs" / "accuracy.md").read_text()
    assert "<!--" not in text
    for name in accuracy.SETS:
        assert f"| {name} |" in text
        assert (ROOT / "docs" / "accuracy" / f"{name}.svg").exists()


def test_regret_is_that_of_the_plan_predicted_best(tables):
    """Four groups of plans, and their mean: regret is never negative, being too optimistic may be."""
    text = accuracy.regret([accuracy.read(tables, "a100_megatron_deepspeed")])
    rows = [[float(cell) for cell in line.split("|")[3:-1]] for line in text.splitlines()[2:]]
    assert len(rows) == 5
    assert [row[0] for row in rows[:4]] == [0.0, 9.4, 1.3, 0.6]
    for column in range(4):
        values = [row[column] for row in rows]
        assert values[4] == pytest.approx(sum(values[:4]) / 4, abs=0.1)
        assert column == 1 or min(values) >= 0


def test_the_headroom_refuses_runs_that_need_more_by_prediction(tables):
    text = accuracy.headroom([accuracy.read(tables, "a100_bigscience")])
    (row,) = text.splitlines()[2:]
    assert [cell.strip() for cell in row.split("|")[1:5]] == ["a100_bigscience", "37", "0", "0"]
    assert row.endswith("| 19 of 20 | 9 of 20 |")
