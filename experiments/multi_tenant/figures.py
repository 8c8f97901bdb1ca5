"""Pictures of the page of the multi-tenant study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.multi_tenant.rows import BEST, BY_RULE, SMALL, TUNED, Row, Rows
from experiments.multi_tenant.tables import FIGURES, JCT, MET, POLICIES, definitions, is_elastic, value_of
from experiments.output import draw_if_possible

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(rows: Iterable[Row], folder: Path) -> None:
    """definitions.png, deadlines.png, policies.png and load_sweep.png; a note without matplotlib."""
    found = Rows(rows)
    pictures = {
        "definitions": draw_definitions,
        "deadlines": draw_deadlines,
        "policies": draw_policies,
        "load_sweep": draw_sweep,
    }
    for name, picture in pictures.items():
        draw_if_possible(folder / f"{name}.png", partial(picture, found))


def draw_definitions(rows: Rows, path: Path) -> None:
    """128 jobs: the margin under each definition, over the baseline by rule and over the best small plan."""
    import matplotlib.pyplot as plt

    names = definitions(rows)
    figure, plots = plt.subplots(1, 3, figsize=(11, 4.2), sharey=True)
    for plot, (metric, workload, title, published) in zip(plots, FIGURES[1::2], strict=True):
        for baseline, shift in ((BY_RULE, -0.15), (SMALL, 0.15)):
            found = {name: rows.of(name, workload, metric, baseline) for name in names}
            points = [
                (i + shift, row) for i, row in enumerate(found.values()) if row and row.relative is not None
            ]
            values = [100 * (row.relative or 0) for _, row in points]
            plot.errorbar(
                values, [y for y, _ in points], xerr=error_bars([row for _, row in points]), fmt="o",
                markersize=3.5, capsize=2, label=f"against {baseline}",
            )  # fmt: skip
        plot.axvline(100 * published, color="black", linestyle=":", label="published")
        plot.axvline(0, color="grey", linewidth=0.6)
        plot.set_title(f"{title}, %", fontsize=10)
    plots[0].set_yticks(range(len(names)), names, fontsize=8)
    plots[0].invert_yaxis()
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", fontsize=7)
    save(figure, path)


def error_bars(rows: Sequence[Row]) -> list[list[float]]:
    """Lengths of error bars of relative differences, in percent, down and up; zero without an interval."""
    low = [100 * max(0.0, (r.relative or 0) - (r.relative_low or r.relative or 0)) for r in rows]
    high = [100 * max(0.0, (r.relative_high or r.relative or 0) - (r.relative or 0)) for r in rows]
    return [low, high]


def draw_deadlines(rows: Rows, path: Path) -> None:
    """The ratio of deadlines met over load, against each baseline, and the range of single seeds."""
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for plot, jobs, published in zip(plots, ("64", "128"), (1.09, 1.23), strict=True):
        for baseline in (BY_RULE, TUNED, SMALL):
            found = [
                (float(load), row)
                for load in rows.values("vtrain_loads", "trace.load")
                if (row := rows.load(jobs, load, MET, against=baseline)) and row.relative is not None
            ]
            if not found:
                continue
            loads, values = [load for load, _ in found], [1 + (row.relative or 0) for _, row in found]
            arms = [[arm / 100 for arm in arms] for arms in error_bars([row for _, row in found])]
            plot.errorbar(loads, values, yerr=arms, marker="o", capsize=3, label=f"against {baseline}")
            if baseline == BY_RULE:
                ends = [[getattr(row, end) or 1 for _, row in found] for end in ("seed_low", "seed_high")]
                plot.fill_between(loads, *ends, alpha=0.12, label="single seeds")
        plot.axhline(published, color="black", linestyle=":", label=f"published: ×{published}")
        plot.set_title(f"{jobs} jobs")
        plot.set_xlabel("load")
        plot.legend(fontsize=8)
    plots[0].set_ylabel("deadlines met by vtrain-aware, relative")
    save(figure, path)


def draw_policies(rows: Rows, path: Path) -> None:
    """Mean JCT of each policy, relative to vtrain-aware, elastic and rigid ones in two colours."""
    import matplotlib.pyplot as plt

    workloads = [w for w in ("128 jobs", "128 jobs at once") if w in rows.values(POLICIES, "workload")]
    figure, plots = plt.subplots(1, max(1, len(workloads)), figsize=(11, 6), squeeze=False)
    for plot, workload in zip(plots[0], workloads, strict=False):
        base = value_of(rows, JCT, workload, BEST) or 1.0
        names = [BEST, *rows.values(POLICIES, "scheduler")]
        bars = sorted(((value_of(rows, JCT, workload, name) or 0) / base, name) for name in names)
        colours = ["tab:blue" if is_elastic(name) else "tab:grey" for _, name in bars]
        plot.barh([name for _, name in bars], [value for value, _ in bars], color=colours)
        plot.axvline(1, color="black", linewidth=0.6)
        plot.set_title(f"{workload}: mean JCT, relative to {BEST}", fontsize=10)
        plot.tick_params(axis="y", labelsize=8)
    save(figure, path)


def draw_sweep(rows: Rows, path: Path) -> None:
    """Mean JCT and deadlines met over load, one line per policy."""
    import matplotlib.pyplot as plt

    figure, plots = plt.subplots(1, 2, figsize=(10, 4))
    loads = rows.values("load_sweep", "trace.load")
    for plot, metric, scale in zip(plots, (JCT, MET), (1 / 3600, 100), strict=True):
        lines: dict[str, list[tuple[float, float]]] = {}
        for load in loads:
            for policy in rows.values("load_sweep", "scheduler"):
                row = rows.find("load_sweep", metric, "srtf", {"scheduler": policy, "trace.load": load})
                if row and row.value is not None and row.base is not None:
                    lines.setdefault(policy, []).append((float(load), scale * row.value))
                    lines.setdefault("srtf", []).append((float(load), scale * row.base))
        for policy, points in lines.items():
            plot_line(plot, policy, sorted(set(points)))
        plot.set_xlabel("load")
        plot.legend(fontsize=8)
    plots[0].set_ylabel("mean JCT of finished jobs, h")
    plots[0].set_yscale("log")
    plots[1].set_ylabel("deadlines met, % of all jobs")
    save(figure, path)


def plot_line(plot: Axes, label: str, points: Sequence[tuple[float, float]]) -> None:
    plot.plot([x for x, _ in points], [y for _, y in points], marker="o", label=label)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110, format="png", metadata={"Software": None})
