"""The speeds of jobs from throughput tables (hostile ones too), planners, durations, and of running jobs."""

import sys
import traceback
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersim import run
from clustersim.cluster import Cluster, SharedPlacement, load_cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.jobs import ActiveJob
from clustersim.speed import (
    CannotRun,
    Curve,
    Interference,
    NodeSpeeds,
    Requests,
    RunningSpeeds,
    Slowdown,
    SpeedOnOneType,
    StepTimes,
    Variability,
    read_throughput_table,
    speed_for,
)
from itertime.errors import TableError, UserError
from tests.tables import table_rows
from traces.job import Job
from traces.summary import demand, load_of
from traces.synthetic import Recipe, generate
from traces.synthetic.arrivals import ARRIVALS
from traces.synthetic.sizes import load_sizes
from traces.workload import work_maker

HEADER = "model,global_batch,gpus,iterations_per_s\n"


class FakePlanner:
    """A batch takes batch / GPUs seconds, on 4 GPUs or more."""

    name = "fake"

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def curve(
        self, model: Any, batch: int, counts: Collection[int], seq_len: int | None = None
    ) -> dict[int, Any]:
        self.asked.append(tuple(counts))
        plan = SimpleNamespace(label="plan")
        return {n: SimpleNamespace(iteration_s=batch / n, plan=plan) for n in counts if n >= 4}


def speed(cluster: Cluster, table: Any = None, planner: Any = None) -> SpeedOnOneType:
    return SpeedOnOneType(cluster, lambda: cast(Any, planner or FakePlanner()), table)


def gpt3_13b(**more: Any) -> Job:
    columns = {"model": "gpt3-13b", "global_batch": 64, "iterations": 10.0, **more}
    return Job(**{"job_id": "j", "submit_s": 0.0, **columns})


# Reading tables


def table(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_table(tmp_path: Path) -> None:
    text = "gpus,model,x,iterations_per_s,global_batch\n1,m,?,0.5,64\n2,m,?,0.9,64\n\n"
    text += "4,m,?,0,64\n1,m,?,,8\n8,n,,1e-3, 64 \n"
    assert read_throughput_table(table(tmp_path, "\ufeff" + text)) == {
        ("m", 64): {1: 0.5, 2: 0.9, 4: 0.0},
        ("m", 8): {1: 0.0},
        ("n", 64): {8: 0.001},
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "missing column|empty"),
        (b"model,gpus\nm,1\n", "missing column global_batch, iterations_per_s"),
        (b"\xff\xfe\x00model", "UTF-16|cannot be read"),
        (b"model,global_batch,gpus,iterations_per_s\nm\xe9,64,1,1\n", "UTF-8|cannot be read"),
        (b"PK\x03\x04whatever", "workbook|missing column|cannot be read"),
        (b"model,global_batch,gpus,iterations_per_s,gpus\nm,64,1,1,2\n", "gpus.*twice"),
    ],
)
def test_files_that_are_no_throughput_tables(tmp_path: Path, content: bytes, text: str) -> None:
    with pytest.raises(TableError, match=text):
        read_throughput_table(table(tmp_path, content))


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_arbitrary_bytes_end_in_one_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz", numbered=True) / "t.csv"
    for prefix in (b"", HEADER.encode()):
        path.write_bytes(prefix + content)
        with suppress(UserError):
            assert read_throughput_table(path)


# Curves


def test_logged_durations_run_on_the_logged_number_of_gpus() -> None:
    curve = speed(Cluster(1, 8)).curve(Job("j", 0.0, gpus=3, duration_s=9.0))
    assert curve == Curve({3: 1.0}, (3,))


def test_table_curves_stay_within_bounds_and_cluster() -> None:
    rates = {("gpt3-13b", 64): {1: 0.0, 2: 1.0, 3: 1.2, 4: 1.2, 8: 2.0, 16: 1.9, 32: 4.0}}
    small = speed(Cluster(2, 8), rates)
    assert small.curve(gpt3_13b()).unit_s == {2: 1.0, 3: 1 / 1.2, 4: 1 / 1.2, 8: 0.5, 16: 1 / 1.9}
    assert small.curve(gpt3_13b()).sizes == (2, 3, 8), "only counts that are faster than every smaller one"
    assert small.curve(gpt3_13b(min_gpus=3, max_gpus=15, gpus=4)).sizes == (3, 8)
    with pytest.raises(CannotRun, match="no speed for gpt3-13b between 5 and 7 GPUs"):
        small.curve(gpt3_13b(min_gpus=5, max_gpus=7))
    with pytest.raises(CannotRun, match="no row for gpt3-13b with global batch 65"):
        small.curve(gpt3_13b(global_batch=65))


def test_planned_curves_offer_powers_of_two_and_the_request() -> None:
    planner = FakePlanner()
    one = speed(Cluster(3, 8), planner=planner)
    assert one.curve(gpt3_13b(gpus=12)).sizes == (4, 8, 12, 16)
    assert one.curve(gpt3_13b(gpus=24)).sizes == (4, 8, 16, 24)
    assert one.curve(gpt3_13b(gpus=8, max_gpus=8)).sizes == (4, 8)
    assert one.curve(gpt3_13b(min_gpus=6, max_gpus=20, gpus=8)).sizes == (6, 8, 16, 20)
    assert one.curve(gpt3_13b()).unit_s[16] == 4.0
    assert one.curve(gpt3_13b()).plans[16] == "plan"
    assert one.curve(gpt3_13b()).parameters == pytest.approx(13e9, rel=0.1)
    with pytest.raises(
        CannotRun, match=r"no fake plan of gpt3-13b with global batch 64 fits on 1 to 2 GPUs; .* is 4"
    ):
        one.curve(gpt3_13b(max_gpus=2))


def test_curves_are_computed_once_per_kind_of_job() -> None:
    planner = FakePlanner()
    one = speed(Cluster(1, 8), planner=planner)
    assert one.curve(gpt3_13b(job_id="a")) is one.curve(gpt3_13b(job_id="b", submit_s=5.0, iterations=7.0))
    assert len(planner.asked) == 1


def test_refusals_do_not_pile_up() -> None:
    """A refusal is cached; raising it repeatedly must not keep the frames of all callers alive."""
    one = speed(Cluster(1, 8))
    depths = []
    for _ in range(3):
        with pytest.raises(CannotRun) as caught:
            one.curve(Job("j", 0.0, gpus=9, duration_s=1.0))
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert depths[1] == depths[2] <= depths[0]


@pytest.mark.parametrize(("gpus", "given", "note"), table_rows("requests"))
def test_requests(gpus: int | None, given: int, note: str) -> None:
    one = speed(Cluster(2, 8), {("gpt3-13b", 64): {4: 1.0, 8: 2.0}})
    job = gpt3_13b(gpus=gpus)
    assert one.requested(job, one.curve(job)) == (given, note)


def test_a_request_larger_than_the_cluster_is_refused() -> None:
    one = speed(Cluster(1, 8), {("gpt3-13b", 64): {4: 1.0, 8: 2.0}})
    with pytest.raises(CannotRun, match="asks for 9 GPUs, the cluster has 8"):
        one.requested(gpt3_13b(gpus=9), one.curve(gpt3_13b(gpus=9)))
    with pytest.raises(CannotRun, match="asks for 9 GPUs, the cluster has 8"):
        one.curve(Job("j", 0.0, gpus=9, duration_s=1.0))


# The speeds of a run


def test_real_speeds_of_a_small_cluster() -> None:
    one = speed_for(Cluster(4, 8), "vtrain")
    curve = one.curve(gpt3_13b(gpus=16))
    assert curve.sizes[-1] == 32
    assert all(curve.unit_s[a] > curve.unit_s[b] for a, b in zip(curve.sizes, curve.sizes[1:], strict=False))
    baseline = speed_for(Cluster(4, 8), "data-parallel").curve(gpt3_13b(gpus=16))
    assert all(curve.unit_s[n] <= baseline.unit_s[n] * (1 + 1e-12) for n in baseline.sizes), (
        "vtrain contains data-parallel"
    )


def test_counts_beside_powers_of_two() -> None:
    """On 77 nodes 64 is the largest power of two; bounds and requests are offered as well."""
    speed = speed_for(Cluster(77, 8), "vtrain")
    job = Job("large", 0.0, model="gpt3-175b", global_batch=1536, iterations=10.0)
    assert speed.curve(job).sizes[-1] == 64 * 8
    assert speed.curve(replace(job, max_gpus=77 * 8)).sizes[-1] == 77 * 8
    assert speed.curve(replace(job, gpus=72 * 8)).sizes[-1] == 72 * 8


# Framework and precision


def test_a_job_runs_as_on_a_system_with_its_framework() -> None:
    ours = speed_for(Cluster(2, 8, "dgx-a100-80gb"), "vtrain")
    stated = ours.curve(gpt3_13b(gpus=8, framework="te"))
    system = speed_for(Cluster(2, 8, "dgx-a100-80gb,framework=te"), "vtrain")
    assert stated.unit_s == system.curve(gpt3_13b(gpus=8)).unit_s
    assert (stated.framework, ours.curve(gpt3_13b(gpus=8)).framework) == ("te", None)


def test_precisions_and_frameworks() -> None:
    speeds = speed_for(Cluster(2, 8), "vtrain")
    inherited = speeds.curve(gpt3_13b(gpus=8))
    assert speeds.curve(gpt3_13b(gpus=8, precision="bf16")).unit_s == inherited.unit_s
    with pytest.raises(CannotRun, match="its GPUs do not run precision fp8: the profile a100-80gb has bf16"):
        speeds.curve(gpt3_13b(gpus=8, precision="fp8"))
    with pytest.raises(UserError, match="job j: framework=tea: unknown framework 'tea'"):
        speeds.curve(gpt3_13b(gpus=8, framework="tea"))


# Running jobs


SMALL = load_cluster("n2g4")
PLANNED = speed_for(SMALL, "vtrain")
SLOW_NODE = NodeSpeeds(Variability(factors={"other": [1.0, 3.0]}), SMALL)


def active_job(name: str, gpus: int = 1) -> ActiveJob:
    job = Job(name, 0.0, gpus=gpus, duration_s=100.0)
    offer = PLANNED.offers(job)[0]
    return ActiveJob(job, 0, offer.curve, offer.requested, offer.note)


def test_the_smaller_nodes_decide_where_nodes_differ_in_size() -> None:
    """A job that is split over nodes of 2 GPUs runs as its plan does there, on an ideal network as under
    tiers, and a node of 4 beside them does not make it faster. On full nodes of 4 the curve holds.
    """
    large = NodeGroup.of_system("large", 2, 4, "dgx-a100-80gb")
    groups = [replace(large, name="small", nodes=4, gpus_per_node=2), large]
    cluster, tiers = Cluster.of(groups), Cluster.of(groups, "tiers")
    job, speed = (
        Job("a", 0.0, gpus=8, model="gpt3-1.3b", global_batch=64, iterations=10.0),
        speed_for(cluster, "vtrain"),
    )
    (offer,) = speed.offers(job)
    active = ActiveJob(job, 0, offer.curve, offer.requested, offer.note)
    ideal, tiered = RunningSpeeds[ActiveJob](cluster, speed), RunningSpeeds[ActiveJob](tiers, speed)
    full, small, mixed = ((4, 4), (5, 4)), ((0, 2), (1, 2), (2, 2), (3, 2)), ((0, 2), (1, 2), (4, 4))
    assert ideal.alone_s(active, 8, full) == offer.curve.unit_s[8]
    split_s = ideal.alone_s(active, 8, small)
    assert split_s > offer.curve.unit_s[8]
    assert ideal.move({active: mixed}) == {active: split_s} == tiered.move({active: mixed})
    assert ideal.alone_s(active, 4, ((0, 2), (4, 2))) > ideal.alone_s(active, 4, ((4, 4),))
    assert ideal.alone_s(active, 2, ((0, 1), (1, 1))) == offer.curve.unit_s[2], (
        "no more than a small node has"
    )


def test_steps_and_nodes_multiply_what_is_predicted() -> None:
    alone, gone = active_job("a", 4), active_job("b")
    plain = RunningSpeeds[ActiveJob](SMALL, PLANNED)
    assert plain.independent
    assert plain.move({alone: ((0, 4),), gone: None}) == {alone: 1.0}
    assert plain.move({}) == {}
    slowdown = Slowdown(StepTimes(slowdown=1.5), SLOW_NODE, seed=0)
    speeds, job = RunningSpeeds[ActiveJob](SMALL, PLANNED, slowdown=slowdown), active_job("a", 2)
    assert speeds.independent
    assert speeds.move({job: ((0, 2),)}) == {job: 1.5}
    assert speeds.move({job: ((0, 1), (1, 1))}) == {job: 4.5}


def test_a_job_beside_others_is_slowed_down_until_they_leave() -> None:
    slowdown = Slowdown(StepTimes(slowdown=1.5), SLOW_NODE, seed=0)
    speeds = RunningSpeeds[ActiveJob](SMALL, PLANNED, sharing=Interference(slowdown=2.0), slowdown=slowdown)
    first, second, apart = active_job("a"), active_job("b"), active_job("c")
    half = SharedPlacement(((1, 1),), 0, 500_000)
    assert not speeds.independent
    assert speeds.move({first: half, apart: ((0, 1),)}) == {first: 4.5, apart: 1.5}
    assert speeds.move({second: half}) == {second: 9.0, first: 9.0}
    speeds.forget(second)
    assert speeds.move({}) == {first: 4.5}
    assert speeds.move({first: ((0, 1),)}) == {first: 1.5}


# Requests under the planner that runs


GPUS, SEEDS = 1024, 3
PROCESSES = tuple(kind for kind in ARRIVALS if kind != "at-zero")
MIXES = (("itp", "llm-mix", 0.6), ("kalos", "llm-full", 0.9), ("exponential", "llm-mix", 1.2))


cached_work_maker, cached_load_sizes = cache(work_maker), cache(load_sizes)


@cache
def requests(planner: str = "best") -> Requests:
    return Requests(speed_for(Cluster.parse(f"n{GPUS // 8}g8"), planner))


def offered(recipe: Recipe, planner: str = "best") -> float:
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


@pytest.mark.parametrize("planner", ["best", "data-parallel", "megatron"])
def test_the_load_holds_under_the_planner_of_the_recipe(planner: str) -> None:
    recipe = Recipe(jobs=100, load=1.1, gpus=GPUS, planner=planner, seed=4)
    assert offered(recipe, planner) == pytest.approx(1.1, rel=1e-6)
    others = {other: offered(recipe, other) for other in ("best", "data-parallel") if other != planner}
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
    asked = Requests(speed_for(Cluster.parse("n2g8"), "vtrain"))
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
