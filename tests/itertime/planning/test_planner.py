"""Planners: their rules, their curves, and how they compare."""

from __future__ import annotations

from dataclasses import replace

import pytest

from itertime import PLANNERS, Space, load_model, load_system, make_planner

SYSTEM = load_system("dgx-a100-80gb")
COUNTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
CASES = [("megatron-18.4b", 1024), ("megatron-39.1b", 1536), ("llama2-7b", 512), ("bert-large", 4096)]


def curve(planner, name, batch, counts=COUNTS):
    return make_planner(planner, SYSTEM).curve(load_model(name), batch, counts)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize(("name", "batch"), CASES)
def test_a_curve_uses_at_most_its_gpus_fits_and_never_rises(planner, name, batch):
    found = curve(planner, name, batch)
    assert list(found) == sorted(found)
    assert set(found) <= set(COUNTS)
    assert max(found) == 1024
    last = float("inf")
    for count, run in found.items():
        assert run.gpus == run.plan.gpus <= count
        assert run.plan.broken_rules(load_model(name)) == []
        assert run.memory_bytes <= 85e9
        assert run.iteration_s <= last
        last = run.iteration_s


@pytest.mark.parametrize(("name", "batch"), CASES)
def test_the_whole_space_is_never_slower(name, batch):
    best, more = curve("3d", name, batch), curve("reconfigurable", name, batch)
    for planner in PLANNERS:
        for count, run in curve(planner, name, batch).items():
            assert more[count].iteration_s <= run.iteration_s * (1 + 1e-12)
            assert planner == "reconfigurable" or best[count].iteration_s <= run.iteration_s * (1 + 1e-12)


@pytest.mark.parametrize(("gpus", "batch"), [(1, 64), (2, 64), (8, 512)])
def test_reconfigurable_finds_the_fastest_of_all_its_plans(gpus, batch):
    """Every ZeRO stage with and without offloading, searched one by one."""
    model, fastest = load_model("llama2-7b"), []
    for zero in (0, 1, 2, 3):
        for offload in (False, True):
            space = Space(zero_stage=(zero,), offload_optimizer=offload)
            runs = make_planner("3d", SYSTEM, space=space).curve(model, batch, [gpus])
            fastest += [run.iteration_s for run in runs.values()]
    found = curve("reconfigurable", "llama2-7b", batch, [gpus])[gpus]
    assert found.iteration_s == min(fastest)


def test_reconfigurable_runs_where_states_must_leave_the_gpu():
    """A model of 7B parameters has 112 GB of weights, gradients and states (ZeRO, SC 2020, section 3.1)."""
    assert 1 not in curve("3d", "llama2-7b", 64, [1])
    assert curve("reconfigurable", "llama2-7b", 64, [1])[1].plan.offload_optimizer


def test_a_small_memory_of_the_node_keeps_optimizers_on_the_gpus():
    """One GPU offloads 14 x 6.7e9 bytes, of which a share of 1/8 of 0.4 TB holds about half."""
    small = replace(SYSTEM, cpu_memory_bytes=0.4e12)
    found = make_planner("reconfigurable", small).curve(load_model("llama2-7b"), 64, [1, 2, 4])
    assert 1 not in found
    assert not found[2].plan.offload_optimizer or found[2].plan.zero_stage or found[2].plan.tp == 2


def test_data_parallel_keeps_tp_and_pp_and_micro_batch():
    plans = [
        run.plan
        for count, run in curve("data-parallel", "megatron-76.1b", 1792, [64, 128, 512, 1024]).items()
    ]
    assert {(plan.tp, plan.micro_batch) for plan in plans} == {(8, 1)}
    assert len({plan.pp for plan in plans}) == 1
    assert [plan.dp for plan in plans] == sorted(plan.dp for plan in plans)
    assert plans[-1].pp == 3  # the smallest pipeline that fits: 24 GPUs a replica
    assert curve("data-parallel", "megatron-76.1b", 1792, [16, 23]) == {}


def test_data_parallel_below_a_node_splits_the_model_over_all_gpus():
    plans = {count: run.plan for count, run in curve("data-parallel", "gpt3-1.3b", 512, [1, 2, 4, 8]).items()}
    assert {count: (plan.tp, plan.dp) for count, plan in plans.items()} == {n: (n, 1) for n in (1, 2, 4, 8)}


def test_a_frozen_plan_keeps_the_tp_and_pp_of_the_smallest_count():
    found = curve("data-parallel-best", "megatron-39.1b", 1536)
    assert len({(run.plan.tp, run.plan.pp) for run in found.values()}) == 1
    smallest = min(found)
    assert found[smallest].iteration_s == curve("3d", "megatron-39.1b", 1536)[smallest].iteration_s


def test_megatron_uses_no_pipeline_where_a_node_is_enough():
    small, large = curve("megatron", "gpt3-6.7b", 512), curve("megatron", "gpt3-175b", 1536)
    assert {run.plan.pp for run in small.values()} == {1}
    assert {run.plan.tp for run in large.values()} == {8}


def test_a_caller_cannot_spoil_what_the_planner_remembers():
    planner, model = make_planner("3d", SYSTEM), load_model("llama2-7b")
    planner.curve(model, 512, [64]).clear()
    assert 64 in planner.curve(model, 512, [64])
