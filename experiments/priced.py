"""The policy `priced` beside the best other ones: runs its grids, and writes the page PRICED.md.

    python -m experiments.priced [--out FOLDER] [--seeds N] [--workers N] [--quick | --page-only]

Cells that FOLDER already holds are not simulated again, so that a call that was interrupted, or had fewer
seeds, is continued. What the page states goes to priced/runs.csv, one row a cell, and the page is made from
that file alone; `--page-only` makes it anew from it. `--quick` runs few seeds and workloads, and writes
everything below FOLDER. The logs lie at ../shared; without them their table keeps what runs.csv has.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from pathlib import Path
from typing import Any

from clustersim import read_results
from clustersim.analysis import paired_difference
from experiments.case_study_2 import make, read_grid
from itertime.io import write_text
from traces import write_trace
from traces.logs import Selection, import_log

HERE = Path(__file__).parent
FOLDER = HERE / "priced"
LOGS = HERE.parents[1] / "shared" / "data" / "traces" / "itp_raw"
NAMES = (
    *("priced_workloads", "priced_parts", "priced_settings"),
    *("priced_tails", "priced_types", "priced_failures", "priced_logs"),
)
METRICS = (
    *("jct_mean_s", "jct_p99_s", "makespan_s", "jct_over_bound", "makespan_over_bound"),
    "deadline_met_ratio",
)
OURS, TAIL, SPAN, LONGEST = (
    "priced",
    "priced for the tail",
    "priced for the makespan",
    "priced, longest first",
)
DEADLINES, UNRESERVED = "priced-deadlines", "priced-deadlines, reserve 0"

QUICK_SEEDS = 5
QUICK: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "priced_workloads": {"workload": ["mix, bursty, load 1", "vTrain, 128 jobs at once"]},
    "priced_parts": {"workload": ["mix, bursty, load 1"]},
    "priced_settings": {"workload": ["mix, bursty, load 1.3"]},
    "priced_tails": {"workload": ["mix, load 1"]},
    "priced_types": {"workload": ["mix, bursty, load 1.3"]},
    "priced_failures": {"workload": ["vTrain, 128 jobs, load 2.2"]},
    "priced_logs": {"workload": ["cluster02, 2000"]},
}
"""The values of axes that a quick call keeps, by grid."""


@dataclass(frozen=True)
class Cell:
    """A run. `setting` is empty in grids without that axis; None stands for an undefined metric."""

    grid: str
    workload: str
    setting: str
    scheduler: str
    seed: int
    metrics: Mapping[str, float | None]


def main() -> None:
    arguments = parse_arguments()
    to = arguments.out / "quick" if arguments.quick else HERE
    table = to / FOLDER.name / "runs.csv"
    table.parent.mkdir(parents=True, exist_ok=True)
    failed: list[str] = []
    if not arguments.page_only:
        cells = read_cells(table) if table.exists() else []
        shutil.copytree(FOLDER, arguments.out / "priced", dirs_exist_ok=True)  # variants that grids name
        names = NAMES if write_logs(arguments.out / "logs") else NAMES[:-1]
        for name in names:
            seeds = min(arguments.seeds, QUICK_SEEDS) if arguments.quick else arguments.seeds
            keep = QUICK[name] if arguments.quick else {}
            if not make(name, arguments.out, seeds, arguments.workers, keep):
                failed.append(name)
            cells = [cell for cell in cells if cell.grid != name] + cells_of(name, arguments.out / name)
            write_text(table, as_csv(cells))
    template = (FOLDER / "page.template.md").read_text(encoding="utf-8")
    write_text(to / "PRICED.md", page(template, read_cells(table)))
    if failed:
        sys.exit(f"cells of {', '.join(failed)} failed; see the folders failures in {arguments.out}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("priced_study"), help="folder of the cells")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds, from 20 on; 2 to 20")
    parser.add_argument("--workers", type=int, help="number of cells in parallel")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quick", action="store_true", help="few seeds and workloads, below --out")
    group.add_argument("--page-only", action="store_true", help=f"the page from {FOLDER.name}/runs.csv")
    arguments = parser.parse_args()
    if not 2 <= arguments.seeds <= 20:
        parser.error(f"--seeds {arguments.seeds}: must be between 2 and 20")
    return arguments


# Cells


def write_logs(folder: Path) -> bool:
    """Write the traces that the grid of logs names. Whether there are logs."""
    if not LOGS.is_dir():
        print(f"{LOGS} is not there: no runs of logs", file=sys.stderr)
        return False
    folder.mkdir(parents=True, exist_ok=True)
    for settings in read_grid("priced_logs")["matrix"]["workload"].values():
        path = folder / Path(settings["trace"]).name
        if not path.exists():
            cluster, _, most = path.stem.partition("_")
            selection = Selection(limit=None if most == "all" else int(most))
            jobs, _ = import_log(LOGS / f"{cluster}.csv.gz", rules="llm-mix", selection=selection)
            write_trace([replace(job, deadline_s=None) for job in jobs], path)
    return True


def cells_of(name: str, folder: Path) -> list[Cell]:
    """The cells of a grid that are there."""
    found = []
    for result in read_results(folder):
        if result.metrics:
            axes = {axis: str(value) for axis, value in result.axes.items()}
            metrics = {metric: result.metrics.get(metric) for metric in METRICS}
            setting = axes.get("setting", "")
            found.append(Cell(name, axes["workload"], setting, axes["scheduler"], result.seed, metrics))
    return found


def as_csv(cells: Iterable[Cell]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["grid", "workload", "setting", "scheduler", "seed", *METRICS])
    for cell in cells:
        values = ["" if (v := cell.metrics[m]) is None else repr(v) for m in METRICS]
        writer.writerow([cell.grid, cell.workload, cell.setting, cell.scheduler, cell.seed, *values])
    return text.getvalue()


def read_cells(path: Path) -> list[Cell]:
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Cell(
                row["grid"],
                row["workload"],
                row["setting"],
                row["scheduler"],
                int(row["seed"]),
                {metric: float(row[metric]) if row.get(metric) else None for metric in METRICS},
            )
            for row in csv.DictReader(file)
        ]


# The page


class Runs:
    """Cells of one grid by workload, setting and scheduler."""

    def __init__(self, cells: Iterable[Cell], grid: str):
        self.by: dict[tuple[str, str, str], dict[int, Cell]] = {}
        for cell in cells:
            if cell.grid == grid:
                place = cell.workload, cell.setting, cell.scheduler
                self.by.setdefault(place, {})[cell.seed] = cell

    def axis(self, number: int) -> list[str]:
        """The values of workload (0), setting (1) or scheduler (2), in the order of the grid."""
        return list(dict.fromkeys(place[number] for place in self.by))

    def values(self, place: tuple[str, str, str], metric: str, seeds: Iterable[int]) -> list[float | None]:
        cells = self.by[place]
        return [cells[seed].metrics[metric] if seed in cells else None for seed in seeds]

    def mean(self, place: tuple[str, str, str], metric: str) -> float | None:
        values = [v for v in self.values(place, metric, self.by.get(place, ())) if v is not None]
        return fsum(values) / len(values) if values else None

    def best(self, workload: str, setting: str, metric: str) -> tuple[str, str, str] | None:
        """The other policy with the least mean of a metric."""
        means = {
            place: mean
            for place in self.by
            if place[:2] == (workload, setting)
            and not place[2].startswith((OURS, "blind"))
            and (mean := self.mean(place, metric)) is not None
        }
        return min(means, key=lambda place: means[place]) if means else None

    def ratio(self, place: tuple[str, str, str], base: tuple[str, str, str] | None, metric: str) -> str:
        """The ratio of two means over the seeds of both, with its interval."""
        if base is None or place not in self.by:
            return "-"
        seeds = [seed for seed in self.by[place] if seed in self.by[base]]
        d = paired_difference(self.values(base, metric, seeds), self.values(place, metric, seeds))
        if d.relative is None:
            return "-"
        if d.relative_low is None or d.relative_high is None:
            return f"x{1 + d.relative:.3f}"
        return f"x{1 + d.relative:.3f} ({1 + d.relative_low:.3f} to {1 + d.relative_high:.3f})"

    def points(self, place: tuple[str, str, str], base: tuple[str, str, str], metric: str) -> str:
        """The difference of two mean shares in percentage points, over the seeds of both; its interval."""
        if place not in self.by or base not in self.by:
            return "-"
        seeds = [seed for seed in self.by[place] if seed in self.by[base]]
        d = paired_difference(self.values(base, metric, seeds), self.values(place, metric, seeds), limit=1.0)
        if d.difference is None or d.low is None or d.high is None:
            return "-" if d.difference is None else f"{100 * d.difference:+.1f}"
        return f"{100 * d.difference:+.1f} ({100 * d.low:+.1f} to {100 * d.high:+.1f})"


def page(template: str, cells: Sequence[Cell]) -> str:
    """PRICED.md, from a template with places for tables."""
    main, parts = Runs(cells, "priced_workloads"), Runs(cells, "priced_parts")
    settings, logs = Runs(cells, "priced_settings"), Runs(cells, "priced_logs")
    seeds = {len(runs) for place, runs in main.by.items() if place[2] == OURS}
    return template.format(
        seeds=" or ".join(map(str, sorted(seeds))) or "no",
        mean=against_best(main, OURS, "jct_mean_s", bound="jct_over_bound"),
        tail=tails(main),
        small_tail=tails(Runs(cells, "priced_tails")),
        types=of_types(Runs(cells, "priced_types")),
        failures=of_failures(Runs(cells, "priced_failures")),
        makespan=against_best(main, SPAN, "makespan_s", bound="makespan_over_bound"),
        parts=of_parts(parts),
        settings=of_settings(settings),
        logs=of_logs(logs),
    )


def against_best(runs: Runs, scheduler: str, metric: str, bound: str) -> str:
    """By workload: the best other policy, the ratio to it, and how far the scheduler is from the bound."""
    rows = []
    for workload in runs.axis(0):
        best, ours = runs.best(workload, "", metric), (workload, "", scheduler)
        rows.append([
            workload, best[2] if best else "-", hours(runs.mean(best, metric) if best else None),
            runs.ratio(ours, best, metric), factor(runs.mean(ours, bound)),
        ])  # fmt: skip
    return table(["workload", "best other policy", "its value, h", "ratio to it", "over the bound"], rows)


def tails(runs: Runs) -> str:
    rows = []
    for workload in runs.axis(0):
        best = runs.best(workload, "", "jct_p99_s")
        mean = runs.best(workload, "", "jct_mean_s")
        tail = workload, "", TAIL
        rows.append([
            workload, best[2] if best else "-", runs.ratio((workload, "", OURS), best, "jct_p99_s"),
            runs.ratio(tail, best, "jct_p99_s"), runs.ratio(tail, mean, "jct_mean_s"),
        ])  # fmt: skip
    return table(["workload", "best other p99", OURS, TAIL, "its mean"], rows)


def of_types(runs: Runs) -> str:
    rows = []
    for workload in runs.axis(0):
        best = runs.best(workload, "", "makespan_s")
        places = [(workload, "", name) for name in (OURS, SPAN, LONGEST)]
        rows.append([
            workload, best[2] if best else "-", *[runs.ratio(place, best, "makespan_s") for place in places],
            factor(runs.mean(places[-1], "makespan_over_bound")),
            runs.ratio(places[-1], places[0], "jct_mean_s"),
        ])  # fmt: skip
    heads = ["workload", "best other makespan", OURS, SPAN, LONGEST, "over the bound", "its mean, to priced"]
    return table(heads, rows)


def of_failures(runs: Runs) -> str:
    rows = []
    for workload in runs.axis(0):
        places = [(workload, "", name) for name in ("vtrain-aware", OURS, UNRESERVED, DEADLINES)]
        means = [runs.mean(place, "deadline_met_ratio") or 0.0 for place in places]
        rows.append([
            workload, *[f"{100 * mean:.1f} %" for mean in means],
            *[runs.points(places[-1], base, "deadline_met_ratio") for base in (places[0], places[2])],
        ])  # fmt: skip
    heads = [
        "workload",
        "vtrain-aware",
        OURS,
        UNRESERVED,
        DEADLINES,
        "points to vtrain-aware",
        "to reserve 0",
    ]
    return table(heads, rows)


def of_parts(runs: Runs) -> str:
    schedulers = [name for name in runs.axis(2) if name != OURS]
    rows = [
        [name, metric.removeprefix("jct_").removesuffix("_s")]
        + [runs.ratio((w, "", name), (w, "", OURS), metric).split(" ")[0] for w in runs.axis(0)]
        for name in schedulers
        for metric in ("jct_mean_s", "jct_p99_s")
    ]
    return table(["without", "", *runs.axis(0)], rows)


def of_settings(runs: Runs) -> str:
    rows = []
    for setting in runs.axis(1):
        for workload in runs.axis(0):
            best = runs.best(workload, setting, "jct_mean_s")
            ratios = [
                runs.ratio((workload, setting, s), best, "jct_mean_s") for s in (OURS, "blind to overheads")
            ]
            same = runs.ratio((workload, setting, OURS), (workload, "as by default", OURS), "jct_mean_s")
            rows.append([setting, workload, best[2] if best else "-", *ratios, same.split(" ")[0]])
    heads = ["setting", "workload", "best other policy", "priced", "blind to overheads", "priced, to default"]
    return table(heads, rows)


def of_logs(runs: Runs) -> str:
    rows = []
    for workload in runs.axis(0):
        ours, mean = (workload, "", OURS), runs.best(workload, "", "jct_mean_s")
        tail = runs.best(workload, "", "jct_p99_s")
        rows.append([
            workload, mean[2] if mean else "-", runs.ratio(ours, mean, "jct_mean_s"),
            runs.ratio((workload, "", "vtrain-aware"), mean, "jct_mean_s"),
            factor(runs.mean(ours, "jct_over_bound")), tail[2] if tail else "-",
            runs.ratio(ours, tail, "jct_p99_s"), runs.ratio((workload, "", TAIL), tail, "jct_p99_s"),
        ])  # fmt: skip
    heads = ["log, jobs", "best other mean", OURS, "vtrain-aware", "over the bound"]
    return table([*heads, "best other p99", OURS, TAIL], rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.3g}"


def factor(value: float | None) -> str:
    return "-" if value is None else f"x{value:.3f}"


if __name__ == "__main__":
    main()
