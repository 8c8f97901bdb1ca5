"""Tables of the page of the multi-tenant study."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from clustersim.runs import find_policy
from experiments.multi_tenant.rows import BEST, BY_RULE, COUNTS, GRIDS_OF, SMALL, TUNED, Row, Rows, Speeds

MET, JCT, MAKESPAN = "deadline_met_ratio", "jct_mean_s", "makespan_s"
FIGURES = (
    (MET, "64 jobs", "deadlines met, 64 jobs", 0.09),
    (MET, "128 jobs", "deadlines met, 128 jobs", 0.23),
    (JCT, "64 jobs at once", "mean JCT, 64 jobs at once", -0.1521),
    (JCT, "128 jobs at once", "mean JCT, 128 jobs at once", -0.1521),
    (MAKESPAN, "64 jobs at once", "makespan, 64 jobs at once", -0.2303),
    (MAKESPAN, "128 jobs at once", "makespan, 128 jobs at once", -0.2303),
)
"""Metric, workload and heading of each column of the tables of definitions, and the published difference from
the data-parallel baseline (Bang et al., MICRO 2024, section V-B). For which number of jobs JCT and makespan
are published is not known to us.
"""
PLANNERS = {BY_RULE: "data-parallel", TUNED: "data-parallel-tuned", SMALL: "data-parallel-best"}
"""The planner of each baseline."""
NEEDS_DEADLINES = ("without admission", "load as expected")
"""Definitions that are the reference where all jobs come at once, without deadlines."""
FREE = ("64 jobs", "128 jobs", "64 jobs at once", "128 jobs at once")
"""The workloads without deadlines."""
POLICIES = "vtrain_policies"
"""The grid of policies."""
OWN = "priced"
"""What the names of this project's own policies begin with."""


# Numbers


def ratio(row: Row | None, interval: bool = True) -> str:
    """`×1.093 (1.052 to 1.152)`."""
    if row is None or row.relative is None:
        return "–"
    text = f"×{1 + row.relative:.3f}"
    if interval and row.relative_low is not None and row.relative_high is not None:
        text += f" ({1 + row.relative_low:.3f} to {1 + row.relative_high:.3f})"
    return text


def percent(row: Row | None, interval: bool = True) -> str:
    """`−20.2 % (−20.8 to −19.5)`."""
    if row is None or row.relative is None:
        return "–"
    text = f"{100 * row.relative:+.1f} %"
    if interval and row.relative_low is not None and row.relative_high is not None:
        text += f" ({100 * row.relative_low:+.1f} to {100 * row.relative_high:+.1f})"
    return text.replace("-", "−")


def points(row: Row | None) -> str:
    """A difference of ratios in percentage points, with its interval."""
    if row is None or row.difference is None:
        return "–"
    text = f"{100 * row.difference:+.1f} pp"
    if row.low is not None and row.high is not None:
        text += f" ({100 * row.low:+.1f} to {100 * row.high:+.1f})"
    return text.replace("-", "−")


def margin(row: Row | None, metric: str, interval: bool = True) -> str:
    """As published: deadlines met as a ratio, times in percent."""
    return ratio(row, interval) if metric == MET else percent(row, interval)


def as_published(metric: str, relative: float) -> str:
    return f"×{1 + relative:.2f}" if metric == MET else f"{100 * relative:+.2f} %".replace("-", "−")


def share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def hours(value: float | None) -> str:
    return "–" if value is None else f"{value / 3600:,.0f}"


def markdown(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    every = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in every)


# The plans


def speed_table(speeds: Speeds) -> str:
    """How much slower each baseline is than the best plan, by model and number of GPUs."""
    counts = [n for n in sorted({n for *_, n in speeds}) if n & (n - 1) == 0]
    header = ["model", "baseline", *(f"{n:,} GPUs" for n in counts)]
    lines = []
    for model in dict.fromkeys(model for _, model, _ in speeds):
        for name, planner in PLANNERS.items():
            found = [(speeds.get(("vtrain", model, n)), speeds.get((planner, model, n))) for n in counts]
            lines.append(
                [model, name, *(f"×{best / own:.2f}" if best and own else "–" for best, own in found)]
            )
    return markdown(header, lines)


# Tables of the definitions


def definitions(rows: Rows) -> list[str]:
    names = rows.values("vtrain_definitions", "definition")
    return names + [name for name, grid in GRIDS_OF.items() if rows.values(grid, "scheduler")]


def definition_table(rows: Rows) -> str:
    """Every definition, against the baseline by rule."""
    header = ["definition", *(name for _, _, name, _ in FIGURES)]
    lines = [["**published**", *(f"**{as_published(metric, value)}**" for metric, _, _, value in FIGURES)]]
    for name in definitions(rows):
        lines.append(
            [name, *(definition_cell(rows, name, workload, metric) for metric, workload, *_ in FIGURES)]
        )
    return markdown(header, lines)


def definition_cell(rows: Rows, definition: str, workload: str, metric: str) -> str:
    row = rows.of(definition, workload, metric)
    if row is None and definition in NEEDS_DEADLINES and "at once" in workload:
        return "as reference"
    return margin(row, metric)


def baseline_table(rows: Rows) -> str:
    """What is left against each of the three baselines."""
    header = ["definition", "baseline", *(name for _, _, name, _ in FIGURES)]
    lines = []
    for name in ("reference", "third model 81.2B", COUNTS, "800 Gb/s", "400 Gb/s", "200 Gb/s"):
        for baseline in (BY_RULE, TUNED, SMALL) if name in definitions(rows) else ():
            found = [
                margin(rows.of(name, workload, metric, baseline), metric, baseline == SMALL)
                for metric, workload, _, _ in FIGURES
            ]
            lines.append([name, baseline, *found])
    return markdown(header, lines)


def load_table(rows: Rows) -> str:
    """Deadlines met over the load."""
    header = ["jobs", "load", "span, h", BY_RULE, BEST, "ratio", "single seeds", "against tuned",
              "against best small plan", "ratio without admission"]  # fmt: skip
    lines = []
    for jobs, load in loads(rows):
        met = rows.load(jobs, load, MET)
        if met is None:
            continue
        span = rows.load(jobs, load, "arrival_window_s")
        others = [ratio(rows.load(jobs, load, MET, against=b), interval=False) for b in (TUNED, SMALL)]
        without = ratio(rows.load(jobs, load, MET, "without"), interval=False)
        lines.append(
            [jobs, load, hours(span.base if span else None), share(met.base), share(met.value), ratio(met),
             seeds_of(met), *others, without]
        )  # fmt: skip
    return markdown(header, lines)


def accepted_table(rows: Rows) -> str:
    """Mean JCT over different sets of jobs, and makespan, of staggered jobs."""
    header = ["jobs", "load", "declined by rule", "declined, vtrain-aware", "mean JCT, accepted by each",
              "accepted by both", "all (no admission)", "makespan", "makespan, no admission"]  # fmt: skip
    lines = []
    for jobs, load in loads(rows):
        declined = rows.load(jobs, load, "rejected")
        if declined is None:
            continue
        counts = [f"{value or 0:.1f}" for value in (declined.base, declined.value)]
        times = [
            percent(rows.load(jobs, load, metric, admission), interval=metric == JCT)
            for metric, admission in (
                (JCT, "with"), ("jct_common_s", "with"), (JCT, "without"), (MAKESPAN, "with"),
                (MAKESPAN, "without"),
            )
        ]  # fmt: skip
        lines.append([jobs, load, *counts, *times])
    return markdown(header, lines)


def loads(rows: Rows) -> Iterator[tuple[str, str]]:
    for jobs in rows.values("vtrain_loads", "trace.jobs"):
        for load in rows.values("vtrain_loads", "trace.load"):
            yield jobs, load


def seeds_of(row: Row | None) -> str:
    if row is None or row.seed_low is None or row.seed_high is None:
        return "–"
    return f"×{row.seed_low:.2f} to ×{row.seed_high:.2f}"


# Tables of the policies


def policy_tables(rows: Rows, metric: str, over: str, workloads: Sequence[str]) -> str:
    """Elastic and rigid policies apart, those that ran; `over`: what relates `metric` to its bound."""
    workloads = [w for w in workloads if w in rows.values(POLICIES, "workload")]
    if not workloads:
        return "Not run for this page."
    names = [BEST, *rows.values(POLICIES, "scheduler")]
    tables = []
    for kind, elastic in (("elastic", True), ("at the GPUs asked for", False)):
        chosen = [
            name
            for name in names
            if is_elastic(name) is elastic
            and any(value_of(rows, metric, workload, name) is not None for workload in workloads)
        ]
        if not chosen:
            continue
        ordered = sorted(chosen, key=lambda name: standing(rows, metric, workloads, name))
        bounded = any(policy_row(rows, over, w, n) for w in workloads for n in chosen)
        header = [kind, *workloads, *(f"{w}: of the bound" for w in workloads if bounded)]
        lines = []
        for name in ordered:
            found = [policy_cell(rows, metric, workload, name) for workload in workloads]
            found += [over_bound(rows, over, workload, name) for workload in workloads if bounded]
            lines.append([name, *found])
        tables.append(markdown(header, lines))
    return "\n\n".join(tables)


def best_table(rows: Rows, metrics: Sequence[tuple[str, str, Sequence[str]]]) -> str:
    """By workload: the published policy with the best mean, and this project's own with the best mean.

    `metrics`: each with its name, and its workloads.
    """
    header = ["metric", "workload", "best published", "its mean", "best own", "its mean", "own / published"]
    lines = []
    names = [BEST, *rows.values(POLICIES, "scheduler")]
    for metric, words, workloads in metrics:
        for workload in (w for w in workloads if w in rows.values(POLICIES, "workload")):
            found = {n: v for n in names if (v := value_of(rows, metric, workload, n)) is not None}
            sides = [{n: v for n, v in found.items() if n.startswith(OWN) is own} for own in (False, True)]
            if all(sides):
                choose = max if metric == MET else min
                published, own = (choose(side, key=side.__getitem__) for side in sides)
                text = share if metric == MET else hours
                lines.append(
                    [words, workload, published, text(found[published]), own, text(found[own]),
                     f"×{found[own] / found[published]:.3f}"]
                )  # fmt: skip
    return markdown(header, lines)


def is_elastic(scheduler: str) -> bool:
    """Whether a policy chooses GPU counts; `priced for the tail` is `priced` with other parameters."""
    return bool(find_policy(scheduler.split()[0]).elastic)


def policy_row(rows: Rows, metric: str, workload: str, policy: str) -> Row | None:
    return rows.find(POLICIES, metric, BEST, {"workload": workload, "scheduler": policy})


def value_of(rows: Rows, metric: str, workload: str, policy: str) -> float | None:
    """The mean of a metric; that of vtrain-aware is the base of any other policy's row."""
    if policy != BEST:
        row = policy_row(rows, metric, workload, policy)
        return row.value if row else None
    found = (policy_row(rows, metric, workload, name) for name in rows.values(POLICIES, "scheduler"))
    return next((row.base for row in found if row), None)


def standing(rows: Rows, metric: str, workloads: Sequence[str], policy: str) -> float:
    """The place of a policy in its table: by the sum over the workloads of value over vtrain-aware's."""
    values = [(value_of(rows, metric, w, policy), value_of(rows, metric, w, BEST)) for w in workloads]
    total = sum(v / b for v, b in values if v is not None and b)
    return -total if metric == MET else total


def policy_cell(rows: Rows, metric: str, workload: str, policy: str) -> str:
    if metric == MET:
        text = share(value_of(rows, metric, workload, policy))
        row = policy_row(rows, metric, workload, policy)
        return text if row is None else f"{text} [{points(row)}]"
    if policy == BEST:
        return f"{hours(value_of(rows, metric, workload, policy))} h"
    return ratio(policy_row(rows, metric, workload, policy))


def over_bound(rows: Rows, metric: str, workload: str, policy: str) -> str:
    value = value_of(rows, metric, workload, policy)
    if value is None:
        return "–"
    return share(value) if metric == "deadlines_of_bound" else f"×{value:.3f}"


def sweep_table(rows: Rows) -> str:
    header = ["load", "policy", "mean JCT", "against srtf", "p", "deadlines met", "against srtf", "p"]
    lines = []
    for load in rows.values("load_sweep", "trace.load"):
        for policy in rows.values("load_sweep", "scheduler"):
            axes = {"scheduler": policy, "trace.load": load}
            jct, met = (rows.find("load_sweep", metric, "srtf", axes) for metric in (JCT, MET))
            if jct and met:
                lines.append(
                    [load, policy, f"{(jct.value or 0) / 3600:.2f} h", percent(jct), p_text(jct),
                     share(met.value), points(met), p_text(met)]
                )  # fmt: skip
    return markdown(header, lines)


def p_text(row: Row) -> str:
    return "–" if row.p is None else f"{row.p:.3f}"
