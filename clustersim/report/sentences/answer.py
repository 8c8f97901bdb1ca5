"""What runs say before all else: one line, and the few figures of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from clustersim.records import Run
from clustersim.report.numbers import counted, duration
from clustersim.report.runs import PolicyRuns, group_runs, measured, same_trace

from .pairings import NEARLY_ALL, Pairing, mean_of, met_shares, pairings_of

__all__ = ["Tile", "answer", "tiles"]

_OTHER_JOBS = "These runs are not over the same jobs: their differences say little about the policies."


class Tile(NamedTuple):
    """A figure of the answer: its name, its value, and what it stands beside."""

    name: str
    value: str
    beside: str


class _Outcome(NamedTuple):
    """The policy with the shortest mean JCT, of those that finish nearly all jobs that the baseline finishes.

    `pairing`: the policy beside the baseline; None for the baseline itself, and without another policy.
    """

    group: PolicyRuns
    baseline: PolicyRuns
    pairing: Pairing | None
    groups: Sequence[PolicyRuns]

    @classmethod
    def of(cls, runs: Sequence[Run], baseline: str | None) -> _Outcome:
        groups = group_runs(runs)
        base = next((group for group in groups if group.runs[0].policy == baseline), groups[0])
        pairings = {
            label: pairing
            for label, pairing in pairings_of(runs, groups, base.label).items()
            if pairing.share >= NEARLY_ALL
        }
        best = min(pairings, key=lambda label: pairings[label].change, default=base.label)
        if best == base.label or pairings[best].change >= 1:
            return cls(base, base, None, groups)
        return cls(next(group for group in groups if group.label == best), base, pairings[best], groups)

    @property
    def jct(self) -> str:
        """The mean JCT as text, in the unit that suits that of the baseline; empty if no job finished."""
        if self.pairing is not None:
            return duration(self.pairing.jct_s, scale_s=self.pairing.baseline_s)
        return duration(mean_of(self.group, "jct_mean_s")) if mean_of(self.group, "finished") else ""

    @property
    def jct_beside(self) -> str:
        """How the mean JCT compares with that of the baseline; empty where there is nothing to compare."""
        if self.pairing is not None:
            saved = 100 * (1 - self.pairing.change)
            return f"{saved:.{0 if saved >= 1 else 2}f} % below {self.baseline.label}"
        return "which no other policy shortens" if len(self.groups) > 1 else ""

    @property
    def finished(self) -> str:
        finished, jobs = (mean_of(self.group, metric) for metric in ("finished", "jobs"))
        return f"{finished:,.0f} of {counted(int(jobs), 'job')} finished"

    @property
    def finishes_all(self) -> bool:
        return mean_of(self.group, "finished") >= mean_of(self.group, "jobs")

    def deadlines(self) -> tuple[str, str]:
        """The share of deadlines met, and the shares of the baseline and of the policy that meets the most,
        as texts; empty if no job has a deadline.
        """
        shares = met_shares(self.groups)
        if not shares:
            return "", ""
        own, most = shares[self.group.label], max(shares, key=lambda label: shares[label])
        labels = dict.fromkeys([self.baseline.label, most])
        others = [f"{label} {100 * shares[label]:.1f} %" for label in labels if shares[label] != own]
        return f"{100 * own:.1f} %", ", ".join(others)


def answer(runs: Sequence[Run], baseline: str | None) -> str:
    """What the runs say, in a line: the policy with the shortest mean JCT, of those that finish nearly all
    jobs that the baseline finishes, and the deadlines that it meets. For one policy, the same alone.
    """
    outcome = _Outcome.of(runs, baseline)
    if len(outcome.groups) > 1 and not same_trace(runs):
        return _OTHER_JOBS
    parts = [f"mean JCT {', '.join(filter(None, [outcome.jct, outcome.jct_beside]))}"] if outcome.jct else []
    if not outcome.finishes_all or len(outcome.groups) == 1:
        parts.append(outcome.finished)
    met, others = outcome.deadlines()
    if met:
        parts.append(f"{met} of deadlines met{f' ({others})' if others else ''}")
    return f"{outcome.group.label}: {'; '.join(parts)}"


def tiles(runs: Sequence[Run], baseline: str | None) -> list[Tile]:
    """The figures of the answer: the policy, its mean JCT, the deadlines that it meets or else how long jobs
    wait, and the distance from the best possible or else the use of the GPUs. Empty for runs of other jobs.
    """
    outcome = _Outcome.of(runs, baseline)
    count = len(outcome.groups)
    if count > 1 and not same_trace(runs):
        return []
    among = f"shortest mean JCT of {count} policies" if count > 1 else outcome.finished
    figures = [Tile("Best policy" if count > 1 else "Policy", outcome.group.label, among)]
    figures.append(Tile("Mean JCT", outcome.jct or "–", outcome.jct_beside))
    met, others = outcome.deadlines()
    if met:
        figures.append(Tile("Deadlines met", met, others))
    else:
        wait_s = mean_of(outcome.group, "wait_mean_s")
        base_s = mean_of(outcome.baseline, "wait_mean_s")
        beside = "" if outcome.pairing is None else f"{outcome.baseline.label} {duration(base_s)}"
        figures.append(Tile("Mean waiting", duration(wait_s), beside))
    factors = [measured(run).get("jct_over_bound") for run in outcome.group.runs]
    if factors and None not in factors:
        factor = mean_of(outcome.group, "jct_over_bound")
        most_saved = f"no policy lowers it by more than {100 * (1 - 1 / factor):.0f} %" if factor > 0 else ""
        figures.append(Tile("JCT over the best possible", f"× {factor:,.2f}", most_saved))
    else:
        share = mean_of(outcome.group, "gpu_allocated_ratio")
        figures.append(Tile("GPUs allocated", f"{100 * share:.1f} %", "until the last finish"))
    return figures
