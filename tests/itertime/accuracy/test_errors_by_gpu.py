"""Errors by GPU: what ships is what the measured runs say."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from itertime.accuracy import ERRORS, LARGE_PCT, errors_on
from itertime.calibration.validation import statistics, validate
from itertime.errors import UserError
from itertime.evidence import build_errors
from itertime.evidence.build_errors import beside_others, measured_errors
from itertime.spec import list_profiles
from tests.places import TABLES

SMALL = ("a100_bigscience", "a100_megatron_deepspeed")


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
    assert {name for name, each in found.items() if each and each.large} == {"h100-80gb"}
    assert errors_on("b200") is None


@pytest.mark.skipif(not TABLES.exists(), reason=f"{TABLES} is not here")
def test_the_shipped_errors_are_those_of_the_tables() -> None:
    """Sets that take a second; the others are hashed."""
    made = measured_errors([TABLES / f"{name}.csv" for name in SMALL])
    shipped = json.loads(ERRORS.read_text())
    for name in SMALL:
        assert made["sets"][name] == shipped["sets"][name]
        ours = shipped["profiles"]["a100-80gb"]["sets"][name]
        assert made["profiles"]["a100-80gb"]["sets"][name] == ours
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
    assert profile["beside_others"] == {"choices": 0, "runs": 0, "sd": None}
    empty = tmp_path / "none.csv"
    rows = (TABLES / "published.csv").read_text().splitlines()
    empty.write_text("\n".join([rows[0], rows[1].replace("A100-SXM-80GB", "B200")]))
    assert build_errors.main([str(empty), "-o", str(out)]) == UserError.exit_code
    assert "no row can be predicted" in capsys.readouterr().err
