"""How far runs are from the best possible, as sentences: what `clustersim.bounds` proves of their jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from clustersim.records import Run

from .numbers import duration
from .runs import PolicyRuns, measured

__all__ = ["CHEAP", "bound_stated", "distances"]

CHEAP = ("alone", "area", "quick")
"""The methods that can be far below the best possible; a better bound takes longer."""

_WORDS = {"jct_over_bound": "Mean JCT", "makespan_over_bound": "Makespan"}


def distances(groups: Sequence[PolicyRuns]) -> list[str]:
    """How near the best possible the runs are: factors of mean JCT and makespan, and the deadlines met of
    those that can be met. Empty if no run states a bound.

    Values are means over the runs of a group. Of several groups, the nearest and the farthest are named.
    """
    factors = [_factors(groups, name) for name in _WORDS]
    sentences = [*filter(None, factors), *_deadlines(groups)]
    cheap = dict.fromkeys(
        method for group in groups for run in group.runs if (method := _method(run)) in CHEAP
    )
    if sentences and cheap:
        bounds = "a cheap bound" if len(cheap) == 1 else "cheap bounds"
        sentences.append(
            f"These distances are from {bounds} ({', '.join(cheap)}): the true ones are smaller or equal; "
            "`clustersim bound` may get nearer."
        )
    return sentences


def _factors(groups: Sequence[PolicyRuns], name: str) -> str:
    means = _means(groups, name)
    if not means:
        return ""
    nearest_label, farthest_label = (pick(means, key=lambda label: means[label]) for pick in (min, max))
    nearest, farthest = (_factor(means[label]) for label in (nearest_label, farthest_label))
    text = f"{_WORDS[name]} is within x{nearest} of the best possible"
    if len(groups) == 1:
        return f"{text}."
    if nearest == farthest:
        return f"{text} under every policy."
    return f"{text} under {nearest_label}, x{farthest} under {farthest_label}."


def _factor(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _deadlines(groups: Sequence[PolicyRuns]) -> list[str]:
    met, shares = _means(groups, "deadline_met_ratio"), _means(groups, "deadlines_of_bound")
    if not shares:
        return []
    best = {label: met[label] / share for label, share in shares.items() if share}
    if not best:
        return ["No deadline is met, and some can be."]
    label = max(best, key=lambda label: met[label])
    under = f" under {label}, the most" if len(groups) > 1 else ""
    return [f"Deadlines met{under}: {100 * met[label]:.1f} of at most {100 * best[label]:.1f} %."]


def _means(groups: Sequence[PolicyRuns], name: str) -> dict[str, float]:
    """The mean of a metric over the runs of each group, of those where every run has it."""
    means = {}
    for group in groups:
        values = [measured(run).get(name) for run in group.runs]
        values_of_runs = [value for value in values if value is not None]
        if values_of_runs and len(values_of_runs) == len(values):
            means[group.label] = fsum(values_of_runs) / len(values_of_runs)
    return means


def _method(run: Run) -> str:
    bound = run.manifest.get("bound")
    method = bound.get("method") if isinstance(bound, Mapping) else None
    return method if isinstance(method, str) else ""


def bound_stated(run: Run) -> str:
    """What the manifest says of the bound of a run, for a table of assumptions."""
    bound = run.manifest.get("bound")
    if not isinstance(bound, Mapping):
        return "not computed" if "bound" in run.manifest else "not recorded"
    names = {"jct_mean_s": "mean JCT", "jct_p99_s": "99th percentile", "makespan_s": "makespan"}
    parts = [
        f"{name} at least {duration(value)}"
        for key, name in names.items()
        if isinstance(value := bound.get(key), int | float)
    ]
    share = bound.get("deadline_met_ratio")
    if isinstance(share, int | float):
        parts.append(f"at most {100 * share:.1f} % of deadlines met")
    return f"{', '.join(parts) or 'nothing is known'} (method: {_method(run) or 'not recorded'})"
