"""BERT tables: hostile files, what the columns mean, and predictions for measured rows."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from itertime import predict
from itertime.calibration import MeasuredRun, RunSet, calibrate, read_table, summary, validate
from itertime.calibration.run_set import expressed
from itertime.calibration.validation import RowError
from itertime.costs.network import Fabric, Group, all_gather_s, all_reduce_s
from itertime.errors import TableError
from itertime.spec import (
    Attention,
    Plan,
    PlanOptions,
    Site,
    load_framework,
    load_model,
    load_system,
    profile_of,
)
from itertime.timeline import iteration_graph
from tests.effort import examples
from tests.places import SHARED

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


def run_of(path: Path) -> tuple[MeasuredRun, list[Plan]]:
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
    usual, _ = run_of(write(change))
    server, _ = run_of(write({**change, "id": "mlperf-1.0-Dell-DSS8440x8A100"}))
    assert server.system.nvlink_slowdown > 2 * usual.system.nvlink_slowdown
    assert server.system.hbm_bytes_per_s == usual.system.hbm_bytes_per_s == 1555e9


def test_of_two_possible_precisions_the_faster_one_counts(write: Write) -> None:
    path = write({**LARGEST, "gpus": "8", "samples_per_gpu_step": "96", "global_batch": "768"})
    run, plans = run_of(path)
    seconds = [predict(run.model, plan, run.system, memory_headroom=0.0).iteration_s for plan in plans]
    (row,) = validate(path).predicted
    assert row.prediction.iteration_s == pytest.approx(min(seconds) * (1 + run.evaluation), rel=1e-12)
    assert row.groups["precision"] == "fp16 or fp8"
    assert "precision=fp16 or fp8, log does not say: taken as the faster of the two" in row.assumed


def test_a_step_holds_its_share_of_evaluations(write: Write) -> None:
    path = write({})
    (row,) = validate(path).predicted
    run, (plan,) = run_of(path)
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
    run, plans = run_of(write(change))
    for plan in plans:
        finish = max(end for _, end in iteration_graph(run.model, plan, run.system).run().values())
        assert predict(run.model, plan, run.system).iteration_s == pytest.approx(finish, rel=1e-9)


def test_weights_are_gathered_after_the_step_where_no_framework_hides_it(write: Write) -> None:
    run, (plan,) = run_of(write(LARGEST))
    late = load_framework("te-bert")
    ahead = replace(late, gather_overlap=True)
    seconds = [
        predict(run.model, plan, run.system, framework=each).breakdown["dp_comm"] for each in (ahead, late)
    ]
    nbytes = 2.0 * run.model.parameters / 5
    fabric = Fabric(run.system, profile_of(run.system))
    bucket = float(all_gather_s(nbytes, Group(8, 8), fabric))
    assert seconds[1] - seconds[0] == pytest.approx(4 * bucket, rel=0.01)  # of five one is never hidden


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
