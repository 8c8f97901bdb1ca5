"""The CPU that issues kernels: a floor below passes, not an addition to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from itertime import ModelSpec, Plan, PlanBatch, load_model, load_system, predict
from itertime.costs.layer import kernel_counts
from itertime.spec import CUDA_GRAPHS, Site, load_framework

SYSTEM = load_system("dgx-a100-80gb")
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
