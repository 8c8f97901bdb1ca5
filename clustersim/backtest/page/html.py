"""The page of a backtest: its sentences, its tables and its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustersim.backtest.site import site_words
from clustersim.report.frame import render
from clustersim.report.numbers import difference, duration

from .charts import KINDS, charts_of
from .compared import Compared

__all__ = ["render_backtest"]

_QUANTILES = (10, 25, 50, 75, 90, 95, 99, 100)
_MOST_WRONG = 20
_TITLES = {"all": "Compared", "fitted": "Fitted part", "judged": "Judged part"}
_MEASURES = {"mean_s": "mean", "median_s": "median", "p90_s": "p90", "p99_s": "p99"}

Part = Mapping[str, Any]
Cells = Sequence[str]


def render_backtest(comparison: Compared) -> str:
    """The page, as HTML. KeyError, TypeError or ValueError for a summary that is not one of ours."""
    summary = comparison.summary
    log, site = summary["log"], summary["site"]
    return render(
        "backtest.html.j2",
        charts_of(comparison),
        title=f"Backtest of {log['file']}",
        subtitle=_subtitle(comparison),
        site=site_words(site),
        pools=list(site["pools"].items()),
        verdict=_verdict(comparison),
        part=comparison.part,
        parts=[(name, _TITLES[name], part, _times(part)) for name, part in summary["parts"].items()],
        figures=[(_TITLES[name], _figures(part)) for name, part in summary["parts"].items()],
        quantiles=_quantiles(comparison) if len(comparison.rows) else [],
        use=_use(summary["use"]),
        groups=[(KINDS[k], _groups(summary["groups"][k])) for k in KINDS if k in summary["groups"]],
        wrong=_wrong(comparison),
        trials=_trials(summary["fit"], site) if "fit" in summary else [],
        assumptions=[*log["warnings"], *log["assumptions"], *summary["assumptions"]],
        dropped=list(log["dropped_by_reason"].items()),
        rows=int(log["counts"]["rows"]),
        not_compared=[(reason, int(n)) for reason, n in summary["not_compared"].items() if n],
        settings=list(site["settings"]),
        sha256=str(log["sha256"]),
        format=str(log["format"]),
    )


def _subtitle(comparison: Compared) -> str:
    log, last_s = comparison.summary["log"], float(comparison.times["submit_s"][-1])
    when = f"in {duration(last_s)}"
    if comparison.is_dated:
        when = f"from {comparison.moment(0.0)} to {comparison.moment(last_s)} ({comparison.zone})"
    return (
        f"{log['jobs']:,} jobs submitted {when}; {comparison.summary['site']['gpus']:,} GPUs; {log['format']}"
    )


def _verdict(comparison: Compared) -> list[str]:
    part = comparison.summary["parts"][comparison.part]
    wait = part["wait"]
    if not wait["logged"]:
        return ["No job of this part started both in the log and in the simulation."]
    logged, simulated = wait["logged"]["mean_s"], wait["simulated"]["mean_s"]
    part_name = {"all": "The compared jobs", "judged": "The jobs that took no part in the fit"}[
        comparison.part
    ]
    means = f"{duration(simulated)} in the simulation and {duration(logged)} in the log"
    sentences = [f"{part_name} wait {means} on average ({_off(simulated, logged)})."]
    absolute = f"{duration(wait['absolute_s'])} (mean absolute error)"
    ranks = "" if wait["spearman"] is None else f"; the rank correlation of waits is {wait['spearman']:.2f}"
    sentences.append(f"A single job starts {absolute} sooner or later than logged{ranks}.")
    score = float(part["score"])
    judged = "0 is exact, and a simulation in which no job waits scores 1"
    sentences.append(f"The score is {score:.2f}: {judged}.")
    return sentences


def _off(value: float, base: float) -> str:
    return difference("time", float(value), float(base)) or "±0.0 %"


def _signed(seconds: float) -> str:
    return f"−{duration(-seconds)}" if seconds < 0 else duration(seconds)


def _times(part: Part) -> list[Cells]:
    """Rows of means and quantiles: time, of jobs, logged, simulated, error."""
    rows: list[Cells] = []
    for metric, name in (("wait", "wait"), ("jct", "completion")):
        for key, logged in (part[metric]["logged"] or {}).items():
            simulated = part[metric]["simulated"][key]
            rows.append(
                (name, _MEASURES[key], duration(logged), duration(simulated), _off(simulated, logged))
            )
    return rows


def _figures(part: Part) -> list[Cells]:
    """Error figures of waits and of completion times."""
    rows: list[Cells] = []
    for metric, name in (("wait", "wait"), ("jct", "completion")):
        figures = part[metric]
        if figures["logged"]:
            seconds = (figures["bias_s"], figures["absolute_s"], figures["distance_s"])
            ranks = (figures["spearman"], figures["kendall"])
            rows.append((name, *map(_signed, seconds), *map(_ratio, ranks)))
    return rows


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{float(value):.3f}"


def _quantiles(comparison: Compared) -> list[Cells]:
    """Rows: percentile, logged wait, simulated wait, error."""
    logged, simulated = (np.percentile(waits, _QUANTILES) for waits in comparison.waits)
    return [
        ("longest" if q == 100 else f"p{q}", duration(float(a)), duration(float(b)), _off(float(b), float(a)))
        for q, a, b in zip(_QUANTILES, logged, simulated, strict=True)
    ]


def _use(use: Part) -> str:
    shares = f"{100 * use['logged']:.1f} % in the log and {100 * use['simulated']:.1f} % in the simulation"
    difference_text = f"the two curves are {100 * use['mean_difference']:.1f} % apart on average"
    return f"While jobs are submitted, the GPUs in use are {shares}; {difference_text}."


def _groups(groups: list[Part]) -> list[Cells]:
    """Rows: group, jobs; means logged, simulated, error; p90 logged, simulated; mean absolute error."""
    rows: list[Cells] = []
    for group in groups:
        if "jobs" not in group:
            rows.append(("others, not shown", f"{group['left_out']:,}", *["–"] * 6))
            continue
        means = group["logged_mean_s"], group["simulated_mean_s"]
        p90 = duration(group["logged_p90_s"]), duration(group["simulated_p90_s"])
        texts = duration(means[0]), duration(means[1]), _off(means[1], means[0])
        name = group["group"] or "(not stated)"
        rows.append((name, f"{group['jobs']:,}", *texts, *p90, duration(group["absolute_s"])))
    return rows


def _wrong(comparison: Compared) -> list[Cells]:
    """The jobs of the largest errors: id, tenant, GPUs, submission, logged wait, simulated wait, error."""
    logged, simulated = comparison.waits
    errors = simulated - logged
    rows: list[Cells] = []
    for place in np.argsort(-np.abs(errors), kind="stable")[:_MOST_WRONG].tolist():
        if errors[place] == 0:
            break
        i = int(comparison.rows[place])
        times = duration(float(logged[place])), duration(float(simulated[place]))
        names = comparison.texts["job_id"][i], comparison.texts["tenant"][i], f"{comparison.gpus[i]:,}"
        when = comparison.moment(float(comparison.times["submit_s"][i]))
        rows.append((*names, when, *times, _signed(float(errors[place]))))
    return rows


def _trials(fit: Part, site: Part) -> list[tuple[str, str, str, bool]]:
    """Rows: site, score of the fitted part, score of the judged part, whether it was chosen."""
    best_site = site_words(site)
    trials = sorted(fit["trials"], key=lambda t: (t["fitted_score"] is None, t["fitted_score"] or 0.0))
    rows = [
        (site_words(t), _ratio(t["fitted_score"]), _ratio(t["judged_score"]), site_words(t) == best_site)
        for t in trials
    ]
    base = fit["baseline_score"]
    return [*rows, ("(no job waits)", _ratio(base["fitted"]), _ratio(base["judged"]), False)]
