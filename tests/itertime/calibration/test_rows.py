"""Rows of any source and model, and of BERT tables: what columns mean, what is skipped, what runs use."""

import contextlib
import csv
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime import predict
from itertime.calibration import GROUPINGS, RunSet, calibrate, summary, validate
from itertime.calibration.conventions import (
    CONVENTIONS,
    SiteConventions,
    conventions_of,
    graphs_of,
    precision_of,
    published_names,
    system_of,
)
from itertime.calibration.measured_run import MeasuredRun, measured_run
from itertime.calibration.run_set import expressed
from itertime.calibration.table import read_table
from itertime.calibration.validation import FileErrors, RowError
from itertime.cli import main
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s
from itertime.errors import TableError, UserError
from itertime.spec import (
    PRECISIONS,
    Attention,
    Gemm,
    ModelSpec,
    Plan,
    PlanOptions,
    Site,
    list_frameworks,
    list_lengths,
    list_models,
    list_systems,
    load_framework,
    load_model,
    load_system,
    profile_of,
)
from itertime.timeline import iteration_graph
from tests.effort import examples
from tests.iteration_table import table_of
from tests.places import SHARED
from tests.tables import TABLES

PUBLISHED = yaml.safe_load(Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"))
NODE, TRAY, RUN, DENSE, QWEN3, DEEPSEEK, GPT = PUBLISHED["rows"].values()
BRIDGE = {"framework": "Megatron-Bridge (Megatron Core, Transformer Engine)"}


def plan(tp: int, pp: int, dp: int, cp: int = 1, **others: Any) -> dict[str, Any]:
    degrees = {"tp": tp, "pp": pp, "dp": dp, "cp": cp, "gpus": tp * pp * dp * cp}
    return {**degrees, "sequence_parallel": tp > 1, **others}


def run_of(folder: Path, *parts: Mapping[str, Any]) -> MeasuredRun:
    row = {name: value for part in (RUN, *parts) for name, value in part.items()}
    (cells,) = read_table(table_of(row, folder))
    run = measured_run(cells, Site())
    run.plan.check(run.model)
    return run


@pytest.mark.parametrize(
    ("function", "meaning", "names"),
    [(function, *row) for function, table in PUBLISHED["aliases"].items() for row in table.items()],
)
def test_names_of_sources(function: str, meaning: str, names: str) -> None:
    """Of GPUs, precisions and CUDA graphs: all that is published for the same thing."""
    known = {"gpus": system_of, "precisions": precision_of, "cuda_graphs": lambda name: graphs_of(name, [])}
    assert {known[function](name) for name in names.split()} == {meaning}


def test_names_of_models() -> None:
    assert published_names("Qwen3-235B-A22B") == published_names("qwen3-235b") == ("qwen3-235b-a22b",)
    assert published_names("deepseek-v3-671b") == ("deepseek-v3",)
    assert published_names("Meta-Llama-3-8B") == ("llama3-8b",)
    assert published_names("") == published_names("an unpublished model") == ()


def test_modules_with_matrices_are_a_share_of_the_layers(tmp_path: Path) -> None:
    """By hand, the operations of a token in one layer, forward: attention's matrices, scores, MLP."""
    modules = {"recompute": "selective", "recompute_modules": "mlp"}
    run = run_of(tmp_path, NODE, DENSE, BRIDGE, plan(4, 4, 4), modules)
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    scores, mlp = 4096 * 8192, 3 * 8192 * 28672
    assert run.plan.recompute == "full"
    assert run.plan.recompute_fraction == pytest.approx(mlp / (attention + scores + mlp), rel=1e-12)
    both = run_of(
        tmp_path, NODE, QWEN3, BRIDGE, plan(1, 2, 32, ep=32), modules | {"recompute_modules": "moe"}
    )
    attention, experts = 2 * 4096 * (64 + 4) * 128, 8 * 3 * 4096 * 1536
    scores = 4096 * 64 * 128
    assert both.plan.recompute_fraction == pytest.approx(experts / (attention + scores + experts), rel=1e-12)
    assert any("share of layers" in text for text in both.assumed)


CELLS: dict[str, st.SearchStrategy[Any]] = {
    column: st.sampled_from(values) for column, values in PUBLISHED["cells"].items()
}
DEGREES = st.tuples(*map(st.sampled_from, ([1, 2, 3, 8], [1, 2, 5, 8], [1, 4, 32], [1, 2, 8])))
SOUND = st.tuples(
    st.sampled_from([NODE, TRAY, {**NODE, "gpu": "B200"}]),
    st.sampled_from(
        [
            {**DENSE, **plan(8, 4, 4, 2)},
            {**DENSE, **plan(4, 5, 8, interleave=4, global_batch=320)},
            {**QWEN3, **plan(2, 8, 16, ep=32, etp=1, interleave=3)},
            {**QWEN3, **plan(1, 1, 64, ep=64)},
            {**DEEPSEEK, **plan(1, 4, 64, ep=64, etp=1, interleave=4)},
            {**GPT, **plan(8, 35, 8, global_batch=1920)},
        ]
    ),
)
CHANGES = st.lists(st.sampled_from(sorted(CELLS)), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: CELLS[name] for name in names})
)


def check_answer(folder: Path, row: Mapping[str, Any]) -> None:
    result = validate(table_of(row, folder))
    if result.skipped:
        assert len(result.skipped[0].why) > 10
        return
    prediction = result.predicted[0].prediction
    assert math.isfinite(prediction.iteration_s)
    assert prediction.iteration_s > 0
    assert prediction.memory_bytes > 0
    for name, value in prediction.breakdown.items():
        assert math.isfinite(value), name
        assert value >= 0, name


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cells=st.fixed_dictionaries(CELLS), degrees=DEGREES)
def test_any_row_is_predicted_or_skipped_with_a_reason(
    tmp_path: Path, cells: dict[str, Any], degrees: tuple[int, ...]
) -> None:
    check_answer(tmp_path, {**RUN, **plan(*degrees), **cells})


@settings(
    max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sound=SOUND, changes=CHANGES)
def test_a_sound_row_with_other_cells_is_predicted_or_skipped_with_a_reason(
    tmp_path: Path, sound: tuple[dict[str, Any], dict[str, Any]], changes: dict[str, Any]
) -> None:
    node, run = sound
    check_answer(tmp_path, {**RUN, **node, **run, **BRIDGE, **changes})


def test_a_published_shape_without_its_name_is_said(tmp_path: Path) -> None:
    run = run_of(tmp_path, NODE, DEEPSEEK, {"model": ""}, plan(2, 8, 64, interleave=4, ep=64))
    assert run.model.dense_ffn_hidden == load_model("deepseek-v3").dense_ffn_hidden
    assert run.assumed == ("model: taken as deepseek-v3, whose shape it has",)


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def test_every_site_says_where_its_conventions_are_from() -> None:
    assert all(site.source for site in CONVENTIONS.sites.values())


def test_conventions_name_what_ships() -> None:
    sites = CONVENTIONS.sites.values()
    systems = {name for chip in CONVENTIONS.chips.values() for name in chip.systems.values()}
    systems |= {site.system for site in sites if site.system} | set(CONVENTIONS.bert.servers.values())
    assert systems <= set(list_systems())
    frameworks = {site.framework for site in sites if site.framework} | set(CONVENTIONS.software.values())
    assert frameworks <= set(list_frameworks())
    assert set(CONVENTIONS.precisions) <= set(PRECISIONS)
    assert {site.memory for site in sites if site.memory} <= set(CONVENTIONS.memories)
    assert CONVENTIONS.bert.model in list_models()
    assert CONVENTIONS.bert.lengths in list_lengths()


def test_conventions_set_fields_that_exist() -> None:
    for site in CONVENTIONS.sites.values():
        assert set(site.model) <= names_of(ModelSpec)
        assert set(site.plan) <= names_of(Plan)
        assert all(set(shape) <= names_of(ModelSpec) for shape in site.shapes.values())


def test_a_site_without_conventions_has_neutral_ones() -> None:
    assert conventions_of({"site": None}) == conventions_of({"site": "another"}) == SiteConventions()


ROW = TABLES["measured row"]
FEW_EXPERTS = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 14336}


def written(folder: Path, **changes: Any) -> Path:
    return table_of({**ROW, **changes}, folder)


def errors_of(folder: Path, **changes: Any) -> FileErrors:
    return validate(written(folder, **changes))


def seconds_of(folder: Path, **changes: Any) -> float:
    (row,) = errors_of(folder, **changes).predicted
    return row.prediction.iteration_s


def run_with(folder: Path, **changes: Any) -> MeasuredRun:
    (row,) = read_table(written(folder, **changes))
    return measured_run(row, Site())


@pytest.mark.parametrize("same", TABLES["cells without effect"])
def test_what_a_run_has_anyway_changes_nothing(tmp_path: Path, same: dict[str, Any]) -> None:
    assert seconds_of(tmp_path, **same) == seconds_of(tmp_path)


def test_a_lower_power_limit_and_other_memory_make_another_gpu(tmp_path: Path) -> None:
    usual, limited = run_with(tmp_path), run_with(tmp_path, power_w=500, site="meta-grand-teton")
    assert (limited.profile.power_w, limited.profile.hbm_bytes_per_s) == (500, 2.4e12)
    assert limited.profile.seconds(Gemm(8192, 8192, 8192)) > 1.1 * usual.profile.seconds(
        Gemm(8192, 8192, 8192)
    )
    assert run_with(tmp_path, power_w=700).profile is usual.profile


def test_a_published_model_fills_what_no_column_states(tmp_path: Path) -> None:
    published = load_model("gpt-oss-20b")
    shape = TABLES["shape of GPT-OSS-20B"]
    assert run_with(tmp_path, **shape).model == replace(published, name="run")
    shallow = run_with(tmp_path, **shape | {"layers": 4, "seq_len": 256}).model
    assert (shallow.layers, shallow.seq_len, shallow.window) == (4, 256, published.window)
    unnamed = run_with(tmp_path, **shape | {"model": "", "seq_len": 256}).model
    assert (unnamed.window, unnamed.head_dim, unnamed.experts) == (0, 64, 32)


def test_what_the_source_leaves_open_is_searched_and_said(tmp_path: Path) -> None:
    """The fastest form that fits: without recomputation if there is room, else with."""
    stated = [seconds_of(tmp_path, recompute=each) for each in ("none", "elementwise", "full")]
    (row,) = errors_of(tmp_path, missing="recompute").predicted
    assert row.prediction.iteration_s == min(stated)
    assert row.assumed == ("the source does not say recompute",)
    large = {"layers": 32, "micro_batch": 8, "global_batch": 32}
    assert not errors_of(tmp_path, **large).predicted[0].prediction.fits
    (row,) = errors_of(tmp_path, **large, missing="recompute").predicted
    assert row.prediction.fits
    shares = {"recompute": "selective", "missing": "share of checkpointed blocks"}
    assert seconds_of(tmp_path, **shares) == stated[0]


def test_what_is_assumed_is_in_the_document_and_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, missing="micro-batch")
    what = "the source does not say micro-batch"
    (entry,) = summary([validate(path)])["files"]
    assert entry["assumed"] == [{"id": "run", "what": [what]}]
    assert main(["validate", str(path)]) == 0
    assert f"1 assumed: {what} (run)" in capsys.readouterr().err


def test_errors_by_a_property(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, framework="Megatron-DeepSpeed")
    result = validate(path)
    document = summary([result], "framework")
    assert list(document["by"]) == ["megatron-deepspeed"]
    assert document["by"]["megatron-deepspeed"]["mape"] == document["all"]["mape"]
    assert set(result.predicted[0].groups) == set(GROUPINGS)
    assert main(["validate", str(path), "--by", "precision"]) == 0
    assert "precision bf16" in capsys.readouterr().out
    assert main(["validate", str(path), "--by", "colour"]) == 2


def test_a_mixture_with_context_parallelism_is_predicted_as_one(tmp_path: Path) -> None:
    """By hand: the same model, plan and system, put together without a table."""
    model = replace(
        load_model("mixtral-8x7b"), layers=8, vocab=32000, seq_len=4096, attention="flash", name="run"
    )
    plan = Plan(2, 1, 2, 1, 16, cp=2, ep=4, recompute="none", sequence_parallel=True, fp32_gradients=True)
    expected = predict(model, plan, replace(load_system("dgx-h100,framework=megatron"), name="run"))
    mine = seconds_of(
        tmp_path, **FEW_EXPERTS, cp=2, dp=2, ep=4, etp=2, moe_dispatcher="alltoall", grad_dtype="fp32"
    )
    assert mine == pytest.approx(expected.iteration_s, rel=1e-12)
    assert mine > 1.01 * seconds_of(tmp_path)


def test_a_column_of_another_name_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.WARNING, logger="itertime"):
        errors_of(tmp_path, model="m", framework="f", quantisation="int4", **{"\x1b[31mred": 1})
    (message,) = [text for text in caplog.messages if "runs.csv" in text]
    assert "quantisation" in message
    assert "'\\x1b[31mred'" in message
    assert not {"model", "framework", "id"} & {word.strip(",;") for word in message.split()}
    caplog.clear()
    errors_of(tmp_path, model="m", framework="f", release="r", missing="", mfu_bf16=0.4, commit="0")
    assert not [text for text in caplog.messages if "runs.csv" in text]


Capture = pytest.CaptureFixture[str]
ESCAPE = "\x1b[31mRED\x1b[0m"


@pytest.mark.parametrize("column", ["layers", "id", "gpu", "precision", "recompute_modules"])
@pytest.mark.parametrize("command", [["validate"], ["calibrate", "-o", "site.yaml"]])
def test_no_cell_steers_the_terminal(
    column: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {"attention": ""} if column == "id" else {}  # so that the row is named
    with contextlib.suppress(UserError):
        errors_of(tmp_path, **wrong, **{column: ESCAPE})
    main([*command, "runs.csv"])
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\\x1b[31mRED" in printed or "0 runs can be expressed" in printed


@pytest.mark.parametrize("name", ["=cmd|'/C calc'!A0", "+1", "-1", "@x"])
def test_rows_written_are_no_formulas(tmp_path: Path, name: str) -> None:
    errors_of(tmp_path, id=name)
    assert main(["validate", str(tmp_path / "runs.csv"), "--rows", str(tmp_path / "rows.csv")]) == 0
    with (tmp_path / "rows.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["id"] == "'" + name


BERT = SHARED / "data" / "mlperf" / "bert_iterations.csv"
NVIDIA, SAMSUNG, LARGEST = yaml.safe_load(Path(__file__).with_name("bert_rows.yaml").read_text()).values()
"""A row; what Samsung's and the largest runs have in place of its cells."""
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A table with rows given as changes of `NVIDIA`; `columns` are those of the first row."""

    def written(*changes: dict[str, str], drop: tuple[str, ...] = ()) -> Path:
        rows = [NVIDIA | change for change in changes]
        names = [name for name in rows[0] if name not in drop]
        with (tmp_path / "t.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, names, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path / "t.csv"

    return written


def bert_run(path: Path) -> tuple[MeasuredRun, list[Plan]]:
    (row,) = read_table(path)
    return expressed(row, Site())


def complaint(path: Path) -> str:
    with pytest.raises(TableError) as error:
        read_table(path)
    return str(error.value)


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(change=st.dictionaries(st.sampled_from(sorted(NVIDIA)), st.text(max_size=30), max_size=3))
def test_any_text_in_the_cells_gives_runs_reasons_or_an_error(write: Write, change: dict[str, str]) -> None:
    path = write(change)
    try:
        rows = read_table(path)
    except TableError:
        assert complaint(path).startswith(f"{path}:")
        return
    runs = RunSet.of(rows)
    assert len(runs) + len(runs.skipped) == len(rows)
    assert all(why for _, why in runs.skipped)


def test_a_named_server_has_its_own_links_and_the_cards_of_the_row(write: Write) -> None:
    change = {"gpu": "NVIDIA A100-PCIE-40GB (250W)", "gpus": "8", "global_batch": "384"}
    usual, _ = bert_run(write(change))
    server, _ = bert_run(write({**change, "id": "mlperf-1.0-Dell-DSS8440x8A100"}))
    assert server.system.nvlink_slowdown > 2 * usual.system.nvlink_slowdown
    assert server.system.hbm_bytes_per_s == usual.system.hbm_bytes_per_s == 1555e9


def test_of_two_possible_precisions_the_faster_one_counts(write: Write) -> None:
    path = write({**LARGEST, "gpus": "8", "samples_per_gpu_step": "96", "global_batch": "768"})
    run, plans = bert_run(path)
    seconds = [predict(run.model, plan, run.system, memory_headroom=0.0).iteration_s for plan in plans]
    (row,) = validate(path).predicted
    assert row.prediction.iteration_s == pytest.approx(min(seconds) * (1 + run.evaluation), rel=1e-12)
    assert row.groups["precision"] == "fp16 or fp8"
    assert "precision=fp16 or fp8, log does not say: taken as the faster of the two" in row.assumed


def test_a_step_holds_its_share_of_evaluations(write: Write) -> None:
    path = write({})
    (row,) = validate(path).predicted
    run, (plan,) = bert_run(path)
    alone = predict(run.model, plan, run.system, memory_headroom=0.0).iteration_s
    assert row.prediction.breakdown["evaluation"] == pytest.approx(alone * 10_000 / 3 / 175_000, rel=1e-12)
    assert sum(row.prediction.breakdown.values()) == pytest.approx(row.prediction.iteration_s, rel=1e-12)


def test_a_set_of_runs_predicts_what_validate_does(write: Write) -> None:
    padded = {"id": "four", "work": "padded to 512"}
    path = write({}, {**SAMSUNG, "id": "two"}, {**LARGEST, "id": "three"}, padded)
    seconds, _ = RunSet.of(read_table(path)).evaluate()
    one_by_one = [row.prediction.iteration_s for row in validate(path).predicted]
    assert seconds.tolist() == pytest.approx(one_by_one, rel=1e-12)
    by_batching = summary([validate(path)], by="batching")["by"]
    assert by_batching["padded"]["rows"] == by_batching["unpadded, sorted"]["rows"] == 1


@pytest.mark.parametrize("change", [{}, {"grad_accumulation": "2"}, SAMSUNG, LARGEST])
def test_the_tasks_of_an_iteration_end_when_predicted(write: Write, change: dict[str, str]) -> None:
    run, plans = bert_run(write(change))
    for plan in plans:
        finish = max(end for _, end in iteration_graph(run.model, plan, run.system).run().values())
        assert predict(run.model, plan, run.system).iteration_s == pytest.approx(finish, rel=1e-9)


def test_weights_are_gathered_after_the_step_where_no_framework_hides_it(write: Write) -> None:
    run, (plan,) = bert_run(write(LARGEST))
    late = load_framework("te-bert")
    ahead = replace(late, gather_overlap=True)
    seconds = [
        predict(run.model, plan, run.system, framework=each).breakdown["dp_comm"] for each in (ahead, late)
    ]
    nbytes = 2.0 * run.model.parameters / 5
    fabric = Fabric(run.system, profile_of(run.system))
    bucket = float(all_gather_s(nbytes, Group(8, 8), fabric))
    assert seconds[1] - seconds[0] == pytest.approx(4 * bucket, rel=0.01)  # of five one is never hidden
    rank_by_rank = replace(late, weight_broadcasts=True)
    sent_s = predict(run.model, plan, run.system, framework=rank_by_rank).breakdown["dp_comm"]
    one = float(all_gather_s(5 * nbytes / 8, Group(8, 8), fabric))
    assert sent_s - (seconds[1] - 5 * bucket) == pytest.approx(8 * one, rel=0.01)


def test_a_site_is_calibrated_to_such_rows(write: Write) -> None:
    """A site whose matrix products take 1.1 times as long is found in the steps that it would take."""
    samples = [12, 16, 20, 24, 28, 32, 40, 48, 56, 64]
    changes = [
        {"id": f"{each}", "gpus": "8", "samples_per_gpu_step": f"{each}", "global_batch": f"{8 * each}"}
        for each in samples
    ]
    slow, _ = RunSet.of(read_table(write(*changes))).evaluate(Site(gemm_multiplier=1.1))
    path = write(*(change | {"step_s": f"{s:.9f}"} for change, s in zip(changes, slow, strict=True)))
    found = calibrate([path], ["gemm_multiplier"], folds=5)
    assert found.constants["gemm_multiplier"] == pytest.approx(1.1, abs=0.01)
    assert np.abs(found.time.held_out).mean() < 0.5


def test_fmha_takes_what_was_published() -> None:
    """64 sequences of 512 tokens, 16 heads of 64, both passes: 2.95 ms (Dao et al. 2022, table 7)."""
    profile = profile_of(load_system("dgx-a100-80gb"))
    both = sum(
        float(profile.seconds(Attention(64, 16, 16, 64, 512, 512, False, backward)))
        for backward in (False, True)
    )
    factor = load_framework("apex-bert").attention_multiplier
    assert factor * both == pytest.approx(2.95e-3, rel=0.01)


def test_fmha_meets_whole_rows_however_short_the_samples() -> None:
    """Its time follows the tokens: unpadded samples take the share of padded ones that their tokens are."""
    model = replace(load_model("bert-large"), attention="flash", lengths="wikipedia-512")
    system = replace(load_system("dgx-a100-80gb"), framework="apex-bert")
    plan = Plan(tp=1, pp=1, dp=1, micro_batch=64, global_batch=64, recompute="none")
    padded = predict(model, plan, system).breakdown["attention"]
    unpadded = predict(model, replace(plan, options=PlanOptions(batching="unpadded")), system)
    assert unpadded.breakdown["attention"] / padded == pytest.approx(255.83 / 512, rel=0.05)


def test_fmha_takes_as_long_as_its_longest_block() -> None:
    """1,024 blocks of whole samples fill 108 multiprocessors ten times, in 2.95 ms: one block alone takes a
    tenth of it, even if most multiprocessors have none.
    """
    model = replace(load_model("bert-large"), attention="flash", lengths="wikipedia-512")
    system = replace(load_system("dgx-a100-80gb"), framework="apex-bert")

    def milliseconds(samples: int, batching: str) -> float:
        plan = Plan(1, 1, 1, samples, samples, recompute="none", options=PlanOptions(batching=batching))
        return 1e3 * predict(model, plan, system).breakdown["attention"] / model.layers

    launches = 2 * 1.62 * 11.1e-3
    assert milliseconds(4, "packed") == pytest.approx(2.95 / 10 + launches, rel=0.05)
    assert milliseconds(4, "packed") == pytest.approx(milliseconds(6, "packed"), rel=1e-12)
    # Three padded samples make 96 blocks of half a sample, which run at once.
    assert milliseconds(3, "padded") < 0.7 * milliseconds(4, "packed")


def test_cards_without_nvlink_among_all_reduce_as_measured() -> None:
    """535 MB among 4 cards of 80 GB, joined in pairs: 33.8 ms (microsoft/vidur)."""
    system = load_system("a100-pcie")
    seconds = all_reduce_s(535e6, Group(4, 4), Fabric(system, profile_of(system)))
    assert float(seconds) == pytest.approx(33.8e-3, rel=0.02)


@pytest.fixture(scope="module")
def measured() -> list[RowError]:
    """Every measured row that is predicted."""
    if not BERT.exists():
        pytest.skip(f"{BERT} is not here")
    return list(validate(BERT).predicted)


@pytest.mark.parametrize(
    ("gpus", "precision", "most_pct"),
    [("A100", "bf16", 8.0), ("H100 H200", "fp16 or fp8", 12.0), ("H100 H200", "fp8", 15.0)],
)
def test_mean_errors_of_measured_rows(
    measured: list[RowError], gpus: str, precision: str, most_pct: float
) -> None:
    errors = [
        abs(row.error_pct)
        for row in measured
        if row.groups["precision"] == precision and any(name in row.groups["gpu"] for name in gpus.split())
    ]
    assert len(errors) >= 13
    assert np.mean(errors) <= most_pct


def test_samsungs_measured_steps(measured: list[RowError]) -> None:
    errors = [row.error_pct for row in measured if "Samsung" in row.id]
    assert len(errors) == 2
    assert max(map(abs, errors)) <= 15


@pytest.mark.skipif(not BERT.exists(), reason=f"{BERT} is not here")
def test_one_nodes_of_h100_held_out(tmp_path: Path) -> None:
    with BERT.open(newline="") as file, (tmp_path / "site.csv").open("w", newline="") as part:
        reader = csv.DictReader(file)
        writer = csv.DictWriter(part, list(reader.fieldnames or ()))
        writer.writeheader()
        writer.writerows(row for row in reader if "H100-SXM" in row["gpu"] and int(row["gpus"]) <= 8)
    found = calibrate([tmp_path / "site.csv"], folds=5)
    assert len(found.runs) == 17
    assert np.abs(found.time.held_out).mean() <= 4
