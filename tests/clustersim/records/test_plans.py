"""What a run says about the plans it used."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import clustersim
from clustersim import read_run, write_run
from clustersim.analysis import gpu_time
from clustersim.records import PARTS, plan_of_label
from itertime import Plan, load_model, load_system, predict
from itertime.prediction import GROUPS
from tests.tables import TABLES
from traces import Job

JOBS = [
    Job("a", 0.0, model="megatron-18.4b", global_batch=1024, iterations=50, gpus=64),
    Job("b", 1.0, model="gpt3-1.3b", global_batch=512, iterations=100, gpus=1, seq_len=1024),
    Job("c", 2.0, model="gpt3-1.3b", global_batch=512, iterations=100, gpus=1),
    Job("d", 3.0, gpus=8, duration_s=100.0),
]


@pytest.fixture(scope="module")
def run() -> clustersim.Run:
    return clustersim.run(JOBS, "fifo", cluster="n16g8")


def test_the_parts_sum_to_what_itertime_predicts(run: clustersim.Run) -> None:
    for record in run.plans:
        plan = plan_of_label(record.plan, record.global_batch)
        assert plan is not None
        model = load_model(record.model).with_seq_len(record.seq_len)
        expected = predict(model, plan, load_system("dgx-a100-80gb"))
        assert record.iteration_s == pytest.approx(expected.iteration_s, rel=1e-12)
        assert sum(getattr(record, part) for part in PARTS) == pytest.approx(record.iteration_s, rel=1e-12)
        assert (record.low_s, record.high_s) == pytest.approx(expected.interval_s)
        assert record.bubble_s == pytest.approx(expected.breakdown["bubble"])


def test_every_part_of_an_iteration_is_in_one_field() -> None:
    recorded = [part for parts in PARTS.values() for part in parts]
    assert len(recorded) == len(set(recorded))
    assert {part for parts in GROUPS.values() for part in parts} <= set(recorded)


def test_plans_of_a_framework_that_hides_communication_are_recorded() -> None:
    on_hopper = [replace(job, precision="fp8") if job.model else job for job in JOBS]
    run = clustersim.run(on_hopper, "fifo", cluster="n16g8", system="dgx-h100", planner="data-parallel")
    assert {record.precision for record in run.plans} == {"fp8"}
    for record in run.plans:
        assert sum(getattr(record, part) for part in PARTS) == pytest.approx(record.iteration_s, rel=1e-12)


def test_a_folder_keeps_them(run: clustersim.Run, tmp_path: Path) -> None:
    written = write_run(tmp_path / "run", run)
    read = read_run(tmp_path / "run")
    assert [p.key for p in read.plans] == [p.key for p in run.plans]
    for ours, theirs in zip(read.plans, run.plans, strict=True):
        assert ours[9:] == pytest.approx(theirs[9:], abs=1e-6)
    assert (read.jobs[1].global_batch, read.jobs[1].seq_len) == (512, 1024)
    assert "plans.csv" in written.manifest["files"]


def test_plans_are_told_apart_by_gpu_type(tmp_path: Path) -> None:
    groups = "groups:\n  - {name: old, gpu_type: v100, nodes: 2}\n  - {name: new, gpu_type: a100, nodes: 4}\n"
    (tmp_path / "c.yaml").write_text(groups)
    run = clustersim.run(JOBS[1:], "fifo", cluster=str(tmp_path / "c.yaml"))
    assert {plan.gpu_type for plan in run.plans} == {"a100"}
    assert len(run.plans) == 2
    write_run(tmp_path / "run", run)
    time = gpu_time(read_run(tmp_path / "run"))
    assert time is not None
    assert time.seconds["compute"] > 0
    assert set(time.by_plan) == {plan.key for plan in run.plans}


@pytest.mark.parametrize(
    "plan",
    [Plan(8, 2, 4, 1, 64, interleave=2), Plan(1, 1, 8, 2, 64, zero_stage=1, recompute="none"),
     Plan(8, 1, 4, 2, 64, sequence_parallel=True, recompute="selective"), Plan(2, 4, 1, 1, 64, cp=2, ep=2),
     Plan(2, 1, 4, 1, 64, ep=8, etp=1, dispatcher="deepep", ep_overlap=True, sequence_parallel=True),
     Plan(8, 1, 1, 1, 64, tp_overlap=True, cuda_graphs="layers", precision="mxfp8"),
     Plan(8, 1, 1, 1, 64, tp_overlap=False, cuda_graphs="full", dispatcher="hybridep"),
     Plan(1, 1, 8, 1, 64, recompute="elementwise", recompute_fraction=0.25),
     Plan(1, 1, 8, 1, 64, recompute_fraction=0),
     Plan(2, 5, 1, 1, 64, split="ends", offload_layers=4, offload_optimizer=True)],
)  # fmt: skip
def test_labels_are_read_back(plan: Plan) -> None:
    assert plan_of_label(plan.label, 64) == plan


def test_plans_that_differ_in_what_a_label_shows_have_different_labels() -> None:
    plan = Plan(2, 1, 4, 1, 64)
    changes: list[dict[str, Any]] = [
        {"etp": 1}, {"dispatcher": "deepep"}, {"dispatcher": "hybridep"}, {"cuda_graphs": "layers"},
        {"cuda_graphs": "full"}, {"ep_overlap": True}, {"tp_overlap": True}, {"tp_overlap": False},
        {"recompute_fraction": 0.5}, {"offload_layers": 2}, {"offload_optimizer": True},
    ]  # fmt: skip
    labels = {replace(plan, **change).label for change in changes}
    assert len(labels | {plan.label}) == len(changes) + 1
    assert plan.label == "tp2 pp1 dp4 mb1 full"


@pytest.mark.parametrize("text", TABLES["other text is no plan"])
def test_other_text_is_no_plan(text: str) -> None:
    assert plan_of_label(text, 64) is None
