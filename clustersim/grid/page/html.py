"""The page of a grid, as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.analysis.statistics import LEAST_PAIRS
from clustersim.grid.expand import text_of
from clustersim.report.frame import TERMS, render

from .answer import answer_of, load_range, tiles_of
from .charts import charts_of
from .document import GridDocument, better
from .notes import load_notes, planner_notes
from .tables import Effect, best_rows, cell_rows, effect_rows, heat_maps

__all__ = ["render_grid"]

_MOST_CELLS = 2000


def render_grid(document: GridDocument) -> str:
    """The page: it loads nothing from elsewhere, and all text in it is escaped."""
    charts = charts_of(document)
    maps, maps_left_out = heat_maps(document)
    axis, other_axes, best = best_rows(document)
    baseline = ", ".join(f"{name} {text_of(value)}" for name, value in (document.baseline or {}).items())
    return render(
        "grid.html.j2",
        charts.by_id,
        title=f"Grid {document.name}",
        subtitle=_subtitle(document),
        answer=answer_of(document),
        tiles=tiles_of(document),
        lead_chart=charts.lead,
        notes=_verdict(document),
        baseline=baseline,
        varied=list(document.varied),
        effect_charts=charts.effects,
        value_charts=charts.values,
        effects=[
            (scale.head, rows)
            for metric, scale in document.varying.items()
            if (rows := effect_rows(document, metric))
        ],
        line_charts=charts.lines,
        lines_left_out=charts.left_out,
        maps=maps,
        maps_left_out=maps_left_out,
        best_axis=axis,
        best_others=other_axes,
        best=best,
        axes=list(document.axes),
        metrics=[(metric, scale.head) for metric, scale in document.scales.items()],
        terms=TERMS,
        rows=cell_rows(document, _MOST_CELLS),
        left_out=max(0, len(document.results) - _MOST_CELLS),
        coloured=document.colours,
        several_planners=len({result.facts.planner for result in document.results}) > 1,
    )  # fmt: skip


def _subtitle(document: GridDocument) -> str:
    seeds = len({result.seed for result in document.results})
    done = sum(result.status == "done" for result in document.results)
    sizes = ", ".join(f"{name} ({len(document.levels[name])})" for name in document.varied)
    runs = f"{done:,} of {len(document.results):,} runs done"
    load = load_range(document)
    load_text = f"; offered load {load}" if load else ""
    return f"{runs}; axes: {sizes or 'none varies'}; {seeds} seed{'s' if seeds != 1 else ''}{load_text}"


def _verdict(document: GridDocument) -> list[str]:
    """What the grid says: by metric, what is best in how many cells and how many differences are beyond
    chance; then the metrics that are the same everywhere.
    """
    axis, _, best = best_rows(document)
    sentences = [*load_notes(document.results), *planner_notes(document.results)]
    for metric, scale in document.varying.items():
        verdict = [_winner(axis, [row.winner for row in best if row.metric == scale.head])]
        rows = effect_rows(document, metric)
        if any(row.known for row in rows):
            verdict.append(_chances(rows, better(metric) != ""))
        if any(verdict):
            sentences.append(f"{scale.title}: {'; '.join(filter(None, verdict))}.")
    if document.comparisons and not any(
        comparison.difference.low is not None for comparison in document.comparisons
    ):
        sentences.append(
            "Seeds change nothing here, so differences are exact for this trace and have no intervals."
            if max(comparison.difference.pairs for comparison in document.comparisons) >= LEAST_PAIRS
            else f"Differences have no intervals: these need {LEAST_PAIRS} seeds or more."
        )
    constant_metrics = [
        scale.title for metric, scale in document.scales.items() if metric not in document.varying
    ]
    if constant_metrics and document.varying:
        sentences.append(f"The same in every cell: {', '.join(constant_metrics)}.")
    return sentences


def _winner(axis: str, winners: list[str]) -> str:
    """The value of an axis that is best in most cells."""
    if not winners:
        return ""
    most_frequent = max(dict.fromkeys(winners), key=winners.count)
    cells = f" in {winners.count(most_frequent)} of {len(winners)} cells" if len(winners) > 1 else ""
    name = most_frequent if axis == "policy" else f"{axis} {most_frequent}"
    return f"{name} {'are' if ',' in most_frequent else 'is'} best{cells}"


def _chances(rows: Sequence[Effect], judged: bool) -> str:
    """How many differences from the baseline are beyond chance."""
    better_, worse = (sum(row.trend == trend for row in rows) for trend in ("better", "worse"))
    of = f"{len(rows)} differences from the baseline" if len(rows) > 1 else "the difference from the baseline"
    if not judged:
        return ""
    if len(rows) > 1 and not better_ + worse:
        return f"none of {of} is beyond chance"
    counted = [f"{count} {word}" for count, word in ((better_, "better"), (worse, "worse")) if count]
    return (
        f"of {of}, {' and '.join(counted)} beyond chance"
        if len(rows) > 1
        else (f"{of} is {'beyond' if counted else 'not beyond'} chance")
    )
