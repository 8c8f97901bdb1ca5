"""The report page about some runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clustersim.analysis import gpu_time
from clustersim.gctuning import collect_less_often
from clustersim.records import Run

from .charts import charts
from .distance import distances
from .fairness import by_size, by_tenant
from .frame import TERMS, render
from .headline import headline_rows
from .page_data import page_data
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
from .sentences import answer, caution, heads, load_differences, notes, tiles, verdict
from .time_axis import TimeAxis

__all__ = ["render_report"]

_SCRIPTS = ("gantt_data.js", "gantt.js", "jobs.js", "story.js")


@collect_less_often()
def render_report(runs: Sequence[Run], *, baseline: str | None = None, title: str | None = None) -> str:
    """The page for `runs` as HTML, with differences to policy `baseline` (default: that of the first run).

    All text from traces and manifests is escaped or packed, and the content security policy allows only the
    page's own scripts, by their hashes. So the name of a job cannot become markup or code.
    """
    groups = group_runs(runs)
    against = (baseline or runs[0].policy) if len(groups) > 1 else None
    times = [(named_run, gpu_time(named_run.run)) for named_run in named(runs)]
    first_run_ids = {id(group.runs[0]) for group in groups}
    base = next((i for i, group in enumerate(groups) if group.runs[0].policy == against), 0)
    paired = pairs(groups, against)
    drawn = charts(
        groups,
        paired,
        [time for named_run, time in times if id(named_run.run) in first_run_ids],
        against or "",
        base,
    )
    clock = TimeAxis.of(runs)
    return render(
        "report.html.j2",
        drawn,
        _SCRIPTS,
        {"baseline": base, "dated": clock.is_dated, "zero_s": clock.zero_s, **page_data(groups)},
        terms=TERMS,
        title=title or _title(runs),
        subtitle=_subtitle(runs),
        baseline=against,
        headline=headline_rows(runs, against),
        answer=[answer(runs, against), *load_differences(runs)],
        tiles=tiles(runs, against),
        verdict=verdict(runs, against),
        notes=[*heads(runs), *notes(runs), *distances(groups)],
        caution=caution(runs),
        pairs=paired,
        **_sections(runs, times),
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
    when = TimeAxis.of(runs).dates
    dated = f", submitted and run {when}" if when else ""
    return f"{', '.join(f'{count:,}' for count in jobs)} job{'' if [*jobs] == [1] else 's'} on {where}{dated}"
