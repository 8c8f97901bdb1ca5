"""Errors by GPU: what ships is what the measured runs say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from experiments.evidence import build_errors
from experiments.evidence.build_errors import beside_others, measured_errors
from itertime.accuracy import errors_on
from itertime.accuracy.errors_by_gpu import ERRORS, LARGE_PCT
from itertime.calibration.validation import statistics, validate
from itertime.errors import UserError
from itertime.spec import list_profiles
from tests.places import TABLES

SMALL = {"a100_bigscience": "jean-zay", "a100_megatron_deepspeed": "vtrain-cluster"}


def test_what_groups_share_is_not_in_the_differences() -> None:
    assert beside_others([[5.0, 5.2], [1.0], []]).tolist() == pytest.approx(
        [-0.1 * math.sqrt(2), 0.1 * math.sqrt(2)]
    )
    assert beside_others([[1.0]]).tolist() == []


def test_the_differences_have_the_spread_of_the_errors() -> None:
    """Groups of three with a common error ten times as large as their own."""
    random = np.random.default_rng(3)
    groups = random.normal(0, 1, (4000, 1)) + random.normal(0, 0.1, (4000, 3))
    assert beside_others(groups.tolist()).std() == pytest.approx(0.1, rel=0.02)


def test_profiles_with_measured_runs_have_their_errors() -> None:
    found = {name: errors_on(name) for name in list_profiles()}
    assert found["a100-80gb"]
    assert found["h100-80gb"]
    assert {name for name, each in found.items() if each and each.large} == set()
    assert errors_on("b200") is None


def test_errors_are_those_of_the_framework_where_they_are_known() -> None:
    te = errors_on("h100-80gb", "te")
    assert te is not None
    assert te.framework == "te"
    assert not te.large
    assert set(te.sources) >= {"nvidia-dgxc", "nvidia-nemo"}
    assert te.mape_pct == pytest.approx(np.mean(list(te.sources.values())), abs=0.06)
    assert errors_on("h100-80gb", "mine") == errors_on("h100-80gb")
    few = errors_on("b200-180gb", "te")
    assert few is not None
    assert few.beside_sd is not None, "from the plans of the framework on other GPUs"


@pytest.mark.skipif(not TABLES.exists(), reason=f"{TABLES} is not here")
def test_the_shipped_errors_are_those_of_the_tables() -> None:
    """Sets that take a second; the others are hashed."""
    made = measured_errors([TABLES / f"{name}.csv" for name in SMALL])
    shipped = json.loads(ERRORS.read_text())
    for name, source in SMALL.items():
        assert made["sets"][name] == shipped["sets"][name]
        ours = shipped["profiles"]["a100-80gb"]["all"]["sources"][source]
        assert made["profiles"]["a100-80gb"]["all"]["sources"][source] == ours
        assert statistics(validate(TABLES / f"{name}.csv").predicted)["mape"] == pytest.approx(
            ours["mape"], abs=0.05
        )
    known = errors_on("a100-80gb")
    assert known is not None
    assert known.mape_pct < LARGE_PCT
    assert known.beside_sd is not None
    assert 0.03 < known.beside_sd < 0.12


@pytest.mark.skipif(not TABLES.exists(), reason=f"{TABLES} is not here")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "errors.json"
    assert build_errors.main([str(TABLES / "published.csv"), "-o", str(out)]) == 0
    (profile,) = json.loads(out.read_text())["profiles"].values()
    assert profile["all"]["beside_others"] == {"choices": 0, "plans": 0, "sd": None}
    empty = tmp_path / "none.csv"
    rows = (TABLES / "published.csv").read_text().splitlines()
    empty.write_text("\n".join([rows[0], rows[1].replace("A100-SXM-80GB", "TPU")]))
    assert build_errors.main([str(empty), "-o", str(out)]) == UserError.exit_code
    assert "no row can be predicted" in capsys.readouterr().err
