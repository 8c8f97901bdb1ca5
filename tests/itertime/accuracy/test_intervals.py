"""Intervals, errors by GPU, extrapolation of profiles: statistics, and coverage of left-out sets."""

import dataclasses
import json
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.evidence import build_errors
from experiments.evidence.build_errors import beside_others, measured_errors
from experiments.evidence.build_intervals import Evidence, Sample, measured_ranges, samples_of
from itertime import Plan, load_model, load_system, predict, search
from itertime.accuracy import (
    ANY,
    CLASSES,
    TABLE,
    WatchedProfile,
    conformal_range,
    errors_on,
    extrapolation,
    interval_basis,
    interval_s,
    measured_relatives,
)
from itertime.accuracy.errors_by_gpu import ERRORS, LARGE_PCT
from itertime.accuracy.intervals import GENERATIONS, UNMEASURED, Ranges, load_ranges, lookups, plan_class
from itertime.calibration.validation import statistics, validate
from itertime.errors import UserError
from itertime.prediction import evaluate
from itertime.spec import (
    Collective,
    Elementwise,
    PlanBatch,
    list_profiles,
    load_framework,
    load_profile,
    parse_options,
)
from itertime.spec.profile import COLLECTIVES
from tests.places import TABLES
from tests.tables import table_rows

MODERN = TABLES.parent / "modern_gpus" / "iterations"
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


@pytest.mark.parametrize(("values", "options", "name"), table_rows("classes of plans"))
def test_classes(values, options, name):
    plan = Plan(**values, options=parse_options(options))
    assert name in CLASSES
    assert plan_class(MODEL, plan, SYSTEM) == name
    assert plan_class(load_model("bert-large"), plan, SYSTEM) == "small"


def test_a_prediction_carries_its_interval():
    plan = Plan(8, 2, 4, 1, 64)
    run = predict(MODEL, plan, SYSTEM)
    assert run.interval_s == interval_s(MODEL, plan, SYSTEM, run.iteration_s)
    low, high = load_ranges().of("a100-80gb", "dense", "megatron", "pipeline")
    assert run.interval_s == (low * run.iteration_s, high * run.iteration_s)
    assert run.interval_s[0] < run.iteration_s < run.interval_s[1]
    for found in search(MODEL, 64, SYSTEM, 16).plans:
        assert found.prediction.interval_s is not None


def test_a_calibrated_site_has_its_own():
    plan = Plan(8, 2, 4, 1, 64)
    site = replace(SYSTEM.site, measured_over_predicted=(0.98, 1.05))
    assert interval_s(MODEL, plan, replace(SYSTEM, site=site), 10.0) == (9.8, 10.5)
    assert interval_basis(MODEL, plan, replace(SYSTEM, site=site)).startswith("the site's own runs")


def test_lookups_go_from_the_class_to_all_gpus_and_all_software():
    ranges = {
        key: (0.9, 1.0 + place) for place, key in enumerate(lookups("h200-141gb", "dense", "te", "small"))
    }
    keys = list(ranges)
    assert keys[0] == ("h200-141gb", "dense", "te", "small")
    assert keys[1] == ("h200-141gb", "dense", "te", UNMEASURED)
    assert keys[-1] == (ANY, "dense", ANY, UNMEASURED)
    for place, key in enumerate(keys):
        left = Ranges({each: ranges[each] for each in keys[place:]})
        assert left.key_for("h200-141gb", "dense", "te", "small") == key
        assert left.of("h200-141gb", "dense", "te", "small") == (0.9, 1.0 + place)
    assert Ranges({}).of("h200-141gb", "dense", "te", "small") is None
    assert len(lookups("v100-32gb", "dense", "te", "small")) == 8


def test_what_was_not_measured_widens_an_interval_and_is_named():
    """Of a GPU, of software, of a class of plans; every profile has an interval."""
    own_kernels = {name for name in list_profiles() if not load_profile(name).chip_class}
    assert set(GENERATIONS) == {name for name in own_kernels if not name.startswith("v100")}
    known = load_ranges()
    for profile in list_profiles():
        assert known.of(profile, "dense", "te", "pipeline") is not None
        assert known.of(profile, "mixture", "te", "pipeline") is not None
    measured = "h100-80gb", "dense", "te", "zero-1"
    assert "not measured" not in known.basis(*measured)
    others = {
        "te was not measured on v100-32gb": ("v100-32gb", *measured[1:]),
        "the software mine was not measured": (*measured[:2], "mine", measured[3]),
        "plans of the class tp-across-nodes were not measured": (*measured[:3], "tp-across-nodes"),
    }
    for words, names in others.items():
        assert words in known.basis(*names)
        assert np.ptp(np.log(known.of(*names))) > np.ptp(np.log(known.of(*measured)))
    assert measured_relatives("h200-141gb") == ("h100-80gb",)
    assert measured_relatives("v100-32gb") == ()


def test_the_shipped_table_states_its_origin():
    table = json.loads(TABLE.read_text())
    assert table["level"] == 0.9
    assert list(table["without"]) == list(table["sources"])
    assert sum(table["sources"].values()) == sum(entry["rows"] for entry in table["sets"].values())
    assert all(len(entry["sha256"]) == 64 for entry in table["sets"].values())
    for ranges in [table["ranges"], *table["without"].values()]:
        for name, (low, high, *_) in ranges.items():
            *_, framework, plans = name.split("/")
            assert framework == ANY or load_framework(framework)
            assert plans in (UNMEASURED, *CLASSES)
            assert 0.3 < low < high


def drawn(logs, source, profile="a100-80gb", plans="data", framework="megatron", kind="dense"):
    return [Sample(source, profile, kind, framework, plans, float(log), float(log)) for log in logs]


def only(samples, name):
    return Evidence(samples).ranges()[name]


def test_ranges_hold_nine_tenths_of_the_runs_of_an_unseen_site():
    """Sites differ by 10 %, runs of a site by 5 %; five sites are known, with one range for each draw."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(150):
        sites = rng.normal(0.05, 0.1, 6)
        runs = sites[:, None] + rng.normal(0, 0.05, (6, 30))
        known = [each for i in range(5) for each in drawn(runs[i], f"s{i}")]
        low, high = np.log(only(known, "a100-80gb/dense/megatron/data"))
        inside.append(np.mean((low <= runs[5]) & (runs[5] <= high)))
    assert np.mean(inside) == pytest.approx(0.9, abs=0.03)


def test_the_difference_of_sites_is_learned_from_all_frameworks():
    """One framework known at a single site borrows the spread that two sites of another show."""
    alone = drawn(np.zeros(20), "a", framework="te")
    assert only(alone, "a100-80gb/dense/te/data") == [1.0, 1.0]
    others = drawn(np.zeros(20), "b") + drawn(np.full(20, 0.1), "c")
    low, high = only(alone + others, "a100-80gb/dense/te/data")
    assert 0.5 < low < 0.9
    assert 1.1 < high < 2


def test_a_class_has_its_own_range_unless_its_runs_are_few():
    flat = [each for name, log in (("a", 0.0), ("b", 0.1), ("c", 0.2)) for each in drawn([log] * 30, name)]
    slow = drawn([0.3] * 20, "a", plans="small")
    found = Evidence(flat + slow).ranges()
    classes = ["a100-80gb/dense/megatron/small", "a100-80gb/dense/megatron/data"]
    assert found[classes[0]][1] > found[classes[1]][1] * 1.15
    fewer = Evidence(flat + slow[:-1]).ranges()
    assert fewer[classes[0]][1] < found[classes[0]][1], "that of all classes"


def test_a_gpu_with_few_runs_has_the_range_of_its_generation_and_that_is_wider():
    b200 = drawn(np.linspace(0, 0.1, 20), "a", "b200-180gb")
    gb200 = drawn(np.linspace(0.1, 0.2, 20), "a", "gb200-186gb")
    sites = drawn(np.full(20, 0.2), "b", "b200-180gb")
    few = drawn([0.1] * 9, "a", "gb300-280gb")
    found = Evidence(b200 + gb200 + sites + few).ranges()
    assert not [name for name in found if name.startswith("gb300")]
    own, borrowed = (np.log(found[f"{name}/dense/megatron/data"]) for name in ("b200-180gb", "blackwell"))
    assert np.ptp(borrowed) > np.ptp(own)


def test_precisions_of_a_source_are_left_out_together(write_table):
    """And its files: a source is a site, not a file."""
    rows = [{"id": f"r{number}", "iteration_s": str(5 + number / 10)} for number in range(25)]
    names = ("one.csv", "two.csv")
    files = [write_table(*rows, name=name) for name in names]
    files.append(write_table(*[{**row, "site": "elsewhere"} for row in rows], name="other.csv"))
    table = measured_ranges(files)
    here, there = (next(iter(samples_of(path))).source for path in files[1:])
    assert there == "elsewhere"
    assert table["sources"] == {here: 50, there: 25} or table["sources"] == {"one": 25, "two": 25, there: 25}
    assert table["sets"]["one"]["rows"] == 25
    name = next(name for name in table["ranges"] if name.startswith("a100-80gb/dense/megatron"))
    (low, high), (wider_low, wider_high) = table["without"][there][name], table["ranges"][name][:2]
    assert wider_low <= low < high <= wider_high


def test_a_table_without_a_run_is_refused(write_table):
    with pytest.raises(UserError, match=r"other\.csv: no row can be predicted"):
        measured_ranges([write_table({}), write_table({"gpu": "TPU"}, name="other.csv")])


def tables():
    later = sorted((TABLES.parent / "iterations_2026").glob("[abmnq]*.csv"))
    bert = sorted((TABLES.parent / "mlperf").glob("bert_iterations.csv"))
    paths = [*sorted(TABLES.glob("*.csv")), *sorted(MODERN.glob("*.csv")), *later, *bert]
    if not paths:
        pytest.skip(f"{TABLES} is not here")
    return paths


@pytest.fixture(scope="module")
def samples_by_set():
    """The samples of every table, computed once: each run is predicted without its source."""
    return {path.stem: samples_of(path) for path in tables()}


def test_the_shipped_table_is_built_from_the_sets(samples_by_set):
    shipped = json.loads(TABLE.read_text())
    assert samples_by_set.keys() == set(shipped["sets"])
    built = Evidence([run for samples in samples_by_set.values() for run in samples]).ranges(counts=True)
    assert built.keys() == shipped["ranges"].keys()
    for name, ends in built.items():
        assert ends == pytest.approx(shipped["ranges"][name], rel=0.03), name


@pytest.mark.parametrize("kind", ["dense", "mixture"])
def test_intervals_cover_sources_that_were_left_out(kind, samples_by_set):
    """Nine tenths in all, where neither the ranges nor the constants of frameworks saw the source; a single
    slow site may have less. One site's pipelines follow no law (docs/accuracy.md) and are no part of this.
    """
    inside = {}
    for each in [run for name, runs in samples_by_set.items() if name != "h100_ultrascale" for run in runs]:
        if each.kind != kind:
            continue
        found = load_ranges(each.source).of(each.profile, each.kind, each.framework, each.plans)
        if found:
            inside.setdefault(each.source, []).append(found[0] <= np.exp(each.log) <= found[1])
    everything = [each for own in inside.values() for each in own]
    assert len(everything) > 50
    assert 100 * np.mean(everything) >= 85
    assert np.median([np.mean(own) for own in inside.values()]) >= 0.8


def test_the_coverage_of_validate_is_of_intervals_without_the_source():
    (path,) = [each for each in tables() if each.stem == "a100_bigscience"]
    without = load_ranges("bigscience")
    for row in validate(path).predicted:
        low, high = without.of("a100-80gb", "dense", row.groups["framework"], "pipeline")
        assert row.interval_s == pytest.approx([end * row.prediction.iteration_s for end in (low, high)])


def test_samples_are_predicted_with_constants_that_did_not_see_them(tmp_path):
    """A table whose source counts in the fit has other predictions without it."""
    (path,) = [each for each in tables() if each.stem == "h100_nemo_2407_fp8"]
    held_out, shipped = samples_of(path), samples_of(path, tmp_path / "missing.json")
    assert [each.plans for each in held_out] == [each.plans for each in shipped]
    assert [each.log for each in held_out] != [each.log for each in shipped]


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


PROFILE = load_profile("a100-80gb")
LARGE = load_model("megatron-39.1b")
LARGE_PLAN = Plan(tp=8, pp=4, dp=4, micro_batch=2, global_batch=128)


@pytest.fixture(autouse=True)
def _a_process_that_has_not_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extrapolation, "_warned", set())


@pytest.mark.parametrize("name", ["a100-80gb", "h100-80gb"])
def test_ranges_cover_what_the_evidence_says(name: str) -> None:
    profile = load_profile(name)
    least = 1 if name == "a100-80gb" else 256
    assert profile.ranges["gemm"] == {"m": (least, 32768), "n": (64, 65536), "k": (64, 65536)}
    assert profile.ranges["attention"]["head_dim"] == (64, 128)
    for collective in COLLECTIVES:
        assert profile.ranges[collective]["bytes"][1] >= 2**26
    for part in profile.evidence:
        without = part.kind == "assumed" or "launch" in part.part or "in training" in part.part
        assert bool(part.measured) != without


def test_an_exchange_that_a_plan_does_not_have_is_not_asked_for() -> None:
    """All gradients of one all-reduce would be 39 GB; ZeRO-3 has no such exchange."""
    plan = Plan(tp=2, pp=1, dp=64, micro_batch=1, global_batch=64)
    assert "all_reduce" in predict(LARGE, plan, SYSTEM).extrapolated
    sharded = predict(LARGE, dataclasses.replace(plan, zero_stage=3), SYSTEM)
    assert "reduce_scatter" in sharded.extrapolated  # a layer's: more than was measured
    assert "all_reduce" not in sharded.extrapolated


def test_beyond_them_the_part_is_named_and_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    long = dataclasses.replace(LARGE, attention="flash", seq_len=65536)
    with caplog.at_level(logging.WARNING):
        first, second = (predict(long, LARGE_PLAN, SYSTEM) for _ in range(2))
    assert "attention" in first.extrapolated
    assert "gemm" in first.extrapolated
    assert first == second
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("warning: profile a100-80gb is extrapolated beyond what was measured: ")
    assert "attention (seq=65536, measured 256 to 16384)" in message
    assert all(f"{part} (" in message for part in first.extrapolated)


def test_watching_changes_no_digit() -> None:
    plain = evaluate(LARGE, PlanBatch.of([LARGE_PLAN]), SYSTEM, PROFILE).prediction(0)
    watched = predict(LARGE, LARGE_PLAN, SYSTEM, PROFILE)
    assert watched.extrapolated == ()
    assert watched.breakdown == plain.breakdown
    assert watched.memory_parts == plain.memory_parts


def test_groups_of_one_and_empty_kernels_ask_for_nothing() -> None:
    watched = WatchedProfile(PROFILE)
    watched.seconds(Collective("all_reduce", np.array([1e12]), np.array([1])))
    watched.seconds(Elementwise(np.array([0.0, 1e6]), "gelu"))
    assert watched.extrapolated() == ()
    watched.seconds(Collective("all_reduce", np.array([1e12]), np.array([2])))
    watched.seconds(Elementwise(np.array([0.0, 1e15]), "gelu"))
    watched.seconds(Elementwise(1e15, "adam"))  # assumed: there is nothing to go beyond
    assert watched.extrapolated() == ("all_reduce", "gelu")
