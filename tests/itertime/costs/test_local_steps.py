"""Workers that exchange every so many iterations: volume, way, memory and rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange.gradients import exchange
from itertime.costs.exchange.local_steps import (
    AVERAGED_BYTES,
    MOMENT_BYTES,
    NESTEROV_BYTES,
    entry_bytes,
    sent_per_iteration,
    worker_parameters,
    workers_exchange_s,
)
from itertime.spec import Elementwise, PlanOptions, broken_options, load_profile

H100 = load_system("dgx-h100")
PROFILE = load_profile(H100.profile)
SITES = replace(H100, site_link_bytes_per_s=1.25e9, site_link_latency_s=0.03)
LLAMA = load_model("llama2-7b")
PLAN = Plan(1, 1, 64, 1, 256, zero_stage=1, recompute="none", grad_overlap=True)
DILOCO = PlanOptions(workers=4, local_steps=500, outer="diloco")


def workload(plan, model=LLAMA, system=H100):
    return Workload.of(model, PlanBatch.of([plan]), system, PROFILE)


def synced(options, plan=PLAN, model=LLAMA, system=SITES):
    return predict(model, replace(plan, options=options), system).breakdown["outer_sync"]


# Within a worker


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (LLAMA, PLAN),
        (LLAMA, replace(PLAN, tp=2, pp=4, dp=8, global_batch=64, interleave=2)),
        (LLAMA, replace(PLAN, zero_stage=3, zero_group=8)),
        (load_model("mixtral-8x7b"), Plan(2, 2, 16, 1, 64, ep=4, sequence_parallel=True)),
        (load_model("llama2-70b-lora"), Plan(8, 1, 8, 1, 32)),
    ],
)
@pytest.mark.parametrize("compression", ["none", "int8"])
def test_a_worker_trains_as_a_job_of_its_own(model, plan, compression):
    """Time and memory are those of a fourth of the ranks with a fourth of the samples, but for the exchange
    and what DiLoCo keeps. Gradients are not compressed in any case.
    """
    alone = replace(plan, dp=plan.dp // 4, global_batch=plan.global_batch // 4)
    options = replace(DILOCO, compression=compression)
    worker, job = predict(model, replace(plan, options=options), SITES), predict(model, alone, SITES)
    parts = dict(worker.breakdown)
    outer_s = parts.pop("outer_sync")
    assert parts == job.breakdown
    assert worker.iteration_s == pytest.approx(job.iteration_s + outer_s, rel=1e-12)
    memory = dict(worker.memory_parts)
    assert memory.pop("outer_optimizer") == pytest.approx(8 / 12 * memory["optimizer"])
    assert memory == job.memory_parts
    assert worker.mfu == pytest.approx(job.mfu * job.iteration_s / worker.iteration_s, rel=1e-12)


def test_a_stated_group_of_zero_stays_and_all_ranks_become_those_of_a_worker():
    plans = PlanBatch.of([replace(PLAN, options=DILOCO), replace(PLAN, zero_group=8, options=DILOCO)])
    assert plans.worker.optimizer_shards.tolist() == [16, 8]
    assert plans.worker.microbatches.tolist() == plans.microbatches.tolist() == [4, 4]
    assert plans.worker.gpus.tolist() == [16, 16]
    assert plans.worker.options == PlanOptions()
    assert plans.worker.worker is plans.worker


# Volume


def test_without_steps_between_a_mean_of_weights_moves_what_an_all_reduce_of_gradients_moves():
    """Every rank a worker: each all-reduces all its weights over the NICs, and then writes them."""
    options = PlanOptions(workers=64)
    assert sent_per_iteration(options) == 1
    plan = replace(PLAN, zero_stage=0, grad_overlap=False)
    plain, each = workload(plan), workload(replace(plan, options=options))
    shared = plain.partition.layers[-1] * plain.partition.shared + plain.partition.tables
    nothing = np.zeros(1)
    reduced = exchange(plain, plain.partition.layers[-1], shared, nothing).reduce_s
    sent = entry_bytes(each)
    assert workers_exchange_s(each, shared, nothing, sent) == pytest.approx(reduced, rel=1e-12)
    assert synced(options, plan, system=H100) > predict(LLAMA, plan, H100).breakdown["dp_comm"]


def test_published_savings():
    """DiLoCo: "communicating 500 times less" (Douillard et al. 2023, abstract). DES-LOC: 170 times less than
    data parallelism and half of Local Adam (Iacob et al. 2025, abstract), which 256 iterations between
    exchanges of weights and 3 and 6 times as many for the moments give. 400 times less with 8 bits
    instead of 32 every 100 iterations (Jaghouar et al. 2024, INTELLECT-1).
    """
    assert 1 / sent_per_iteration(replace(DILOCO, workers=8)) == 500
    local_adam = PlanOptions(workers=4, local_steps=256, outer="des-loc")
    des_loc = replace(local_adam, momentum_steps=768, variance_steps=1536)
    assert 1 / sent_per_iteration(des_loc) == pytest.approx(170, rel=0.005)
    assert sent_per_iteration(local_adam) == pytest.approx(2 * sent_per_iteration(des_loc))
    eight_bits = replace(DILOCO, local_steps=100, compression="int8")
    plain, sent = (
        entry_bytes(workload(replace(PLAN, fp32_gradients=True, options=options)))[0]
        for options in (PlanOptions(), eight_bits)
    )
    assert plain / (sent * sent_per_iteration(eight_bits)) == 400


@pytest.mark.parametrize(
    ("options", "nbytes"),
    [
        (DILOCO, 4.0),
        (replace(DILOCO, compression="fp16"), 2.0),
        (replace(DILOCO, compression="fp8"), 1.0),
        (replace(DILOCO, compression="int4"), 0.5),
        (replace(DILOCO, compression="int8", warmup_share=0.1), 0.1 * 4 + 0.9 * 1),
    ],
)
def test_what_is_sent_has_the_bytes_of_a_gradient_or_of_its_compression(options, nbytes):
    plan = replace(PLAN, fp32_gradients=True, options=options)
    assert entry_bytes(workload(plan)).tolist() == [nbytes]
    if options is DILOCO:
        assert entry_bytes(workload(replace(plan, fp32_gradients=False))).tolist() == [2.0]


# The way


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("llama2-7b", PLAN),
        ("llama2-7b", replace(PLAN, tp=8, pp=2, dp=4, global_batch=64)),
        ("gpt3-1.3b", replace(PLAN, tp=2, pp=4, dp=8, global_batch=64)),
        ("mixtral-8x7b", Plan(2, 4, 8, 1, 64, ep=4, etp=1, sequence_parallel=True)),
        ("deepseek-v2-lite", Plan(1, 1, 8, 1, 64, ep=2)),
        ("llama2-70b-lora", Plan(8, 1, 8, 1, 32)),
    ],
)
def test_a_site_sends_every_trained_parameter_once(name, plan):
    """Padding of the vocabulary and copies of norms aside."""
    model = load_model(name)
    found = worker_parameters(workload(replace(plan, options=replace(DILOCO, workers=2)), model))[0]
    assert found == pytest.approx(model.trained_parameters, rel=0.01)


def test_over_a_link_between_sites():
    """A ring of four sites moves 2 x 3/4 of 13.5 GB over 1.25 GB/s, in six messages; ZeRO's ranks hold
    different parts, so that nothing is gathered. Then Nesterov's step on a sixteenth.
    """
    size = 2 * worker_parameters(workload(PLAN))[0]
    step = PROFILE.seconds(Elementwise(NESTEROV_BYTES * size / 2 / 16, "adam"))
    assert 500 * synced(DILOCO) == pytest.approx(1.5 * size / 1.25e9 + 6 * 0.03 + step, rel=1e-9)
    assert size == pytest.approx(13.5e9, rel=0.01)


def test_moments_are_exchanged_in_their_own_time():
    options = PlanOptions(workers=4, local_steps=10, outer="des-loc", momentum_steps=20, variance_steps=50)
    once = 10 * synced(replace(options, outer="average", momentum_steps=None, variance_steps=None))
    owned = worker_parameters(workload(PLAN))[0] / 16
    weight, moment = (
        float(PROFILE.seconds(Elementwise(each * owned, "adam"))) for each in (AVERAGED_BYTES, MOMENT_BYTES)
    )
    moments = once - weight + moment
    assert synced(options) == pytest.approx(once / 10 + moments / 20 + moments / 50, rel=1e-9)


def test_ranks_of_a_worker_without_zero_gather_what_each_of_them_exchanged():
    """Sixteen ranks hold the same weights: each exchanges a sixteenth, and gathers the rest."""
    split, whole = (workload(replace(PLAN, zero_stage=stage, options=DILOCO)) for stage in (1, 0))
    shared, nothing = np.array([1e9]), np.zeros(1)
    sent = np.array([2.0])
    more = workers_exchange_s(whole, shared, nothing, sent) - workers_exchange_s(split, shared, nothing, sent)
    assert more == pytest.approx(gather_s(2e9, 16), rel=1e-9)


def gather_s(nbytes, ranks):
    from_one = replace(PLAN, dp=ranks, global_batch=ranks, grad_overlap=False)
    one = workload(from_one)
    return exchange(one, np.array([1]), np.array([nbytes / 2]), np.zeros(1)).gather_s


def test_a_cpu_that_keeps_the_states_takes_them_over_from_a_slower_memory():
    on_gpu, on_cpu = (
        predict(LLAMA, replace(PLAN, offload_optimizer=offload, options=DILOCO), SITES)
        for offload in (False, True)
    )
    assert on_cpu.breakdown["outer_sync"] > on_gpu.breakdown["outer_sync"]
    assert (on_cpu.memory_parts["outer_optimizer"], on_cpu.memory_parts["optimizer"]) == (0, 0)


# Rules


@pytest.mark.parametrize(
    "options",
    [
        DILOCO,
        PlanOptions(workers=3, local_steps=2),
        PlanOptions(workers=2, weight_shards=2, gradient_shards=2, optimizer_shards=4),
        PlanOptions(optimizer_shards=6),
    ],
)
@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b"])
def test_rules_of_many_plans_are_those_of_each(options, model):
    plans = [
        Plan(2, pp, dp, 1, 96, cp=cp, ep=ep, etp=etp, zero_stage=stage, zero_group=group, options=options)
        for pp, dp, cp, ep, etp in (
            (1, 8, 1, 1, None),
            (2, 6, 2, 4, 1),
            (1, 12, 2, 8, 2),
            (4, 32, 1, 2, None),
        )
        for stage, group in ((0, None), (1, None), (3, 2), (1, 12), (3, 6))
    ]
    shape, batch = load_model(model), PlanBatch.of(plans)
    together = np.zeros(len(plans), dtype=int)
    for broken, _ in broken_options(options, shape, batch):
        together += np.broadcast_to(broken, len(plans))
    alone = [sum(bool(broken) for broken, _ in broken_options(options, shape, plan)) for plan in plans]
    assert together.tolist() == alone
    assert 0 in alone
    assert max(alone) > 0


@pytest.mark.parametrize("balance", ["drawn", "exchanged", "stratified-exchanged", "sorted"])
def test_a_worker_waits_for_its_own_slowest_rank(balance):
    model = load_model("bert-large-wikipedia")
    plan = Plan(
        1, 1, 64, 4, 1024, recompute="none", options=PlanOptions(batching="unpadded", balance=balance)
    )
    workers = replace(plan, options=replace(plan.options, workers=4, local_steps=10))
    alone = replace(plan, dp=16, global_batch=256)
    found, job = predict(model, workers, H100), predict(model, alone, H100)
    assert found.breakdown | {"outer_sync": 0.0} == job.breakdown | {"outer_sync": 0.0}
    assert found.memory_parts == job.memory_parts
