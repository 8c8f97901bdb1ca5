"""Tables on terminals of any width."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

import clustersim
from clustersim.analysis import paired_difference
from clustersim.cli import main
from clustersim.commands.output import terminal
from clustersim.commands.output.grids import print_differences
from clustersim.commands.output.runs import print_comparison
from clustersim.grid import Comparison
from tests.places import ROOT
from traces import Job

HEADS = ["policy", "load", "JCT mean, h", "95 % interval"]
ROWS = [
    ["fifo", "1", "4.16", "–"],
    ["srtf", "1", "3.26 (−10.3 %)", "-51.140 to +0.904"],
    ["srtf", "2", "13.26 (+10.3 %)", "-1.1 to +0.9"],
]


def printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal.print_table(HEADS, ROWS, keys=2)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [160, 60, 55, 45])
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


def test_a_table_folds_heads_first_then_cells_then_leaves_out_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(width: int) -> list[str]:
        return [line.strip() for line in printed(width, monkeypatch, capsys).splitlines() if line.strip()]

    wide, folded, narrow = lines(160), lines(42), lines(30)
    assert wide[3].split() == ["srtf", "1", "3.26", "(−10.3", "%)", "-51.140", "to", "+0.904"]
    assert wide[4].split()[0] == "2", "the policy is that of the row above"
    assert "(−10.3 %)    to +0.904" in folded
    assert "-51.140" not in " ".join(narrow)
    assert " ".join(narrow).endswith(
        "Left out at 30 columns: 95 % interval. COLUMNS=200 before the command shows them."
    )


def test_columns_are_left_out_in_their_order_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "34")
    terminal.print_table(HEADS, ROWS, keys=2, least_columns=[2], remedy="--wide shows them")
    text = " ".join(capsys.readouterr().out.split())
    assert "13.26" not in text
    assert "-51.140" in text
    assert text.endswith("Left out at 34 columns: JCT mean, h. --wide shows them.")
    monkeypatch.setenv("COLUMNS", "160")
    terminal.print_table(HEADS, ROWS, keys=2, least_columns=[3])
    assert "Left out" not in capsys.readouterr().out


@pytest.mark.parametrize("width", [12, 20, 30, 40])
def test_a_table_is_never_too_wide_and_keeps_its_keys(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [["a/long/path/to/a/policy.py:OfMine", "1", "4.16"], ["fifo", "2", "5.17"]]
    terminal.print_table(["policy", "load", "JCT"], rows, keys=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    if width >= 20:
        assert any("4.16" in line for line in lines)


def test_the_width_of_a_pipe_is_80_unless_columns_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal.width_of_stdout() == 80
    terminal.say(20 * "words \x1b[31m and ")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) > 1
    assert "\x1b" not in "".join(lines)
    monkeypatch.setenv("COLUMNS", "123")
    assert terminal.width_of_stdout() == 123
    monkeypatch.setenv("COLUMNS", "wide")
    assert terminal.width_of_stdout() == 80


def test_wide_shows_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [Job(str(i), 60.0 * i, gpus=4, duration_s=4e4, deadline_s=5e4 + 60.0 * i) for i in range(9)]
    runs = [clustersim.run(jobs, name, cluster="n2g8") for name in ("fifo", "srtf")]
    print_comparison(runs, "fifo", json=False)
    assert "Left out at 80 columns" in capsys.readouterr().out
    print_comparison(runs, "fifo", json=False, wide=True)
    text = capsys.readouterr().out
    assert "Left out" not in text
    assert all(head in text for head in ("JCT p99", "Makespan", "GPUs useful"))


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_differences_of_a_grid_stay_a_table_with_the_names_of_axes(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    difference = paired_difference([0.81, 0.72, 0.9, 0.75, 0.5], [0.9, 0.77, 0.99, 0.74, 0.61])
    axes = {"policy": "vtrain-aware", "trace.load": 0.9}
    print_differences([Comparison(axes, "deadline_met_ratio", difference)], {"policy": "fifo"})
    text = capsys.readouterr().out.partition("Against policy=fifo")[0]
    assert max(map(len, text.splitlines())) <= width
    head = text.partition("───")[0]
    assert all(word in head for word in ("policy", "trace.load", "metric", "difference"))
    assert ("Left out" in text) == (width < 160)


@pytest.mark.parametrize("width", [80, 100])
def test_a_comparison_stays_a_table(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    jobs = [Job(str(i), 60.0 * i, gpus=4, duration_s=4e4, deadline_s=5e4 + 60.0 * i) for i in range(40)]
    policies = ("fifo", "edf-admission", "srtf")
    print_comparison([clustersim.run(jobs, name, cluster="n2g8") for name in policies], "fifo", json=False)
    table, _, rest = capsys.readouterr().out.partition("JCT and waiting cover")
    assert max(map(len, table.splitlines())) <= width
    assert all(word in table for word in ("JCT mean", "Waiting", "Deadlines", "(−81.7 %)", "Left out at"))
    assert rest


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        ([(1.0, 2.0)], ["means over 1 pair of runs", "Fewer than 5 pairs give no interval"]),
        ([(1.0, 2.0)] * 3 + [(None, 1.0)], ["over 3 pairs of runs", "1 pair is left out"]),
        ([(1.0, 2.0)] * 5, ["over 5 pairs of runs", "Seeds changed nothing"]),
        ([(1.0, 2.0)] * 4 + [(1.0, 9.0)], ["No interval (–) where too many of the pairs are alike"]),
    ],
)
def test_a_missing_interval_is_accounted_for(
    pairs: list[tuple[float | None, float]], says: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    difference = paired_difference(*zip(*pairs, strict=True))
    print_differences([Comparison({"policy": "srtf"}, "rejected", difference)], {"policy": "fifo"})
    text = " ".join(capsys.readouterr().out.split())
    for words in says:
        assert words in text


def test_a_metric_that_is_nowhere_defined_has_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    known, unknown = paired_difference([1.0], [2.0]), paired_difference([None], [None])
    axes = {"policy": "srtf"}
    rows = [Comparison(axes, "jct_mean_s", known), Comparison(axes, "deadline_met_ratio", unknown)]
    print_differences(rows, {"policy": "fifo"})
    text = capsys.readouterr().out
    assert "jct_mean" in text
    assert "deadline_met" not in text
    print_differences(rows[1:], {"policy": "fifo"})
    assert "deadline_met" in capsys.readouterr().out


def test_a_metric_without_an_interval_beside_one_with_an_interval_is_accounted_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    alike = paired_difference([0.0] * 5, [0.0] * 5)
    apart = paired_difference([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 2.5, 3.0, 5.5, 5.0])
    assert apart.low is not None
    rows = [
        Comparison({"policy": "srtf"}, name, d, None) for name, d in (("rejected", alike), ("jobs", apart))
    ]
    print_differences(rows, {"policy": "fifo"})
    text = " ".join(capsys.readouterr().out.split())
    assert "No interval (–) where too many of the pairs are alike" in text


def test_a_locale_without_a_character_prints_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = tmp_path / "own.py"
    policy.write_text(
        'from policies.fifo import Fifo\nclass Own(Fifo):\n    """Cr\u00e8me \u2013 first."""\n', "utf-8"
    )
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["policies", "show", f"{policy}:Own"]) == 0
    assert b"Cr?me ? first." in written.getvalue()


@pytest.mark.parametrize("width", [80, 60])
def test_commands_fit_the_terminal(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.chdir(tmp_path)
    log = ROOT / "traces" / "samples" / "slurm.txt"
    shutil.copy(log, "log.txt")
    for line in (
        "trace import log.txt -o jobs.csv --limit 60 --rules llm-mix",
        "trace check jobs.csv --cluster n8g8",
        "run jobs.csv --policy easy --cluster n8g8 --out run --no-report --no-bound",
        "check run",
        "explain run --job 100040",
        "trace calendar log.txt -o plan.yaml",
        "backtest log.txt --cluster n16g8",
        "policies show vtrain-aware",
    ):
        assert main(line.split()) == 0, line
        found = capsys.readouterr()
        long = [one for one in (found.out + found.err).splitlines() if len(one) > width]
        assert not [one for one in long if not one.startswith(("clustersim ", "policies/"))], line
