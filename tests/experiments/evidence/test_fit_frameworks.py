"""Constants of frameworks: a fit finds what made the times, and what ships is what the published runs say."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.evidence import fit_frameworks
from experiments.evidence.fit_frameworks import FREE, Runs, fit, fitted_frameworks, leave_one_out
from itertime.calibration import RunSet
from itertime.errors import UserError
from itertime.spec import load_framework
from tests.places import ROOT

FITTED = ROOT / "itertime" / "residuals" / "frameworks.json"
SETS = ("iterations/h100_llmfoundry_fsdp", "modern_gpus/iterations/h100_dgxc_nemo_bf16")


def tables(shared_dir: Path, *names: str) -> list[Path]:
    return [shared_dir / "data" / f"{name}.csv" for name in names]


def shipped() -> list[float]:
    return [
        1.0 if constant.sustained else getattr(load_framework(constant.frameworks[0]), constant.field)
        for constant in FREE
    ]


def test_shipped_constants_are_the_fitted_ones() -> None:
    document = json.loads(FITTED.read_text())
    for constant in FREE:
        fitted = document["constants"][constant.name]
        if constant.sustained:  # the profiles hold it
            assert fitted == pytest.approx(1, abs=0.01)
            continue
        for name in constant.frameworks:
            assert getattr(load_framework(name), constant.field) == fitted, constant.name
    engine = document["megatron-deepspeed: pipeline_layer_s"]
    assert load_framework("megatron-deepspeed").pipeline_layer_s == pytest.approx(engine, rel=0.01)


def test_a_fit_finds_the_constants_that_made_the_times(shared_dir: Path) -> None:
    """The measured times of every fourth run are replaced by those of known constants."""
    truth = dict(zip([constant.name for constant in FREE], shipped(), strict=True))
    truth |= {"te: elementwise_multiplier": 1.3, "eager: elementwise_multiplier": 2.2}
    values = list(truth.values())
    made = []
    for each in Runs.of(tables(shared_dir, *SETS)):
        part = RunSet(each.set.cells[::4], each.set.runs[::4], ())
        seconds = part.evaluate(frameworks=fitted_frameworks(values, sustained=each.sustained))[0]
        cells = tuple(
            row | {"iteration_s": float(found)} for row, found in zip(part.cells, seconds, strict=True)
        )
        made.append(replace(each, set=RunSet(cells, part.runs, ())))
    found = fit(made, shipped())
    for each in made:
        before, after = (
            np.abs(each.errors(fitted_frameworks(one, sustained=each.sustained))).mean()
            for one in (shipped(), found)
        )
        assert after < 0.01 < 0.02 < before, each.file


def test_a_source_left_out_does_not_enter_its_constants(shared_dir: Path) -> None:
    """Times that are ten times too long change the constants of all other sources, not of their own."""
    runs = [
        replace(each, set=RunSet(each.set.cells[::9], each.set.runs[::9], ()))
        for each in Runs.of(tables(shared_dir, *SETS))
    ]
    spoilt = []
    for each in runs:
        cells = tuple(
            row | {"iteration_s": row["iteration_s"] * (10 if each.source == "dgxc" else 1)}
            for row in each.set.cells
        )
        spoilt.append(replace(each, set=RunSet(cells, each.set.runs, ())))
    before, after = (leave_one_out(one, shipped()) for one in (runs, spoilt))
    assert after["dgxc"]["constants"] == before["dgxc"]["constants"]
    assert after["llm-foundry"]["constants"] != before["llm-foundry"]["constants"]


def test_runs_of_other_frameworks_alone_are_refused(shared_dir: Path) -> None:
    with pytest.raises(UserError, match="no run under te, compile, eager"):
        fit(Runs.of(tables(shared_dir, "iterations/published")), shipped())


def test_errors_are_logarithms(shared_dir: Path) -> None:
    (runs,) = Runs.of(tables(shared_dir, "iterations/published"))
    predicted = runs.set.evaluate()[0]
    errors = runs.errors(fitted_frameworks(shipped(), sustained=False))
    assert errors == pytest.approx(np.log(predicted / runs.set.measured_s))


@pytest.mark.long
def test_the_shipped_document_is_what_the_tables_say(shared_dir: Path) -> None:
    data = shared_dir / "data"
    files = [*sorted(data.glob("iterations/*.csv")), *sorted(data.glob("modern_gpus/iterations/*.csv"))]
    found, known = fit_frameworks.document_of(files), json.loads(FITTED.read_text())
    for name, value in known["constants"].items():
        assert math.isclose(found["constants"][name], value, rel_tol=0.02, abs_tol=0.002), name
    for source, entry in known["leave_one_out"].items():
        for file, scores in entry["files"].items():
            mape = found["leave_one_out"][source]["files"][file]["mape"]
            assert mape == pytest.approx(scores["mape"], abs=0.2), (source, file)
