"""The cost of overheads, failures and contention under each policy: each switched off in turn.

    python -m experiments.overheads_study [--seeds 10] [--workers 2]

simulates every policy under every setting and seed, writes all runs to `experiments/overheads/runs.csv` and
from them the page `experiments/OVERHEADS.md`. With `--page-only` the page is made from the existing runs.

A seed gives a trace and a history of failures. All settings and policies of a seed share both, so that
comparisons are paired. Intervals are Student's at 95 % over the seeds.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from clustersim import RunConfig, run
from clustersim.runs import Trace
from itertime.io import write_text
from traces.synthetic import Recipe, generate

PLANNERS = {"fifo": "vtrain", "srtf": "vtrain", "elasticflow": "data-parallel", "vtrain-aware": "vtrain"}
POLICIES = tuple(PLANNERS)
JOBS, LOAD, GPUS = 120, 4.0, 512
HERE = Path(__file__).parent
FOLDER = HERE / "overheads"
CONFIDENCE = 0.95

ON: Mapping[str, Any] = {
    "cluster": str(FOLDER / "cluster.yaml"),
    "network": "contention",
    "overheads": {"storage_shared": True, "launch_gpu_s": 0.0},
    "failures": {"mtbf_gpu_h": 25_000.0},
    "memory_headroom": 0.0,
}
OFF: Mapping[str, Mapping[str, Any]] = {
    "overheads": {"overheads": None},
    "failures": {"failures": None},
    "contention": {"network": "ideal"},
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    **{f"no {name}": OFF[name] for name in OFF},
    "nothing": {key: value for name in OFF for key, value in OFF[name].items()},
    "failures x 10": {"failures": {"mtbf_gpu_h": 2_500.0}},
    "failures x 10, 4 spares": {"failures": {"mtbf_gpu_h": 2_500.0, "spare_nodes": 4}},
}
"""Differences from the setting with everything switched on."""


@dataclass(frozen=True)
class Result:
    """One run. `jct_mean_s` is over the finished jobs."""

    setting: str
    policy: str
    seed: int
    finished: int
    rejected: int
    jct_mean_s: float
    makespan_s: float
    deadline_met_ratio: float
    gpu_useful_ratio: float
    lost_gpu_h: float
    restarts: int
    interruptions: int


@cache
def trace(seed: int) -> Trace:
    """Bursty LLM jobs that exceed the cluster while they arrive, so that policies matter."""
    recipe = Recipe(
        jobs=JOBS,
        load=LOAD,
        gpus=GPUS,
        arrivals="bursty",
        sizes="itp",
        rules="llm-mix",
        planner="data-parallel",
        load_of="process",
        memory_headroom=0.0,
        seed=seed,
    )
    return Trace.of(generate(recipe)[0])


def simulate(setting: str, policy: str, seed: int) -> Result:
    """One run of the study."""
    config = RunConfig.make(policy=policy, planner=PLANNERS[policy], seed=seed, **{**ON, **SETTINGS[setting]})
    summary = run(trace(seed), config=config).summary
    named = (f.name for f in fields(Result))
    return Result(setting, policy, seed, **{name: summary[name] for name in named if name in summary})


def _one(cell: tuple[str, str, int]) -> Result:
    return simulate(*cell)


def simulate_all(seeds: int, workers: int) -> list[Result]:
    cells = [(setting, policy, seed) for seed in range(seeds) for policy in POLICIES for setting in SETTINGS]
    results = []
    with ProcessPoolExecutor(workers) as pool:
        for i, result in enumerate(pool.map(_one, cells, chunksize=len(SETTINGS)), 1):
            results.append(result)
            if i % 20 == 0 or i == len(cells):
                print(f"{i} of {len(cells)} runs", file=sys.stderr)
    return results


# Runs as a table


def as_csv(results: Sequence[Result]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, [f.name for f in fields(Result)], lineterminator="\n")
    writer.writeheader()
    for result in results:
        row = asdict(result)
        writer.writerow({k: repr(v) if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def read_csv(path: Path) -> list[Result]:
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [Result(**{f.name: kinds[str(f.type)](row[f.name]) for f in fields(Result)}) for row in rows]


# The page


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half-width."""
    if len(values) < 2:
        return float(np.mean(values)), float("nan")
    t = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(np.mean(values)), float(t * stats.sem(values))


def paired(
    results: Sequence[Result], metric: str, policy: str, with_: str, without: str
) -> Iterator[tuple[float, float]]:
    """The metric (with, without) a cause, seed by seed."""
    found = {(r.setting, r.seed): getattr(r, metric) for r in results if r.policy == policy}
    for seed in sorted({r.seed for r in results}):
        yield found[with_, seed], found[without, seed]


def cost_percent(results: Sequence[Result], metric: str, policy: str, with_: str, without: str) -> str:
    """Increase of a metric by a cause, in percent of the metric without it."""
    pairs = paired(results, metric, policy, with_, without)
    return with_interval(*interval([100 * (a / b - 1) for a, b in pairs]), "%")


def cost_points(results: Sequence[Result], metric: str, policy: str, with_: str, without: str) -> str:
    """Increase of a ratio by a cause, in percentage points."""
    pairs = paired(results, metric, policy, with_, without)
    return with_interval(*interval([100 * (a - b) for a, b in pairs]), "pp")


def with_interval(mean: float, half_width: float, unit: str) -> str:
    text = f"{mean:+.1f} ± {half_width:.1f} {unit}"
    return f"**{text}**" if abs(mean) > half_width else text


COSTS = (
    ("overheads", "all", "no overheads"),
    ("failures", "all", "no failures"),
    ("contention", "all", "no contention"),
    ("all of it", "all", "nothing"),
    ("failures ten times as often", "failures x 10", "no failures"),
    ("the same with 4 spare nodes", "failures x 10, 4 spares", "no failures"),
)
"""Name of a cause; the settings with and without it."""
METRICS: Sequence[tuple[str, str, Callable[..., str]]] = (
    ("Mean JCT of finished jobs", "jct_mean_s", cost_percent),
    ("Makespan", "makespan_s", cost_percent),
    ("Deadlines met, of all jobs", "deadline_met_ratio", cost_points),
    ("GPU time that was useful", "gpu_useful_ratio", cost_points),
)


def cost_table(results: Sequence[Result], metric: str, cost: Callable[..., str]) -> str:
    lines = ["| policy | " + " | ".join(name for name, _, _ in COSTS) + " |", "|---" * (len(COSTS) + 1) + "|"]
    for policy in POLICIES:
        cells = [cost(results, metric, policy, with_, without) for _, with_, without in COSTS]
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines)


LEVELS = (
    ("finished", "finished", 1.0, 1),
    ("rejected", "rejected", 1.0, 1),
    ("mean JCT, h", "jct_mean_s", 3600.0, 2),
    ("makespan, h", "makespan_s", 3600.0, 1),
    ("deadlines met, %", "deadline_met_ratio", 0.01, 1),
    ("useful, %", "gpu_useful_ratio", 0.01, 1),
    ("lost, GPU-h", "lost_gpu_h", 1.0, 0),
    ("restarts", "restarts", 1.0, 1),
    ("interruptions", "interruptions", 1.0, 1),
)
"""Column, field, unit, digits."""


def level_table(results: Sequence[Result]) -> str:
    """Metrics with everything switched on: means over the seeds."""
    lines = ["| policy | " + " | ".join(name for name, *_ in LEVELS) + " |", "|---" * (len(LEVELS) + 1) + "|"]
    for policy in POLICIES:
        rows = [r for r in results if r.policy == policy and r.setting == "all"]
        means = ((np.mean([getattr(r, key) for r in rows]) / unit, digits) for _, key, unit, digits in LEVELS)
        lines.append(f"| {policy} | {' | '.join(f'{mean:,.{digits}f}' for mean, digits in means)} |")
    return "\n".join(lines)


def page(results: Sequence[Result]) -> str:
    tables = "\n\n".join(f"## {title}\n\n{cost_table(results, key, cost)}" for title, key, cost in METRICS)
    template = (FOLDER / "page.template.md").read_text(encoding="utf-8")
    seeds = len({r.seed for r in results})
    level = level_table(results)
    return template.format(jobs=JOBS, load=LOAD, gpus=GPUS, seeds=seeds, level=level, tables=tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page-only", action="store_true", help="make the page from the existing runs")
    arguments = parser.parse_args()
    runs = FOLDER / "runs.csv"
    if arguments.seeds < 2:
        parser.error(f"--seeds {arguments.seeds}: an interval needs at least 2")
    if not arguments.page_only:
        results = simulate_all(arguments.seeds, arguments.workers)
        write_text(runs, as_csv(results))
    write_text(HERE / "OVERHEADS.md", page(read_csv(runs)))


if __name__ == "__main__":
    main()
