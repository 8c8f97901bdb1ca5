"""What runs say before all else: one line, and the few figures of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

from clustersim.records import Run
from clustersim.report.numbers import counted, duration, listed
from clustersim.report.runs import (
    NEARLY_ALL,
    PolicyRuns,
    finishing,
    group_runs,
    mean_of,
    measured,
    same_trace,
)

from .pairings import met_shares, pairings_of

__all__ = ["Tile", "answer", "tiles"]

_OTHER_JOBS = "These runs are not over the same jobs: their differences say little about the policies."
_EQUAL = 5e-5  # ratios of mean JCTs that differ by less are equal, to the digits of a text
_NEARLY_BEST = 1.005  # a JCT over the best possible that reads as 1.00


class Tile(NamedTuple):
    """A figure of the answer: its name, its value, and what it stands beside."""

    name: str
    value: str
    beside: str


class _Outcome(NamedTuple):
    """The policies with the shortest mean JCT, of those that finish nearly as many jobs as any policy does.

    `leaders`: several where mean JCTs and deadlines met agree. `baseline`: that of the comparison, or the
    first policy that finishes enough jobs if that one does not. `change`: the ratio of both mean JCTs over
    the jobs that both finished; 1 if no policy is sooner than the baseline. `able`: the policies that finish
    enough jobs.
    """

    leaders: Sequence[PolicyRuns]
    baseline: PolicyRuns
    change: float
    able: Sequence[PolicyRuns]
    groups: Sequence[PolicyRuns]

    @classmethod
    def of(cls, runs: Sequence[Run], baseline: str | None) -> _Outcome:
        groups = group_runs(runs)
        able = finishing(groups)
        base = next((group for group in able if group.runs[0].policy == baseline), able[0])
        changes = {base.label: 1.0}
        for label, pairing in pairings_of(runs, able, base.label).items():
            if pairing.share >= NEARLY_ALL:
                changes[label] = pairing.change
        able = [group for group in able if group.label in changes]
        least_change = min(changes.values())
        if least_change > 1 - _EQUAL:
            least_change = 1.0
        shares = met_shares(groups)
        soonest = [group for group in able if changes[group.label] < least_change + _EQUAL]
        most_met = max(shares.get(group.label, 0.0) for group in soonest)
        leaders = [group for group in soonest if shares.get(group.label, 0.0) == most_met]
        leaders.sort(key=lambda group: group is not base)
        return cls(leaders, base, least_change, able, groups)

    @property
    def group(self) -> PolicyRuns:
        """The first of the leaders, whose figures are stated."""
        return self.leaders[0]

    @property
    def is_tie(self) -> bool:
        """Whether all policies do equally well."""
        return 1 < len(self.groups) == len(self.leaders)

    @property
    def name(self) -> str:
        """The leaders by name; of more than two, the first and the number of the others."""
        if self.is_tie:
            return "Both policies" if len(self.groups) == 2 else f"All {len(self.groups)} policies"
        labels = [group.label for group in self.leaders]
        return listed(labels if len(labels) < 3 else [labels[0], f"{len(labels) - 1} others"])

    @property
    def jct(self) -> str:
        """The mean JCT as text, in the unit that suits that of the baseline; empty if no job finished."""
        if not mean_of(self.group, "finished"):
            return ""
        baseline_s = mean_of(self.baseline, "jct_mean_s")
        return duration(mean_of(self.group, "jct_mean_s"), scale_s=baseline_s)

    @property
    def jct_beside(self) -> str:
        """How the mean JCT compares with that of the baseline; empty where there is nothing to compare."""
        if self.change < 1:
            saved = 100 * (1 - self.change)
            digits = 0 if saved >= 10 else 1 if saved >= 1 else 2
            return f"{saved:.{digits}f} % below {self.baseline.label}"
        if len(self.able) < 2 or self.is_tie:
            return ""
        is_whole = len(self.able) == len(self.groups)
        return f"which no other policy {'' if is_whole else 'that finishes nearly as many jobs '}shortens"

    @property
    def finished(self) -> str:
        """How many jobs finish, beside the policies under which far fewer do."""
        finished = mean_of(self.group, "finished")
        labels = {group.label for group in self.able}
        declining = [group for group in self.groups if group.label not in labels]
        fewer = [f"{group.label} {mean_of(group, 'finished'):,.0f}" for group in declining]
        beside = f" ({listed(fewer)})" if fewer else ""
        return f"{finished:,.0f} of {counted(self.jobs, 'job')} finished{beside}"

    @property
    def jobs(self) -> int:
        """The jobs that can finish: all but instances of services."""
        services = self.group.runs[0].summary.get("services")
        instances = services["instances"] if isinstance(services, Mapping) else 0
        return int(mean_of(self.group, "jobs")) - instances

    @property
    def finishes_all(self) -> bool:
        return mean_of(self.group, "finished") >= self.jobs

    def deadlines(self) -> tuple[str, str]:
        """The share of deadlines met, and the shares of the baseline and of the policy that meets the most,
        as texts; empty if no job has a deadline.
        """
        shares = met_shares(self.groups)
        if not shares:
            return "", ""
        texts = {label: f"{100 * share:.1f} %" for label, share in shares.items()}
        most = max(shares, key=lambda label: shares[label])
        labels = dict.fromkeys([self.baseline.label, most])
        leader_text = texts[self.group.label]
        others = [f"{label} {texts[label]}" for label in labels if texts[label] != leader_text]
        return leader_text, ", ".join(others)


def answer(runs: Sequence[Run], baseline: str | None) -> str:
    """What the runs say, in a line: the policy with the shortest mean JCT, of those that finish nearly as
    many jobs as any policy does, and the deadlines that it meets. For one policy, the same alone.
    """
    outcome = _Outcome.of(runs, baseline)
    count = len(outcome.groups)
    if count > 1 and not same_trace(runs):
        return _OTHER_JOBS
    if count > 1 and not outcome.jct:
        return f"No job finished under any policy, of {outcome.jobs:,} submitted."
    parts = [f"mean JCT {', '.join(filter(None, [outcome.jct, outcome.jct_beside]))}"] if outcome.jct else []
    if not outcome.finishes_all or count == 1 or len(outcome.able) < count:
        parts.append(outcome.finished)
    met, others = outcome.deadlines()
    if met:
        parts.append(f"{met} of deadlines met{f' ({others})' if others else ''}")
    return f"{outcome.name}: {'; '.join(parts)}"


def tiles(runs: Sequence[Run], baseline: str | None) -> list[Tile]:
    """The figures of the answer: the policy, its mean JCT, the deadlines that it meets or else how long jobs
    wait, and the distance from the best possible or else the use of the GPUs. Empty for runs of other jobs,
    and where no job finished.
    """
    outcome = _Outcome.of(runs, baseline)
    if not outcome.jct or (len(outcome.groups) > 1 and not same_trace(runs)):
        return []
    figures = [_first_tile(outcome), Tile("Mean JCT", outcome.jct, outcome.jct_beside)]
    met, others = outcome.deadlines()
    if met:
        figures.append(Tile("Deadlines met", met, others))
    else:
        wait_s = mean_of(outcome.group, "wait_mean_s")
        base_s = mean_of(outcome.baseline, "wait_mean_s")
        beside = "" if outcome.group is outcome.baseline else f"{outcome.baseline.label} {duration(base_s)}"
        figures.append(Tile("Mean waiting", duration(wait_s), beside))
    factors = [measured(run).get("jct_over_bound") for run in outcome.group.runs]
    if factors and None not in factors:
        factor = mean_of(outcome.group, "jct_over_bound")
        most_saved = ceil(100 * (1 - 1 / factor)) if factor >= _NEARLY_BEST else 0
        beside = f"no policy lowers it by more than {most_saved} %" if most_saved else "no policy lowers it"
        figures.append(Tile("JCT over the best possible", f"× {factor:,.2f}", beside))
    else:
        share = mean_of(outcome.group, "gpu_allocated_ratio")
        is_window = isinstance(outcome.group.runs[0].summary.get("window"), Mapping)
        during = "in the window of measurement" if is_window else "until the last finish"
        figures.append(Tile("GPUs allocated", f"{100 * share:.1f} %", during))
    return figures


def _first_tile(outcome: _Outcome) -> Tile:
    """The policy that did best, and among how many."""
    count = len(outcome.groups)
    if count == 1:
        return Tile("Policy", outcome.name, outcome.finished)
    if outcome.is_tie:
        return Tile("Best policy", "none", f"{outcome.name.lower()} have the same mean JCT")
    if len(outcome.able) == 1:
        return Tile("Most jobs finished", outcome.name.rpartition("/")[2], outcome.finished)
    beside = f"shortest mean JCT of {count} policies"
    if len(outcome.able) < count:
        beside = outcome.finished
    if len(outcome.leaders) > 1:
        return Tile("Best policies", outcome.name, beside)
    return Tile("Best policy", outcome.name.rpartition("/")[2], beside)  # a file's name without its folder
