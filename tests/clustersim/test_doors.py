"""One question at every door: the best plan of a model on so many GPUs, its seconds, and its nodes."""

import json
from typing import Any

import pytest

import clustersim
from clustersim.cluster import load_cluster
from clustersim.runs import RunConfig, recipe_values
from clustersim.speed import node_changes, speed_for
from itertime import Space, load_model, load_system, make_planner, search
from itertime.cli import main
from itertime.commands.options import system_of
from itertime.planning import Budget, RankedPlan, TrainingCost
from tests.effort import first
from traces.job import Job

MODELS = (
    "llama3-8b", "qwen3-30b-a3b", "llama3-70b", "mixtral-8x7b", "megatron-18.4b", "gpt-oss-20b", "gemma2-9b",
    "deepseek-v2-lite", "gpt3-175b", "llama3.1-405b", "bloom-7.1b", "deepseek-moe-16b", "falcon-40b",
    "mistral-7b", "gemma3-12b", "opt-1.3b", "qwen3-235b-a22b", "llama2-13b", "phi-2", "megatron-39.1b",
)  # fmt: skip
SYSTEMS = ("dgx-a100-80gb", "dgx-h100", "p5-48xlarge", "dgx-b200")
SIZES = (8, 32, 128)
BATCH, TOKENS, ITERATIONS = 256, 1e12, 10.0
# Each round asks about each model once: first another system, then another size.
QUESTIONS = [
    (model, SYSTEMS[(place + turn) % 4], SIZES[(place + turn // 4) % 3], ("bf16", "fp8")[(place + turn) % 2])
    for turn in range(12)
    for place, model in enumerate(MODELS)
]


@pytest.mark.parametrize(("model", "system", "gpus", "precision"), first(20, QUESTIONS))
def test_all_doors_give_the_same_plan(
    model: str, system: str, gpus: int, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, at_most = (
        search(model, BATCH, system, space=Space(precision=precision), top=1, **{limit: gpus}).plans
        for limit in ("gpus", "max_gpus")
    )
    seconds = exact[0].prediction.iteration_s if exact else None
    frame = {"space": "full", "framework": load_system(system).framework, "precision": precision}
    options = ["--model", model, "--system", system, "--global-batch", str(BATCH), "--gpus", str(gpus)]
    for command in (["search", "--top", "1"], ["cost", "--tokens", f"{TOKENS}"]):
        assert main([*command, *options, "--precision", precision, "--json"]) == (0 if exact else 2)
        document = json.loads(capsys.readouterr().out)
        assert {name: document[name] for name in frame} == frame
        plan = document["plan"] if command[0] == "cost" else next(iter(document["plans"]), None)
        assert (plan and plan["iteration_s"]) == (seconds and pytest.approx(seconds, rel=1e-9))
    spec, nodes, space = load_model(model), load_system(system), Space(precision=precision)
    predicted = TrainingCost(spec, nodes, TOKENS, gpus, 5.0).predicted(BATCH, space)
    assert same(predicted and predicted[1], exact)
    assert same(Budget(gpus, 30.0, BATCH, nodes, space).train(spec).fastest, at_most)
    curve = make_planner("best", nodes).under(precision=precision).curve(spec, BATCH, [gpus])
    assert [(run.plan, run.iteration_s) for run in curve.values()] == [
        (entry.plan, pytest.approx(entry.prediction.iteration_s, rel=1e-9)) for entry in at_most
    ]
    job = Job(
        "j", 0.0, gpus=gpus, model=model, global_batch=BATCH, iterations=ITERATIONS, precision=precision
    )
    run = clustersim.run(
        [job], "fifo", cluster=f"n{gpus // 8}g8", system=system, overheads=None, bound="none"
    )
    assert [plan.plan for plan in run.plans] == [entry.plan.label for entry in at_most]
    expected_s = [pytest.approx(ITERATIONS * entry.prediction.iteration_s, rel=1e-9) for entry in at_most]
    assert [record.jct_s for record in run.jobs if record.state == "finished"] == expected_s


@pytest.mark.parametrize("name", ["a100-80gb-800g", "p5-48xlarge", "dgx-h100", "a100-pcie"])
def test_nodes_with_half_of_the_gpus_are_the_same_system_at_every_door(name: str) -> None:
    """Where a run plans jobs, in the recipe of its trace, and in the commands that predict its plans."""
    settings = {"cluster": f"n4g{load_system(name).gpus_per_node // 2}", "system": name}
    cluster = load_cluster(*settings.values())
    nodes = speed_for(cluster, "best").system_of(cluster.gpu_types[0])
    assert nodes is not None
    assert load_system(recipe_values(RunConfig.make(policy="fifo", **settings))["system"]) == nodes
    changes = [f"system.{key}={value!r}" for key, value in node_changes(cluster.pools[0]).items()]
    assert system_of(name, changes) == nodes


def same(door: RankedPlan | None, answer: Any) -> bool:
    """Whether a door gives the plan that the search does, or none if that finds none."""
    return (door and door.plan) == (answer[0].plan if answer else None)
