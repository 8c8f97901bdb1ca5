"""Calibration recovers known constants, holds out honestly, and improves published sets."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from itertime import load_system
from itertime.calibration import calibrate, report, write_site
from itertime.calibration.calibrate import default_constants
from itertime.calibration.measured_run import measured_run
from itertime.calibration.run_set import RunSet
from itertime.calibration.site_fit import MEMORY_CONSTANTS, TIME_CONSTANTS, SiteFit, constants_named, site_of
from itertime.calibration.table import read_table
from itertime.calibration.validation import validate
from itertime.cli import main
from itertime.spec import Site
from tests.effort import first
from tests.itertime.tables import table_rows
from tests.places import TABLES

PLANS = [(tp, pp, mb) for tp in (2, 4, 8) for pp in (1, 2) for mb in (1, 4)]
TRUTH = {"gemm_multiplier": 1.1, "all_reduce_multiplier": 1.4, "layer_overhead_s": 0.004}


def rows_of(sizes=PLANS):
    return [
        {"id": f"tp{tp}-pp{pp}-mb{mb}", "tp": str(tp), "pp": str(pp), "dp": str(64 // tp // pp)}
        | {"micro_batch": str(mb)}
        for tp, pp, mb in sizes
    ]


@pytest.fixture
def made(write_table):
    """A table whose times and memory are predictions under known constants."""

    def make(values=None, noise=0.0):
        site = site_of(TRUTH if values is None else values)
        runs = RunSet.of(read_table(write_table(*rows_of())))
        seconds, memory = runs.evaluate(site)
        factor = np.exp(np.random.default_rng(0).normal(0, noise, len(seconds)))
        rows = [
            row | {"iteration_s": repr(float(time)), "memory_gb": repr(float(size / 1e9))}
            for row, time, size in zip(rows_of(), seconds * factor, memory, strict=True)
        ]
        return write_table(*rows, name="made.csv")

    return make


def rows_in(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_recovers_the_constants_behind_the_times(made):
    result = calibrate([made()], folds=4)
    for name, value in TRUTH.items():
        # held towards neutral by one part in some hundred
        assert result.constants[name] == pytest.approx(value, rel=0.02)
    assert np.abs(result.time.neutral).mean() > 5
    assert np.abs(result.time.in_sample).mean() < 0.2
    assert np.abs(result.time.held_out).mean() < 0.5


def test_constants_that_predict_worse_than_neutral_are_refused(made, write_table, tmp_path, capsys):
    """Two runs in three are 20 times slower for a reason that no constant represents."""
    rows = rows_in(made({}))
    for index, row in enumerate(rows):
        row["iteration_s"] = repr(float(row["iteration_s"]) * (1 if index % 3 == 0 else 20))
    path = write_table(*rows, name="slow.csv")
    result = calibrate([path], folds=3)
    assert np.abs(result.time.in_sample).mean() > np.abs(result.time.neutral).mean() + 5
    assert result.refused == ["time"]
    assert result.fitted["layer_overhead_s"] > 0
    assert result.constants["layer_overhead_s"] == 0
    assert result.constants["gemm_multiplier"] == 1
    low, high = result.site.measured_over_predicted
    assert low <= 1 <= 20 <= high + 1e-6
    output = tmp_path / "site.yaml"
    assert main(["calibrate", str(path), "--folds", "3", "-o", str(output)]) == 0
    said = capsys.readouterr()
    assert "refused: the constants of time" in said.err
    assert f"take {low:.2f} to {high:.2f} times the prediction (with neutral constants)" in said.out
    assert "REFUSED" in output.read_text()
    site = load_system(output).site
    assert (site.gemm_multiplier, site.all_reduce_multiplier, site.layer_overhead_s) == (1, 1, 0)


def test_recovers_the_launch_time_although_it_has_no_effect_near_neutral(made):
    """Near neutral no run waits for a launch, so a descent that starts there would not move."""
    path = made({"launch_s": 1.5e-4, "gemm_multiplier": 1.1})
    result = calibrate([path], ["gemm_multiplier", "launch_s"], folds=4)
    assert result.constants["launch_s"] == pytest.approx(1.5e-4, rel=0.02)
    assert result.constants["gemm_multiplier"] == pytest.approx(1.1, rel=0.02)
    assert np.abs(result.time.held_out).mean() < 0.5
    assert "launch_s" in calibrate([path], folds=4, choose=True).constants


def test_runs_that_contradict_all_others_do_not_decide(made, write_table):
    rows = rows_in(made())
    rows[3]["iteration_s"] = repr(float(rows[3]["iteration_s"]) * 1.5)
    result = calibrate([write_table(*rows, name="odd.csv")], folds=4)
    assert result.constants["gemm_multiplier"] == pytest.approx(1.1, rel=0.03)
    assert np.sort(np.abs(result.time.in_sample))[-2] < 1.5


def test_chooses_the_constants_behind_the_times(made):
    result = calibrate([made({"layer_overhead_s": 0.01}, noise=0.005)], choose=True, folds=3)
    assert "all_reduce_multiplier" not in result.constants  # which would fit the noise
    assert result.constants["layer_overhead_s"] == pytest.approx(0.01, rel=0.1)


def test_a_constant_at_its_bound_is_named(made, tmp_path, capsys):
    path = made({"gemm_multiplier": 3.0})
    result = calibrate([path], ["gemm_multiplier", "layer_overhead_s"], folds=2)
    assert result.at_bound == ["gemm_multiplier"]
    assert result.constants["gemm_multiplier"] == 2.0
    options = ["--constants", "gemm_multiplier", "--folds", "2", "-o", str(tmp_path / "site.yaml")]
    assert main(["calibrate", str(path), *options]) == 0
    assert "the fit of gemm_multiplier ended at its bound, 2:" in capsys.readouterr().err
    neutral = calibrate([made({})], folds=2)
    assert neutral.at_bound == []


def test_memory_constants_are_fitted_to_measured_memory(made):
    truth = {"memory_multiplier": 1.1, "memory_overhead_bytes": 3e9}
    result = calibrate([made(truth)], folds=4)
    assert result.constants["memory_multiplier"] == pytest.approx(1.1, rel=0.02)
    assert result.memory is not None
    assert np.abs(result.memory.in_sample).mean() < 0.5
    assert result.does_not_fit == []


def test_a_held_out_error_never_saw_its_run(made, write_table):
    """An absurd measurement does not change the held-out prediction of its own run."""
    rows = rows_in(made(noise=0.02))
    before = calibrate([write_table(*rows, name="a.csv")], folds=len(rows))
    rows[0]["iteration_s"] = repr(10 * float(rows[0]["iteration_s"]))
    after = calibrate([write_table(*rows, name="b.csv")], folds=len(rows))
    ratios = [1 + result.time.held_out[0] / 100 for result in (before, after)]
    assert ratios[1] == pytest.approx(ratios[0] / 10, rel=1e-9)


def test_the_same_seed_gives_the_same_folds(made):
    path = made(noise=0.02)
    first, second = calibrate([path], folds=3, seed=1), calibrate([path], folds=3, seed=1)
    assert first.time.held_out.tolist() == second.time.held_out.tolist()
    assert first.time.held_out.tolist() != calibrate([path], folds=3, seed=2).time.held_out.tolist()


def test_the_file_is_a_system_and_validates_better(made, tmp_path):
    path = made(noise=0.01)
    result = calibrate([path], folds=4)
    written = write_site(result, [path], tmp_path / "site.yaml")
    system = load_system(tmp_path / "site.yaml")
    assert system == written
    assert system.site == result.site
    seconds = [row.prediction.iteration_s for row in validate(path, system.site).predicted]
    assert seconds == pytest.approx(result.runs.evaluate(result.site)[0].tolist())
    text = (tmp_path / "site.yaml").read_text()
    assert "held out" in text
    assert "made.csv (sha256" in text


def test_whole_models_are_left_out_where_there_are_several(made, write_table):
    rows = rows_in(made())
    other = [row | {"id": f"{row['id']}-x", "layers": "24"} for row in rows]
    documents = [
        report(calibrate([write_table(*several, name="two.csv")], folds=3))
        for several in (rows, rows + other)
    ]
    assert [list(document["left_out"]) for document in documents] == [[], ["model"]]
    assert len(documents[0]["rows"]) == documents[0]["runs"] == len(PLANS)
    json.dumps(documents, allow_nan=False)


@pytest.mark.parametrize(("change", "names"), table_rows("default constants"))
def test_default_constants_follow_the_kind_of_training(write_table, change, names):
    rows = read_table(write_table(change))
    assert default_constants([measured_run(row, Site()) for row in rows]) == tuple(names)


@pytest.mark.parametrize("constant", [*TIME_CONSTANTS.values(), *MEMORY_CONSTANTS.values()])
def test_constants_are_neutral_at_zero_and_keep_their_bounds(constant):
    assert constant.value(0.0) == pytest.approx(constant.neutral)
    low, high = constant.bounds
    assert low <= 0 <= high
    ends = sorted((constant.value(low), constant.value(high)))
    assert ends == pytest.approx([constant.low, constant.high])
    assert constant.low <= constant.value(high + 1) <= constant.high


def test_the_command(made, write_table, tmp_path, capsys):
    path = made()
    output = tmp_path / "site.yaml"
    arguments = ["calibrate", str(path), "-o", str(output), "--folds", "3"]
    assert main([*arguments, "--constants", "gemm_multiplier, layer_overhead_s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"gemm_multiplier", "layer_overhead_s"} <= set(document["constants"])
    assert "all_reduce_multiplier" not in document["constants"]
    assert main([*arguments, "--constants", "auto", "--max-constants", "2"]) == 0
    assert "held out, 3 folds" in capsys.readouterr().out
    assert main(["validate", str(path), "--system", str(output)]) == 0
    for wrong, text in (
        (["-o", str(tmp_path / "no" / "site.yaml")], "cannot be written"),
        (["--folds", "99"], "folds=99"),
    ):
        assert main([*arguments, *wrong]) == 2
        assert text in capsys.readouterr().err
    assert main(["calibrate", str(write_table({})), "-o", str(output)]) == 2
    assert "at least 8" in capsys.readouterr().err


def test_evaluating_together_equals_validating_one_by_one():
    for path in sorted(TABLES.glob("a100_*.csv")) + sorted(TABLES.glob("published.csv")):
        runs = RunSet.of(read_table(path))
        seconds, memory = runs.evaluate(Site())
        predictions = [row.prediction for row in validate(path).predicted]
        assert seconds == pytest.approx([each.iteration_s for each in predictions], rel=1e-9)
        assert memory == pytest.approx([each.memory_bytes for each in predictions], rel=1e-9)
    if not TABLES.exists():
        pytest.skip(f"{TABLES} is not here")


@pytest.mark.parametrize(("name", "largest"), first(1, table_rows("accuracy held out")))
def test_three_constants_describe_a_site(name, largest):
    path = TABLES / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    rows = read_table(path)
    runs = RunSet.of(rows)
    fitter, constants = SiteFit(runs), constants_named(default_constants(runs.runs))
    shuffled = np.random.default_rng(0).permutation(len(runs))
    errors = np.zeros(len(runs))
    for fold in range(10):
        part = shuffled[fold::10]
        values = fitter.fit(constants, np.setdiff1d(shuffled, part))
        errors[part] = fitter.predicted(values)[part] / fitter.measured[part] - 1
    assert np.abs(errors).mean() * 100 <= largest


def test_two_constants_describe_bigsciences_memory():
    path = TABLES / "a100_bigscience.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    fitter = SiteFit(RunSet.of(read_table(path)), of_memory=True)
    rows = np.flatnonzero(np.isfinite(fitter.measured))
    values = fitter.fit(tuple(MEMORY_CONSTANTS.values()), rows)
    errors = fitter.predicted(values)[rows] / fitter.measured[rows] - 1
    assert np.abs(errors).mean() * 100 <= 5.0
