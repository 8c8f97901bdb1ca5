"""What a reader must know before any number: the load that the jobs offer, and the planner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.analysis import differs_from_stated
from clustersim.records import Run
from clustersim.report.numbers import duration, listed, range_of
from clustersim.report.runs import PolicyRuns, group_runs, measured, planners_of

__all__ = ["heads", "load_differences"]


def heads(runs: Sequence[Run]) -> list[str]:
    """What a reader must know before any number: the load that the jobs offer, and the planner, if all runs
    that plan jobs share one.
    """
    planners = planners_of(runs)
    return [*_load(group_runs(runs)), *([f"Planner: {planners[0]}."] if len(planners) == 1 else [])]


def load_differences(runs: Sequence[Run]) -> list[str]:
    """That a generated trace does not offer the load that it states, since it was generated for other nodes
    or another planner. Empty if it does, within 5 %, or if a run did not reach all jobs.
    """
    groups = group_runs(runs)
    loads: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for group in groups:
        for run in group.runs:
            recipe = _recipe_of(run)
            load, stated_load = run.summary.get("offered_load"), recipe.get("load")
            reaches_all = run.manifest.get("until_s") is None and run.manifest.get("complete") is True
            if not (reaches_all and recipe.get("load_of") == "trace"):
                continue
            if not (
                isinstance(load, int | float) and isinstance(stated_load, int | float) and stated_load > 0
            ):
                continue
            if differs_from_stated(load, stated_load):
                places = [recipe.get(name) for name in ("gpus", "system", "planner")]
                origin = "{} GPUs of {}, planner {}".format(*places)
                loads.setdefault((f"{stated_load:.2f}", origin), []).append((load, group.label))
    sentences = []
    for (stated_text, origin), entries in loads.items():
        offered = range_of([load for load, _ in entries])
        labels = dict.fromkeys(label for _, label in entries)
        policies = f" under {listed(list(labels))}" if len(labels) < len(groups) else ""
        sentences.append(
            f"The trace states a load of {stated_text} and offers {offered}{policies}: it was generated "
            f"for {origin}."
        )
    return sentences


def _recipe_of(run: Run) -> Mapping[str, Any]:
    """What the manifest says of the recipe of a generated trace; empty for other traces."""
    source = run.manifest.get("trace")
    recipe = (source.get("recipe") or source.get("generated_for")) if isinstance(source, Mapping) else None
    return recipe if isinstance(recipe, Mapping) else {}


def _load(groups: Sequence[PolicyRuns]) -> list[str]:
    loads: dict[str, list[str]] = {}
    values = [measured(group.runs[0]) for group in groups]
    for group, group_values in zip(groups, values, strict=True):
        load = group_values.get("offered_load")
        if load is not None:
            loads.setdefault(f"{load:.2f}", []).append(group.label)
    arrivals_s, jobs = values[0].get("arrival_window_s"), int(values[0].get("jobs") or 0)
    reaches_all = groups[0].runs[0].manifest.get("until_s") is None
    if arrivals_s is not None and not loads and jobs > 1 and reaches_all:
        return ["All jobs are submitted at once, so there is no offered load."]
    if not loads or arrivals_s is None:
        return []
    over = f"of the GPU time over {duration(arrivals_s)} of arrivals"
    if len(loads) == 1:
        text = f"Offered load: {next(iter(loads))} {over}"
    else:
        texts = [f"{load} under {listed(labels)}" for load, labels in loads.items()]
        text = f"Offered load, {over}: {', '.join(texts) if len(texts) < 8 else listed(texts)}"
    covered = int(values[0].get("load_jobs") or 0)
    exception = f", without {jobs - covered:,} of {jobs:,} jobs that cannot run or were not reached"
    return [f"{text}{exception if covered < jobs else ''}."]
