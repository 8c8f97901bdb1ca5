"""The figures of runs, by matplotlib. The same runs give the same file, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from clustersim.analysis import allocations, gpu_blocks
from clustersim.records import Run
from clustersim.report import TimeAxis, group_runs
from clustersim.report.frame.looks import LIGHT
from itertime.io.figures import COLOURS, figure_size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["KINDS", "line_style", "marker_of"]


_DASHES: tuple[Any, ...] = (
    "solid", "dashed", "dotted", "dashdot",
    (0, (8, 3)), (0, (8, 2, 2, 2)), (0, (6, 1, 1, 1, 1, 1)), (0, (1, 4)),
)  # fmt: skip
_MARKERS = ("o", "D", "s", "^", "P", "*", "h", "v")


def line_style(look: int) -> dict[str, Any]:
    """The colour and the dashes of a look, as on the pages."""
    return {"color": LIGHT[look % 8], "linestyle": _DASHES[look // 8 % 8]}


def marker_of(look: int) -> str:
    """The marker of a look, as on the pages."""
    return _MARKERS[(look % 8 + look // 8) % 8]


def _jct_cdf(plt: Any, runs: Sequence[Run], width: str | float = 4.6) -> Figure:
    """Share of all submitted jobs that finished within a time. A curve per seed."""
    figure, axes = plt.subplots(figsize=figure_size(width, 0.75))
    for group in group_runs(runs):
        for i, run in enumerate(group.runs):
            hours = np.sort([job.jct_s / 3600 for job in run.jobs if job.jct_s])
            share = 100 * np.arange(1, len(hours) + 1) / max(1, len(run.jobs))
            label = group.label if i == 0 else None
            axes.step(
                hours, share, where="post", label=label, alpha=1 if i == 0 else 0.4, **line_style(group.look)
            )
    axes.set(xscale="log", xlabel="job completion time, hours", ylabel="% of submitted jobs", ylim=(0, 101))
    axes.xaxis.set_major_formatter(
        lambda value, _: f"{value:g}"
    )  # a label may contain a $, which is not mathematics
    axes.legend(loc="upper left")
    return figure


def _utilisation(plt: Any, runs: Sequence[Run], width: str | float = 5.6) -> Figure:
    """GPUs held and GPUs that make progress, a row per policy. Of several seeds, the first."""
    groups = group_runs(runs)
    clock = TimeAxis.of([group.runs[0] for group in groups])
    size = (figure_size(width, 1)[0], 0.7 + 1.0 * len(groups))
    figure, rows = plt.subplots(len(groups), 1, figsize=size, sharex=True, squeeze=False)
    for group, axes in zip(groups, rows[:, 0], strict=True):
        run, colour = group.runs[0], line_style(group.look)["color"]
        for (x, y), opacity in ((clock.snapshots(run, "allocated"), 0.3), (clock.useful(run), 0.9)):
            axes.fill_between(x, y, step="post", color=colour, alpha=opacity, linewidth=0)
        axes.set(ylim=(0, run.cluster.gpus), yticks=[0, run.cluster.gpus])
        axes.set_title(group.label, loc="left", fontsize=9, color=colour)
        axes.margins(x=0)
    figure.supylabel("GPUs held (pale) and useful", fontsize=9)
    rows[-1, 0].set_xlabel(clock.axis.title)
    return figure


def _gantt(plt: Any, runs: Sequence[Run], width: str | float = "text") -> Figure:
    """Which job held which GPUs, a row per policy, coloured by model. Of several seeds, the first."""
    groups = group_runs(runs)
    clock = TimeAxis.of([group.runs[0] for group in groups])
    held: dict[str, float] = {}
    for group in groups:
        for job in group.runs[0].jobs:
            held[job.model] = held.get(job.model, 0.0) + job.gpu_seconds
    models = sorted(held, key=lambda model: (-held[model], model))
    size = (figure_size(width, 1)[0], 0.9 + 1.9 * len(groups))
    figure, rows = plt.subplots(len(groups), 1, figsize=size, sharex=True, squeeze=False)
    for group, axes in zip(groups, rows[:, 0], strict=True):
        _bars(axes, group.runs[0], clock, {model: i for i, model in enumerate(models)})
        axes.set_title(group.label, loc="left", fontsize=9)
    models_with_colour = models if len(models) <= len(COLOURS) else models[: len(COLOURS) - 1]
    marks = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[i]) for i in range(min(len(models), len(COLOURS)))]
    words = [model or "no model stated" for model in models_with_colour]
    if len(models) > len(models_with_colour):
        words.append("other")
    figure.legend(marks, words, loc="outside lower center", ncols=4, fontsize=8)
    figure.supylabel("nodes", fontsize=9)
    rows[-1, 0].set_xlabel(clock.axis.title)
    return figure


def _bars(axes: Any, run: Run, clock: TimeAxis, colour_of: dict[str, int]) -> None:
    from matplotlib.collections import PolyCollection

    models = {job.job_id: job.model for job in run.jobs}
    held = allocations(run)
    corners, colours = [], []
    for allocation, blocks in zip(held, gpu_blocks(held, run.cluster.size_of), strict=True):
        a, b = ((t - clock.from_s) / clock.unit_s for t in (allocation.from_s, allocation.to_s))
        colour = COLOURS[min(colour_of[models[allocation.given.job_id]], len(COLOURS) - 1)]
        for first_node, last_node, gpu, count in blocks:
            spans = [(first_node, last_node + 1.0)] if count == run.cluster.size_of(first_node) else [
                (node + gpu / run.cluster.size_of(node), node + (gpu + count) / run.cluster.size_of(node))
                for node in range(first_node, last_node + 1)
            ]  # fmt: skip
            corners += [((a, top), (b, top), (b, bottom), (a, bottom)) for top, bottom in spans]
            colours += [colour] * len(spans)
    bars = PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=0.1, rasterized=True)
    axes.add_collection(bars)
    axes.set(xlim=(0, (clock.to_s - clock.from_s) / clock.unit_s or 1), ylim=(run.cluster.nodes, 0))
    axes.grid(visible=False)


KINDS: dict[str, Callable[..., Figure]] = {
    "jct-cdf": _jct_cdf,
    "utilisation": _utilisation,
    "gantt": _gantt,
}
"""The figures that can be drawn of runs, by name: functions of pyplot, the runs, and optionally a width."""
