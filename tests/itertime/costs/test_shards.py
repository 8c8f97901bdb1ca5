"""Groups of different sizes for weights, gradients and states; workers that exchange now and then."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from itertime import Plan, PlanBatch, evaluate, load_model, load_system, predict
from itertime.costs import Workload
from itertime.costs.exchange.gradients import exchanges
from itertime.costs.exchange.groups import Shards
from itertime.costs.exchange.local_steps import (
    AVERAGED_BYTES,
    MOMENT_BYTES,
    NESTEROV_BYTES,
    entry_bytes,
    exposed_in_turn_s,
    sent_per_iteration,
    worker_parameters,
    workers_exchange_s,
)
from itertime.costs.network import Fabric, Group, reduce_scatter_s
from itertime.errors import UserError
from itertime.spec import Elementwise, PlanOptions, broken_options, load_profile, parse_options
from tests.tables import TABLES

H100 = load_system("dgx-h100")
PROFILE = load_profile(H100.profile)
LLAMA = load_model("llama2-7b")
PARO = {  # weights, gradients, states of 64 ranks: none (1), those of a node (8), all
    "NNI": (1, 1, 8), "NNG": (1, 1, 64), "NII": (1, 8, 8), "NIG": (1, 8, 64), "NGG": (1, 64, 64),
    "III": (8, 8, 8), "IIG": (8, 8, 64), "IGG": (8, 64, 64), "GGG": (64, 64, 64),
}  # fmt: skip


def shared_by(weights: int, gradients: int, optimizer: int) -> PlanOptions:
    return PlanOptions(weight_shards=weights, gradient_shards=gradients, optimizer_shards=optimizer)


def of(name: str, **change: object) -> Plan:
    plan = Plan(1, 1, 64, 1, 128, recompute="none", grad_overlap=False, prefetch=False)
    return replace(plan, options=shared_by(*PARO[name]), **change)


@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b", "deepseek-v2-lite", "llama2-70b-lora"])
@pytest.mark.parametrize("group", [1, 2, 8, 16, 64, None])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_zero_and_hybrid_sharding_are_special_cases(model: str, group: int | None, stage: int) -> None:
    """ZeRO-1, -2, -3 over all ranks, and in groups: MiCS, and FSDP's hybrid sharding. Every part is the same
    number, not nearly so.
    """
    name, ranks = load_model(model), 64
    system = replace(H100, site=replace(H100.site, zero_broadcast_s=1e-3))
    usual = Plan(1, 1, ranks, 1, 128, zero_stage=stage, zero_group=group, ep=4 if name.experts > 1 else 1)
    count = group or ranks
    shards = [count if stage >= least else 1 for least in (3, 2, 1)]
    stated = replace(usual, zero_stage=0, zero_group=None, options=shared_by(*shards))
    for change in ({}, {"grad_overlap": True}, {"fp32_gradients": True, "precision": "fp8"}):
        if count == 1 and stage == 3:
            continue  # ZeRO-3 over one rank holds two layers' weights; one rank that shares nothing does not
        plans = [replace(plan, **change).check(name) for plan in (usual, stated)]
        found = [evaluate(name, PlanBatch.of([plan]), system) for plan in plans]
        assert found[0].breakdown == found[1].breakdown
        if count > 1:
            assert found[0].memory.parts == found[1].memory.parts


@pytest.mark.parametrize("name", PARO)
def test_memory_is_divided_by_the_ranks_that_share_it(name: str) -> None:
    weights, gradients, optimizer = PARO[name]
    whole = predict(LLAMA, replace(of("NNI"), options=PlanOptions()), H100).memory_parts
    parts = predict(LLAMA, of(name), H100).memory_parts
    gathered = 2.0 * (2 * LLAMA.layer_parameters + LLAMA.vocab * LLAMA.hidden) if weights > 1 else 0.0
    assert parts["weights"] == pytest.approx(whole["weights"] / weights + gathered)
    assert parts["gradients"] == pytest.approx(whole["gradients"] / gradients)
    assert parts["optimizer"] == pytest.approx(whole["optimizer"] / optimizer)


def collective(operation, nbytes: float, ranks: int, local: int, sharers: int, stride: int) -> float:
    """Seconds of a group of `ranks`, `local` of them in a node, `sharers` such groups beside each other."""
    group = Group(np.array([ranks]), np.array([local]), sharers, stride)
    return float(operation(np.array([nbytes]), group, Fabric(H100, PROFILE))[0])


def test_every_micro_batch_scatters_in_the_group_of_the_gradients() -> None:
    """PaRO-NIG: no weights travel in a pass, and gradients only within the node."""
    parts = {name: predict(LLAMA, of(name), H100).breakdown["fsdp_comm"] for name in PARO}
    assert parts["NNI"] == parts["NNG"] == 0
    assert parts["NII"] == parts["NIG"] < parts["NGG"]
    assert parts["III"] == parts["IIG"] < parts["IGG"] < parts["GGG"]
    scattered = collective(reduce_scatter_s, 2.0 * LLAMA.layer_parameters, 8, 8, 1, 1)
    assert parts["NIG"] == pytest.approx(2 * LLAMA.layers * scattered, rel=1e-6)  # of two micro-batches


NODES, ALL, ROUNDS = 7 / 8, 63 / 64, 2  # shares of a ring of 8 nodes and of 64 ranks; micro-batches


@pytest.mark.parametrize(
    ("name", "copies"),
    [
        ("NNI", 2 * ALL),  # all-reduce; weights come from the node
        ("NNG", ALL + ALL),  # reduce-scatter, all-gather
        ("NII", 2 * NODES),  # all-reduce of shards between the nodes
        ("NIG", NODES + ALL),  # reduce-scatter between the nodes, gather from all
        ("NGG", ROUNDS * ALL + ALL),
        ("III", 2 * NODES),
        ("IIG", NODES + NODES),
        ("IGG", ROUNDS * ALL + NODES),
        ("GGG", 3 * ROUNDS * ALL),  # every pass gathers, every backward pass scatters
    ],
)
def test_what_crosses_the_network_in_copies_of_the_model(name: str, copies: float) -> None:
    """On NICs so slow that nothing else counts, an iteration lasts as long as their bytes. Scatters of the
    last layer after the last backward pass are charged apart from those of the passes, 1/32 of a round.
    """
    model = replace(LLAMA, vocab=128, vocab_multiple=1)
    seconds = []
    for slower in (2.0**24, 2.0**25):
        slow = replace(H100, nic_bytes_per_s=H100.nic_bytes_per_s / slower)
        seconds.append(predict(model, replace(of(name), global_batch=ROUNDS * 64), slow).iteration_s)
    sent = (seconds[1] - seconds[0]) / 2**24 * H100.nic_bytes_per_s * H100.achieved_network
    assert sent / (2 * model.parameters) == pytest.approx(copies, rel=0.02)


def test_groups_that_nest_are_taken() -> None:
    for name in PARO:
        assert of(name).broken_rules(LLAMA) == []
    assert Plan(1, 2, 8, 1, 8, options=PlanOptions(optimizer_shards=4)).broken_rules(LLAMA) == []
    assert Plan(1, 1, 8, 1, 8, zero_stage=2, options=PlanOptions(weight_shards=4)).broken_rules(LLAMA) == []
    diloco = PlanOptions(workers=4, local_steps=500, outer="diloco")
    assert Plan(1, 1, 64, 1, 256, zero_stage=1, zero_group=16, options=diloco).broken_rules(LLAMA) == []
    assert Plan(1, 1, 16, 1, 64, ep=4, options=diloco).broken_rules(load_model("mixtral-8x7b")) == []


def test_gradients_of_experts_that_nothing_shards_are_summed_over_all_copies() -> None:
    """With `etp` below `tp`, an expert has several copies in one data-parallel rank: here 4 on 8 GPUs."""
    mixture = load_model("mixtral-8x7b")
    plan = Plan(4, 1, 2, 1, 8, ep=2, etp=1, zero_stage=1, sequence_parallel=True, recompute="none")
    plans = PlanBatch.of([plan.check(mixture)])
    experts = Shards.of(plans).of_experts(plans)
    assert (experts.weights, experts.gradients, experts.optimizer) == (1, 1, 4)
    workload = Workload.of(mixture, plans, H100, PROFILE)
    none, one = np.zeros(1), np.full(1, 1e9)
    found = exchanges(workload, np.full(1, 32), none, one).division(np.array([0]))
    scattered = reduce_scatter_s(2e9, Group(4, 4, 2), Fabric(H100, PROFILE))
    assert found.reduce_s == pytest.approx(scattered, rel=1e-12)


def test_stages_of_a_pipeline_gather_their_own_layers() -> None:
    """Without prefetch nothing is hidden: all of the model's gathers, whatever the number of stages; the
    slowest stage pays a share of them with every micro-batch.
    """
    model = load_model("llama2-7b")
    plan = Plan(1, 1, 8, 1, 128, zero_stage=3, prefetch=False, recompute="none")
    parts = [predict(model, replace(plan, pp=pp), load_system("dgx-h100")) for pp in (1, 2, 4)]
    moved = [each.breakdown["fsdp_comm"] for each in parts]
    assert moved[1] == pytest.approx(moved[0] / 2, rel=0.05)
    assert moved[2] == pytest.approx(moved[0] / 4, rel=0.1)
    states = [each.memory_parts["gradients"] + each.memory_parts["optimizer"] for each in parts]
    assert states[2] == pytest.approx(states[0] / 4, rel=0.05)


def test_nothing_is_hidden_without_prefetch() -> None:
    """Sums in another order once left -1e-19 s of contention."""
    plan = Plan(1, 1, 8, 3, 96, zero_stage=3, grad_overlap=True, schedule="gpipe", prefetch=False)
    plan = replace(plan, sequence_parallel=True, recompute="selective", fp32_gradients=True)
    system = replace(load_system("a100-80gb-800g"), framework="te", collective_algorithms=("sharp",))
    for name in ("gpt2-small", "llama2-7b", "gemma2-2b"):
        for dp in (2, 8, 13, 32):
            parts = predict(load_model(name), replace(plan, dp=dp, global_batch=dp * 12), system).breakdown
            assert parts["contention"] == pytest.approx(0, abs=1e-15)
            assert min(parts.values()) >= 0


SITES = replace(H100, site_link_bytes_per_s=1.25e9, site_link_latency_s=0.03)
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
    shared = plain.partition.layers[-1] * plain.shared_parameters + plain.partition.tables
    nothing = np.zeros(1)
    reduced = exchanges(plain, plain.partition.layers[-1], shared, nothing).division(np.array([0])).reduce_s
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


def test_layers_in_turn_hide_behind_the_backward_pass_of_those_below():
    """DreamDDP: of every 10 iterations each averages a tenth of the layers. Stepped through one by one."""
    options = PlanOptions(workers=4, local_steps=10, outer="dreamddp")
    at_once = synced(replace(options, local_steps=1, outer="average"))
    for backward in (0.0, 1.0, 30.0, 1e3):
        sent_s = np.array([16.2])
        left = [max(0.0, sent_s[0] - backward * k / 10) for k in range(10)]
        assert exposed_in_turn_s(sent_s, np.array([backward]), 10)[0] == pytest.approx(np.mean(left))
    latencies_s = 6 * 0.03  # of the messages of a ring of four sites, now in every iteration
    in_turn, averaged = synced(options), synced(replace(options, outer="average"))
    assert averaged / 2 < in_turn < averaged + 0.9 * latencies_s < at_once
    assert synced(options, replace(PLAN, micro_batch=4)) < in_turn  # a longer pass hides more
    assert synced(replace(options, local_steps=1)) == pytest.approx(at_once)
    with pytest.raises(UserError, match="at least one of 32 layers"):
        synced(replace(options, local_steps=33))


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
    return exchanges(one, np.array([1]), np.array([nbytes / 2]), np.zeros(1)).division(np.array([0])).gather_s


def test_a_cpu_that_keeps_the_states_takes_them_over_from_a_slower_memory():
    on_gpu, on_cpu = (
        predict(LLAMA, replace(PLAN, offload_optimizer=offload, options=DILOCO), SITES)
        for offload in (False, True)
    )
    assert on_cpu.breakdown["outer_sync"] > on_gpu.breakdown["outer_sync"]
    assert (on_cpu.memory_parts["outer_optimizer"], on_cpu.memory_parts["optimizer"]) == (0, 0)


# Rules


@pytest.mark.parametrize("text", TABLES["rules of many plans are those of each"])
@pytest.mark.parametrize("model", ["llama2-7b", "mixtral-8x7b"])
def test_rules_of_many_plans_are_those_of_each(text, model):
    degrees = [(1, 8, 1, 1, None), (2, 6, 2, 4, 1), (1, 12, 2, 8, 2), (4, 32, 1, 2, None)]
    zero, options = [(0, None), (1, None), (3, 2), (1, 12), (3, 6)], parse_options(text)
    plans = [
        Plan(2, pp, dp, 1, 96, cp=cp, ep=ep, etp=etp, zero_stage=stage, zero_group=group, options=options)
        for (pp, dp, cp, ep, etp), (stage, group) in itertools.product(degrees, zero)
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
