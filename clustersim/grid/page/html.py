"""The page of a grid, as HTML."""

from __future__ import annotations

from clustersim.report.frame import render

from .charts import charts_of
from .document import GridDocument, text_of
from .tables import best_rows, cell_rows, effect_rows, heat_maps

__all__ = ["render_grid"]

_MOST_CELLS = 2000


def render_grid(document: GridDocument) -> str:
    """The page: it loads nothing from elsewhere, and all text in it is escaped."""
    drawn, lines, effects, lines_left_out = charts_of(document)
    maps, maps_left_out = heat_maps(document)
    axis, others, best = best_rows(document)
    baseline = ", ".join(f"{name} {text_of(value)}" for name, value in (document.baseline or {}).items())
    return render(
        "grid.html.j2",
        drawn,
        title=f"Grid {document.name}",
        subtitle=_subtitle(document),
        verdict=_verdict(document),
        baseline=baseline,
        varied=list(document.varied),
        effect_charts=effects,
        effects=[
            (scale.head, rows)
            for metric, scale in document.scales.items()
            if (rows := effect_rows(document, metric))
        ],
        line_charts=lines,
        lines_left_out=lines_left_out,
        maps=maps,
        maps_left_out=maps_left_out,
        best_axis=axis,
        best_others=others,
        best=best,
        axes=list(document.axes),
        metrics=[scale.head for scale in document.scales.values()],
        rows=cell_rows(document, _MOST_CELLS),
        left_out=max(0, len(document.results) - _MOST_CELLS),
        coloured=document.colours,
    )  # fmt: skip


def _subtitle(document: GridDocument) -> str:
    seeds = len({result.seed for result in document.results})
    done = sum(result.status == "done" for result in document.results)
    sizes = ", ".join(f"{name} ({len(document.levels[name])})" for name in document.varied)
    runs = f"{done:,} of {len(document.results):,} runs done"
    return f"{runs}; axes: {sizes or 'none varies'}; {seeds} seed{'s' if seeds != 1 else ''}"


def _verdict(document: GridDocument) -> list[str]:
    """What the grid says, in sentences: how many differences are beyond chance, and the best by cells."""
    sentences = []
    for metric, scale in document.scales.items():
        rows = effect_rows(document, metric)
        if not rows:
            continue
        better, worse = (sum(row.trend == trend for row in rows) for trend in ("better", "worse"))
        of = f"{len(rows)} differences" if len(rows) > 1 else "1 difference"
        sentences.append(
            f"{scale.title}: of {of} from the baseline, better beyond chance {better}, worse {worse}, "
            f"not told apart {len(rows) - better - worse} (by 95 % intervals)."
        )
    if not any(one.difference.low is not None for one in document.comparisons):
        sentences = sentences and [
            "No difference has an interval: there are fewer than five seeds, or they change nothing."
        ]
    axis, _, best = best_rows(document)
    for head in dict.fromkeys(row.metric for row in best):
        winners = [row.winner for row in best if row.metric == head]
        counts = {name: winners.count(name) for name in dict.fromkeys(winners)}
        most = max(counts, key=lambda name: counts[name])
        sentences.append(f"{head}: {axis} {most} is best in {counts[most]} of {len(winners)} cells.")
    return sentences or ["The grid has no results yet."]
