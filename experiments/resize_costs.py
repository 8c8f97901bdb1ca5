"""The cost of overheads under elasticflow and vtrain-aware, by cause: launches, resizes, restarts.

    python -m experiments.resize_costs [--seeds 5] [--workers 2]

prints the table of docs/policies/elasticflow.md. Every seed is a trace of `clustersim trace generate` with
the bundled models. It runs without overheads, with launches alone, and with all default overheads. Costs are
paired by seed, over the jobs that finish in all three. Intervals are Student's at 95 % over the seeds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from clustersim.cluster import Cluster
from clustersim.engine import RunSetup, Simulation
from clustersim.overheads import Overheads
from clustersim.records import EventRecord
from clustersim.speed import speed_for
from experiments.overheads_study import interval, with_interval
from policies.elasticflow import ElasticFlow
from policies.vtrain_aware import VTrainAware
from traces.synthetic import Recipe, generate

POLICIES = {"elasticflow": ElasticFlow, "vtrain-aware": VTrainAware}
PLANNERS = {"elasticflow": "data-parallel", "vtrain-aware": "vtrain"}
JOBS, LOADS, SHAPE = 500, (1.0, 2.0, 4.0), "n64g8"
KINDS = ("launch", "growing", "shrinking", "restart")


class LaunchesAlone(Overheads):
    """Default overheads of a first start. All later changes are free, for policies too."""

    def restart_s(
        self, parameters: float, nodes: int, gpus: int = 1, kind: str = "restart", *,
        saves: float = 1.0, loads: bool = True,
    ) -> float:  # fmt: skip
        return 0.0


CHARGED: Mapping[str, Overheads] = {
    "nothing": Overheads.none(),
    "launches": LaunchesAlone(),
    "all": Overheads(),
}


class Paid(NamedTuple):
    """Overheads paid for one kind of change: number of times, seconds, and GPU-seconds."""

    times: int
    seconds: float
    gpu_seconds: float


class Result(NamedTuple):
    """One run: the JCT of every finished job in seconds, overheads paid, and all GPU-seconds held."""

    jct_s: Mapping[str, float]
    paid: Mapping[str, Paid]
    gpu_seconds: float


def simulate(policy: str, load: float, charged: str, seed: int) -> Result:
    """One run of the study."""
    cluster, scheduler = Cluster.parse(SHAPE), POLICIES[policy]()
    recipe = Recipe(
        jobs=JOBS,
        load=load,
        gpus=cluster.gpus,
        sizes="itp",
        rules="llm-mix",
        planner="data-parallel",
        load_of="process",
        memory_headroom=0.0,
        seed=seed,
    )
    jobs = generate(recipe)[0]
    speed = speed_for(cluster, PLANNERS[policy], memory_headroom=0.0)
    setup = RunSetup(cluster=cluster, scheduler=scheduler, speed=speed, overheads=CHARGED[charged], seed=seed)
    records = Simulation(jobs, setup).run()
    jct_s = {job.job_id: job.jct_s for job in records.jobs if job.jct_s is not None}
    return Result(jct_s, paid(records.events), sum(job.gpu_seconds for job in records.jobs))


def paid(events: Iterable[EventRecord]) -> dict[str, Paid]:
    """Overheads that jobs paid, by kind. An overhead cut off by the next change counts up to that change.

    A restart is a start after a preemption; a migration counts as a restart.
    """
    totals = {kind: [0, 0.0, 0.0] for kind in KINDS}
    last: dict[str, EventRecord] = {}
    kinds: dict[str, str] = {}
    for event in events:
        before = last.get(event.job_id)
        if event.event not in ("start", "restart", "resize", "migrate", "preempt", "finish"):
            continue
        if before is not None and before.event != "preempt":
            seconds = min(before.overhead_s, event.time_s - before.time_s)
            total = totals[kinds[event.job_id]]
            total[0] += 1
            total[1] += seconds
            total[2] += seconds * before.gpus
        last[event.job_id], kinds[event.job_id] = event, _kind(before, event)
    return {kind: Paid(int(times), *sums) for kind, (times, *sums) in totals.items()}


def _kind(before: EventRecord | None, event: EventRecord) -> str:
    if before is None:
        return "launch"
    if event.event != "resize":
        return "restart"
    return "growing" if event.gpus > before.gpus else "shrinking"


# The table

HEAD = (
    "| policy | load | mean JCT without overheads, min | launches alone cost | all overheads cost |"
    " resizes a job | launch, s a job (% of GPU time) | growing | shrinking | restarts |"
)


def row(policy: str, load: float, runs: Sequence[Mapping[str, Result]]) -> str:
    """A row of the table, from the runs of every seed by the overheads charged."""
    costs: dict[str, list[float]] = {"nothing": [], "launches": [], "all": []}
    for of_seed in runs:
        common = [job for job in of_seed["all"].jct_s if all(job in run.jct_s for run in of_seed.values())]
        means = {name: sum(run.jct_s[job] for job in common) / len(common) for name, run in of_seed.items()}
        costs["nothing"].append(means["nothing"] / 60)
        for name in ("launches", "all"):
            costs[name].append(100 * (means[name] / means["nothing"] - 1))
    charged = [of_seed["all"] for of_seed in runs]
    jobs, held = sum(len(run.jct_s) for run in charged), sum(run.gpu_seconds for run in charged)
    parts = []
    for kind in KINDS:
        seconds = sum(run.paid[kind].seconds for run in charged)
        share = sum(run.paid[kind].gpu_seconds for run in charged) / held
        parts.append(f"{seconds / jobs:.0f} ({100 * share:.1f})")
    resizes = sum(run.paid[kind].times for run in charged for kind in ("growing", "shrinking"))
    cells = [policy, f"{load:g}", f"{interval(costs['nothing'])[0]:.1f}"]
    cells += [with_interval(*interval(costs[name]), "%") for name in ("launches", "all")]
    return f"| {' | '.join([*cells, f'{resizes / jobs:.1f}', *parts])} |"


def runs_of(policy: str, load: float, seeds: int) -> list[dict[str, Result]]:
    return [{charged: simulate(policy, load, charged, seed) for charged in CHARGED} for seed in range(seeds)]


def _row(case: tuple[str, float, int]) -> str:
    policy, load, seeds = case
    return row(policy, load, runs_of(policy, load, seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    cases = [(policy, load, arguments.seeds) for policy in POLICIES for load in LOADS]
    print(HEAD)
    print("|---" * (HEAD.count("|") - 1) + "|")
    with ProcessPoolExecutor(arguments.workers) as pool:
        for line in pool.map(_row, cases):
            print(line, flush=True)


if __name__ == "__main__":
    main()
