"""From the cells of the grids to the rows that the page of the multi-tenant study is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import fsum
from typing import Any

from clustersim.analysis import METRICS, paired_difference
from clustersim.grid import Comparison, Results
from experiments.multi_tenant.rows import BEST, BY_RULE, SMALL, TUNED, Row

OF_DEFINITIONS = ("deadline_met_ratio", "jct_mean_s", "makespan_s")
OF_LOADS = (*OF_DEFINITIONS, "rejected", "arrival_window_s")
OF_POLICIES = (
    "jct_mean_s", "jct_p99_s", "makespan_s", "deadline_met_ratio", "jct_over_bound", "makespan_over_bound",
    "deadlines_of_bound",
)  # fmt: skip
"""Metrics of the policies; those that need a bound are left out where a run has none."""
RECORDED_SEEDS = (20, 21)
"""Seeds of which runs.csv has each run of the reference, to be repeated by the tests."""


def summarised(results: Mapping[str, Results]) -> Iterator[Row]:
    """All rows of comparisons.csv."""
    for name in ("vtrain_definitions", "vtrain_loads", "vtrain_counts"):
        for baseline in (BY_RULE, TUNED, SMALL):
            metrics = OF_LOADS if name == "vtrain_loads" and baseline == BY_RULE else OF_DEFINITIONS
            found = compared(name, results[name], {"scheduler": baseline}, metrics)
            yield from (row for row in found if row.axes["scheduler"] == BEST)
    yield from compared("vtrain_paper", results["vtrain_paper"], {"scheduler": BY_RULE}, OF_DEFINITIONS)
    yield from common_jobs(results["vtrain_loads"])
    known = [metric for metric in OF_POLICIES if metric in METRICS]
    yield from compared("vtrain_policies", results["vtrain_policies"], {"scheduler": BEST}, known)
    yield from compared(
        "load_sweep", results["load_sweep"], {"scheduler": "srtf"}, ("jct_mean_s", "deadline_met_ratio")
    )


def compared(
    name: str, results: Results, baseline: Mapping[str, Any], metrics: Sequence[str]
) -> Iterator[Row]:
    """The comparisons of a grid with a baseline, where both sides have values."""
    by_seed: dict[Any, dict[int, Mapping[str, Any]]] = {}
    for result in results:
        by_seed.setdefault(tuple(result.axes.values()), {})[result.seed] = result.metrics
    for comparison in results.compare(baseline=baseline, metrics=metrics):
        if comparison.difference.pairs:
            base = by_seed[tuple({**comparison.axes, **baseline}.values())]
            variant = by_seed[tuple(comparison.axes.values())]
            pairs = [(base[s].get(comparison.metric), m.get(comparison.metric)) for s, m in variant.items()]
            yield row_of(name, comparison, str(*baseline.values()), pairs)


def row_of(
    name: str, comparison: Comparison, against: str, pairs: Iterable[tuple[float | None, float | None]]
) -> Row:
    d = comparison.difference
    single = sorted(v / b for b, v in pairs if b and v is not None)
    return Row(
        name, {k: str(v) for k, v in comparison.axes.items()}, against, comparison.metric, d.pairs,
        d.baseline, d.variant, d.relative, d.relative_low, d.relative_high, d.difference, d.low, d.high,
        comparison.p_holm, *((single[0], single[-1]) if single else (None, None)),
    )  # fmt: skip


def common_jobs(results: Results) -> Iterator[Row]:
    """Mean JCT over the jobs that finish under both vtrain-aware and the baseline by rule: metric
    `jct_common_s`.
    """
    times: dict[tuple[Any, ...], dict[str, dict[int, dict[str, float]]]] = {}
    for result in results:
        axes, scheduler = dict(result.axes), str(result.axes["scheduler"])
        if axes["admission"] == "with" and scheduler in (BY_RULE, BEST) and result.metrics:
            group = times.setdefault((axes["trace.jobs"], axes["trace.load"]), {})
            group.setdefault(scheduler, {})[result.seed] = {
                job.job_id: job.finish_s - job.submit_s
                for job in result.run().jobs
                if job.finish_s is not None
            }
    for (jobs, load), group in times.items():
        base, variant = group.get(BY_RULE, {}), group.get(BEST, {})
        pairs = [means_of_both(base[seed], variant[seed]) for seed in variant if seed in base]
        axes = {"trace.jobs": jobs, "trace.load": load, "admission": "with", "scheduler": BEST}
        difference = paired_difference([b for b, _ in pairs], [v for _, v in pairs])
        yield row_of("vtrain_loads", Comparison(axes, "jct_common_s", difference), BY_RULE, pairs)


def means_of_both(
    base: Mapping[str, float], variant: Mapping[str, float]
) -> tuple[float | None, float | None]:
    """The means over the keys that both have; None if there is none.

    >>> means_of_both({"a": 1.0, "b": 5.0}, {"b": 3.0, "c": 9.0})
    (5.0, 3.0)
    """
    both = [job for job in base if job in variant]
    if not both:
        return None, None
    return fsum(base[job] for job in both) / len(both), fsum(variant[job] for job in both) / len(both)


@dataclass(frozen=True)
class Recorded:
    """One run of the reference."""

    workload: str
    scheduler: str
    seed: int
    rejected: int
    jct_mean_s: float
    makespan_s: float
    deadline_met_ratio: float | None


def recorded(results: Results) -> Iterator[Recorded]:
    """The runs of the reference with the first seeds."""
    named = [f.name for f in fields(Recorded)][3:]
    for result in results:
        if result.seed in RECORDED_SEEDS and result.axes["definition"] == "reference" and result.metrics:
            values: dict[str, Any] = {name: result.metrics[name] for name in named}
            yield Recorded(str(result.axes["workload"]), str(result.axes["scheduler"]), result.seed, **values)
