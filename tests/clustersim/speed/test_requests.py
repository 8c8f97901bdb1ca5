"""What jobs request under the planner that runs, and the load that generated traces offer it."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import pytest

from clustersim import run
from clustersim.cluster import Cluster
from clustersim.speed import Requests, speed_for
from traces import Job
from traces.summary import demand, load_of
from traces.synthetic import Recipe, generate
from traces.synthetic.arrivals import ARRIVALS
from traces.synthetic.sizes import load_sizes
from traces.workload import work_maker

GPUS, SEEDS = 1024, 3
PROCESSES = tuple(kind for kind in ARRIVALS if kind != "at-zero")
MIXES = (("itp", "llm-mix", 0.6), ("kalos", "llm-full", 0.9), ("exponential", "llm-mix", 1.2))


cached_work_maker, cached_load_sizes = cache(work_maker), cache(load_sizes)


@cache
def requests(planner: str = "3d") -> Requests:
    return Requests(speed_for(Cluster.parse(f"n{GPUS // 8}g8"), planner))


def offered(recipe: Recipe, planner: str = "3d") -> float:
    """The load of a generated trace, from its iterations and the speeds that the engine would use."""
    jobs, _ = generate(recipe)
    load = load_of(demand(jobs, requests(planner)), recipe.gpus)
    assert load is not None
    return load


@pytest.fixture
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, rules and planners are read and made once for all recipes."""
    module = sys.modules["traces.synthetic.generate"]  # the package has a function of this name
    monkeypatch.setattr(module, "work_maker", cached_work_maker)
    monkeypatch.setattr(module, "load_sizes", cached_load_sizes)


@pytest.mark.usefixtures("read_once")
@pytest.mark.parametrize(("sizes", "rules", "load"), MIXES)
@pytest.mark.parametrize("arrivals", PROCESSES)
def test_a_trace_offers_its_load_to_the_planner_that_runs(
    arrivals: str, sizes: str, rules: str, load: float
) -> None:
    """Every single one, whatever its seed."""
    recipe = Recipe(jobs=60, load=load, gpus=GPUS, arrivals=arrivals, sizes=sizes, rules=rules)
    loads = [offered(replace(recipe, seed=seed)) for seed in range(SEEDS)]
    assert loads == pytest.approx([load] * SEEDS, rel=1e-6)


@pytest.mark.parametrize("planner", ["3d", "data-parallel", "megatron"])
def test_the_load_holds_under_the_planner_of_the_recipe(planner: str) -> None:
    recipe = Recipe(jobs=100, load=1.1, gpus=GPUS, planner=planner, seed=4)
    assert offered(recipe, planner) == pytest.approx(1.1, rel=1e-6)
    others = {other: offered(recipe, other) for other in ("3d", "data-parallel") if other != planner}
    assert any(abs(load - 1.1) > 0.05 for load in others.values())


def test_a_run_alone_takes_what_is_requested() -> None:
    """The GPU-seconds of `Requests` are those that a job holds when it runs alone without overheads."""
    jobs = generate(Recipe(jobs=12, rules="llm-mix", seed=5))[0]
    for job in jobs:
        requested = requests()(job)
        assert requested is not None
        record = run([job], "fifo", cluster=f"n{GPUS // 8}g8", overheads=None).jobs[0]
        assert record.gpu_seconds == pytest.approx(requested[0] * requested[1], rel=1e-9)


def test_requests_by_hand() -> None:
    asked = Requests(speed_for(Cluster.parse("n2g8"), "3d"))
    assert asked(Job("a", 0.0, gpus=3, duration_s=50.0)) == (3, 50.0)
    tight = asked(Job("b", 0.0, model="gpt3-13b", global_batch=64, iterations=10, gpus=1))
    assert tight is not None
    assert tight[0] > 1  # the model does not fit on the one GPU requested
    free = asked(Job("c", 0.0, model="gpt3-13b", global_batch=64, iterations=20))
    assert free == (tight[0], 2 * tight[1])
    assert (asked.refused, asked.reason) == (0, "")
    assert asked(Job("d", 0.0, gpus=17, duration_s=50.0)) is None
    assert asked(Job("e", 0.0, gpus=18, duration_s=50.0)) is None
    assert (asked.refused, asked.reason) == (2, "job d: asks for 17 GPUs, the cluster has 16")
