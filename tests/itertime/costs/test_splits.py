"""Layers by stage and chunk: those of published layouts, and sums that must be the model's."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from itertime import Plan, load_model, load_profile, load_system, predict
from itertime.costs import Workload, memory, stage_costs
from itertime.prediction import evaluate
from itertime.schedule import FIRST, HEAVY, LAST
from itertime.spec import PlanBatch
from itertime.spec.plans.plan import SPLITS
from itertime.timeline import iteration_graph
from tests.effort import examples

LLAMA = load_model("llama3.1-405b")
EXPERTS = {"experts": 8, "experts_per_token": 2, "shared_ffn_hidden": 512}
DENSE = {"dense_layers": 3, "dense_ffn_hidden": 4608}
MIXTURE = replace(
    LLAMA, name="mixture", layers=61, hidden=1024, heads=16, kv_heads=16, ffn_hidden=512, **EXPERTS, **DENSE
)
SYSTEM = load_system("dgx-a100-80gb")
PROFILE = load_profile(SYSTEM.profile)


def workload(model, plan):
    plan.check(model)
    return Workload.of(model, PlanBatch.of([plan]), SYSTEM, PROFILE)


def plan_of(pp, interleave=1, split="ends", **more):
    more = {"tp": 8, "dp": 1, "micro_batch": 1, "global_batch": 4 * pp} | more
    return Plan(pp=pp, interleave=interleave, split=split, sequence_parallel=True, **more)


def test_chunks_after_the_last_layer_stay_empty():
    """Megatron-Bridge's 32 chunks of DeepSeek-V3: 3 dense layers, 29 times 2, and none in the last two."""
    plan = plan_of(8, 4, "remainder")
    work = workload(MIXTURE, plan)
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
    model = replace(MIXTURE, layers=max(layers, dense + 1), dense_layers=dense, dense_ffn_hidden=width)
    plan = plan_of(pp, interleave, split)
    assume(not plan.broken_rules(model))
    partition = workload(model, plan).partition
    assert (partition.layers * partition.stages).sum() == model.layers
    assert (partition.dense * partition.stages).sum() == dense
    present = partition.stages > 0
    assert (partition.layers >= partition.dense)[present].all()
    shared, experts = partition.layer_parameters()
    stack = model.parameters - model.embedding_parameters - model.head_parameters
    assert ((shared + experts) * partition.stages).sum() * 8 == pytest.approx(stack, rel=1e-3)


@pytest.mark.parametrize(("layers", "pp", "interleave", "most"), [(126, 8, 8, 16), (126, 8, 1, 16),
    (126, 16, 4, 8), (62, 4, 8, 16), (30, 4, 8, 8)])  # fmt: skip
def test_the_ends_of_the_model_take_the_place_of_a_layer(layers, pp, interleave, most):
    """NeMo's recipes of Llama 3.1 405B, and its shorter forms on fewer GPUs."""
    partition = workload(replace(LLAMA, layers=layers), plan_of(pp, interleave)).partition
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
        model, plan = replace(LLAMA, layers=layers), plan_of(pp, interleave, split)
        partition = workload(model, plan).partition
        assert (partition.layers * partition.stages).sum() == layers
        graph = iteration_graph(model, plan, SYSTEM)
        finish = max(end for _, end in graph.run().values())
        assert predict(model, plan, SYSTEM).iteration_s == pytest.approx(finish, rel=1e-9)


@pytest.mark.parametrize(
    ("pp", "interleave", "first", "last"), [(4, 1, 16, 13), (8, 1, 8, 5), (16, 1, 4, 1), (8, 2, 8, 5)]
)
def test_the_last_chunk_holds_what_remains(pp, interleave, first, last):
    """Megatron-Bridge's layouts of DeepSeek-V3's 61 layers: 16, 16, 16, 13; 7 x 8 and 5; 15 x 4 and 1."""
    partition = workload(MIXTURE, plan_of(pp, interleave, "remainder")).partition
    assert partition.layers[[FIRST, LAST], 0].tolist() == [first, last]
    assert partition.dense[[FIRST, HEAVY, LAST], 0].tolist() == [3, 0, 0]


@pytest.mark.parametrize("zero_stage", [0, 1, 3])
def test_a_mixture_of_dense_layers_alone_would_be_the_dense_model(zero_stage):
    """All but one layer dense, and that one's costs taken off: what is left is the dense model's."""
    plan = plan_of(1, split="even", dp=2, zero_stage=zero_stage)
    model = replace(MIXTURE, layers=9, dense_layers=8)
    fewer = replace(model, layers=5, dense_layers=4)
    dense = model.dense_form()

    def stage(one):
        costs = stage_costs(workload(one, plan))
        return sum(part[LAST, 0] for parts in (costs.forward, costs.backward) for part in parts.values())

    four = stage(model) - stage(fewer)
    assert four == pytest.approx(stage(dense) - stage(replace(dense, layers=5)), rel=1e-9)


def test_memory_counts_the_layers_of_either_kind():
    """On one GPU the weights of all parts are the model's parameters, in 16 bit."""
    plan = replace(plan_of(1, split="even"), tp=1, sequence_parallel=False)
    model = replace(MIXTURE, vocab=128 * 100)
    weights = memory(workload(model, plan)).parts["weights"][0]
    assert weights == pytest.approx(2.0 * model.parameters, rel=1e-4)


def test_many_plans_of_different_splits_at_once_equal_each_alone():
    plans = [plan_of(pp, v, split) for pp in (1, 2, 4, 8, 16) for v in (1, 2, 4) for split in SPLITS]
    plans = [plan for plan in plans if not plan.broken_rules(LLAMA)]
    together = evaluate(LLAMA, PlanBatch.of(plans), SYSTEM)
    alone = [predict(LLAMA, plan, SYSTEM) for plan in plans]
    assert len({plan.split for plan in plans}) == len(SPLITS)
    np.testing.assert_allclose(together.iteration_s, [one.iteration_s for one in alone], rtol=1e-12)
    np.testing.assert_allclose(together.memory.total, [one.memory_bytes for one in alone], rtol=1e-12)
