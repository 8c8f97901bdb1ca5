"""The rules of vTrain's artifact beside those of `itertime`, with the same kernels: runs and plans.

    python -m experiments.vtrain_rules [../shared/data]

writes the tables of `experiments/VTRAIN_RULES.md`. The folder has `iterations/`, tables of measured runs on
A100, and `vtrain_artifact/case_study_1_plans.csv`, the plans of MT-NLG 530B that the artifact tries.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, median

import numpy as np

from experiments.mt_nlg_cost import GLOBAL_BATCH, LONGER, MODEL, PUBLISHED, VTRAIN_SYSTEM, Study
from experiments.output import write_tables
from itertime import Plan, PlanBatch, evaluate, load_model, load_system
from itertime.calibration import read_table, validate
from itertime.commandline import run_task
from itertime.io import read_text
from itertime.spec import RULES

HERE = Path(__file__).parent
PAGE, DATA = HERE / "VTRAIN_RULES.md", HERE.parents[1] / "shared" / "data"
RUNS = ("a100_megatron_deepspeed.csv", "published.csv")
PLANS = Path("vtrain_artifact", "case_study_1_plans.csv")
MOST_BYTES = 1_000_000  # of the table of plans
FEWER_GPUS = 0.9
TOKENS, USD_PER_GPU_HOUR = 270e9, 5.0

Errors = dict[str, list[float]]
"""Predicted over measured seconds, minus 1, of some runs, by the rules."""


def measured_table(data: Path) -> Iterator[str]:
    """Errors of both rules over the runs with a pipeline, a line for each table and size of model."""
    yield "| runs | table | parameters | paper's rules: MAPE | bias | here: MAPE | bias |"
    yield "|---|---|---|---|---|---|---|"
    everything: Errors = {rules: [] for rules in RULES}
    for name in RUNS:
        for sizes, errors in _errors_by_size(data / "iterations" / name):
            yield _errors_line(name, sizes, errors)
            for rules in RULES:
                everything[rules] += errors[rules]
    yield _errors_line("all", "", everything)


def _errors_by_size(path: Path) -> list[tuple[str, Errors]]:
    """The errors of the runs with a pipeline by billions of parameters in the layers, in the order of these;
    of a table with a run of each size those of all together.
    """
    sizes = {row["id"]: 12 * row["layers"] * row["hidden"] ** 2 / 1e9 for row in read_table(path)}
    runs = {rules: {run.id: run for run in validate(path, rules=rules).predicted} for rules in RULES}
    names = [name for name, run in runs["vtrain"].items() if run.plan.pp > 1]
    names.sort(key=sizes.__getitem__)
    groups = [list(members) for _, members in groupby(names, key=sizes.__getitem__)]
    if len(groups) == len(names):
        groups = [names]
    return [
        (
            " to ".join(f"{size:,.0f}B" for size in sorted({sizes[group[0]], sizes[group[-1]]})),
            {rules: [runs[rules][name].error_pct / 100 for name in group] for rules in RULES},
        )
        for group in groups
    ]


def _errors_line(source: str, size: str, errors: Errors) -> str:
    figures = [
        f"{figure:.1%}" if place == 0 else f"{figure:+.1%}"
        for rules in reversed(RULES)
        for place, figure in enumerate((fmean(map(abs, errors[rules])), fmean(errors[rules])))
    ]
    return f"| {len(errors['vtrain'])} | {source} | {size} | {' | '.join(figures)} |"


def artifact_study(data: Path, rules: str) -> Study:
    """The artifact's plans by these rules, on its network, each once; plans may fill the memory."""
    rows = csv.DictReader(read_text(data / PLANS, MOST_BYTES).splitlines())
    names = ("tensor_parallel_size", "data_parallel_size", "pipeline_parallel_size", "micro_batch_size")
    shapes = dict.fromkeys(tuple(int(row[name]) for name in names) for row in rows)
    plans = PlanBatch.of(
        [Plan(tp, pp, dp, micro_batch, GLOBAL_BATCH, rules=rules) for tp, dp, pp, micro_batch in shapes]
    )
    started, model = time.perf_counter(), load_model(MODEL)
    evaluation = evaluate(model, plans, load_system(VTRAIN_SYSTEM), memory_headroom=0.0)
    seconds = time.perf_counter() - started
    return Study(plans, evaluation, model.seq_len, TOKENS, USD_PER_GPU_HOUR, seconds)


def plans_table(data: Path) -> Iterator[str]:
    """What each of the rules finds among the artifact's plans, and how far they agree."""
    paper, own = (artifact_study(data, rules) for rules in reversed(RULES))
    yield "| | paper's rules | here |"
    yield "|---|---|---|"
    counts = (f"{len(study.plans)}, of which {study.fits.sum()} fit" for study in (paper, own))
    yield f"| plans | {' | '.join(counts)} |"
    fronts = (str(study.front.sum()) for study in (paper, own))
    yield f"| on the front of time and cost | {' | '.join(fronts)} |"
    for shape in PUBLISHED:
        cells = (_cheaper(study, shape, 1.0, 1.0) for study in (paper, own))
        yield f"| cheapest no slower than {shape} | {' | '.join(cells)} |"
        cells = (_cheaper(study, shape, LONGER, FEWER_GPUS) for study in (paper, own))
        yield f"| on 10 % fewer GPUs, at most 10 % slower | {' | '.join(cells)} |"
    fits = paper.fits
    ratios = (paper.evaluation.iteration_s / own.evaluation.iteration_s)[fits]
    share = f"{median(ratios):.3f} in the median, {ratios.min():.3f} to {ratios.max():.3f}"
    yield f"| seconds beside those here | {share} | 1 |"
    orders = [study.cost_usd[fits].argsort().argsort() for study in (paper, own)]
    yield f"| rank correlation of the dollars | {np.corrcoef(*orders)[0, 1]:.3f} | 1 |"


def _cheaper(study: Study, shape: tuple[int, int, int], longer: float, share: float) -> str:
    """The cheapest plan within a time and a number of GPUs beside those of `shape`, and what it saves."""
    row = study.row(shape)
    limit_s, gpus = longer * float(study.training_s[row]), share * float(study.plans.gpus[row])
    cheapest = study.cheapest(most_s=limit_s, most_gpus=gpus if share < 1 else np.inf)
    if cheapest is None:
        return "none"
    plans, saved = study.plans, 1 - study.cost_usd[cheapest] / study.cost_usd[row]
    found = f"({plans.tp[cheapest]}, {plans.dp[cheapest]}, {plans.pp[cheapest]})"
    return f"{found}, saves {saved:.1%}" if saved else "itself"


def tables(data: Path) -> dict[str, Iterator[str]]:
    """The tables of the page, by their names in it."""
    return {"measured": measured_table(data), "plans": plans_table(data)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", default=DATA, help="the folder of shared data")
    options = parser.parse_args(arguments)
    return run_task(lambda: write_tables(PAGE, tables(options.data)))


if __name__ == "__main__":
    raise SystemExit(main())
