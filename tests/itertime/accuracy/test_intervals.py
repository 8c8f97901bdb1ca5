"""Intervals: their statistics, the predictions that have one, and their coverage of left-out sets."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, load_model, load_system, predict, search
from itertime.accuracy import CLASSES, TABLE, conformal_range, interval_s, plan_class
from itertime.accuracy.intervals import load_ranges
from itertime.calibration.validation import statistics, validate
from itertime.errors import UserError
from itertime.evidence.build_intervals import measured_ranges, ranges_of
from tests.places import TABLES

SETS = [
    *["a100_bigscience", "a100_internevo_zero1", "a100_llmfoundry_fsdp", "a100_megatron_deepspeed"],
    "published",
]
SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("megatron-18.4b")


def test_conformal_ranks():
    assert conformal_range(range(1, 100), 0.9) == (5, 95)
    assert conformal_range([3, 1, 2], 0.9) == (1, 3)


def test_conformal_ranges_hold_their_share_of_new_ratios():
    draws = np.random.default_rng(0).normal(1, 0.1, (2000, 60)).tolist()
    inside = []
    for new, *known in draws:
        low, high = conformal_range(known, 0.9)
        inside.append(low <= new <= high)
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)  # a binomial's 95 % interval is 0.013


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (Plan(16, 1, 1, 1, 8), "tp-across-nodes"),
        (Plan(8, 2, 1, 1, 8, zero_stage=1), "pipeline"),
        (Plan(1, 1, 8, 1, 8, zero_stage=3), "sharded"),
        (Plan(1, 1, 8, 1, 8, zero_stage=1), "zero-1"),
        (Plan(8, 1, 1, 1, 8), "tensor"),
        (Plan(1, 1, 8, 1, 8), "data"),
    ],
)
def test_classes(plan, name):
    assert name in CLASSES
    assert plan_class(MODEL, plan, SYSTEM) == name
    assert plan_class(load_model("bert-large"), plan, SYSTEM) == "small"


def test_a_prediction_carries_its_interval():
    plan = Plan(8, 2, 4, 1, 64)
    run = predict(MODEL, plan, SYSTEM)
    assert run.interval_s == interval_s(MODEL, plan, SYSTEM, run.iteration_s)
    low, high = load_ranges().of("pipeline")
    assert run.interval_s == (low * run.iteration_s, high * run.iteration_s)
    assert run.interval_s[0] < run.iteration_s < run.interval_s[1]
    for found in search(MODEL, 64, SYSTEM, 16).plans:
        assert found.prediction.interval_s is not None


def test_a_calibrated_site_has_its_own_and_an_unknown_gpu_none():
    plan = Plan(8, 2, 4, 1, 64)
    site = replace(SYSTEM.site, measured_over_predicted=(0.98, 1.05))
    assert interval_s(MODEL, plan, replace(SYSTEM, site=site), 10.0) == (9.8, 10.5)
    assert interval_s(MODEL, plan, replace(SYSTEM, profile="h100-80gb"), 10.0) is None


def test_the_shipped_table_states_its_origin():
    table = json.loads(TABLE.read_text())
    assert table["level"] == 0.9
    assert list(table["without"]) == list(table["sets"])
    assert all(len(entry["sha256"]) == 64 for entry in table["sets"].values())
    for entry in [table, *table["without"].values()]:
        for found in [entry["pooled"], *entry["classes"].values()]:
            low, high = found["range"]
            assert 0.5 < low < 1 < high < 2


def test_ranges_hold_nine_tenths_of_the_runs_of_an_unseen_site():
    """Sites differ by 10 %, runs of a site by 5 %; five sites are known, with one range for each draw."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(300):
        sites = rng.normal(0.05, 0.1, 6)
        runs = np.exp(sites[:, None] + rng.normal(0, 0.05, (6, 30)))
        known = [(f"s{i}", "data", float(ratio)) for i in range(5) for ratio in runs[i]]
        low, high = ranges_of(known)["pooled"]["range"]
        inside.append(np.mean((low <= runs[5]) & (runs[5] <= high)))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)


def test_a_class_has_its_own_range_unless_its_runs_are_few():
    flat = [("a", "data", 1.0), ("b", "data", 1.1), ("c", "data", 1.2)] * 30
    slow = [("a", "small", 1.3)] * 20
    found = ranges_of(flat + slow)
    assert list(found["classes"]) == ["small", "data"]
    low, high = found["classes"]["data"]["range"]
    assert np.divide(found["classes"]["small"]["range"], (low, high)) == pytest.approx([1.3, 1.3], rel=1e-3)
    assert list(ranges_of(flat + slow[:-1])["classes"]) == ["data"]


def test_a_single_set_does_not_show_how_sites_differ(write_table):
    rows = [{"id": f"r{number}", "iteration_s": str(5 + number / 10)} for number in range(25)]
    one, other = write_table(*rows, name="one.csv"), write_table({"pp": "8", "dp": "1"}, name="other.csv")
    table = measured_ranges([one, other])
    assert table["sets"]["one"]["rows"] == 25
    assert table["without"]["one"]["pooled"]["sets"] == ["other"]
    low, high = table["without"]["other"]["pooled"]["range"]
    assert low < high < 2 * low  # that of the rows themselves
    both = table["pooled"]["range"]
    assert both[0] < low
    assert both[1] > high


def test_a_table_of_another_gpu_is_refused(write_table):
    with pytest.raises(UserError, match=r"other\.csv: no row ran on the GPU of profile a100-80gb"):
        measured_ranges([write_table({}), write_table({"gpu": "H100-SXM-80GB"}, name="other.csv")])


def here(names):
    paths = [TABLES / f"{name}.csv" for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip(f"{TABLES} is not here")
    return paths


def test_the_shipped_table_is_built_from_the_sets():
    built = measured_ranges(here(SETS))
    shipped = json.loads(TABLE.read_text())
    assert built["sets"] == shipped["sets"]
    assert built["pooled"]["range"] == pytest.approx(shipped["pooled"]["range"], abs=0.02)


def test_intervals_cover_sets_that_were_left_out():
    """Nine tenths in all, with ranges computed without the set; a single slow site may have less."""
    results = [validate(path) for path in here(SETS)]
    rows = [row for result in results for row in result.predicted]
    everything = statistics(rows)["coverage"]
    assert everything is not None
    assert everything >= 90
    for result in results:
        assert statistics(result.predicted)["coverage"] >= 75
