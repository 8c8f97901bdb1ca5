"""All metrics of a rough run, computed again from its trace and its event log alone.

Two GPU types, nodes that fail, jobs that fail, are declined, can never run, grow, move and are cut off by the
end. Nothing here looks at `usage.csv` or at a record, or calls the code that makes them and the metrics.
"""

import csv
import statistics
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

import clustersim
from clustersim.scheduler import JobView, Scheduler, State
from policies.sia import Sia
from policies.srtf import Srtf
from traces.job import Job

OLD, NEW, PER_NODE, END_S = 4, 2, 4, 6000.0  # nodes 0 to 3 are old
OLD_PRICE, NEW_PRICE = 3.5, 9.25
GPUS = (OLD + NEW) * PER_NODE
SPEEDS = {
    ("a", "a100"): {1: 1.0, 2: 1.9, 4: 3.5}, ("a", "h100"): {1: 2.0, 2: 3.6, 4: 6.0},
    ("b", "a100"): {4: 2.0, 8: 3.9}, ("b", "h100"): {4: 5.0, 8: 9.0}, ("c", "a100"): {2: 1.0},
}  # fmt: skip


class Picky(Scheduler):
    def admit(self, job: JobView, state: State) -> bool:
        return job.tenant != "unwelcome"


class PickySia(Picky, Sia):
    pass


class PickySrtf(Picky, Srtf):
    pass


def trace() -> list[Job]:
    random, now, jobs = Random(7), 0.0, []
    for i in range(60):
        now += random.choice((0.0, random.expovariate(1 / 90)))
        model = random.choice("aabbc")
        gpus = random.choice([n for (name, _), speeds in SPEEDS.items() if name == model for n in speeds])
        work = random.choice((200.0, random.uniform(100, 4000)))
        due = now + random.uniform(100, 3000) if i % 3 else None
        tenant = "unwelcome" if i % 13 == 5 else f"t{i % 2}"
        jobs.append(Job(f"{i:02}", now, tenant, model, gpus, global_batch=8, iterations=work, deadline_s=due))
    never = Job("never", 50.0, model="c", gpus=4, global_batch=9, iterations=5.0, deadline_s=60.0)
    return [*jobs, never, Job("later", END_S + 1, model="c", gpus=2, global_batch=8, iterations=5.0)]


@dataclass
class Stretch:
    """A time during which a job held the same GPUs; `lost_s` of work were lost when it ended."""

    job: str
    from_s: float
    to_s: float
    nodes: dict[int, int]
    overhead_s: float
    lost_s: float = 0.0

    def __post_init__(self) -> None:
        self.gpus = sum(self.nodes.values())

    def within(self, from_s: float, to_s: float) -> float:
        return max(0.0, min(self.to_s, to_s) - max(self.from_s, from_s))


class Log:
    """The event log, read line by line."""

    def __init__(self, path: Path):
        self.count: Counter[str] = Counter()
        self.stretches: list[Stretch] = []
        self.submit: dict[str, float] = {}
        self.gone: dict[str, tuple[str, float]] = {}
        open_: dict[str, Stretch] = {}
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                job, event, now = row["job_id"], row["event"], float(row["time_s"])
                self.count[event] += 1
                if event == "submit":
                    self.submit[job] = now
                if event in ("reject", "fail", "finish"):
                    self.submit.setdefault(job, now)
                    self.gone[job] = event, now
                if event in ("resize", "migrate", "preempt", "interrupt", "fail", "finish") and job in open_:
                    done = open_.pop(job)
                    done.to_s, done.lost_s = now, float(row["overhead_s"]) if event == "interrupt" else 0.0
                if event in ("start", "restart", "resize", "migrate"):
                    overhead_s = float(row["overhead_s"])
                    open_[job] = Stretch(job, now, END_S, nodes_of(row["placement"]), overhead_s)
                    self.stretches.append(open_[job])


def nodes_of(placement: str) -> dict[int, int]:
    """GPUs by node of `0-3x8;7x4`."""
    found = {}
    for part in placement.split(";"):
        nodes, gpus = part.split("x")
        first, _, last = nodes.partition("-")
        found |= dict.fromkeys(range(int(first), int(last or first) + 1), int(gpus))
    return found


@pytest.fixture(scope="module", params=[PickySia, PickySrtf])
def rough(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Any]:
    folder = tmp_path_factory.mktemp("rough")
    (folder / "cluster.yaml").write_text(
        f"groups:\n  - {{name: old, gpu_type: a100, nodes: {OLD}, gpus_per_node: {PER_NODE}, "
        f"usd_per_gpu_hour: {OLD_PRICE}}}\n"
        f"  - {{name: new, gpu_type: h100, nodes: {NEW}, gpus_per_node: {PER_NODE}, "
        f"usd_per_gpu_hour: {NEW_PRICE}}}\n"
    )
    rows = ["model,global_batch,gpus,iterations_per_s,gpu_type"]
    for (model, gpu_type), speeds in SPEEDS.items():
        rows += [f"{model},8,{gpus},{speed},{gpu_type}" for gpus, speed in speeds.items()]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    run = clustersim.run(
        trace(), request.param, cluster=str(folder / "cluster.yaml"), table=str(folder / "table.csv"),
        overheads={"launch_s": 7.0, "plain_restart_s": 21.0, "checkpoint_interval_s": "none"}, seed=5,
        failures={"mtbf_gpu_h": 4.0, "repair_scale": 0.05, "job_failed_share": 0.1}, until_s=END_S,
        out=folder / "out",
    )  # fmt: skip
    return Log(folder / "out" / "events.csv"), run


def test_the_run_is_rough(rough: tuple[Log, Any]) -> None:
    log, run = rough
    assert all(log.count[event] for event in ("interrupt", "fail", "reject", "preempt", "migrate", "node_up"))
    assert run.summary["unfinished"] >= 3
    assert log.count["resize"] >= 5 or "Sia" not in run.manifest["policy"]


def best_run_s(job: Job) -> float:
    """The run time alone on the requested GPUs of the faster type."""
    speeds = [table.get(job.gpus, 0.0) for (model, _), table in SPEEDS.items() if model == job.model]
    return (job.iterations or 0.0) / max(speeds)


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    low = int(at)
    return ordered[low] + (at - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def test_times(rough: tuple[Log, Any]) -> None:
    log, run = rough
    finish = {job: at for job, (event, at) in log.gone.items() if event == "finish"}
    start = {done.job: done.from_s for done in reversed(log.stretches)}
    jct = [at - log.submit[job] for job, at in finish.items()]
    queue = [start[job] - log.submit[job] for job in finish]
    due = {job.job_id: job.deadline_s for job in trace() if job.deadline_s is not None}
    expected = {
        "jct_mean_s": statistics.fmean(jct), "jct_p50_s": statistics.median(jct),
        "jct_p90_s": percentile(jct, 90), "jct_p99_s": percentile(jct, 99),
        "queue_mean_s": statistics.fmean(queue), "queue_p99_s": percentile(queue, 99),
        "makespan_s": max(finish.values()) - min(log.submit.values()),
        "deadline_jobs": len(due),
        "deadline_met_ratio": sum(finish.get(job, END_S * 9) <= at for job, at in due.items()) / len(due),
    }  # fmt: skip
    assert {name: run.summary[name] for name in expected} == pytest.approx(expected, rel=1e-7)


def test_counts(rough: tuple[Log, Any]) -> None:
    log, run = rough
    ends = [event for event, _ in log.gone.values()]
    expected = {
        "jobs": len(trace()), "finished": ends.count("finish"), "rejected": ends.count("reject"),
        "failed": ends.count("fail"), "unfinished": len(trace()) - len(ends), "events": log.count.total(),
        "preemptions": log.count["preempt"], "resizes": log.count["resize"],
        "restarts": log.count["restart"], "migrations": log.count["migrate"],
        "interruptions": log.count["interrupt"],
    }  # fmt: skip
    assert {name: run.summary[name] for name in expected} == expected


def test_gpu_time(rough: tuple[Log, Any]) -> None:
    """Overhead and lost work of each allocation are waste, also after the last finish."""
    log, run = rough
    first = min(log.submit.values())
    last = max(at for event, at in log.gone.values() if event == "finish")
    cost_usd = sum(
        done.gpus * (done.to_s - done.from_s) / 3600 * (OLD_PRICE if min(done.nodes) < OLD else NEW_PRICE)
        for done in log.stretches
    )
    allocated = sum(done.gpus * done.within(first, last) for done in log.stretches)
    waste = sum(
        done.gpus * (min(done.overhead_s, done.to_s - done.from_s) + done.lost_s) for done in log.stretches
    )
    available = GPUS * (last - first)
    expected = {
        "gpu_allocated_ratio": allocated / available, "gpu_useful_ratio": (allocated - waste) / available,
        "fragmentation_ratio": stranded_gpu_s(log, first, last) / available,
        "lost_gpu_h": waste / 3600, "cost_usd": cost_usd,
    }  # fmt: skip
    assert {name: run.summary[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def stranded_gpu_s(log: Log, first: float, last: float) -> float:
    """For each node, from each change to the next: its free GPUs, if it runs anything."""
    total = 0.0
    for node in range(OLD + NEW):
        here = [done for done in log.stretches if node in done.nodes]
        times = sorted({first, last, *(min(max(t, first), last) for d in here for t in (d.from_s, d.to_s))})
        for a, b in pairwise(times):
            used = sum(done.nodes[node] for done in here if done.from_s <= a and done.to_s >= b)
            total += (PER_NODE - used) * (b - a) if used else 0.0
    return total


def test_fairness(rough: tuple[Log, Any]) -> None:
    log, run = rough
    jobs = {job.job_id: job for job in trace()}
    left = {job: at for job, (_, at) in log.gone.items()}
    present = [(at, left.get(job, END_S)) for job, at in log.submit.items()]
    slowdowns, ratios = [], []
    for job, (event, at) in log.gone.items():
        if event != "finish":
            continue
        jct, alone = at - log.submit[job], best_run_s(jobs[job])
        crowd = sum(max(0.0, min(b, at) - max(a, log.submit[job])) for a, b in present) / jct
        slowdowns.append(jct / alone)
        ratios.append(jct / (alone * max(1.0, (jobs[job].gpus or 0) * crowd / GPUS)))
    inverse = [1 / slowdown for slowdown in slowdowns]
    expected = {
        "slowdown_mean": statistics.fmean(slowdowns), "finish_time_fairness_max": max(ratios),
        "jain_index": sum(inverse) ** 2 / (len(inverse) * sum(x * x for x in inverse)),
    }  # fmt: skip
    assert {name: run.summary[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_work_is_the_integral_of_speed(rough: tuple[Log, Any]) -> None:
    """At the table's speeds, a finished job has done the submitted work, and the work that failures undid."""
    log, _ = rough
    for job in trace():
        if log.gone.get(job.job_id, ("", 0.0))[0] == "finish":
            done = 0.0
            for part in (part for part in log.stretches if part.job == job.job_id):
                gpu_type = "a100" if min(part.nodes) < OLD else "h100"
                worked_s = max(0.0, part.to_s - part.from_s - part.overhead_s) - part.lost_s
                done += worked_s * SPEEDS[job.model or "", gpu_type][part.gpus]
            assert done == pytest.approx(job.iterations, rel=1e-6)
