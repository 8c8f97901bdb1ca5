"""Stage costs: splits of layers, recomputation, parallelism of all kinds, against what papers derive."""

import csv
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from itertime import ModelSpec, Plan, PlanBatch, load_model, load_profile, load_system, predict
from itertime.costs import Workload, memory, stage_costs
from itertime.costs import passes as costs
from itertime.costs.balance import micro_batch_of
from itertime.costs.layer import layer_costs
from itertime.costs.network import (
    Fabric,
    Group,
    all_gather_s,
    all_to_all_s,
    p2p_s,
    reduce_scatter_s,
)
from itertime.costs.parallel_comm import activation_all_reduce_s
from itertime.costs.partition import Partition, padded_vocab
from itertime.costs.passes import MICRO_BATCH_COLUMNS
from itertime.prediction import evaluate
from itertime.schedule import FIRST, HEAVY, LAST, stage_kinds
from itertime.spec import Elementwise, Gemm
from itertime.spec.plans.plan import SPLITS
from itertime.timeline import iteration_graph
from tests.effort import examples

SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)
MODEL = load_model("megatron-39.1b")
PLAN = Plan(8, 4, 4, 2, 128)


def layer(model=MODEL, tp=8, micro_batch=2, recompute="none", system=SYSTEM, **plan):
    work = PlanBatch.of([Plan(tp, 1, 64, micro_batch, 64 * micro_batch, recompute=recompute, **plan)])
    workload = Workload.of(model, work, system, PROFILE)
    costs = layer_costs(workload, activation_all_reduce_s(workload))[0]
    return {k: v[0] for k, v in costs.forward.items()}, {k: v[0] for k, v in costs.backward.items()}


def breakdown(plan, model=MODEL, system=SYSTEM):
    return predict(model, plan, system).breakdown


def test_recompute_repeats_the_forward_with_its_all_reduces():
    forward, backward = layer(recompute="full")
    assert backward["recompute"] == pytest.approx(sum(forward.values()), rel=1e-12)
    assert layer(recompute="none")[1]["recompute"] == 0
    assert layer(replace(MODEL, attention="flash"), recompute="selective")[1]["recompute"] == 0
    selective = layer(recompute="selective")[1]["recompute"]
    assert 0 < selective < backward["recompute"]


def test_an_early_stop_spares_the_last_gemm_its_sum_and_the_residual_addition():
    model = replace(MODEL, dropout=False)
    tokens, h, f = 2 * model.seq_len, model.hidden, model.ffn_hidden
    last = PROFILE.seconds(Gemm(float(tokens), float(h), f / 8, 1.0))
    for one in (model, replace(model, gated_mlp=True), replace(model, attention="flash")):
        residual = PROFILE.seconds(Elementwise(np.array([6.0 * tokens * h]), "elementwise"))[0]
        assert spared_s(one) == pytest.approx(float(last + residual + layer(one)[0]["tp_comm"] / 2), rel=1e-9)
    scattered = layer(model, sequence_parallel=True)[0]["tp_comm"] / 4  # of two gathers and two scatters
    residual = PROFILE.seconds(Elementwise(np.array([6.0 * tokens * h / 8]), "elementwise"))[0]
    assert spared_s(model, sequence_parallel=True) == pytest.approx(
        float(last + residual + scattered), rel=1e-9
    )


def test_an_early_stop_spares_less_of_experts_and_nothing_after_dropout():
    # The gradients of the router need what the experts put out, those of dropout the mask that it made last.
    mixture = replace(MODEL, experts=8, experts_per_token=2, dropout=False)
    residual = PROFILE.seconds(
        Elementwise(np.array([6.0 * 2 * MODEL.seq_len * MODEL.hidden]), "elementwise")
    )[0]
    assert spared_s(mixture) == pytest.approx(residual, rel=1e-9)
    assert MODEL.dropout
    assert spared_s(MODEL) == spared_s(replace(mixture, dropout=True)) == 0


def spared_s(model, **plan):
    """Seconds of a layer that are repeated in full but not under an early stop."""
    full, early = (layer(model, recompute=kind, **plan)[1]["recompute"] for kind in ("full", "early-stop"))
    return full - early


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("dropout", "spared"), [(0.0, [1, 1]), (0.1, [0, 1])])
def test_pytorch_does_not_repeat_the_last_gemm_and_addition_either(gated, dropout, spared):
    """With dropout it spares the addition alone, which fused kernels, as counted here, do with the mask."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.checkpoint import checkpoint

    class Calls(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            self.names.append(function.__name__)
            return function(*arguments, **keywords or {})

    one, up, gate, down = (torch.nn.Linear(*shape) for shape in ((8, 8), (8, 32), (8, 32), (32, 8)))

    def block(x):
        x = x + one(x)
        middle = torch.nn.functional.silu(gate(x)) * up(x) if gated else torch.nn.functional.gelu(up(x))
        return x + torch.nn.functional.dropout(down(middle), dropout)

    def backward_calls(**how):
        out = checkpoint(block, torch.ones(4, 8, requires_grad=True), **how)
        with Calls() as calls:
            out.sum().backward()
        return [sum(what in name for name in calls.names) for what in ("addmm", "add.")]

    whole, early = backward_calls(use_reentrant=True), backward_calls(use_reentrant=False)
    assert [a - b for a, b in zip(whole, early, strict=True)] == spared


def test_sequence_parallelism_divides_norms_and_adds_gathers_in_the_backward_pass():
    plain, split = layer(), layer(sequence_parallel=True)
    assert split[0]["elementwise"] < plain[0]["elementwise"]
    assert split[0]["tp_comm"] == plain[0]["tp_comm"] == plain[1]["tp_comm"] > layer(tp=1)[0]["tp_comm"] == 0
    assert split[1]["tp_comm"] > plain[1]["tp_comm"]


def test_the_vocabulary_is_padded_as_megatron_does():
    gpt2 = replace(MODEL, vocab=50257)
    assert padded_vocab(gpt2, np.array([1, 2, 8])).tolist() == [50304, 50432, 51200]
    assert padded_vocab(replace(gpt2, vocab_multiple=1), np.array([1, 2])).tolist() == [50257, 50258]


def nanotron_split(layers, pp, head):
    """Layers of each stage as nanotron's build places its blocks, one after the other; the head's place."""
    costs = [0.0, *[1.0] * layers, 0.0, head]  # embedding, layers, norm, projection
    total, placed, stage = sum(costs), 0.0, 0
    thresholds = [total * (rank + 1) / pp for rank in range(pp - 1)] + [float("inf")]
    stages = []
    for cost in costs:
        placed += cost
        stages.append(stage)
        stage += placed > thresholds[stage]
    return [stages[1 : layers + 1].count(rank) for rank in range(pp)]


@given(st.integers(2, 100), st.integers(2, 16), st.floats(0, 6))
def test_a_split_by_compute_is_nanotrons(layers, pp, head):
    """Stage by stage but for the order of the middle ones, wherever the projection fits into the last stage;
    where it does not, the longest stage has at most the layers of nanotron's and the first as many.
    """
    assume(pp <= layers)
    model = ModelSpec("m", layers, 1024, 16, 1, 512, gated_mlp=True, biases=False)
    model = replace(model, vocab=max(round(head * model.layer_matmul_parameters / model.hidden), 1))
    head = model.vocab * model.hidden / model.layer_matmul_parameters
    layout = Partition.of(model, PlanBatch.of([Plan(1, pp, 1, 1, 1, split="compute")]))
    found = [int(n) for kind in range(4) for n in [layout.layers[kind, 0]] * int(layout.stages[kind, 0])]
    expected = nanotron_split(layers, pp, head)
    assert sum(found) == layers
    assert len(found) == pp
    assert found[0] == expected[0]
    if head < (layers + head) / pp:
        assert found[-1] == expected[-1]
        assert sorted(found[1:-1]) == sorted(expected[1:-1])
    else:
        assert max(found) <= max(expected)
        assert found[-1] == 0


def test_a_split_by_compute_makes_room_for_a_large_projection():
    """Llama 3.2 1B's shape: the projection is worth four layers of 16."""
    model = ModelSpec("m", 16, 2048, 32, 131072, 4096, gated_mlp=True, ffn_hidden=8192, attention="flash")
    layout = Partition.of(model, PlanBatch.of([Plan(1, 4, 1, 1, 1, split="compute")]))
    assert layout.layers[[FIRST, LAST], 0].tolist() == [6, 0]
    even, better = (
        predict(model, Plan(1, 4, 1, 1, 32, recompute="none", split=split), SYSTEM)
        for split in ("even", "compute")
    )
    assert better.iteration_s < 0.9 * even.iteration_s


@pytest.mark.parametrize(("layers", "of_stages"), [(70, [5, 6, 5]), (78, [6, 7, 2])])
def test_bloom_is_split_as_its_authors_say(layers, of_stages):
    """70 layers on 12 stages with embedding and projection as layers: 6 each (BigScience, tr11)."""
    layout = Partition.of(
        replace(MODEL, layers=layers), PlanBatch.of([Plan(4, 12, 8, 2, 2048, split="balanced")])
    )
    assert layout.layers[[FIRST, HEAVY, LAST], 0].tolist() == of_stages
    assert layout.stages[:, 0].tolist() == [1, 10, 0, 1]


@given(st.integers(2, 200), st.integers(2, 40))
def test_stages_are_filled_to_the_smallest_size_that_will_do(layers, pp):
    """The rule of DeepSpeed's `partition_balanced`, block by block, embedding and projection among them."""
    assume(layers % pp and pp <= layers)
    size = next(size for size in range(1, layers + 3) if size * pp >= layers + 2)
    blocks = [0]
    for _ in range(layers + 2):
        if blocks[-1] == size:
            blocks.append(0)
        blocks[-1] += 1
    layout = Partition.of(
        replace(MODEL, layers=layers), PlanBatch.of([Plan(1, pp, 1, 1, 1, split="balanced")])
    )
    kinds = stage_kinds(layout.stages)[0]
    ours = layout.layers[kinds, 0] + (np.arange(pp) == 0) + (np.arange(pp) == pp - 1)
    assert ours.max() == size
    assert ours.sum() == layers + 2
    if len(blocks) == pp:
        assert ours.tolist() == blocks
    else:  # DeepSpeed would leave stages empty
        assert ours.min() >= size - 1


def test_a_site_multiplies_what_its_name_says():
    slow = replace(
        SYSTEM,
        site=replace(SYSTEM.site, gemm_multiplier=2.0, layer_overhead_s=1e-3, iteration_overhead_s=0.5),
    )
    plain, other = breakdown(PLAN), breakdown(PLAN, system=slow)
    assert other["gemm"] == pytest.approx(2 * plain["gemm"])
    assert other["iteration_overhead"] == 0.5
    layers_and_micro_batches = MODEL.layers / PLAN.pp * PLAN.microbatches
    assert other["overhead"] == pytest.approx(1e-3 * layers_and_micro_batches)


COLUMNS = {field.name for field in fields(PlanBatch)}


class WatchedPlans(PlanBatch):
    """Plans that note which of their columns are read."""

    def __getattribute__(self, name):
        if name in COLUMNS:
            self.__dict__.setdefault("_read", set()).add(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", ["megatron-39.1b", "llama2-7b", "mixtral-8x7b", "bert-large"])
def test_a_micro_batch_depends_on_no_column_beside_the_named_ones(name):
    """Each combination of `MICRO_BATCH_COLUMNS` is computed once, for all plans that share it."""
    plan = Plan(2, 1, 4, 1, 64, recompute="early-stop", sequence_parallel=True)
    model = replace(load_model(name), dropout=False)
    if model.attention != "core":
        plan = replace(plan, cp=2)
    batch = PlanBatch.of([replace(plan, ep=2)] if model.experts > 1 else [plan])
    workload = Workload.of(model, batch, SYSTEM, PROFILE)
    watched = WatchedPlans(**{column: getattr(batch, column) for column in COLUMNS})
    micro_batch = micro_batch_of(model, watched, None, SYSTEM.domain_gpus)
    costs.micro_batch_passes(replace(workload, plans=watched, micro_batch=micro_batch))
    read = vars(watched)["_read"] - {"options"}  # which all plans of a batch share
    assert {"tp", "micro_batch", "recompute"} <= read <= set(MICRO_BATCH_COLUMNS)


LLAMA = load_model("llama2-7b")  # 32 layers, h 4096, f 11008, s 4096
MIXTURE = replace(LLAMA, name="mixture", experts=8, experts_per_token=2)
SIXTEEN = Plan(1, 1, 16, 1, 16, recompute="none")


def costs_of(model, plan, system=SYSTEM):
    plans = PlanBatch.of([plan])
    workload = Workload.of(model, plans, system, PROFILE)
    costs = layer_costs(workload, activation_all_reduce_s(workload))[0]
    return {k: v[0] for k, v in costs.forward.items()}, {k: v[0] for k, v in costs.backward.items()}


def broken_down(model, plan, system=SYSTEM):
    return predict(model, plan, system).breakdown


def memory_parts(model, plan):
    return {
        k: v[0] for k, v in memory(Workload.of(model, PlanBatch.of([plan]), SYSTEM, PROFILE)).parts.items()
    }


def test_tokens_travel_to_their_experts_and_back_in_two_all_to_alls_each_way():
    plan = replace(SIXTEEN, ep=8)
    forward, backward = costs_of(MIXTURE, plan)
    nbytes = 2 * 2 * 4096 * 4096  # two experts, 16 bit, s h
    assert forward["ep_comm"] == pytest.approx(2 * all_to_all_s(nbytes, Group(8, 8), Fabric(SYSTEM, PROFILE)))
    assert backward["ep_comm"] == forward["ep_comm"]
    assert costs_of(MIXTURE, SIXTEEN)[0]["ep_comm"] == 0
    again = costs_of(MIXTURE, replace(plan, recompute="full"))[1]["recompute"]
    assert again == pytest.approx(sum(forward.values()))


def test_expert_parallelism_divides_the_experts_but_not_the_rest():
    partition = Partition.of(MIXTURE, PlanBatch.of([SIXTEEN, replace(SIXTEEN, ep=8)]))
    (shared,), (experts,) = partition.shared, partition.experts
    assert shared[0] == shared[1] == MIXTURE.layer_parameters - 8 * MIXTURE.expert_parameters
    assert experts.tolist() == [8 * MIXTURE.expert_parameters, MIXTURE.expert_parameters]
    # Gradients of experts on one rank each have no other rank to be summed with.
    alone, copied = (broken_down(replace(MIXTURE, experts=16), replace(SIXTEEN, ep=ep)) for ep in (16, 1))
    assert alone["dp_comm"] < 0.1 * copied["dp_comm"]
    owned = memory_parts(MIXTURE, replace(SIXTEEN, ep=8, zero_stage=1))["optimizer"]
    rest = 32 * (MIXTURE.layer_parameters - 8 * MIXTURE.expert_parameters) + 2 * 32000 * 4096
    assert owned == pytest.approx(12 * (rest / 16 + 32 * MIXTURE.expert_parameters / 2), rel=1e-3)


def test_context_parallelism_divides_the_tokens_and_gathers_keys_and_values():
    plan = replace(SIXTEEN, dp=4, global_batch=4, cp=4, cp_exchange="gather")
    long = LLAMA.with_seq_len(4 * 4096)
    whole, quarter = costs_of(long, SIXTEEN), costs_of(long, plan)
    for name in ("gemm", "attention"):
        assert quarter[0][name] == pytest.approx(whole[0][name] / 4, rel=0.15)
    nbytes = 2 * 2 * 4 * 4096 * 4096  # keys and values of the whole sequence
    gathered = all_gather_s(nbytes, Group(4, 4, 2), Fabric(SYSTEM, PROFILE))
    assert quarter[0]["cp_comm"] == pytest.approx(gathered)
    scattered = reduce_scatter_s(nbytes, Group(4, 4, 2), Fabric(SYSTEM, PROFILE))
    assert quarter[1]["cp_comm"] == pytest.approx(gathered + scattered)
    by_heads = costs_of(long, replace(plan, cp_exchange="ulysses"))
    each = all_to_all_s(nbytes / 8, Group(4, 4, 2), Fabric(SYSTEM, PROFILE))  # queries, keys, values, output
    assert 4 * each < by_heads[0]["cp_comm"] < 7 * each
    assert by_heads[1]["cp_comm"] == pytest.approx(5 / 4 * by_heads[0]["cp_comm"])
    activations = [predict(long, each, SYSTEM).memory_parts["activations"] for each in (SIXTEEN, plan)]
    assert activations[1] == pytest.approx(activations[0] / 4)


def test_a_ring_of_keys_and_values_exposes_what_attention_does_not_cover():
    ring = Plan(1, 1, 1, 1, 1, recompute="none", cp=16)
    long = LLAMA.with_seq_len(1 << 20)
    assert costs_of(long, ring)[0]["cp_comm"] == 0
    short = costs_of(LLAMA, ring)[0]
    block = 2 * 2 * 4096 / 16 * 4096
    step = p2p_s(block, True, Fabric(SYSTEM, PROFILE)) - short["attention"] / 16
    assert short["cp_comm"] == pytest.approx(15 * step)


def test_ranks_that_share_a_sequence_sum_their_gradients_too():
    split = replace(SIXTEEN, dp=4, global_batch=4, cp=4, zero_stage=1)
    alike = replace(SIXTEEN, dp=16, global_batch=16, zero_stage=1)
    assert broken_down(LLAMA, split)["dp_comm"] == pytest.approx(broken_down(LLAMA, alike)["dp_comm"])
    assert memory_parts(LLAMA, split)["optimizer"] == memory_parts(LLAMA, alike)["optimizer"]


def test_stages_next_to_each_other_send_in_the_node_and_sum_gradients_across_nodes():
    model = load_model("megatron-18.4b")
    plan = Plan(2, 4, 16, 2, 128)
    usual, near = broken_down(model, plan), broken_down(model, replace(plan, rank_order="tp-cp-pp-dp"))
    assert near["p2p"] < usual["p2p"]
    assert near["dp_comm"] > usual["dp_comm"]
    within = replace(plan, dp=1, global_batch=8)  # one node: the order makes no difference
    assert broken_down(model, within) == broken_down(model, replace(within, rank_order="tp-cp-pp-dp"))


def test_buckets_pay_a_latency_each_and_hide_behind_the_backward_pass():
    plan = replace(SIXTEEN, dp=64, global_batch=64)
    nbytes = 2 * (32 * LLAMA.layer_parameters + 2 * 32000 * 4096)
    whole = broken_down(LLAMA, plan)["dp_comm"]
    assert broken_down(LLAMA, replace(plan, bucket_bytes=nbytes))["dp_comm"] == pytest.approx(whole)
    small = broken_down(LLAMA, replace(plan, bucket_bytes=1_000_000))["dp_comm"]
    assert small > 1.5 * whole
    hidden = [
        broken_down(LLAMA, replace(plan, bucket_bytes=size, grad_overlap=True))["dp_comm"]
        for size in (25_000_000, 500_000_000, nbytes)
    ]
    assert hidden == sorted(hidden)
    assert hidden[0] < 0.1 * whole
    assert hidden[2] == pytest.approx(whole)  # a single bucket is ready when the pass ends


def test_one_key_head_is_copied_to_every_tensor_parallel_rank():
    multi_query = replace(LLAMA, kv_heads=1)
    partition = Partition.of(multi_query, PlanBatch.of([Plan(8, 1, 1, 1, 1)]))
    (shared,), (experts,) = partition.shared, partition.experts
    keys_and_values = 2 * 4096 * 128
    assert shared[0] == pytest.approx((multi_query.layer_parameters + 7 * keys_and_values) / 8)
    assert experts[0] == 0


LONG = load_model("llama3.1-405b")
EXPERTS = {"experts": 8, "experts_per_token": 2, "shared_ffn_hidden": 512}
DENSE = {"dense_layers": 3, "dense_ffn_hidden": 4608}
WITH_DENSE = replace(
    LONG, name="mixture", layers=61, hidden=1024, heads=16, kv_heads=16, ffn_hidden=512, **EXPERTS, **DENSE
)


def checked_workload(model, plan):
    plan.check(model)
    return Workload.of(model, PlanBatch.of([plan]), SYSTEM, PROFILE)


def plan_of(pp, interleave=1, split="ends", **more):
    more = {"tp": 8, "dp": 1, "micro_batch": 1, "global_batch": 4 * pp} | more
    return Plan(pp=pp, interleave=interleave, split=split, sequence_parallel=True, **more)


def test_chunks_after_the_last_layer_stay_empty():
    """Megatron-Bridge's 32 chunks of DeepSeek-V3: 3 dense layers, 29 times 2, and none in the last two."""
    plan = plan_of(8, 4, "remainder")
    work = checked_workload(WITH_DENSE, plan)
    assert work.partition.layers[:, 0].tolist() == [9, 8, 6, 6]
    assert work.partition.stages[:, 0].tolist() == [1, 5, 1, 1]
    times = stage_costs(work).stage_times.chunks(np.array([0]), 4).forward[0]
    assert times[6, 3] == pytest.approx(0.0, abs=1e-12 * times.max())
    assert times[7, 2] > 0
    assert times[5, 3] > 0
    assert np.ptp(times[1:6]) < 1e-12


@given(st.integers(1, 130), st.integers(1, 16), st.integers(1, 8), st.sampled_from(SPLITS), st.integers(0, 4))
@settings(max_examples=examples(400), deadline=None)
def test_the_layers_of_all_stages_are_those_of_the_model(layers, pp, interleave, split, dense):
    width = 4608 if dense else 0
    model = replace(WITH_DENSE, layers=max(layers, dense + 1), dense_layers=dense, dense_ffn_hidden=width)
    plan = plan_of(pp, interleave, split)
    assume(not plan.broken_rules(model))
    partition = checked_workload(model, plan).partition
    assert (partition.layers * partition.stages).sum() == model.layers
    present = partition.stages > 0
    assert (partition.counts.sum(axis=0) == partition.layers)[present].all()
    assert (partition.counts[1:] * partition.stages).sum() == dense
    assert (partition.counts >= 0)[:, present].all()
    shared, experts = partition.layer_parameters
    stack = model.parameters - model.embedding_parameters - model.head_parameters
    assert ((shared + experts) * partition.stages).sum() * 8 == pytest.approx(stack, rel=1e-3)


@pytest.mark.parametrize(("layers", "pp", "interleave", "most"), [(126, 8, 8, 16), (126, 8, 1, 16),
    (126, 16, 4, 8), (62, 4, 8, 16), (30, 4, 8, 8)])  # fmt: skip
def test_the_ends_of_the_model_take_the_place_of_a_layer(layers, pp, interleave, most):
    """NeMo's recipes of Llama 3.1 405B, and its shorter forms on fewer GPUs."""
    partition = checked_workload(replace(LONG, layers=layers), plan_of(pp, interleave)).partition
    assert partition.layers[[FIRST, HEAVY, LAST], 0].tolist() == [most - 1, most, most - 1]


def test_every_measured_pipeline_of_llama_405b_has_a_split(shared_dir):
    """NVIDIA's rows: 21 to 126 layers on 3 to 9 stages of 7 or 8 chunks; recurrence and task graph agree."""
    table = shared_dir / "data/modern_gpus/iterations/h100_dgxc_nemo_bf16.csv"
    rows = [
        row for row in csv.DictReader(table.open()) if row["model"] == "llama3.1-405b" and row["pp"] > "1"
    ]
    shapes = {tuple(int(row[name]) for name in ("layers", "pp", "interleave")) for row in rows}
    assert (126, 8, 8) in shapes
    for layers, pp, interleave in shapes:
        split = "ends" if layers % (pp * interleave) else "even"
        model, plan = replace(LONG, layers=layers), plan_of(pp, interleave, split)
        partition = checked_workload(model, plan).partition
        assert (partition.layers * partition.stages).sum() == layers
        graph = iteration_graph(model, plan, SYSTEM)
        finish = max(end for _, end in graph.run().values())
        assert predict(model, plan, SYSTEM).iteration_s == pytest.approx(finish, rel=1e-9)


@pytest.mark.parametrize(
    ("pp", "interleave", "first", "last"), [(4, 1, 16, 13), (8, 1, 8, 5), (16, 1, 4, 1), (8, 2, 8, 5)]
)
def test_the_last_chunk_holds_what_remains(pp, interleave, first, last):
    """Megatron-Bridge's layouts of DeepSeek-V3's 61 layers: 16, 16, 16, 13; 7 x 8 and 5; 15 x 4 and 1."""
    partition = checked_workload(WITH_DENSE, plan_of(pp, interleave, "remainder")).partition
    assert partition.layers[[FIRST, LAST], 0].tolist() == [first, last]
    assert partition.counts[1, [FIRST, HEAVY, LAST], 0].tolist() == [3, 0, 0]


@pytest.mark.parametrize("zero_stage", [0, 1, 3])
def test_a_mixture_of_dense_layers_alone_would_be_the_dense_model(zero_stage):
    """All but one layer dense, and that one's costs taken off: what is left is the dense model's."""
    plan = plan_of(1, split="even", dp=2, zero_stage=zero_stage)
    model = replace(WITH_DENSE, layers=9, dense_layers=8)
    fewer = replace(model, layers=5, dense_layers=4)
    dense = model.dense_form()

    def stage(one):
        costs = stage_costs(checked_workload(one, plan))
        return sum(part[LAST, 0] for parts in (costs.forward, costs.backward) for part in parts.values())

    four = stage(model) - stage(fewer)
    assert four == pytest.approx(stage(dense) - stage(replace(dense, layers=5)), rel=1e-9)


def test_memory_counts_the_layers_of_either_kind():
    """On one GPU the weights of all parts are the model's parameters, in 16 bit."""
    plan = replace(plan_of(1, split="even"), tp=1, sequence_parallel=False)
    model = replace(WITH_DENSE, vocab=128 * 100)
    weights = memory(checked_workload(model, plan)).parts["weights"][0]
    assert weights == pytest.approx(2.0 * model.parameters, rel=1e-4)


def test_many_plans_of_different_splits_at_once_equal_each_alone():
    plans = [plan_of(pp, v, split) for pp in (1, 2, 4, 8, 16) for v in (1, 2, 4) for split in SPLITS]
    plans = [plan for plan in plans if not plan.broken_rules(LONG)]
    together = evaluate(LONG, PlanBatch.of(plans), SYSTEM)
    alone = [predict(LONG, plan, SYSTEM) for plan in plans]
    assert len({plan.split for plan in plans}) == len(SPLITS)
    np.testing.assert_allclose(together.iteration_s, [one.iteration_s for one in alone], rtol=1e-12)
    np.testing.assert_allclose(together.memory.total, [one.memory_bytes for one in alone], rtol=1e-12)


def test_a_pipeline_of_nanotron_over_nodes_has_a_least_time_and_two_modes_of_sends():
    """Of 8 nodes none is likely to stall, of 64 one is; the interval holds both modes in either case."""
    model, plan = load_model("llama3-8b"), Plan(4, 4, 4, 1, 64, recompute="none")
    system = load_system("p5-48xlarge,framework=nanotron")
    for dp, stalled_s in ((4, 0.0), (32, 7 * 2 * 0.47)):
        wide = replace(plan, dp=dp, global_batch=4 * dp)
        found = predict(model, wide, system)
        assert found.breakdown["stalled_sends"] == pytest.approx(stalled_s)
        layers_s = found.iteration_s - stalled_s - found.breakdown["bubble"]
        assert layers_s >= 4 * 8 * (2.5e-3 + 4 * 2.7e-3)
        ends = [end for _, end in iteration_graph(model, wide, system).run().values()]
        assert max(ends) == pytest.approx(found.iteration_s, rel=1e-9)
        low, high = found.interval_s
        assert high - low > 7 * 2 * 0.47 * 0.8
