"""The page of the multi-tenant study: a template, filled with tables and numbers from the rows."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from experiments.multi_tenant.rows import BEST, BY_RULE, COUNTS, SMALL, TUNED, Row, Rows, Speeds
from experiments.multi_tenant.tables import (
    FIGURES,
    FREE,
    JCT,
    MAKESPAN,
    MET,
    POLICIES,
    accepted_table,
    as_published,
    baseline_table,
    best_table,
    definition_table,
    definitions,
    load_table,
    loads,
    margin,
    markdown,
    percent,
    policy_tables,
    ratio,
    seeds_of,
    speed_table,
    sweep_table,
)

TEMPLATE = Path(__file__).parent.parent / "case_study_2" / "page.template.md"
REFERENCE = "reference"
LINE = 100
WITH_DEADLINES = (
    "64 jobs, deadlines, load 2.2", "128 jobs, deadlines, load 2.2", "128 jobs, deadlines, load 3.3",
    "128 jobs, deadlines, load 4.4",
)  # fmt: skip
SMALLER = tuple(f"128 smaller jobs, deadlines, load {load}" for load in (2.2, 3.3, 4.4))
"""Jobs sized by data parallelism."""
REMAINING = (
    ("counts", COUNTS, BY_RULE), ("tuned", REFERENCE, TUNED), ("small", REFERENCE, SMALL),
    ("small_200", "200 Gb/s", SMALL), ("third", "third model 81.2B", BY_RULE),
    ("two", "no third model", BY_RULE), ("at_800", "800 Gb/s", BY_RULE), ("at_400", "400 Gb/s", BY_RULE),
)  # fmt: skip
"""Prefix of a name in the template, definition, baseline: of 128 jobs."""
BOUNDED = (
    "The columns *of the bound* state a run's value over what no policy can beat on the same jobs, with\n"
    "full knowledge of the future ([docs/bounds.md](../docs/bounds.md))."
)
UNBOUNDED = "The cells of this page were made without bounds."
COMPARED = (
    (JCT, "mean JCT, h", FREE),
    ("jct_p99_s", "p99 of JCT, h", FREE),
    (MAKESPAN, "makespan, h", FREE[2:]),
    (MET, "deadlines met", (*WITH_DEADLINES, *SMALLER)),
)
"""Metric, its words, and the workloads on which policies are compared by it."""


def page(rows: Iterable[Row], speeds: Speeds, policies: Sequence[str]) -> str:
    """CASE_STUDY_2.md. `policies`: all that the grid of policies names, with cells or without."""
    found = Rows(rows)
    tables = {
        "speeds": speed_table(speeds),
        "definitions": definition_table(found),
        "nearest": nearest_table(found),
        "baselines": baseline_table(found),
        "loads": load_table(found),
        "accepted": accepted_table(found),
        "best": best_table(found, COMPARED),
        "policies_jct": policy_tables(found, JCT, "jct_over_bound", FREE),
        "policies_p99": policy_tables(found, "jct_p99_s", "", FREE),
        "policies_makespan": policy_tables(found, MAKESPAN, "makespan_over_bound", FREE[2:]),
        "policies_met": policy_tables(found, MET, "deadlines_of_bound", WITH_DEADLINES),
        "policies_met_smaller": policy_tables(found, MET, "deadlines_of_bound", SMALLER),
        "sweep": sweep_table(found),
    }
    text = TEMPLATE.read_text(encoding="utf-8").format(
        **tables, **numbers(found), left_out=left_out(found, policies)
    )
    return "\n\n".join(wrapped(block) for block in text.rstrip("\n").split("\n\n")) + "\n"


def wrapped(block: str) -> str:
    """A paragraph or a list in lines of at most 100 characters; tables, code, headings and pictures as is.

    >>> wrapped("- one\n  two\n- three")
    '- one two\\n- three'
    """
    if block.startswith(("|", "#", "    ", "!")):
        return block
    items = re.split(r"\n(?=- )", block)
    return "\n".join(
        textwrap.fill(
            " ".join(item.split()), LINE, subsequent_indent="  " if item.startswith("- ") else "",
            break_long_words=False, break_on_hyphens=False,
        )
        for item in items
    )  # fmt: skip


def numbers(rows: Rows) -> dict[str, str | int]:
    """The numbers in the text of the page."""
    reference = (rows.of(REFERENCE, workload, metric) for metric, workload, *_ in FIGURES)
    met_64, met_128, jct_64, jct_128, makespan_64, makespan_128 = reference
    return {
        "bound_note": BOUNDED if any(r.metric == "jct_over_bound" for r in rows.all) else UNBOUNDED,
        "seeds": met_64.pairs if met_64 else 0,
        "policy_seeds": max((r.pairs for r in rows.all if r.grid == "vtrain_policies"), default=0),
        "sweep_seeds": max((r.pairs for r in rows.all if r.grid == "load_sweep"), default=0),
        "met_64": ratio(met_64),
        "met_128": ratio(met_128),
        "jct_64": percent(jct_64),
        "jct_128": percent(jct_128),
        "makespan_64": percent(makespan_64),
        "makespan_128": percent(makespan_128),
        "jct_accepted": percent(rows.of(REFERENCE, "128 jobs", JCT)),
        "jct_common": percent(rows.load("128", "2.2", "jct_common_s")),
        "jct_of_all": percent(rows.of("without admission", "128 jobs", JCT)),
        "makespan_staggered": percent(rows.of(REFERENCE, "128 jobs", MAKESPAN)),
        "met_64_span": ratio(rows.load("64", "1.1", MET)),
        "met_128_span": ratio(rows.load("128", "1.6", MET)),
        "spread_64": seeds_of(met_64),
        "spread_128": seeds_of(met_128),
        **{
            f"{name}_{kind}": margin(rows.of(definition, workload, metric, against), metric, interval=False)
            for name, definition, against in REMAINING
            for kind, (metric, workload, *_) in zip(("met", "jct", "makespan"), FIGURES[1::2], strict=True)
        },
    }  # fmt: skip


def left_out(rows: Rows, policies: Sequence[str]) -> str:
    """Which policies of the grid have no cells."""
    absent = [name for name in policies if name not in (BEST, *rows.values(POLICIES, "scheduler"))]
    return f"Not run for this page: {', '.join(absent)}." if absent else ""


def nearest_table(rows: Rows) -> str:
    """For each published figure, the measured definition that comes closest."""
    header = ["figure", "published", "closest here", "definition", "definitions tried"]
    lines = []
    for metric, workload, name, published in FIGURES:
        jobs = workload.split()[0]
        tried = [(label, row) for label, row in candidates(rows, metric, jobs) if row.relative is not None]
        if tried:
            label, row = min(tried, key=lambda found: abs((found[1].relative or 0) - published))
            lines.append(
                [
                    name.removesuffix(" at once"),
                    as_published(metric, published),
                    margin(row, metric),
                    label,
                    len(tried),
                ]
            )
    return markdown(header, lines)


def candidates(rows: Rows, metric: str, jobs: str) -> Iterator[tuple[str, Row]]:
    """Every measured comparison with the baseline by rule of a metric, in words."""
    for name in definitions(rows):
        for workload in FREE:
            if workload.startswith(jobs):
                row = rows.of(name, workload, metric)
                if row:
                    yield f"{name}; {workload}{'' if 'once' in workload else ', load 2.2'}", row
    for n, load in loads(rows):
        for admission in ("with", "without"):
            row = rows.load(n, load, metric, admission)
            if row and n == jobs and (load != "2.2" or admission == "without"):
                yield f"{REFERENCE}; {n} jobs, load {load}, {admission} admission", row
