"""vTrain's multi-tenant study laid open: runs its grids, and writes the page CASE_STUDY_2.md.

    python -m experiments.case_study_2 [--out FOLDER] [--seeds N] [--workers N] [--quick | --page-only]

Cells that FOLDER already holds are not simulated again, so that a call that was interrupted, or had fewer
seeds, is continued. What the page states of the cells goes to case_study_2/comparisons.csv, and the page and
its pictures are made from that file alone; `--page-only` makes them anew from it. `--quick` runs few seeds
and policies, and writes everything below FOLDER.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from clustersim import read_results
from experiments.multi_tenant.figures import draw
from experiments.multi_tenant.page import page
from experiments.multi_tenant.rows import Row, Speeds, as_csv, read_rows
from experiments.multi_tenant.summary import Recorded, recorded, summarised
from itertime.io import write_text
from itertime.planning import VTRAIN, Space, make_planner
from itertime.spec import load_model, load_system

HERE = Path(__file__).parent
GRIDS = HERE / "grids"
FOLDER = HERE / "case_study_2"
TABLE, RUNS = "comparisons.csv", "runs.csv"
NAMES = (
    *("vtrain_definitions", "vtrain_loads", "vtrain_counts", "vtrain_paper"),
    *("vtrain_policies", "load_sweep"),
)

QUICK_SEEDS = 5
QUICK: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "vtrain_definitions": {"definition": ["reference", "third model 81.2B", "200 Gb/s"]},
    "vtrain_loads": {"trace.load": [1.1, 2.2, 4.4]},
    "vtrain_policies": {
        "scheduler": [
            "priced",
            "priced-deadlines",
            "vtrain-aware",
            "elasticflow",
            "hesrpt",
            "optimus",
            "srtf",
            "fifo",
        ],
        "workload": ["128 jobs", "128 jobs at once", "128 jobs, deadlines, load 3.3"],
    },
    "load_sweep": {"scheduler": ["fifo", "srtf", "vtrain-aware"], "trace.load": [1.0]},
}
"""The values of axes that a quick call keeps, by grid."""


def main() -> None:
    arguments = parse_arguments()
    to = arguments.out / "quick" if arguments.quick else HERE
    folder = to / FOLDER.name
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    if not arguments.page_only:
        write_counts(GRIDS / "counts")
        write_paper(GRIDS / "paper")
        seeds = min(arguments.seeds, QUICK_SEEDS) if arguments.quick else arguments.seeds
        keep = QUICK if arguments.quick else {}
        failed = [n for n in NAMES if not make(n, arguments.out, seeds, arguments.workers, keep.get(n, {}))]
        results = {name: read_results(arguments.out / name) for name in NAMES}
        write_text(folder / TABLE, as_csv(Row, summarised(results)))
        write_text(folder / RUNS, as_csv(Recorded, recorded(results["vtrain_definitions"])))
    rows = read_rows(folder / TABLE)
    write_text(to / "CASE_STUDY_2.md", made_page(rows))
    draw(rows, folder)
    if failed:
        sys.exit(f"cells of {', '.join(failed)} failed; see the folders failures in {arguments.out}")


def made_page(rows: Sequence[Row]) -> str:
    policies = list(read_grid("vtrain_policies")["matrix"]["scheduler"])
    return page(rows, speeds(POWERS), policies)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("case_study_2"), help="folder of the cells")
    parser.add_argument("--seeds", type=int, default=40, help="number of seeds, from 20 on; at least 2")
    parser.add_argument("--workers", type=int, help="number of cells in parallel")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quick", action="store_true", help="few seeds and policies, below --out")
    group.add_argument("--page-only", action="store_true", help=f"the page from {FOLDER.name}/{TABLE}")
    arguments = parser.parse_args()
    if arguments.seeds < 2:
        parser.error(f"--seeds {arguments.seeds}: a paired difference needs at least 2")
    return arguments


# Cells


def make(name: str, out: Path, seeds: int, workers: int | None, keep: Mapping[str, Sequence[Any]]) -> bool:
    """Run a grid with its first seeds and some values of its axes. Whether every cell is there.

    The grid and the files that it names are copied, with equal names: keys of cells are those of
    `clustersim grid` on the original.
    """
    grids = out / "grids"
    shutil.copytree(GRIDS, grids, dirs_exist_ok=True)
    document = reduced(read_grid(name), seeds, keep)
    write_text(grids / f"{name}.yaml", yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, "-m", "clustersim", "grid", str(grids / f"{name}.yaml")]
    command += ["--out", str(out / name), *(["--workers", str(workers)] if workers else [])]
    print(name, file=sys.stderr)
    code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    if code not in (0, 5):  # 5: some cells failed, all others are there
        sys.exit(code)
    return code == 0


def read_grid(name: str) -> dict[str, Any]:
    """The grid of a name in grids/."""
    document: dict[str, Any] = yaml.safe_load((GRIDS / f"{name}.yaml").read_text(encoding="utf-8"))
    return document


def reduced(document: Mapping[str, Any], seeds: int, keep: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """A grid with its first seeds and, of the axes that `keep` names, the values that it names.

    >>> reduced({"matrix": {"a": [1, 2]}, "exclude": [{"a": 2}], "seeds": 3}, 2, {"a": [1]})
    {'matrix': {'a': [1]}, 'exclude': [], 'seeds': [0, 1]}
    """
    listed = document["seeds"] if isinstance(document["seeds"], list) else list(range(document["seeds"]))
    matrix = {
        axis: values
        if axis not in keep
        else {label: values[label] for label in keep[axis]}
        if isinstance(values, dict)
        else list(keep[axis])
        for axis, values in document["matrix"].items()
    }
    excluded = [
        entry
        for entry in document.get("exclude", [])
        if all(v in matrix[axis] for axis, value in entry.items() for v in listing(value))
    ]
    changed = {"matrix": matrix, "exclude": excluded, "seeds": listed[:seeds]}
    return {**document, **{k: v for k, v in changed.items() if k in document}}


def listing(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# Speeds on more GPU counts

MODELS = (
    ("megatron-18.4b", 1024), ("megatron-39.1b", 1536), ("megatron-76.1b", 1792), ("megatron-81.2b", 1792),
)  # fmt: skip
POWERS = [8 << k for k in range(8)]
COUNTS = sorted({*POWERS, *(24 << k for k in range(6))})
PLANNERS = ("data-parallel", "data-parallel-tuned", "data-parallel-best", "vtrain")
PAPER_PLANNERS = (PLANNERS[0], PLANNERS[-1])


def write_counts(folder: Path) -> None:
    """A throughput table for each planner: nodes by powers of two, and three times these."""
    folder.mkdir(exist_ok=True)
    for planner in PLANNERS:
        write_text(folder / f"{planner}.csv", counts_table(planner))


def write_paper(folder: Path) -> None:
    """A throughput table by the rules of vTrain's artifact on its nodes, for both planners of the paper."""
    folder.mkdir(exist_ok=True)
    for planner in PAPER_PLANNERS:
        write_text(folder / f"{planner}.csv", paper_table(planner))


def counts_table(planner: str) -> str:
    """Iterations per second of each model under a planner, on all of `COUNTS`, as a throughput table."""
    return _table_of(speeds(COUNTS, [planner]))


def paper_table(planner: str) -> str:
    """As `counts_table`, by the rules of vTrain's artifact, on its nodes and on powers of two."""
    return _table_of(speeds(POWERS, [planner], "a100-80gb-800g", replace(VTRAIN, rules="vtrain")))


def _table_of(found: Speeds) -> str:
    batches = dict(MODELS)
    lines = [f"{model},{batches[model]},{n},{s:.9g}" for (_, model, n), s in found.items()]
    return "\n".join(["model,global_batch,gpus,iterations_per_s", *lines]) + "\n"


def speeds(
    counts: Sequence[int],
    planners: Sequence[str] = PLANNERS,
    system: str = "dgx-a100-80gb",
    space: Space | None = None,
) -> Speeds:
    """Of each model under each planner, on these numbers of GPUs. The frozen plan is that of the smallest one
    that holds the model.
    """
    found: dict[tuple[str, str, int], float] = {}
    for planner in planners:
        made = make_planner(planner, load_system(system), space=space)
        for model, batch in MODELS:
            curve = made.curve(load_model(model), batch, counts)
            found |= {(planner, model, n): 1 / curve[n].iteration_s for n in counts if n in curve}
    return found


if __name__ == "__main__":
    main()
