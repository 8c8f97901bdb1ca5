"""The report page: one HTML file that loads nothing from elsewhere and escapes every text."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersim.analysis import gpu_time
from clustersim.gctuning import collect_less_often
from clustersim.records import Run

from .charts import Chart, charts
from .fairness import by_size, by_tenant
from .headline import headline_rows
from .page_data import packed, page_data
from .plans import plan_rows
from .runs import cluster_words, group_runs, named, pairs
from .sections import (
    all_metrics,
    assumptions,
    commands,
    coverage,
    covered,
    deadline_rows,
    pool_rows,
    time_rows,
)
from .verdict import caution, notes, verdict

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["render_report"]

_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("page.js", "charts.js", "gantt_data.js", "gantt.js", "jobs.js", "story.js")


@collect_less_often()
def render_report(runs: Sequence[Run], *, baseline: str | None = None, title: str | None = None) -> str:
    """The page for `runs` as HTML, with differences to policy `baseline` (default: that of the first run).

    All text from traces and manifests is escaped or packed, and the content security policy allows only the
    page's own scripts, by their hashes. So the name of a job cannot become markup or code.
    """
    groups = group_runs(runs)
    against = (baseline or runs[0].policy) if len(groups) > 1 else None
    times = [(one, gpu_time(one.run)) for one in named(runs)]
    first = {id(group.runs[0]) for group in groups}
    base = next((i for i, group in enumerate(groups) if group.runs[0].policy == against), 0)
    paired = pairs(groups, against)
    drawn = charts(groups, paired, [time for one, time in times if id(one.run) in first], against or "")
    script = _inline_script("\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in _SCRIPTS))
    plotly, plotly_packed = _plotly()
    return _template().render(
        title=title or _title(runs),
        subtitle=_subtitle(runs),
        baseline=against,
        headline=headline_rows(runs, against),
        verdict=verdict(runs, against),
        notes=notes(runs),
        caution=caution(runs),
        charts=drawn,
        pairs=paired,
        **_sections(runs, times),
        data=packed(
            {"charts": [_data(chart) for chart in drawn.values()], "baseline": base, **page_data(groups)}
        ),
        plotly=plotly_packed if drawn else "",
        script=script,
        script_hashes=[_csp_hash(script), *([_csp_hash(plotly)] if drawn else [])],
    )


def _sections(runs: Sequence[Run], times: Any) -> dict[str, Any]:
    return {
        "time_rows": time_rows(times),
        "tenants": by_tenant(runs),
        "sizes": by_size(runs),
        "plans": plan_rows(times),
        "coverage": coverage(runs),
        "covered": covered(runs),
        "deadlines": deadline_rows(runs),
        "pools": pool_rows(runs),
        "runs": named(runs),
        "assumptions": assumptions(runs, times),
        "commands": commands(runs),
        "metrics": all_metrics(runs),
    }


def _title(runs: Sequence[Run]) -> str:
    labels = [group.label for group in group_runs(runs)]
    return f"One policy: {labels[0]}" if len(labels) == 1 else f"{len(labels)} scheduling policies compared"


def _subtitle(runs: Sequence[Run]) -> str:
    clusters = dict.fromkeys(run.cluster for run in runs)
    jobs = dict.fromkeys(len(run.jobs) for run in runs)
    where = "; ".join(f"{cluster.gpus:,} GPUs ({cluster_words(cluster)})" for cluster in clusters)
    return f"{', '.join(f'{count:,}' for count in jobs)} jobs on {where}"


def _data(chart: Chart) -> dict[str, Any]:
    return {"id": chart.id, "series": chart.series, "layout": chart.layout}


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html.j2")


@cache
def _plotly() -> tuple[str, str]:
    """Plotly's script, and the same script packed: gzip in base64, about a fifth of the size."""
    from plotly.offline import get_plotlyjs

    source = _inline_script(get_plotlyjs())
    return source, base64.b64encode(gzip.compress(source.encode(), 6, mtime=0)).decode()


def _inline_script(source: str) -> str:
    """A script that is safe inside a script element, with the line ends that HTML parsers produce."""
    return source.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _csp_hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
