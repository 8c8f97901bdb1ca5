"""Calibration recovers known constants and holds out honestly; validation: statistics and accuracy."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime import load_system
from itertime.calibration import calibrate, report, write_site
from itertime.calibration.calibrate import default_constants
from itertime.calibration.measured_run import measured_run
from itertime.calibration.run_set import RunSet
from itertime.calibration.site_fit import MEMORY_CONSTANTS, TIME_CONSTANTS, SiteFit, constants_named, site_of
from itertime.calibration.table import read_table
from itertime.calibration.validation import statistics, validate, write_rows
from itertime.cli import main
from itertime.costs import OVERHEADS, Workload
from itertime.costs.layer import layer_costs
from itertime.errors import TableError, UserError
from itertime.spec import PlanBatch, Site, load_framework
from tests.effort import examples, first
from tests.places import TABLES
from tests.tables import table_rows

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
    assert np.abs(errors).mean() * 100 <= 5.5


def test_statistics_are_those_of_the_errors(write_table):
    rows = [{"id": str(factor)} for factor in range(3)]
    predicted = validate(write_table(*rows)).predicted[0].prediction.iteration_s
    for row, factor in zip(rows, (0.5, 1.0, 1.25), strict=True):
        row["iteration_s"] = repr(predicted / factor)
    result = statistics(validate(write_table(*rows)).predicted)
    assert result["mape"] == pytest.approx((50 + 0 + 25) / 3)
    assert result["median_ape"] == pytest.approx(25)
    assert result["bias"] == pytest.approx((-50 + 25) / 3)
    assert result["p95_ape"] == pytest.approx(np.percentile([50, 0, 25], 95))
    measured = np.array([predicted / factor for factor in (0.5, 1.0, 1.25)])
    spread = ((measured - measured.mean()) ** 2).sum()
    assert result["r2"] == pytest.approx(1 - ((measured - predicted) ** 2).sum() / spread)
    assert result["memory_mape"] is None
    assert set(statistics([]).values()) == {None}


def test_an_empty_micro_batch_becomes_the_fastest_power_of_two_that_fits(write_table):
    rows = [
        {"id": size or "none", "micro_batch": size} for size in ("", "1", "2", "4", "8", "16", "32", "64")
    ]
    open_row, *fixed = validate(write_table(*rows)).predicted
    fitting = [run.prediction.iteration_s for run in fixed if run.prediction.fits]
    assert open_row.prediction.iteration_s == min(fitting)


@pytest.mark.parametrize(("layers", "hidden", "billions"), [
    (16, 2048, 1.34), (28, 3072, 3.57), (32, 4096, 8.86), (80, 8192, 80.0),
])  # fmt: skip
def test_nanotrons_models_have_the_sizes_of_its_benchmarks(write_table, layers, hidden, billions):
    row = {"site": "hf-h100", "gpu": "H100-SXM-80GB", "layers": str(layers), "hidden": str(hidden)}
    row |= {"heads": str(hidden // 64), "kv_heads": "", "ffn_hidden": "", "gated_mlp": "True"}
    row |= {"vocab": "131072", "attention": "flash", "grad_overlap": "", "recompute": "none"}
    run = measured_run(next(iter(read_table(write_table(row)))), Site())
    assert run.model.parameters / 1e9 == pytest.approx(billions, rel=0.002)
    assert (run.plan.split, run.plan.fp32_gradients, run.plan.grad_overlap) == ("compute", True, True)
    assert run.system.network_bulk_latency_s > 0
    other = next(iter(read_table(write_table(row | {"ffn_hidden": "8192", "zero_stage": "1"}))))
    stated = measured_run(other, Site())
    assert stated.model.ffn_hidden == 8192
    assert not stated.plan.grad_overlap


def test_the_rows_are_written_whole_or_not_at_all(tmp_path, write_table):
    result = validate(write_table({}, {"id": "b", "memory_gb": "40"}))
    write_rows([result], tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = ["id", "measured_s", "predicted_s", "error_pct", "memory_measured_gb", "memory_predicted_gb"]
    assert list(rows[0]) == columns
    assert [row["id"] for row in rows] == ["run-1", "b"]
    assert [row["memory_measured_gb"] for row in rows] == ["", "40.0"]
    assert float(rows[0]["predicted_s"]) == result.predicted[0].prediction.iteration_s
    assert float(rows[0]["error_pct"]) == result.predicted[0].error_pct
    with pytest.raises(UserError, match="cannot be written"):
        write_rows([result], tmp_path / "no" / "rows.csv")


def test_a_set_of_runs_is_evaluated_with_frameworks_of_the_callers(write_table):
    """Each with its own; what is not named stays as shipped, and an evaluation before leaves no trace."""
    rows = [{}, {"id": "other", "site": "mosaicml"}, {"id": "open", "micro_batch": ""}]
    path = write_table(*rows)
    runs = RunSet.of(read_table(path))
    assert runs.frameworks == ("megatron", "eager", "megatron")
    shipped, bytes_needed = runs.evaluate()
    predicted = validate(path).predicted
    assert list(shipped) == [row.prediction.iteration_s for row in predicted]
    assert list(bytes_needed) == [row.prediction.memory_bytes for row in predicted]
    slower = replace(load_framework("eager"), iteration_s=load_framework("eager").iteration_s + 1)
    assert runs.evaluate(frameworks={"eager": slower})[0] == pytest.approx(
        [shipped[0], shipped[1] + 1, shipped[2]]
    )
    assert list(runs.evaluate(Site())[0]) == list(shipped)
    assert runs.evaluate(Site(iteration_overhead_s=2.0))[0] == pytest.approx(shipped + 2)


def test_coverage_counts_the_rows_in_their_interval(write_table):
    predicted = validate(write_table({})).predicted[0].prediction.iteration_s
    rows = [{"id": str(factor), "iteration_s": repr(predicted * factor)} for factor in (0.1, 1.0, 1.01, 10)]
    assert statistics(validate(write_table(*rows)).predicted)["coverage"] == 50
    site = Site(measured_over_predicted=(0.05, 20.0))
    assert statistics(validate(write_table(*rows), site).predicted)["coverage"] == 100


@pytest.mark.parametrize(("name", "largest"), table_rows("accuracy"))
def test_every_measured_a100_run_is_predicted_and_fits(name, largest):
    path = TABLES / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    result = validate(path)
    assert result.skipped == ()
    assert [row.id for row in result.predicted if not row.prediction.fits] == []
    mape = statistics(result.predicted)["mape"]
    assert mape is not None
    assert mape <= largest


def gemm_and_attention_shares(path):
    """By recomputation, the share of the measured time that the layers' GEMMs and attention alone would take
    if all were repeated.
    """
    shares: dict[str, list[float]] = {}
    for row in read_table(path):
        run = measured_run(row, Site())
        workload = Workload.of(run.model, PlanBatch.of([run.plan]), run.system, run.profile)
        costs = layer_costs(workload, np.zeros(1))[0]
        layer_s = sum(2 * costs.forward[part][0] + costs.backward[part][0] for part in ("gemm", "attention"))
        layers = run.plan.microbatches * run.model.layers
        shares.setdefault(run.plan.recompute, []).append(layers * layer_s / row["iteration_s"])
    return shares


@pytest.mark.parametrize(
    ("name", "recompute", "least", "most"), table_rows("which runs had time to repeat everything")
)
def test_which_runs_had_time_to_repeat_everything(name, recompute, least, most):
    path = TABLES / f"{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    shares = gemm_and_attention_shares(path)[recompute]
    assert [round(100 * share) for share in (min(shares), max(shares))] == [least, most]


def test_the_plan_predicted_best_is_close_to_the_best_measured():
    path = TABLES / "a100_megatron_deepspeed.csv"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with path.open() as file:
        shapes = {row["id"]: (row["layers"], row["gpus"]) for row in csv.DictReader(file)}
    groups: dict[tuple[str, str], list] = {}
    for row in validate(path).predicted:
        groups.setdefault(shapes[row.id], []).append(row)
    for rows in groups.values():
        chosen = min(rows, key=lambda row: row.prediction.iteration_s)
        assert chosen.measured_s <= 1.10 * min(row.measured_s for row in rows)


def test_sites_that_state_what_pytorch_allocated_are_compared_with_that(write_table):
    """nanotron's logs lack the CUDA context, NCCL's buffers and the gaps between blocks."""
    path = write_table({"site": "here"}, {"id": "nano", "site": "hf-h100", "gpu": "H100-SXM-80GB"})
    whole, allocated = validate(path).predicted
    assert whole.memory_predicted_gb == whole.prediction.memory_bytes / 1e9
    beyond = sum(allocated.prediction.memory_parts[name] for name in OVERHEADS)
    assert allocated.memory_predicted_gb == (allocated.prediction.memory_bytes - beyond) / 1e9
    _, needed = RunSet.of(read_table(path)).evaluate()
    assert needed[1] == pytest.approx(1e9 * allocated.memory_predicted_gb)


@pytest.mark.parametrize(("name", "most_pct"), [("a100_bigscience", 7.5), ("h100_ultrascale", 15)])
def test_memory_of_measured_runs(shared_dir, name, most_pct):
    runs = RunSet.of(read_table(shared_dir / "data" / "iterations" / f"{name}.csv"))
    _, needed = runs.evaluate()
    measured = ~np.isnan(runs.measured_bytes)
    errors = np.abs(needed[measured] / runs.measured_bytes[measured] - 1)
    assert 100 * errors.mean() < most_pct


@pytest.mark.parametrize(
    "name", ["h100_dgxc_nemo_fp8", "h100_megatron_bridge_moe_bf16", "blackwell_megatron_bridge_moe"]
)
def test_runs_below_16_bit_and_of_mixtures_that_ran_are_predicted_to_fit(shared_dir, name):
    path = shared_dir / "data" / "modern_gpus" / "iterations" / f"{name}.csv"
    runs = RunSet.of(read_table(path))
    _, needed = runs.evaluate()
    assert (needed < [run.profile.memory_bytes for run in runs.runs]).all()


def complaint(path):
    with pytest.raises(TableError) as error:
        read_table(path)
    assert error.value.exit_code == 3
    return str(error.value)


def test_a_row_becomes_typed_cells_and_empty_ones_none(tmp_path, write_table, table_row):
    (row,) = read_table(write_table({}))
    assert (row["line"], row["id"], row["layers"], row["iteration_s"]) == (2, "run-1", 30, 5.618)
    assert row["gated_mlp"] is False
    assert row["zero_group"] is None
    assert row["source"] == "a, b"


def test_a_byte_order_mark_blank_lines_and_crlf_are_fine(tmp_path, write_table, table_row):
    text = write_table({}).read_text().replace("\n", "\r\n")
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\r\n")
    assert len(read_table(tmp_path / "t.csv")) == 1


def test_unknown_columns_are_ignored_and_optional_ones_may_be_missing(tmp_path, write_table, table_row):
    columns = [name for name in table_row if name not in ("note", "kv_heads", "interleave", "memory_gb")]
    (row,) = read_table(write_table({"colour": "red"}, columns=[*columns, "colour"]))
    assert row["interleave"] is None
    assert "colour" not in row


def test_of_many_unknown_columns_the_first_are_named(tmp_path, write_table, table_row, caplog):
    unknown = [f"c{number}" for number in range(1000)]
    read_table(write_table({}, columns=[*table_row, *unknown]))
    assert "c8, c9 and 990 more; do they change" in caplog.text
    assert "c10" not in caplog.text


def test_what_is_no_text_or_cannot_be_read(tmp_path, write_table):
    (tmp_path / "h.csv").write_bytes(b"\x00\xff\xfe\x80" * 100)
    assert "UTF-8" in complaint(tmp_path / "h.csv")
    assert "cannot be read" in complaint(tmp_path / "nothing.csv")
    assert "cannot be read" in complaint(tmp_path)
    long = write_table({"note": "x" * 20_000}, name="i.csv")
    assert "20000 characters" in complaint(long)
    quoted = write_table({}, name="j.csv")
    quoted.write_text(quoted.read_text() + '"never closed\n')
    assert "not CSV" in complaint(quoted)


CELLS = st.text(max_size=12) | st.sampled_from(["0", "1", "-1", "8", "1e3", "nan", "True", "core", "full"])


@given(
    change=st.dictionaries(
        st.sampled_from(["id", "gpus", "tp", "iteration_s", "attention", "gated_mlp", "note"]), CELLS
    )
)
@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_in_the_cells_gives_a_table_or_an_error(table_row, tmp_path, change):
    path = tmp_path / "t.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table_row)
    writer.writerow((table_row | change).values())
    path.write_text(text.getvalue(), encoding="utf-8", newline="")
    complaint = ""
    try:
        rows = read_table(path)
    except TableError as error:
        complaint = str(error)
    assert complaint.startswith(str(path)) if complaint else len(rows) == 1
