"""Offloading to the CPU: what travels, what computation hides, and what memory it frees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, load_model, load_profile, load_system, predict
from itertime.costs import Workload
from itertime.costs.activation_copies import activation_copies_s
from itertime.costs.memory import activations_of
from itertime.costs.offload import offloaded_step

SYSTEM = load_system("dgx-a100-80gb")
MODEL = load_model("llama2-7b")
PLAN = Plan(1, 1, 8, 1, 8, recompute="none", zero_stage=1)


def workload(plan, model=MODEL, system=SYSTEM):
    return Workload.of(model, PlanBatch.of([plan]), system, load_profile(system.profile))


def link(system, gb_per_s):
    return replace(system, gpu_cpu_bytes_per_s=gb_per_s * 1e9)


def test_copies_take_as_long_as_their_bytes():
    plan = replace(PLAN, offload_layers=4)
    kept = activations_of(workload(plan)).kept[0]
    assert activation_copies_s(workload(plan))[-1, 0] == pytest.approx(4 * kept / (0.8 * 31.5e9))


def test_a_link_that_is_fast_enough_costs_nothing_and_a_slow_one_its_excess():
    plan = replace(PLAN, offload_layers=32)
    usual, hidden, slow = (
        predict(MODEL, each, system)
        for each, system in ((PLAN, SYSTEM), (plan, link(SYSTEM, 1e4)), (plan, link(SYSTEM, 1)))
    )
    assert hidden.iteration_s == pytest.approx(usual.iteration_s, rel=1e-12)
    assert slow.breakdown["offload_comm"] == pytest.approx(slow.iteration_s - usual.iteration_s, rel=1e-9)
    copied = 2 * activation_copies_s(workload(plan, system=link(SYSTEM, 1)))[-1, 0]
    layers = sum(usual.breakdown[part] for part in ("gemm", "attention", "elementwise"))
    assert slow.breakdown["offload_comm"] == pytest.approx(copied - layers, rel=1e-6)


@pytest.mark.parametrize("count", [1, 8, 32])
def test_memory_loses_what_travels_but_one_layer(count):
    before, after = (
        predict(MODEL, each, SYSTEM).memory_parts["activations"]
        for each in (PLAN, replace(PLAN, offload_layers=count))
    )
    kept = activations_of(workload(PLAN)).kept[0]
    assert before - after == pytest.approx((count - 1) * kept, abs=1)


def test_a_pipeline_frees_every_micro_batch_in_flight():
    plan = Plan(1, 4, 2, 1, 16, recompute="none")
    before, after = (
        predict(MODEL, each, SYSTEM).memory_parts["activations"]
        for each in (plan, replace(plan, offload_layers=8))
    )
    kept = activations_of(workload(plan)).kept[0]
    assert before - after == pytest.approx((4 * 8 - 1) * kept, rel=1e-9)


def test_the_optimizer_leaves_the_gpu_and_runs_at_the_speed_of_the_cpus_memory():
    """28 bytes a parameter at half of 409.6 GB/s for 8 GPUs, gradients down at 0.8 of PCIe 4.0."""
    on_gpu, on_cpu = (predict(MODEL, each, SYSTEM) for each in (PLAN, replace(PLAN, offload_optimizer=True)))
    owned = on_gpu.memory_parts["optimizer"] / 12
    assert on_cpu.memory_parts["optimizer"] == on_cpu.memory_parts["optimizer_step"] == 0
    assert on_cpu.breakdown["optimizer"] == pytest.approx(28 * owned / (0.5 * 409.6e9 / 8), rel=1e-9)
    assert on_cpu.breakdown["optimizer_copies"] == pytest.approx(2 * owned / (0.8 * 31.5e9), rel=1e-9)
    assert on_cpu.iteration_s > on_gpu.iteration_s


def test_slow_links_hold_up_the_step_itself():
    owned = np.array([1e9])
    found = offloaded_step(workload(PLAN, system=link(SYSTEM, 1)), owned, owned)
    assert found.step[0] == pytest.approx(2e9 / 0.8e9)


def test_offloading_everything_lets_a_model_train_on_one_gpu():
    """ZeRO-Offload (Ren et al. 2021), section 6: 13 billion parameters on one V100 of 32 GB; 80 GB hold as
    many with gradients and all.
    """
    plan = Plan(1, 1, 1, 1, 1)
    model = load_model("gpt3-13b")
    assert not predict(model, plan, SYSTEM).fits
    assert predict(model, replace(plan, offload_optimizer=True), SYSTEM).fits


def test_cores_and_gradients_of_a_site_add_to_the_memory_of_its_cpus():
    """A GPU's own cores work on what it owns; all gradients of the stage cost."""
    site = replace(SYSTEM.site, cpu_adam_s=0.5e-9, cpu_gradient_s=0.2e-9)
    for dp in (1, 8):
        plan = replace(PLAN, dp=dp, global_batch=PLAN.micro_batch * dp, zero_stage=1, offload_optimizer=True)
        usual, stated = (
            predict(MODEL, plan, each).breakdown for each in (SYSTEM, replace(SYSTEM, site=site))
        )
        held = predict(MODEL, plan, SYSTEM).memory_parts["weights"] / 2
        assert stated["optimizer"] - usual["optimizer"] == pytest.approx(0.5e-9 * held / dp, rel=1e-6)
        more = stated["optimizer_copies"] - usual["optimizer_copies"]
        assert more == pytest.approx(0.2e-9 * held, rel=1e-6)


def test_what_is_offloaded_must_fit_in_the_share_of_a_gpu():
    """13 billion parameters leave 14 bytes each on the CPU of one GPU: states of 12, gradients of 2."""
    model, plan = load_model("gpt3-13b"), Plan(1, 1, 1, 1, 1, offload_optimizer=True)
    needed = 14 * predict(model, plan, SYSTEM).memory_parts["weights"] / 2
    enough, short = (
        predict(model, plan, replace(SYSTEM, cpu_memory_bytes=8 * needed * share)) for share in (1.001, 0.999)
    )
    assert enough.fits
    assert not short.fits
    share = f"a GPU's share of its node's memory is {needed * 0.999 / 1e9:.1f} GB"
    assert short.reason == f"offloads {needed / 1e9:.1f} GB, and {share}"
    assert enough.iteration_s == short.iteration_s
    plan = Plan(8, 1, 1, 1, 1)
    assert predict(MODEL, plan, SYSTEM).fits
    assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=1.0)).fits


def test_ranks_that_share_states_share_what_they_offload():
    plan = Plan(1, 1, 8, 1, 8, zero_stage=1, offload_optimizer=True)
    needed = 14 * predict(MODEL, plan, SYSTEM).memory_parts["weights"] / 2 / 8
    for share, fits in ((1.001, True), (0.999, False)):
        assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=8 * needed * share)).fits == fits


def test_layers_that_wait_in_the_cpus_memory_count_there():
    plan = replace(PLAN, offload_layers=2)
    kept = 2 * activations_of(workload(plan)).kept[0]
    for share, fits in ((1.001, True), (0.999, False)):
        assert predict(MODEL, plan, replace(SYSTEM, cpu_memory_bytes=8 * kept * share)).fits == fits
