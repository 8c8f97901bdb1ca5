"""The tables of a report: coverage, deadlines, GPU time, assumptions, reproduction, all metrics."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import PurePath
from statistics import median
from typing import Any

import numpy as np

from clustersim.analysis import CATEGORIES, METRICS, GpuTime, PoolUse, by_pool, has_parts
from clustersim.analysis.tables import finished, jobs_of
from clustersim.records import REJECTED, STATES, Run

from .distance import bound_stated
from .numbers import duration
from .plans import accuracy
from .runs import Named, cluster_words, named

__all__ = [
    "Coverage",
    "Fact",
    "all_metrics",
    "assumptions",
    "commands",
    "coverage",
    "covered",
    "deadline_rows",
    "pool_rows",
    "time_rows",
]

_NAMES = {
    "jct_*": "JCT",
    "queue_*": "time to the first GPUs",
    "wait_*": "all waiting",
    "offered_load": "offered load",
    "waited_ratio": "share of jobs that waited",
    "slowdown_mean": "slowdown",
    "finish_time_fairness_max": "finish-time fairness",
    "jain_index": "Jain's index",
    "deadline_met_ratio": "deadlines met",
}
"""What `covers` of a summary calls metrics, and what a reader does."""

_MOST_REASONS = 5
_LONGEST_REASON = 200


@dataclass(frozen=True)
class Coverage:
    """Jobs of one run by state; the reasons of unfinished ones as (reason, jobs), most frequent first."""

    label: str
    series: int
    counts: tuple[int, ...]
    reasons: tuple[tuple[str, int], ...]
    other_reasons: int


def coverage(runs: Sequence[Run]) -> list[Coverage]:
    """One row per run. Counts: submitted, finished, rejected, unfinished, failed."""
    rows = []
    for named_run in named(runs):
        jobs, unfinished = jobs_of(named_run.run), (~finished(named_run.run)).tolist()
        states = Counter(jobs.values("state"))
        reasons = Counter(map(_cut, compress(jobs.values("reason"), unfinished))).most_common()
        counts = (len(jobs), *(states[state] for state in STATES))
        other_count = sum(count for _, count in reasons[_MOST_REASONS:])
        rows.append(
            Coverage(named_run.label, named_run.series, counts, tuple(reasons[:_MOST_REASONS]), other_count)
        )
    return rows


def covered(runs: Sequence[Run]) -> list[tuple[str, list[Named]]]:
    """The statements of summaries on which jobs their averages cover, each with the runs that make it."""
    texts: dict[str, list[Named]] = {}
    for named_run in named(runs):
        texts.setdefault(_in_words(str(named_run.run.summary.get("covers", "not recorded"))), []).append(
            named_run
        )
    return list(texts.items())


def _in_words(covers: str) -> str:
    """The statement of a summary with names for the keys of metrics."""
    for key, name in _NAMES.items():
        covers = covers.replace(key, name)
    return covers[:1].upper() + covers[1:]


def _cut(reason: str) -> str:
    text = reason or "no reason recorded"
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


def deadline_rows(runs: Sequence[Run]) -> list[tuple[Named, tuple[str, ...]]]:
    """Per run: jobs with a deadline, met, share met, finished late, median lateness, rejected, not finished.

    Empty if no job of any run has a deadline.
    """
    rows: list[tuple[Named, tuple[str, ...]]] = []
    lates = {id(named_run.run): _lateness(named_run.run) for named_run in named(runs)}
    longest = max((median(late) for late in lates.values() if late), default=0.0)
    for named_run in named(runs):
        jobs = jobs_of(named_run.run)
        has_deadline = ~np.isnan(jobs["deadline_s"])
        number, met = int(has_deadline.sum()), int((has_deadline & (jobs["deadline_met"] == 1)).sum())
        late = lates[id(named_run.run)]
        rejected = int((has_deadline & jobs.equal("state", REJECTED)).sum())
        unfinished = number - met - len(late) - rejected
        share = f"{100 * met / number:.1f} %" if number else "–"
        lateness = duration(median(late), longest) if late else "–"
        counts = (f"{count:,}" for count in (number, met, len(late), rejected, unfinished))
        total, on_time, too_late, refused, remaining = counts
        rows.append((named_run, (total, on_time, share, too_late, lateness, refused, remaining)))
    return rows if any(counts[0] != "0" for _, counts in rows) else []


def pool_rows(runs: Sequence[Run]) -> list[tuple[Named, list[tuple[str, ...]]]]:
    """For each run with clusters of a fleet or spot nodes, a row of cells per pool: name, GPUs, jobs that
    finished, their mean JCT and time to first GPUs, share of GPUs allocated, cost, reclaims, lost GPU-hours.
    """
    uses = [
        (named_run, list(by_pool(named_run.run))) for named_run in named(runs) if has_parts(named_run.run)
    ]
    times = (s for _, pools in uses for use in pools for s in (use.jct_mean_s, use.queue_mean_s))
    longest_s = max((s for s in times if s is not None), default=0.0)
    return [(named_run, [_pool_cells(use, longest_s) for use in pools]) for named_run, pools in uses]


def _pool_cells(use: PoolUse, longest_s: float) -> tuple[str, ...]:
    """`longest_s`: the longest time of the table, which decides the unit of all of them."""
    times = (duration(s, longest_s) for s in (use.jct_mean_s, use.queue_mean_s))
    share = "–" if use.allocated_ratio is None else f"{100 * use.allocated_ratio:.1f} %"
    counts = (f"{use.cost_usd:,.0f}", f"{use.reclaims:,}", f"{use.lost_gpu_h:,.1f}")
    return (use.name, f"{use.gpus:,}", f"{use.finished:,}", *times, share, *counts)


def _lateness(run: Run) -> list[float]:
    """How late the jobs finished that missed their deadline, in s."""
    jobs = jobs_of(run)
    late_s = (jobs["finish_s"] - jobs["deadline_s"])[jobs["deadline_met"] != 1]
    return late_s[~np.isnan(late_s)].tolist()


def time_rows(times: Sequence[tuple[Named, GpuTime | None]]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """(category, its name, (GPU-hours, share) of every run), without categories empty in all runs."""
    rows = []
    for category, name in CATEGORIES.items():
        cells = []
        for _, time in times:
            if time is None:
                cells.append(("–", "–"))
                continue
            seconds = time.seconds[category]
            cells.append((f"{seconds / 3600:,.0f}", f"{100 * seconds / time.total:.1f} %"))
        if any(hours not in ("0", "–") for hours, _ in cells):
            rows.append((category, name, cells))
    return rows


@dataclass(frozen=True)
class Fact:
    """One assumption: a single value if all runs agree, else one per run."""

    name: str
    values: tuple[str, ...]


def assumptions(runs: Sequence[Run], times: Sequence[tuple[Named, GpuTime | None]] = ()) -> list[Fact]:
    """Inputs and settings from the manifests, and the accuracy of the predicted iteration times."""
    split = {id(named_run.run): time for named_run, time in times}
    facts: list[tuple[str, Callable[[Run], str]]] = [
        ("Cluster", _cluster),
        ("Trace", lambda run: _source(run, "trace", "path", "made in memory")),
        ("Planner", lambda run: run.planner),
        ("Policy parameters", lambda run: _plain(run.manifest.get("params")) or "defaults"),
        ("Placement", lambda run: _stated(run, "placement")),
        ("Overheads", _overheads),
        ("Failures", lambda run: _plain(run.manifest.get("failures")) or "none"),
        ("Calendar of nodes", lambda run: _plain(run.manifest.get("calendar") or None) or "nothing planned"),
        ("Quotas, GPUs", lambda run: _plain(run.manifest.get("quotas")) or "none"),
        ("Iteration times", lambda run: _source(run, "profile", "name", "not recorded")),
        ("Accuracy of iteration times", lambda run: accuracy(split.get(id(run)), run.plans)),
        ("Throughput table", lambda run: _plain(run.manifest.get("table")) or "none"),
        ("True run times used", _oracle),
        ("End of the run", _end),
        ("Best possible", bound_stated),
        ("Price per GPU-hour, USD", _price),
        ("Seed", lambda run: _stated(run, "seed")),
        ("Versions", lambda run: _stated(run, "versions")),
    ]
    ordered = [named_run.run for named_run in named(runs)]
    rows = []
    for name, of in facts:
        values = [of(run) for run in ordered]
        rows.append(Fact(name, tuple(values if len(set(values)) > 1 else values[:1])))
    return rows


def _price(run: Run) -> str:
    price, origin = run.manifest.get("price_usd_per_gpu_h"), run.manifest.get("price_from")
    by_type = run.cluster.prices(price) if isinstance(price, int | float) else None
    text = _plain(by_type or price) or "not recorded"
    return f"{text}, {origin}" if isinstance(origin, str) else text


def _cluster(run: Run) -> str:
    model = run.cluster.network_model
    network = f"; network: {model.name}" if model.by_placement else ""
    return f"{cluster_words(run.cluster)}, {run.cluster.gpus:,} GPUs{network}"


def _source(run: Run, key: str, name: str, absent: str) -> str:
    source = run.manifest.get(key)
    if not isinstance(source, dict) or not source.get(name):
        return absent
    digest = str(source.get("sha256") or "")
    return f"{source[name]} (SHA-256 {digest[:12]}…)" if digest else str(source[name])


def _overheads(run: Run) -> str:
    if "overheads" not in run.manifest:
        return "not recorded"
    return _plain(run.manifest["overheads"]) or "none: starts, restarts and resizes are free"


def _oracle(run: Run) -> str:
    if run.manifest.get("oracle_used") is True:
        return "yes: from the log, which no real scheduler knows"
    return "no" if run.manifest.get("oracle_used") is False else "not recorded"


def _end(run: Run) -> str:
    until_s = run.manifest.get("until_s")
    text = "when no event was left"
    if until_s is not None:
        text = f"at {_plain(until_s)} s on the trace's clock"
    if run.manifest.get("status") == "interrupted":
        return text + "; interrupted before that"
    return text if run.manifest.get("complete", True) is True else text + "; stopped by an error before that"


def _stated(run: Run, field: str) -> str:
    return _plain(run.manifest.get(field)) or "not recorded"


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(inner)}" for key, inner in value.items())
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def commands(runs: Sequence[Run]) -> list[str]:
    """The distinct commands that made the runs, quoted for a shell, with the program's base name."""
    lines: dict[str, None] = {}
    for run in runs:
        argv = run.manifest.get("command")
        if isinstance(argv, list) and argv:
            program, *arguments = (str(part) for part in argv)
            name = PurePath(program).name
            program = "python -m clustersim" if name == "__main__.py" else shlex.quote(name)
            lines[" ".join([program, shlex.join(arguments)]).strip()] = None
    return list(lines)


def all_metrics(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(metric, its value in every run). Wall times come from the manifests."""
    rows = []
    for metric in METRICS:
        if metric != "covers":
            rows.append((metric, [_value(metric, named_run.run) for named_run in named(runs)]))
    return rows


def _value(metric: str, run: Run) -> str:
    value = run.summary.get(metric)
    timings = run.manifest.get("timings")
    if value is None and isinstance(timings, Mapping):
        value = timings.get(metric)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}" if abs(value) < 1 else f"{value:,.3f}"
