"""Samples of different lengths, and the CPU that issues kernels, which is a floor below passes."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from itertime import ModelSpec, Plan, PlanBatch, load_model, load_profile, load_system, predict
from itertime.costs import Workload, stage_costs
from itertime.costs.balance import fullest
from itertime.costs.balance.drawn_work import drawn_work
from itertime.costs.balance.imbalance import above_wait_s
from itertime.costs.balance.packing import packs_of
from itertime.costs.layer import kernel_counts
from itertime.costs.passes import distinct_passes
from itertime.planning import Space, search
from itertime.schedule import LAST
from itertime.spec import CUDA_GRAPHS, Attention, AttentionKernel, Site, load_framework, load_lengths
from itertime.spec.plans import PlanOptions
from tests.places import ROOT

SYSTEM, PROFILE = load_system("dgx-a100-80gb"), load_profile("a100-80gb")
LENGTHS = load_lengths("wikipedia-512")
WHOLE = replace(load_model("bert-large"), attention="flash")
MODEL = replace(WHOLE, lengths="wikipedia-512")
PLAN = Plan(1, 1, 1024, 16, 16384, recompute="none", grad_overlap=True, bucket_bytes=25_000_000)
BALANCES = ("drawn", "exchanged", "stratified", "stratified-exchanged", "sorted")
BATCHINGS = ("padded", "longest", "unpadded", "packed")


def dealt(batching, balance="drawn", plan=PLAN, **changes):
    return replace(plan, options=PlanOptions(batching=batching, balance=balance), **changes)


def run(batching, balance="drawn", model=MODEL, system=SYSTEM, **changes):
    return predict(model, dealt(batching, balance, **changes), system)


def work(batching, model=MODEL, **changes):
    return Workload.of(model, PlanBatch.of([dealt(batching, **changes)]), SYSTEM, PROFILE)


def lengths_file(tmp_path, rows):
    path = tmp_path / "lengths.csv"
    path.write_text("tokens,sequences\n" + "".join(f"{tokens},{count}\n" for tokens, count in rows))
    return str(path)


def test_the_longest_of_a_micro_batch_is_that_of_all_drawn_ones(tmp_path):
    """Against every pair of samples, three lengths with the shares 1/4, 1/4, 1/2."""
    rows = ((100, 1), (200, 1), (400, 2))
    model = replace(WHOLE, lengths=lengths_file(tmp_path, rows))
    drawn = [tokens for tokens, count in rows for _ in range(count)]
    longest = [max(pair) for pair in itertools.product(drawn, repeat=2)]
    found = work("longest", model, micro_batch=2).micro_batch
    assert found.tokens[0] == pytest.approx(2 * np.mean(longest))
    assert found.squares[0] == pytest.approx(2 * np.mean(np.square(longest)))
    assert found.real[0] == pytest.approx(2 * np.mean(drawn))


def test_tokens_of_a_micro_batch_by_its_batching():
    padded, longest, unpadded, packed = (work(batching).micro_batch for batching in BATCHINGS)
    assert padded.tokens[0] == 16 * 512
    assert unpadded.tokens[0] == pytest.approx(16 * LENGTHS.mean)
    assert packed.tokens[0] == 512 * round(16 / packs_of(LENGTHS, 512).samples) == 8 * 512
    assert unpadded.tokens < packed.tokens < longest.tokens < padded.tokens
    assert padded.real[0] == longest.real[0] == unpadded.real[0] == pytest.approx(packed.real[0], rel=0.01)
    assert (padded.sequences[0], padded.length[0]) == (16, 512)
    assert unpadded.squares[0] == pytest.approx(16 * LENGTHS.mean_square)
    assert packed.squares[0] == pytest.approx(16 * LENGTHS.mean_square, rel=0.01)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", ["flash", "flash1"])
def test_one_pair_of_numbers_stands_for_all_lengths_of_a_kernel(kernel, backward):
    """A launch over every length, against the sum over one launch for each, less what only one pays.

    Memory is out of the way: short samples, which alone would be bound by it, share a launch with long ones.
    """
    profile = replace(PROFILE, attention=replace(PROFILE.attention, bytes_per_s=1e30))
    tokens, shares = np.array(LENGTHS.tokens, dtype=float), np.array(LENGTHS.shares)
    number, chosen = 4096.0, AttentionKernel(kernel)

    def seconds(count, length):
        return profile.seconds(
            Attention(count, 16, 16, 64, length, length, False, backward=backward, kernel=chosen)
        )

    def growth(count, length):  # a launch and the last wave are paid once
        return seconds(2 * count, length) - seconds(count, length)

    apart = float(growth(number * shares, tokens).sum())
    mean, square = number * LENGTHS.mean, number * LENGTHS.mean_square
    assert float(growth(mean**2 / square, square / mean)) == pytest.approx(apart, rel=1e-9)


def test_lengths_change_only_the_head_where_all_samples_are_padded():
    whole, padded = predict(WHOLE, PLAN, SYSTEM), run("padded")
    changed = {name for name in whole.breakdown if whole.breakdown[name] != padded.breakdown[name]}
    assert changed <= {"head", "dp_comm"}
    assert padded.breakdown["head"] < whole.breakdown["head"]
    assert padded.spread_s is None
    assert padded.sampling_error_s is None
    assert padded.mfu < 0.55 * whole.mfu  # padding is no useful work
    pairs = zip(LENGTHS.tokens, LENGTHS.shares, strict=True)
    useful = sum(share * WHOLE.with_seq_len(tokens).flops_per_iteration(1) for tokens, share in pairs)
    share = padded.mfu * padded.iteration_s / (whole.mfu * whole.iteration_s)
    assert share == pytest.approx(useful / WHOLE.flops_per_iteration(1), rel=1e-9)


def test_the_error_of_sampling_is_stated():
    """In seconds, it is to the imbalance what it is in the work of the ranks; exact ways have none."""
    assert run("unpadded", "drawn").sampling_error_s == 0
    found, options = run("unpadded", "exchanged"), PlanOptions(batching="unpadded", balance="exchanged")
    assert 0 < found.sampling_error_s < 0.01 * found.iteration_s
    assert found.sampling_error_s < found.spread_s[1] - found.spread_s[0]
    ways = drawn_work(LENGTHS, options, 1024, 16, 8, 16, 512)
    for weights in ((1.0, 0.0), (24 * 1024**2, 4 * 1024)):
        slowest = ways.slowest(*weights)
        share = slowest.error / (slowest.mean - slowest.average)
        assert found.sampling_error_s / found.breakdown["imbalance"] == pytest.approx(share, rel=0.1)


def test_every_balance_has_its_place():
    """The order of the ranks' work as counted in FLOPs is that of the time; the mean rank is the same."""
    runs = [run("unpadded", balance) for balance in BALANCES]
    waits = [each.breakdown["imbalance"] for each in runs]
    assert waits == sorted(waits, reverse=True)
    assert len({each.breakdown["gemm"] for each in runs}) == 1
    for each in runs:
        assert sum(each.breakdown.values()) == pytest.approx(each.iteration_s, rel=1e-12)
        assert each.spread_s[0] < each.iteration_s < each.spread_s[1]
    busy = sum(runs[0].breakdown[part] for part in ("gemm", "attention", "elementwise", "embedding", "head"))
    assert (
        1.5 < 1 + waits[0] / busy < 1.6
    )  # of the mean work 1.6, of which a part takes the same in every rank
    assert 1 + waits[-1] / busy == pytest.approx(1.004, abs=0.002)
    exchanges = {balance: each.breakdown["balance"] for balance, each in zip(BALANCES, runs, strict=True)}
    assert exchanges["drawn"] == exchanges["stratified"] == 0
    assert 0 < exchanges["exchanged"] == exchanges["stratified-exchanged"] < exchanges["sorted"]


def test_one_rank_waits_for_no_other():
    alone = run("unpadded", dp=1, global_batch=64)
    assert alone.breakdown["imbalance"] < 1e-6 * alone.iteration_s
    assert run("unpadded", "sorted", dp=1, global_batch=64).breakdown["balance"] == 0


def test_the_wait_is_that_of_the_draws_for_the_time_of_this_model():
    """The slowest rank of `drawn_work`, weighted by the seconds that a pass grows by."""
    costs = stage_costs(work("unpadded"))
    passes = distinct_passes(costs.workload)
    tokens, squares = (
        sum(float(getattr(each, name)[-1, 0]) for each in passes.growth) for name in ("tokens", "squares")
    )
    micro_batch = costs.workload.micro_batch
    draws = drawn_work(LENGTHS, dealt("unpadded").options, 1024, 16, 8, 16, 512)
    slowest = draws.slowest(tokens / micro_batch.tokens[0], squares / micro_batch.squares[0])
    added = sum(float(parts["imbalance"][-1, 0]) for parts in (costs.forward, costs.backward))
    assert added == pytest.approx(slowest.mean - slowest.average, rel=1e-9)
    spread = [float(each[-1, 0]) for each in (costs.spread.low, costs.spread.high)]
    assert spread == pytest.approx([slowest.low - slowest.mean, slowest.high - slowest.mean], rel=1e-9)


def test_a_pass_grows_by_what_more_tokens_cost():
    """Twice the samples, and so twice the tokens and squares, take a pass that has grown by both."""
    small, large = (
        distinct_passes(work("unpadded", micro_batch=size, global_batch=16384)) for size in (16, 32)
    )
    for one, two, growth in zip(
        (small.forward, small.backward), (large.forward, large.backward), small.growth, strict=True
    ):
        busy = [
            24 * sum(each.layers[0].values())[0] + each.embedding[0] + each.head[0] for each in (one, two)
        ]
        grown = float((growth.tokens + growth.squares)[-1, 0])
        assert busy[1] - busy[0] == pytest.approx(grown, rel=0.06)


def test_the_iteration_lies_in_its_spread_where_few_iterations_exceed_the_wait_for_launches():
    """The mean of what exceeds a wait rarely is above its 95th percentile, which is nothing."""
    for launch_s in np.geomspace(1e-6, 1e-4, 60):
        slow = replace(SYSTEM, site=Site(launch_s=float(launch_s)))
        found = run("longest", "drawn", system=slow, dp=2, micro_batch=4, global_batch=32)
        assert found.spread_s[0] <= found.iteration_s <= found.spread_s[1]


def test_the_slowest_rank_first_fills_the_wait_for_launches():
    """A pass takes the longer of the CPU's launches and the slowest rank's work; a graph has no launches."""
    slow = replace(SYSTEM, site=Site(launch_s=1e-3))
    bound = run("unpadded", system=slow)
    assert bound.breakdown["launch"] > 0
    assert bound.breakdown["imbalance"] == pytest.approx(0, abs=1e-12)
    assert bound.spread_s == (bound.iteration_s, bound.iteration_s)
    graph, free = (
        run("unpadded", system=system, cuda_graphs=graphs)
        for system, graphs in ((slow, "full"), (replace(SYSTEM, site=Site(launch_s=0.0)), "none"))
    )
    assert graph.breakdown == free.breakdown


@pytest.mark.parametrize("launch_s", [5e-5, 6e-5, 7e-5, 8e-5, 1e-4])
def test_a_pass_of_the_slowest_rank_takes_the_longer_of_launches_and_work(launch_s):
    """In forward and backward pass, on both sides of the time where the CPU begins to bind: at least the
    longer of both on average, and more only where the slowest rank is sometimes below and sometimes above.
    """
    free, bound = (
        stage_costs(replace(work("unpadded"), system=replace(SYSTEM, site=Site(launch_s=seconds))))
        for seconds in (0.0, launch_s)
    )
    plans = free.workload.plans
    spread = float((free.spread.high - free.spread.low)[LAST, 0])
    for count, alone, found in zip(
        kernel_counts(MODEL, plans),
        (free.forward, free.backward),
        (bound.forward, bound.backward),
        strict=True,
    ):
        gpu, seconds = (float(sum(parts.values())[LAST, 0]) for parts in (alone, found))
        issued = MODEL.layers * float(count[0]) * launch_s
        assert seconds >= max(issued, gpu) * (1 - 1e-12)
        nearest = max(0.2 * spread - 0.2 * abs(issued - gpu), 2e-3 * spread)
        assert seconds <= max(issued, gpu) + nearest


def test_the_mean_above_a_wait_is_that_of_drawn_iterations():
    """Against the slowest of 1,024 ranks of 16 drawn samples in 800 iterations."""
    rng = np.random.default_rng(7)
    tokens = rng.choice(LENGTHS.tokens, p=LENGTHS.shares, size=(800, 1024, 16)).sum(axis=2)
    slowest = tokens.max(axis=1) / LENGTHS.mean / 16 - 1
    known = [np.array([each]) for each in (slowest.mean(), *np.quantile(slowest, (0.05, 0.95)))]
    for wait in np.quantile(slowest, (0.02, 0.2, 0.5, 0.8, 0.98)):
        above = np.maximum(slowest - wait, 0).mean()
        assert above_wait_s(*known, np.array([wait]))[0] == pytest.approx(above, abs=0.05 * slowest.std())
    same = np.array([3.0])  # ranks that never differ
    assert [float(above_wait_s(same, same, same, np.array([wait]))[0]) for wait in (1.0, 5.0)] == [2.0, 0.0]


def test_an_exchange_hides_behind_the_launches_of_the_first_pass():
    """The CPU issues them meanwhile. Without launches to wait for, all of it shows."""
    slow, free = (replace(SYSTEM, site=Site(launch_s=seconds)) for seconds in (1e-3, 0.0))
    shown = [run("unpadded", "sorted", system=each).breakdown["balance"] for each in (slow, free)]
    assert shown[0] == 0
    assert shown[1] > 1e-3


def test_memory_holds_the_fullest_micro_batch():
    """Of 16 samples on each of 1,024 ranks, against seeded draws: 19 of 20 fullest ones have fewer tokens."""
    plans = PlanBatch.of([dealt("unpadded")])
    found = float(fullest(MODEL, plans, LENGTHS, work("unpadded").micro_batch, 8)[0])
    drawn = np.random.default_rng(1).choice(LENGTHS.tokens, p=LENGTHS.shares, size=(200, 1024, 16))
    assert found == pytest.approx(
        np.quantile(drawn.sum(axis=2).max(axis=1), 0.95) / 16 / LENGTHS.mean, rel=0.03
    )
    sizes = [run(batching).memory_parts["activations"] for batching in ("unpadded", "longest", "padded")]
    assert sizes[0] < sizes[1] == pytest.approx(sizes[2])
    balanced = [run("unpadded", balance).memory_bytes for balance in BALANCES]
    assert balanced == sorted(balanced, reverse=True)


def test_a_search_leaves_out_ranks_with_too_few_samples_for_strata():
    space = Space(recompute=("none",), options=dealt("unpadded", "stratified").options)
    found = search(MODEL, 64, SYSTEM, max_gpus=64, space=space, top=1000)
    assert {found.plan.dp for found in found.plans} == {1, 2, 4, 8, 16}
    assert {found.plan.pp for found in found.plans} == {1}


def test_the_page_on_balancing_shows_what_is_predicted():
    """The table of docs/balancing.md: Samsung's batch, every way of batching and balancing."""
    page = (ROOT / "docs" / "balancing.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.split("| way | iteration |")[1].splitlines()[2:10]]
    assert len(rows) == 8
    model = load_model("bert-large-wikipedia")
    for way, *cells in rows:
        batching, _, balance = way.strip().partition(", ")
        found = run(batching, balance or "drawn", model=model)
        low_high = "-".join(f"{1e3 * seconds:.1f}" for seconds in found.spread_s or ())
        parts = [1e3 * found.breakdown.get(part, 0.0) for part in ("imbalance", "balance")]
        shown = [f"{1e3 * found.iteration_s:.1f}", low_high, f"{parts[0]:.1f}", f"{parts[1]:.2f}"]
        assert [cell.strip() for cell in cells] == [*shown, f"{found.memory_bytes / 1e9:.1f}"]


SMALL = ModelSpec(
    "small", 16, 2048, 32, 32000, 2048, gated_mlp=True, norm="rmsnorm", positions="rotary",
    attention="flash", biases=False, tied_embeddings=False, ffn_hidden=8192,
)  # fmt: skip


def at(launch_s, model, plan):
    return predict(model, plan, replace(SYSTEM, site=Site(launch_s=launch_s)))


def count(model, **plan):
    one = Plan(**{"tp": 1, "pp": 1, "dp": 1, "micro_batch": 1, "global_batch": 1, "recompute": "none"} | plan)
    forward, backward = kernel_counts(model, PlanBatch.of([one]))
    return int(forward[0]), int(backward[0])


def test_the_kernels_of_a_llama_layer():
    """Q, K, V and projection, gate, up and down; attention; two norms, two additions, SwiGLU, rotary.
    Backward each matrix twice and its gradient's sum, the others once, the joint gradient of Q, K and V.
    """
    assert count(SMALL) == (5 + 1 + 6, 15 + 1 + 6 + 1)


def test_collectives_and_recomputation_are_issued_too():
    forward, backward = count(SMALL)
    assert count(SMALL, tp=2) == (forward + 2, backward + 2)
    assert count(SMALL, tp=2, sequence_parallel=True) == (forward + 4, backward + 6)
    assert count(SMALL, recompute="full") == (forward, backward + forward)
    early = {"model": replace(SMALL, dropout=False), "recompute": "early-stop"}
    assert count(**early) == (forward, backward + forward - 2)
    assert count(**early, tp=2) == (forward + 2, backward + 2 + forward + 2 - 3)
    assert count(**early, tp=2, sequence_parallel=True)[1] == backward + 6 + forward + 4 - 3
    assert count(SMALL, recompute="early-stop") == (forward, backward + forward)  # the mask comes last
    assert count(SMALL, recompute="selective") == (forward, backward)
    core = replace(SMALL, attention="core", dropout=True)
    assert count(core, recompute="selective")[1] == count(core)[1] + 6  # GEMMs, copies, softmax, dropout


def test_a_graph_of_layers_leaves_the_experts_to_the_cpu():
    """Router, counts and permutation, two grouped GEMMs of eight experts, activation; a dense MLP fewer."""
    forward, backward = count(SMALL)
    mixture = count(replace(SMALL, experts=8))
    assert mixture == (forward - 4 + 20 + 10 + 2 + 5 + 1, backward - 10 + 14 + 2 + 11 + 1)
    assert count(replace(SMALL, experts=8), ep=8)[0] == mixture[0] - 3 + 2  # one expert; two all-to-alls
    model, plan = replace(SMALL, experts=8), Plan(1, 1, 8, 1, 64, recompute="none", ep=8)
    none, layers, full = (at(1e-3, model, replace(plan, cuda_graphs=each)) for each in CUDA_GRAPHS)
    assert none.iteration_s > layers.iteration_s > full.iteration_s
    assert full.iteration_s == at(0.0, model, plan).iteration_s


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_a_gpu_with_little_to_do_takes_the_time_of_the_launches(tp):
    """For every tp, and with a head to compute: it runs while the launches of the layers are issued."""
    plan = Plan(tp, 1, 1, 1, 64, recompute="none", sequence_parallel=True)
    run, without = at(1e-3, SMALL, plan), at(0.0, SMALL, plan)
    issued = 64 * SMALL.layers * sum(count(SMALL, tp=tp, sequence_parallel=True)) * 1e-3
    once = sum(run.breakdown[part] for part in ("dp_comm", "optimizer", "embedding_sync"))
    assert run.iteration_s == pytest.approx(issued + once, rel=1e-12)
    assert run.iteration_s > 5 * without.iteration_s
    assert run.breakdown["head"] == run.breakdown["embedding"] == 0
    assert sum(run.breakdown.values()) == pytest.approx(run.iteration_s, rel=1e-12)


@pytest.mark.parametrize("model", ["bert-large", "gpt2-medium"])
def test_a_graph_of_everything_leaves_no_launch_in_an_iteration(model):
    """Neither in the layers nor at the model's ends nor in the optimizer: as if launches took no time."""
    plan, shape = Plan(1, 1, 8, 2, 16, recompute="none", zero_stage=1, grad_overlap=True), load_model(model)
    eager = load_framework("eager")
    graph = predict(shape, replace(plan, cuda_graphs="full"), SYSTEM, framework=eager)
    free = predict(shape, plan, replace(SYSTEM, site=Site(launch_s=0.0)), framework=eager)
    assert graph.breakdown == free.breakdown
    assert "launch" not in graph.breakdown or graph.breakdown["launch"] == 0


def test_a_framework_may_issue_more_kernels_in_one_pass_than_in_the_other(tmp_path):
    """A launch of a second leaves nothing else: a layer takes as many seconds as it issues kernels."""
    forward, backward = count(SMALL)
    plan = Plan(1, 1, 1, 1, 1, recompute="none")
    seconds = []
    for number, factors in enumerate(("kernels: 2.0", "kernels: 2.0\nbackward_kernels: 3.0")):
        framework = tmp_path / f"{number}.yaml"
        framework.write_text(f"extends: megatron\nname: x\nsource: a test\n{factors}\n")
        system = replace(SYSTEM, site=Site(launch_s=1.0), framework=str(framework))
        seconds.append(predict(SMALL, plan, system).iteration_s)
    assert seconds[0] == pytest.approx(SMALL.layers * 2 * (forward + backward), rel=1e-3)
    assert seconds[1] - seconds[0] == pytest.approx(SMALL.layers * backward, rel=1e-9)
