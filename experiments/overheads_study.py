"""What overheads and failures cost each policy: each switched off in turn, everything else as it is.

    python experiments/overheads_study.py [--seeds 10] [--workers 2]

simulates every policy under every setting and seed, writes all runs to `experiments/overheads/runs.csv` and the
page `experiments/OVERHEADS.md` from them. With `--page-only` the page is made again from the runs at hand.

A seed gives a trace and a history of failures; all settings and policies of a seed share both, so what is
compared is paired. Intervals are Student's at 95 % over the seeds.
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
from clustersim.runner import Trace
from itertime.atomic import write_text
from traces.generate import Recipe, generate

POLICIES = ("fifo", "srtf", "elasticflow", "vtrain-aware")
JOBS, LOAD, NODES = 200, 4.0, 64
HERE = Path(__file__).parent
CONFIDENCE = 0.95

ON: Mapping[str, Mapping[str, Any]] = {
    "overheads": {"overheads": {"storage_shared": True}},
    "failures": {"failures": {"mtbf_gpu_h": 25_000.0}},
}
"""The settings that each switch turns on."""
OFF: Mapping[str, Mapping[str, Any]] = {"overheads": {"overheads": None}, "failures": {"failures": None}}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "all": {},
    **{f"no {name}": OFF[name] for name in OFF},
    "nothing": {key: value for name in OFF for key, value in OFF[name].items()},
    "failures x 10": {"failures": {"mtbf_gpu_h": 2_500.0}},
}
"""What differs from everything switched on."""


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
    """Bursty LLM jobs that ask for more than the cluster has while they arrive, so that policies matter."""
    return Trace.of(generate(Recipe(JOBS, LOAD, 8 * NODES, arrivals="bursty", seed=seed))[0])


def simulate(setting: str, policy: str, seed: int) -> Result:
    """One run of the study."""
    values: dict[str, Any] = {}
    for part in (*ON.values(), SETTINGS[setting]):
        values.update(part)
    config = RunConfig.make(policy=policy, cluster=f"n{NODES}g8", seed=seed, **values)
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
    """(with, without) a thing, seed by seed."""
    found = {(r.setting, r.seed): getattr(r, metric) for r in results if r.policy == policy}
    for seed in sorted({r.seed for r in results}):
        yield found[with_, seed], found[without, seed]


def cost_percent(results: Sequence[Result], metric: str, policy: str, with_: str, without: str) -> str:
    """By how much more a metric is with a thing than without, in percent of without."""
    pairs = paired(results, metric, policy, with_, without)
    return _shown(*interval([100 * (a / b - 1) for a, b in pairs]), "%")


def cost_points(results: Sequence[Result], metric: str, policy: str, with_: str, without: str) -> str:
    """The same of a ratio, in percentage points."""
    pairs = paired(results, metric, policy, with_, without)
    return _shown(*interval([100 * (a - b) for a, b in pairs]), "pp")


def _shown(mean: float, half_width: float, unit: str) -> str:
    text = f"{mean:+.1f} ± {half_width:.1f} {unit}"
    return f"**{text}**" if abs(mean) > half_width else text


COSTS = (
    ("overheads", "all", "no overheads"),
    ("failures", "all", "no failures"),
    ("all of it", "all", "nothing"),
    ("failures ten times as often", "failures x 10", "no failures"),
)
"""What it is called, with and without it."""
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


def level_table(results: Sequence[Result]) -> str:
    """What happens with everything switched on: means over the seeds."""
    columns = (
        ("finished", "finished", 1.0, 1), ("rejected", "rejected", 1.0, 1), ("mean JCT, h", "jct_mean_s", 3600.0, 2),
        ("makespan, h", "makespan_s", 3600.0, 1), ("deadlines met, %", "deadline_met_ratio", 0.01, 1),
        ("useful, %", "gpu_useful_ratio", 0.01, 1), ("lost, GPU-h", "lost_gpu_h", 1.0, 0),
        ("restarts", "restarts", 1.0, 1), ("interruptions", "interruptions", 1.0, 1),
    )  # fmt: skip
    lines = [
        "| policy | " + " | ".join(name for name, *_ in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for policy in POLICIES:
        rows = [r for r in results if r.policy == policy and r.setting == "all"]
        cells = [
            f"{np.mean([getattr(r, key) for r in rows]) / unit:,.{digits}f}"
            for _, key, unit, digits in columns
        ]
        lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(results: Sequence[Result]) -> str:
    seeds = len({r.seed for r in results})
    tables = "\n\n".join(f"## {title}\n\n{cost_table(results, key, cost)}" for title, key, cost in METRICS)
    return PAGE.format(
        jobs=JOBS,
        load=LOAD,
        gpus=8 * NODES,
        nodes=NODES,
        seeds=seeds,
        level=level_table(results),
        tables=tables,
    )


PAGE = """# What overheads and failures cost each policy

{jobs} generated LLM jobs (bursty arrivals, load {load:g}) on {nodes} nodes of 8 A100s, {seeds} seeds. Each seed is another trace and
another history of failures, the same for all policies and settings. This page and [overheads/runs.csv](overheads/runs.csv) come from

    python experiments/overheads_study.py

Switched on: the default overheads with storage shared by concurrent loads, failures of nodes once per 25,000 GPU-hours with
checkpoints by Daly's formula ([docs/failures.md](../docs/failures.md)). A cost is the metric with a thing over the same without it,
everything else switched on, paired by seed; ± is the 95 % confidence interval over the seeds, bold where it excludes zero.
Contention for the network is not part of this study.

With everything switched on, means over the seeds:

{level}

{tables}

## What to read from it, and what not

- Without overheads saving a checkpoint is free, so jobs save at all times and a failure loses no work: switching the overheads off takes part of the failures' cost along. The costs do not add up.
- elasticflow and vtrain-aware decline jobs whose deadline they cannot promise. With overheads they decline others than without, so that their mean JCT is over different jobs: the deadlines met are over all jobs.
- On {gpus} GPUs one failure per 25,000 GPU-hours is one in two days. The last column is a cluster ten times as bad.
- The traces are synthetic and the overheads' constants assumed; the order of magnitude carries over, the digits do not.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--page-only", action="store_true", help="make the page from the runs at hand")
    arguments = parser.parse_args()
    runs = HERE / "overheads" / "runs.csv"
    if arguments.seeds < 2:
        parser.error(f"--seeds {arguments.seeds}: an interval needs at least 2")
    if not arguments.page_only:
        results = simulate_all(arguments.seeds, arguments.workers)
        runs.parent.mkdir(exist_ok=True)
        write_text(runs, as_csv(results))
    write_text(HERE / "OVERHEADS.md", page(read_csv(runs)))


if __name__ == "__main__":
    main()
