"""Jobs that state options of their plans: planners, policies, records, audits, reports, and the network."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import clustersim
from clustersim.analysis import gpu_time
from clustersim.audit import check_run_folder
from clustersim.cluster import Cluster
from clustersim.cluster.topology import NodeGroup
from clustersim.records import PARTS, plan_of_label, spread_words
from clustersim.report import group_runs, render_report
from clustersim.report.page_data import page_data
from clustersim.rundir import csv_hash, read_run, write_run
from clustersim.speed import Speed, speed_for
from clustersim.speed.network.layout import LayoutTimes, demand_of, layout_of, uplinks
from clustersim.speed.network.traffic import sent_share
from itertime.planning import PLANNERS
from itertime.prediction import predict
from itertime.spec import Plan, load_model, load_system, parse_options, profile_of
from tests.places import ROOT
from traces.job import Job

pytestmark = pytest.mark.usefixtures("wide_terminal")

BERT = "bert-large-wikipedia"
BALANCED = "batching=unpadded,balance=stratified-exchanged"
OPTIONS = (
    None, BALANCED, "batching=packed", "clipping=bucket,optimizer=lamb", "compression=onebit-adam",
    "compression=int8", "workers=2,local_steps=100,outer=diloco",
)  # fmt: skip
LEAVES = """
network: contention
groups:
  - {name: a, gpu_type: a100, nodes: 12, nodes_per_leaf: 2, leaf_oversubscription: 48}
"""


def job(name: str, options: str | None = None, **more: object) -> Job:
    facts = {"model": BERT, "global_batch": 512, "gpus": 16, "iterations": 200.0, **more}
    return Job(name, 0.0, plan_options=options, **facts)  # type: ignore[arg-type]


def mixture(count: int = 28) -> list[Job]:
    """Jobs of all options, two in three with a deadline."""
    random, now, jobs = Random(3), 0.0, []
    for i in range(count):
        now += random.choice((0.0, random.expovariate(1 / 30)))
        due = now + random.uniform(200, 4000) if i % 3 else None
        made = job(str(i), OPTIONS[i % len(OPTIONS)], gpus=random.choice((4, 8, 16, 32)), tenant=f"t{i % 2}")
        jobs.append(replace(made, submit_s=now, iterations=random.uniform(100, 900), deadline_s=due))
    return jobs


def violations(folder: Path) -> list[object]:
    return [finding for finding in check_run_folder(folder) if finding.violations]


# Policies and planners


@pytest.mark.parametrize("planner", [name for name in PLANNERS if name != "vtrain-paper"])
def test_every_planner_plans_under_the_options(planner: str) -> None:
    run = clustersim.run([job(str(i), text) for i, text in enumerate(OPTIONS)], "fifo", planner=planner)
    assert {plan.plan_options for plan in run.plans} == {text or "" for text in OPTIONS}
    for record in run.plans:
        plan = plan_of_label(record.plan, record.global_batch)
        assert plan is not None
        assert plan.options == parse_options(record.plan_options)
        expected = predict(load_model(BERT), plan, load_system("dgx-a100-80gb"))
        assert record.iteration_s == pytest.approx(expected.iteration_s, rel=1e-12)
        assert sum(getattr(record, part) for part in PARTS) == pytest.approx(record.iteration_s, rel=1e-12)
        assert (record.spread_low_s, record.spread_high_s) == (expected.spread_s or (None, None))


# Files


@pytest.mark.parametrize("parquet", [False, True])
@pytest.mark.parametrize("jobs", [mixture(9), [job("a"), job("b")], [job("a"), job("b", BALANCED)]])
def test_folders_keep_options(jobs: list[Job], parquet: bool, tmp_path: Path) -> None:
    run = clustersim.run(jobs, "fifo")
    written = write_run(tmp_path / "run", run, parquet=parquet)
    back = read_run(tmp_path / "run")
    if not parquet:
        headers = [(tmp_path / "run" / name).read_text().split("\n")[0] for name in ("jobs.csv", "plans.csv")]
        assert ["plan_options" in header for header in headers] == [len(run.plans) > 1] * 2
        assert ["imbalance_s" in header for header in headers] == [False, len(run.plans) > 1]
    assert [one.plan_options for one in back.jobs] == [one.plan_options for one in run.jobs]
    assert [plan.key for plan in back.plans] == [plan.key for plan in run.plans]
    for ours, theirs in zip(back.plans, run.plans, strict=True):
        assert ours[9:] == pytest.approx(theirs[9:], abs=1e-6)
    assert written.manifest["result_hash"] == csv_hash(back.jobs) == csv_hash(run.jobs)
    streamed = clustersim.run(jobs, "fifo", out=tmp_path / "streamed")
    assert streamed.manifest["result_hash"] == written.manifest["result_hash"]


def test_a_forged_option_is_found(tmp_path: Path) -> None:
    run = clustersim.run([job("a", BALANCED), job("b", "batching=unpadded")], "fifo")

    def told(**changes: str) -> str:
        jobs = [replace(run.jobs[0], **changes), run.jobs[1]]  # type: ignore[arg-type]
        write_run(tmp_path / "run", replace(run, jobs=jobs))
        return "\n".join(v.text for f in check_run_folder(tmp_path / "run") for v in f.violations)

    assert not told()
    assert f"its plan {run.plans[0].plan.split()[0]}" in told(plan_options="batching=unpadded")
    assert "is not that of planner best" in told(plan_options="")
    assert told(plan_options="batching=often"), "no option, and no traceback"


# Reports


def test_reports_say_how_iterations_vary() -> None:
    varied = clustersim.run([job("a", BALANCED), job("b")], "fifo", cluster="n4g8")
    spread = next(filter(None, map(spread_words, varied.plans)))
    data = page_data(group_runs([varied]))
    assert [data["jobs"]["softwares"][i] for i in data["jobs"]["software"]] == [BALANCED, ""]
    (shown,) = data["runs"]
    plans = {shown["held"]["plans"][i] for i in shown["held"]["plan"]}
    assert [f"({spread} an iteration)" in plan for plan in sorted(plans)].count(True) == 1
    page = render_report([clustersim.run([job("b")], "fifo")])
    assert not [words for words in (f"<td>{spread}</td>", ">Spread</th>", "to convergence") if words in page]
    time, (plan,) = gpu_time(varied), (plan for plan in varied.plans if plan.plan_options)
    assert time is not None
    due = time.by_plan[plan.key] * plan.imbalance_s / plan.iteration_s
    assert time.seconds["imbalance"] == pytest.approx(due) != 0.0


# The network


def test_what_a_plan_sends_follows_its_options() -> None:
    model, system = load_model("bert-large"), load_system("dgx-a100-80gb")
    plain = Plan(1, 1, 32, 4, 256, recompute="none")

    def share(text: str) -> float:
        return sent_share(model, replace(plain, options=parse_options(text)), system, profile_of(system))

    def bytes_of(text: str) -> float:
        """Of an iteration: what it sends a second times how long it takes."""
        plan = replace(plain, options=parse_options(text))
        times_s = [predict(model, each, system).iteration_s for each in (plan, plain)]
        return share(text) * times_s[0] / times_s[1]

    assert share("") == 1.0
    assert share("optimizer=sgd") == 1.0, (
        "a faster iteration sends as much in less time, and no more is charged"
    )
    assert 0.4 < bytes_of("compression=int8") < 0.6, "about half"
    assert bytes_of("compression=onebit-adam") < 0.25, "every rank sends to every other, also across nodes"
    half = bytes_of("compression=onebit-adam,warmup_share=0.5")
    assert half == pytest.approx((1 + bytes_of("compression=onebit-adam")) / 2, rel=1e-3)
    steps = [bytes_of(f"workers=32,local_steps={count}") for count in (10, 100)]
    assert steps[0] == pytest.approx(10 * steps[1], rel=1e-3)
    assert steps[0] < 0.2
    assert bytes_of("workers=2,local_steps=100") > 0.5, "the ranks of a worker exchange in every iteration"


def fabric() -> Cluster:
    group = NodeGroup(
        "a", 8, 8, "a100", "dgx-a100-80gb", nodes_per_leaf=4, leaf_uplink_bytes_per_s=4 * 200e9 / 8
    )
    return Cluster.of([group], "contention")


def times_of(speed: Speed, cluster: Cluster, one: Job) -> tuple[dict[int, float], LayoutTimes]:
    """The peak demand of the job on nodes 2 to 5, two under each leaf."""
    plan = speed.curve(one).training[32]
    return demand_of(cluster, tuple((node, 8) for node in range(2, 6)), plan, 25e9), LayoutTimes(speed)


def test_beside_a_job_that_sends_little_another_is_nearly_as_fast_as_alone() -> None:
    cluster = fabric()
    speed = speed_for(cluster, "vtrain")
    places = tuple((node, 8) for node in range(2, 6))
    share = {}
    for options in (None, "compression=onebit-adam", "workers=4,local_steps=500"):
        one = job("a", options, gpus=32, model="bert-large")
        demand, layouts = times_of(speed, cluster, one)
        curve = speed.curve(one)
        layout = layout_of(cluster, "a100", places, curve.training[32], demand, uplinks(cluster))
        times = layouts.of(curve, 32, layout)
        assert times is not None
        share[options] = times.sent_share
        assert times.unit_s(times.oversubscription(1.0)) == times.unit_s(), "alone, at the rate of its NICs"
        assert times.oversubscription(0.5) == 2 + (1 - times.sent_share) * layout.oversubscription
    assert share[None] == 1.0
    assert 0 < share["workers=4,local_steps=500"] < share["compression=onebit-adam"] < 0.5


def test_neighbours_gain_from_compression_and_audits_agree(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(LEAVES)
    taken = {}
    for options in (None, "compression=onebit-adam", "workers=12,local_steps=100,outer=diloco"):
        saving = [job(f"s{i}", options, gpus=24, global_batch=384, model="bert-large") for i in range(2)]
        plain = [job(f"p{i}", gpus=24, global_batch=384, model="bert-large") for i in range(2)]
        run = clustersim.run([*saving, *plain], "fifo", cluster=str(tmp_path / "c.yaml"), placement="spread")
        taken[options] = max(one.jct_s or 0.0 for one in run.jobs if one.job_id.startswith("p"))
        write_run(tmp_path / f"{options}", run)
        assert not violations(tmp_path / f"{options}")
    assert taken["compression=onebit-adam"] < 0.95 * taken[None]
    assert taken["workers=12,local_steps=100,outer=diloco"] < taken["compression=onebit-adam"]


# The example of the docs


def test_the_trace_of_the_docs(tmp_path: Path) -> None:
    """The page shows the file. Balance is fastest; on a fast network compression gains nothing."""
    trace = ROOT / "docs" / "bert-jobs.csv"
    assert trace.read_text() in (ROOT / "docs" / "traces.md").read_text()
    runs = {
        policy: clustersim.run(trace, policy, cluster="n8g8") for policy in ("fifo", "srtf", "vtrain-aware")
    }
    for name, run in runs.items():
        assert {record.state for record in run.jobs} == {"finished"}, name
    took = {record.job_id: record.isolated_s or 0.0 for record in runs["fifo"].jobs}
    assert took["balanced"] < took["drawn"] < took["padded"]
    assert took["plain"] < took["one-bit"], "no gain where the network is fast"
