"""The example of docs/predict-start.md is what its command prints; the experiment behind its table runs."""

from __future__ import annotations

import shlex

import pytest

from clustersim.cli import main
from experiments import predict_start
from tests.places import ROOT

PAGE = (ROOT / "docs" / "predict-start.md").read_text(encoding="utf-8")


def test_the_example(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    begin = "    clustersim predict-start traces/"
    command = next(line for line in PAGE.splitlines() if line.startswith(begin))
    text = PAGE.partition(command)[2].split("```text\n")[1].split("```")[0].splitlines()
    assert main(shlex.split(command)[1:]) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines()]
    assert shown[shown.index(text[0]) :] == text


@pytest.mark.parametrize("arm", predict_start.ARMS[1:3])
def test_coverage_of_a_small_log(arm: tuple[str, bool, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """That few draws of few jobs are right is shown elsewhere; here, that shares are shares and ascend."""
    for name, value in {"JOBS": 60, "CUTS": 1, "DRAWS": 3}.items():
        monkeypatch.setattr(predict_start, name, value)
    found = predict_start.coverage(*arm, seed=1)
    assert 1 <= found.jobs <= 3
    assert 0 <= found.shares[0] <= found.shares[1] <= found.shares[2] <= 1
    assert predict_start.interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / 3**0.5), abs=1e-3)
