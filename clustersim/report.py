"""The report of one run or of a comparison: one HTML file that needs no network and trusts no text."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report_headline import comparison_table, headline_rows
from .report_runs import group_runs
from .report_verdict import caution, verdict

if TYPE_CHECKING:
    from .report_charts import Chart
    from .rundir import Run

__all__ = ["comparison_table", "headline_rows", "render_report"]

_TEMPLATES = Path(__file__).with_name("templates")


def render_report(runs: Sequence[Run], *, baseline: str | None = None, title: str | None = None) -> str:
    """The page for `runs`, as HTML text, with differences to policy `baseline` (default: the first run's).

    All text from traces and manifests is escaped, and a content security policy allows only the two scripts
    of the page itself, by their hashes: a job's name cannot become markup or code.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from .report_charts import charts
    from .report_sections import all_metrics, assumptions, commands, coverage, covered, deadline_rows, named

    several = len(group_runs(runs)) > 1
    against = (baseline or runs[0].policy) if several else None
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    drawn = charts(runs)
    plotly = _inline_script(_plotly())
    script = _inline_script((_TEMPLATES / "report.js").read_text(encoding="utf-8"))
    return environment.get_template("report.html.j2").render(
        title=title or _title(runs),
        subtitle=_subtitle(runs),
        headline=headline_rows(runs, against),
        baseline=against,
        verdict=verdict(runs, against),
        caution=caution(runs),
        charts=drawn,
        chart_data=_inline_json([_data(chart) for chart in drawn]),
        coverage=coverage(runs),
        covered=covered(runs),
        deadlines=deadline_rows(runs),
        runs=named(runs),
        assumptions=assumptions(runs),
        commands=commands(runs),
        metrics=all_metrics(runs),
        plotly=plotly,
        script=script,
        script_hashes=[_csp_hash(plotly), _csp_hash(script)],
    )


def _title(runs: Sequence[Run]) -> str:
    labels = [group.label for group in group_runs(runs)]
    return f"One policy: {labels[0]}" if len(labels) == 1 else f"{len(labels)} scheduling policies compared"


def _subtitle(runs: Sequence[Run]) -> str:
    clusters = dict.fromkeys(run.cluster for run in runs)
    jobs = dict.fromkeys(len(run.jobs) for run in runs)
    where = "; ".join(f"{c.gpus:,} GPUs ({c.nodes:,} × {c.gpus_per_node}, {c.system})" for c in clusters)
    return f"{', '.join(f'{count:,}' for count in jobs)} jobs on {where}"


def _data(chart: Chart) -> dict[str, Any]:
    return {"id": chart.id, "series": chart.series, "layout": chart.layout}


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def _inline_json(document: Any) -> str:
    """JSON for a script element: no character in it can end the element or begin markup."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _inline_script(source: str) -> str:
    """A script for a script element: nothing in it can end the element; line ends as parsers read them."""
    return source.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _csp_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
