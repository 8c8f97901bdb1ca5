"""The table of balancing: that of the page is what the program prints."""

from __future__ import annotations

import json
import re

import pytest

from experiments.evidence.balance_table import imbalances, main
from itertime.cli import main as itertime
from itertime.spec import Lengths, load_lengths
from tests.places import ROOT

NUMBER = re.compile(r"\d[\d,]*\.?\d*")


def test_the_page_shows_what_the_program_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers within a unit of their last digit but one; the last bits of sums differ between CPUs."""
    assert main(["wikipedia-512"]) == 0
    printed = capsys.readouterr().out
    shown = (ROOT / "docs" / "balancing.md").read_text().split("```text\n")[1].split("```")[0]
    assert NUMBER.sub("#", shown) == NUMBER.sub("#", printed)
    numbers = [[float(each.replace(",", "")) for each in NUMBER.findall(text)] for text in (shown, printed)]
    assert numbers[0] == pytest.approx(numbers[1], rel=1e-3, abs=2e-3)


def test_work_is_over_the_mean_without_padding() -> None:
    found = imbalances(load_lengths("wikipedia-512"), 64, 8, 8, 512, 1024)
    assert found["as drawn"].average == pytest.approx(1)
    assert found["sorted over all ranks"].average == pytest.approx(1)
    assert found["padded"].mean == pytest.approx(2.04, abs=0.01)
    assert 1 < found["packed rows, as drawn"].average < 1.05
    equal = imbalances(Lengths("e", "e", (1, 2, 3, 4), (0.25,) * 4), 4, 4, 2, 4, 64)
    assert equal["stratified"].imbalance == pytest.approx(1)  # one sample of each length


def test_bad_input_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wikipedia-512", "--seq-len", "256"]) == 3
    assert "lengths" in capsys.readouterr().err
    assert main(["wikipedia-512", "--samples", "2"]) == 2
    assert "at least one from each of 4 bins" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["wikipedia-512", "--ranks", "0"])


def test_the_command_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Balancing by strata and exchange beats padding, and what is drawn shows as a spread."""
    page = (ROOT / "docs" / "balancing.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("    itertime ")]
    words = line.split()[1:]
    assert itertime([*words, "--json"]) == 0
    balanced = json.loads(capsys.readouterr().out)
    assert itertime([*words[:-2], "--json"]) == 0
    padded = json.loads(capsys.readouterr().out)
    assert balanced["iteration_s"] < 0.8 * padded["iteration_s"]
    low, high = balanced["spread_s"]
    assert low < balanced["iteration_s"] < high
    assert 0 < balanced["breakdown"]["imbalance"] < 0.1 * balanced["iteration_s"]
