"""The study of Morphling's placements: its arithmetic, the figures of its page, and plans it cannot see."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments import morphling, morphling_jobs, morphling_rows, morphling_rubick
from experiments.morphling_rows import Row
from itertime import load_system
from itertime.errors import UserError
from tests.places import ROOT, SHARED
from tests.tables import TABLES

FOLDER = SHARED / "data" / "clusters" / "morphling"
PAGE = ROOT / "experiments" / "MORPHLING.md"
A800 = load_system(morphling_rows.SYSTEM)
NAMES = ("bert", "gpt2", "llama7", "roberta", "t5", "vit")
measured = pytest.mark.skipif(not FOLDER.is_dir(), reason="Morphling's measurements are not at hand")


def row(plan: str, placement: str, measured_s: float, predicted_s: float) -> Row:
    return Row("bert", plan, placement, measured_s, predicted_s, 1e9)


ROWS = [
    row("ga", "8", 1.0, 2.0),
    row("gc", "8", 2.0, 4.0),
    row("ga", "44", 2.0, 3.0),
    row("gc", "44", 4.0, 12.0),
]


def test_ratios_are_in_units_of_their_median_and_of_each_other() -> None:
    assert list(morphling.ratios(ROWS)) == [1.0, 1.0, 0.75, 1.5]
    assert morphling.mape(morphling.ratios(ROWS)) == pytest.approx(18.75)
    assert list(morphling.plan_ratios(ROWS)) == pytest.approx([1.0, 2.0])
    assert list(morphling.placement_ratios(ROWS)) == pytest.approx([0.75, 1.5])
    pairs = [a / b for a in (1, 1, 0.75, 1.5) for b in (1, 1, 0.75, 1.5)]
    expected = 100 * sum(abs(each - 1) for each in pairs) / 12
    assert morphling.pairwise(ROWS) == pytest.approx(expected)


def test_rank_correlation_counts_ties_as_their_mean() -> None:
    assert morphling.spearman(ROWS) == pytest.approx(0.9486832980505138)
    assert math.isnan(morphling.spearman(ROWS[:2]))


def test_digits_are_pipeline_tensor_and_data_degree() -> None:
    plan = morphling_rows.plan_of("248", 64, morphling_rows.WORKLOADS["llama7"])
    assert (plan.pp, plan.tp, plan.dp, plan.microbatches, plan.precision) == (2, 4, 8, 1, "tf32")
    assert morphling_rows.plan_of("524", 40, morphling_rows.WORKLOADS["llama30"]).split == "even"
    assert morphling_rows.plan_of("gc", 8, morphling_rows.WORKLOADS["bert"]).recompute == "full"
    with pytest.raises(UserError, match="plan zero-3: must be three digits or one of ga"):
        morphling_rows.plan_of("zero-3", 8, morphling_rows.WORKLOADS["bert"])


def test_two_gpus_share_a_nic_and_the_emptiest_node_decides() -> None:
    """One or two GPUs on a node have one NIC of four, three have two."""
    nics = [
        morphling_rows.system_of(A800, placement).nics_per_node for placement in ("17", "26", "35", "44", "8")
    ]
    assert nics == [1, 1, 2, 2, 4]
    assert morphling_rows.system_of(A800, "26").nic_bytes_per_s == 25e9
    assert morphling_rows.system_of(A800, "26").cpu_memory_bytes_per_s == pytest.approx(
        A800.cpu_memory_bytes_per_s / 3
    )


def test_the_fit_finds_the_times_that_made_the_rows() -> None:
    """ZeRO-Offload rows that take exactly the fitted times longer give them back."""
    held = morphling_rows.WORKLOADS["bert"].spec("ga").parameters
    rows = []
    for placement, gpus in (("1", 1), ("2", 2), ("8", 8)):
        rows.append(row("zero-dp", placement, 1.0, 1.0))
        rows.append(row("zero-offload", placement, 1.0 + 3e-10 * held / gpus + 1e-10 * held, 1.0))
    assert morphling_rows.fitted(rows, A800) == pytest.approx((3e-10, 1e-10))


@pytest.fixture(scope="module")
def models() -> dict[str, list[Row]]:
    return {name: morphling_rows.read_rows(FOLDER, name, A800)[0] for name in NAMES}


@measured
def test_the_page_states_what_the_program_prints(models: dict[str, list[Row]]) -> None:
    apart = {
        name: morphling_rows.read_rows(FOLDER, name, A800, overlap=False)[0] for name in ("roberta", "vit")
    }
    page = PAGE.read_text(encoding="utf-8")
    for line in morphling.summary(models, apart).splitlines():
        assert line in page
    for line in morphling_jobs.implied_table(_jobs(), A800).splitlines():
        assert line in page


@measured
def test_plans_are_ranked_and_their_ratios_met(models: dict[str, list[Row]]) -> None:
    """The targets, but for vit, whose hosts were slow in most of its rows."""
    for name, rows in models.items():
        if name == "vit":
            rows = [each for each in rows if each.even or each.plan == "zero-offload"]
        assert morphling.spearman(rows) >= 0.9, name
        assert morphling.mape(morphling.ratios(rows)) <= 15, name


@measured
def test_the_two_fitted_times_are_those_of_the_tuning_models() -> None:
    bare = replace(A800, site=replace(A800.site, cpu_adam_s=0.0, cpu_gradient_s=0.0))
    rows = [each for name in morphling_rows.TUNED for each in morphling_rows.read_rows(FOLDER, name, bare)[0]]
    assert morphling_rows.fitted(rows, bare) == pytest.approx(
        (A800.site.cpu_adam_s, A800.site.cpu_gradient_s), rel=0.01
    )


@measured
def test_a_model_that_was_never_seen_is_met_within_a_tenth() -> None:
    """llama30's iterations as its jobs imply them: none of its measurements was at hand."""
    found = morphling_jobs.implied(_jobs())
    errors = [
        morphling_rows.predicted(morphling_rows.WORKLOADS[name], plan, "8" * (gpus // 8), A800).predicted_s
        / seconds
        - 1
        for (name, gpus, plan), seconds in found.items()
        if name == "llama30"
    ]
    assert len(errors) == 3
    assert np.abs(errors).max() < 0.1


@measured
def test_only_what_runs_with_half_of_its_samples_is_marked(models: dict[str, list[Row]]) -> None:
    halves = [
        (each.model, each.plan, each.placement) for rows in models.values() for each in rows if each.half
    ]
    assert (
        halves == [("roberta", plan, "1") for plan in ("ga", "zero-dp", "zero-offload")] or len(halves) == 3
    )


def test_jobs_state_their_run_time_under_their_users_plan() -> None:
    job = TABLES["a job of Morphling"]
    user = {"bert.ga": {2: 0.5}}
    header, row = morphling_rubick.trace_csv([job], user, rigid=True).splitlines()
    assert header == ",".join(morphling_rubick.JOB_COLUMNS)
    assert row == "a,5,guaranteed,bert.ga,2,2,2,32,10,5"
    assert morphling_rubick.table_csv(user).splitlines()[1] == "bert.ga,32,2,2"


@measured
@pytest.mark.long
def test_a_best_plan_is_as_fast_as_the_users() -> None:
    jobs = _jobs()
    for user, best in (
        morphling_rubick.measured_tables(FOLDER, jobs, A800),
        morphling_rubick.predicted_tables(jobs, A800),
    ):
        assert sorted(user) == sorted({morphling_rubick.kind_of(job) for job in jobs})
        for kind, rates in user.items():
            assert all(best[kind][gpus] <= seconds for gpus, seconds in rates.items())
        assert all(int(job["num_gpus"]) in user[morphling_rubick.kind_of(job)] for job in jobs)


@measured
@pytest.mark.long
def test_rubick_is_ahead_as_the_page_says(tmp_path: Path) -> None:
    assert morphling_rubick.main([str(FOLDER), "--out", str(tmp_path)]) == 0
    lines = (tmp_path / "rubick.md").read_text(encoding="utf-8").splitlines()
    page = PAGE.read_text(encoding="utf-8")
    assert all(line in page for line in lines)
    cells = [line.split(" | ") for line in lines[2 : 2 + len(morphling_rubick.SCHEDULERS)]]
    mean_h = {row[0].removeprefix("| "): (float(row[1]), float(row[4])) for row in cells}
    for other in ("rubick, plans only", "rubick, GPUs only", "rubick, neither", "sia", "easy", "fifo"):
        assert mean_h["rubick"][0] < mean_h[other][0]
        assert mean_h["rubick"][1] < mean_h[other][1]


def _jobs() -> list[dict[str, str]]:
    return morphling_jobs.read_jobs(FOLDER / "workload-base.csv")
