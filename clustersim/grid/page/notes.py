"""What readers of a grid must know of its cells, as sentences: loads that are not the stated ones, cells in
which hardly any job waits, makespans that a few jobs make.
"""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.analysis import HARDLY_ANY, LONG_TAIL, NEAR_BEST, differs_from_stated, says_little
from clustersim.grid.comparisons import Result
from clustersim.report.numbers import range_of

__all__ = ["cell_notes", "load_notes", "planner_notes"]


def load_notes(results: Sequence[Result]) -> list[str]:
    """The cells whose trace does not offer the load that it states, and the loads that cells offer."""
    loads = [(result, result.offered_load) for result in results if result.offered_load is not None]
    if not loads:
        return []
    other_loads: dict[float, list[float]] = {}
    for result, load in loads:
        stated_load = result.facts.stated_load
        if stated_load is not None and differs_from_stated(load, stated_load):
            other_loads.setdefault(stated_load, []).append(load)
    sentences = [
        f"In {len(cell_loads):,} of {_cells(len(loads))} the load is not the {stated_load:.2f} that the "
        f"trace states: it offers {range_of(cell_loads)} to the nodes and the planner of these runs."
        for stated_load, cell_loads in other_loads.items()
    ]
    return [*sentences, f"Offered load: {range_of([load for _, load in loads])} of the cluster's GPU time."]


def planner_notes(results: Sequence[Result]) -> list[str]:
    """The policies of a grid that differ in their planner alone."""
    policies: dict[str, dict[str, str]] = {}
    for result in results:
        facts = result.facts
        policies.setdefault(facts.algorithm, {})[facts.policy] = facts.planner
    return [
        f"Same policy, other plans: {', '.join(f'{name} ({planner})' for name, planner in planners.items())} "
        "differ in their planner alone."
        for algorithm, planners in policies.items()
        if algorithm and len(set(planners.values())) > 1
    ]


def cell_notes(results: Sequence[Result]) -> list[str]:
    """In how many cells no job is measured, the metrics say little about scheduling, or a few jobs make the
    makespan.
    """
    done_results = [result for result in results if result.status == "done"]
    cells = _cells(len(done_results))
    empty_cells = sum(result.metrics.get("jobs") == 0 for result in done_results)
    calm_cells = sum(says_little(result.metrics, result.facts.elastic) for result in done_results)
    tailed_cells = sum((result.metrics.get("tail_ratio") or 0.0) >= LONG_TAIL for result in done_results)
    condition = f", and under elastic policies JCTs are within {100 * NEAR_BEST:g} % of the best possible"
    if not any(result.facts.elastic for result in done_results):
        condition = ""
    sentences = {
        f"In {empty_cells:,} of {cells} no job is submitted in the window: state a shorter warmup_s, or a "
        "longer measure_s.": empty_cells,
        f"In {calm_cells:,} of {cells} almost no job waited (waited_ratio below {100 * HARDLY_ANY:g} %)"
        f"{condition}: they say little about scheduling.": calm_cells,
        f"In {tailed_cells:,} of {cells} at least {100 * LONG_TAIL:g} % of the makespan is the tail of a few "
        "jobs (tail_ratio).": tailed_cells,
    }
    return [sentence for sentence, count in sentences.items() if count]


def _cells(count: int) -> str:
    return f"{count:,} cell{'s' if count != 1 else ''}"
