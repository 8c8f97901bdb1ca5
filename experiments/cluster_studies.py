"""Repeat the cluster studies: run their grids, and write tables and pictures into CLUSTER.md.

    python experiments/cluster_studies.py [--out FOLDER] [--workers N]

Cells that FOLDER already holds are not simulated again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clustersim import read_results
from clustersim.grid import Comparison, Results
from itertime.io import replacing, write_text

HERE = Path(__file__).parent
PAGE, PICTURES = HERE / "CLUSTER.md", HERE / "cluster"
GRIDS = ("vtrain_deadlines", "vtrain_makespan", "load_sweep")
STEPS = ("with tuned micro-batches", "with the best small plan", "vtrain-aware")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("cluster_studies"), help="folder of the results")
    parser.add_argument("--workers", type=int, help="number of cells in parallel")
    arguments = parser.parse_args()
    results = {name: make(name, arguments.out / name, arguments.workers) for name in GRIDS}
    tables = {
        "deadlines": deadline_table(results["vtrain_deadlines"]),
        "makespan": makespan_table(results["vtrain_makespan"]),
        "sweep": sweep_table(results["load_sweep"]),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
        page, count = re.subn(pattern, lambda m, t=table: m[1] + t + m[2], page, flags=re.DOTALL)
        assert count == 1, f"{PAGE.name} has no place for the table {name}"
    write_text(PAGE, page)
    PICTURES.mkdir(exist_ok=True)
    draw_deadlines(results["vtrain_deadlines"], PICTURES / "deadlines.png")
    draw_sweep(results["load_sweep"], PICTURES / "load_sweep.png")


def make(name: str, out: Path, workers: int | None) -> Results:
    command = [sys.executable, "-m", "clustersim", "grid", str(HERE / "grids" / f"{name}.yaml")]
    command += ["--out", str(out), *(["--workers", str(workers)] if workers else [])]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return read_results(out)


# Tables


def deadline_table(results: Results) -> str:
    header = ["jobs", "load", "elasticflow", "vtrain-aware", "ratio of the two", "tuned", "best small plan"]
    rows = []
    for group in grouped(results.compare(metrics=["deadline_met_ratio"]), "trace.jobs", "trace.load"):
        jobs, load = (group[STEPS[-1]].axes[name] for name in ("trace.jobs", "trace.load"))
        last = group[STEPS[-1]].difference
        steps = [ratio(group[step]) for step in STEPS]
        whole = [f"{100 * (value or 0):.1f} %" for value in (last.baseline, last.variant)]
        interval = f"×{steps[2]} ({ratio_interval(group[STEPS[-1]])})"
        rows.append([jobs, load, *whole, interval, f"×{steps[0]}", f"×{steps[1]}"])
    return markdown(header, rows)


def makespan_table(results: Results) -> str:
    header = ["jobs", "models", "metric", "elasticflow, h", "vtrain-aware", "tuned", "best small plan"]
    rows = []
    comparisons = results.compare(metrics=["jct_mean_s", "makespan_s"])
    for metric in ("jct_mean_s", "makespan_s"):
        chosen = [c for c in comparisons if c.metric == metric]
        for group in grouped(chosen, "trace.jobs", "mix"):
            last = group[STEPS[-1]]
            hours = (last.difference.baseline or 0) / 3600
            name = {"jct_mean_s": "mean JCT", "makespan_s": "makespan"}[metric]
            steps = [percent(group[step].difference.relative) for step in STEPS]
            interval = f"{steps[2]} ({percent_interval(last)})"
            jobs, mix = last.axes["trace.jobs"], last.axes["mix"]
            rows.append([jobs, mix, name, f"{hours:.0f}", interval, *steps[:2]])
    return markdown(header, rows)


def sweep_table(results: Results) -> str:
    header = ["load", "policy", "mean JCT", "against srtf", "p", "deadlines met", "against srtf", "p"]
    rows = []
    comparisons = {
        (c.axes["trace.load"], c.axes["policy"], c.metric): c
        for c in results.compare(metrics=["jct_mean_s", "deadline_met_ratio"])
    }
    for load, policy in dict.fromkeys((key[0], key[1]) for key in sorted(comparisons, key=lambda k: k[0])):
        jct, met = (comparisons[load, policy, metric] for metric in ("jct_mean_s", "deadline_met_ratio"))
        hours = f"{(jct.difference.variant or 0) / 3600:.2f} h"
        jct_text = f"{percent(jct.difference.relative)} ({percent_interval(jct)})"
        met_text = f"{100 * (met.difference.variant or 0):.1f} %"
        rows.append([load, policy, hours, jct_text, p_text(jct), met_text, points(met), p_text(met)])
    return markdown(header, rows)


def grouped(comparisons: Sequence[Comparison], *names: str) -> list[dict[str, Comparison]]:
    """The comparisons with equal values of some axes, by scheduler."""
    groups: dict[tuple[Any, ...], dict[str, Comparison]] = {}
    for comparison in comparisons:
        key = tuple(comparison.axes[name] for name in names)
        groups.setdefault(key, {})[str(comparison.axes["scheduler"])] = comparison
    return list(groups.values())


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n" + "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines) + "\n"


def ratio(comparison: Comparison) -> str:
    relative = comparison.difference.relative
    return "–" if relative is None else f"{1 + relative:.3f}"


def ratio_interval(comparison: Comparison) -> str:
    d = comparison.difference
    if d.relative_low is None or d.relative_high is None:
        return "no interval"
    return f"{1 + d.relative_low:.3f} to {1 + d.relative_high:.3f}"


def points(comparison: Comparison) -> str:
    """A difference of ratios in percentage points, with its interval."""
    d = comparison.difference
    if d.difference is None:
        return "–"
    text = f"{100 * d.difference:+.1f} pp"
    if d.low is not None and d.high is not None:
        text += f" ({100 * d.low:+.1f} to {100 * d.high:+.1f})"
    return text.replace("-", "−")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %".replace("-", "−")


def percent_interval(comparison: Comparison) -> str:
    d = comparison.difference
    return f"{percent(d.relative_low)} to {percent(d.relative_high)}"


def p_text(comparison: Comparison) -> str:
    return "–" if comparison.p_holm is None else f"{comparison.p_holm:.3f}"


# Pictures


def draw_deadlines(results: Results, path: Path) -> None:
    """The ratio of deadlines met over load, with intervals, for both numbers of jobs."""
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    comparisons = results.compare(metrics=["deadline_met_ratio"])
    for plot, jobs, published in zip(plots, (64, 128), (1.09, 1.23), strict=True):
        for step in STEPS:
            chosen = [c for c in comparisons if c.axes["scheduler"] == step and c.axes["trace.jobs"] == jobs]
            loads = [float(c.axes["trace.load"] or 0) for c in chosen]
            values = [1 + (c.difference.relative or 0) for c in chosen]
            arms = list(zip(*(arm_lengths(c) for c in chosen), strict=True))
            plot.errorbar(loads, values, yerr=arms, marker="o", capsize=3, label=step)
        plot.axhline(published, color="black", linestyle=":", label=f"published: ×{published}")
        plot.set_title(f"{jobs} jobs")
        plot.set_xlabel("load")
        plot.legend(fontsize=8)
    plots[0].set_ylabel("deadlines met, relative to elasticflow")
    save(figure, path)


def arm_lengths(comparison: Comparison) -> tuple[float, float]:
    """Lengths of the error bar of a relative difference; zero without an interval."""
    d = comparison.difference
    if d.relative is None or d.relative_low is None or d.relative_high is None:
        return 0.0, 0.0
    return max(0.0, d.relative - d.relative_low), max(0.0, d.relative_high - d.relative)


def draw_sweep(results: Results, path: Path) -> None:
    """Mean JCT and deadlines met over load, one line per policy."""
    import matplotlib.pyplot as plt

    frame = results.to_pandas().groupby(["policy", "trace.load"], sort=False).mean(numeric_only=True)
    figure, plots = plt.subplots(1, 2, figsize=(10, 4))
    for policy in dict.fromkeys(frame.index.get_level_values(0)):
        rows = frame.loc[policy]
        plots[0].plot(rows.index, rows["jct_mean_s"] / 3600, marker="o", label=policy)
        plots[1].plot(rows.index, 100 * rows["deadline_met_ratio"], marker="o", label=policy)
    plots[0].set_ylabel("mean JCT of finished jobs, h")
    plots[0].set_yscale("log")
    plots[1].set_ylabel("deadlines met, % of all jobs")
    for plot in plots:
        plot.set_xlabel("load")
        plot.legend(fontsize=8)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})


if __name__ == "__main__":
    main()
