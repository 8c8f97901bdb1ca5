"""Tables on terminals of any width."""

from __future__ import annotations

import pytest

from clustersim.commands import tables

HEADS = ["policy", "load", "JCT mean, h", "95 % interval"]
ROWS = [
    ["fifo", "1", "4.16", "–"],
    ["srtf", "1", "3.26 (−10.3 %)", "-51.140 to +0.904"],
    ["srtf", "2", "13.26 (+10.3 %)", "-1.1 to +0.9"],
]


def printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setattr(tables, "_PIPE_WIDTH", width)
    tables.print_table(HEADS, ROWS, keys=2)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [160, 60, 55, 45, 40, 30, 20])
def test_nothing_is_cut_off(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(width, monkeypatch, capsys)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for row in ROWS:
        for word in " ".join(row[2:]).split():
            assert any(word in found for found in words), (width, word)


def test_a_table_folds_heads_first_then_cells_and_ends_as_paragraphs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(width: int) -> list[str]:
        return [line.strip() for line in printed(width, monkeypatch, capsys).splitlines() if line.strip()]

    wide, folded, narrow = lines(160), lines(42), lines(30)
    assert wide[3].split() == ["srtf", "1", "3.26", "(−10.3", "%)", "-51.140", "to", "+0.904"]
    assert wide[4].split()[0] == "2", "the policy is that of the row above"
    assert "(−10.3 %)    to +0.904" in folded
    assert narrow[0] == "fifo, 1: JCT mean, h: 4.16; 95"
