"""The rule that a run is not better than the best possible, and that its manifest states that bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.analysis.metrics import completion_times, deadlines, makespan_s
from clustersim.audit.evidence import RESOLUTION_S, agrees, stated_bound
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.audit.settings import stated_interference
from clustersim.bounds import METHODS, Bound
from clustersim.records import FINISHED, Columns, JobRecord
from clustersim.runs import Trace, best_possible
from clustersim.speed import Packing
from itertime.errors import UserError

from .records import Tally

__all__ = ["NotBelowBound", "better_than"]

_EXACT = ("alone", "area")
"""Methods without steps, whose values are equal on all machines."""

_SAME, _NEAR = 1e-6, 1e-3
"""Relative. The last digits differ between machines, and steps can make them a difference that shows; both
bounds are valid.
"""


class NotBelowBound(Rule):
    """Computes the bound again, by the method that the manifest states, else by a cheap one.

    `trace`: the trace, or the reason why it cannot be read.
    """

    name = "bound"
    text = "no result is better than what the jobs allow any policy, which the manifest states correctly"

    def __init__(
        self,
        history: ClusterHistory,
        tally: Tally,
        manifest: Mapping[str, Any],
        trace: Trace | str,
        speeds: Recomputed,
    ):
        super().__init__(history)
        self.kinds = ()
        self._tally, self._trace, self._speeds = tally, trace, speeds
        self._stated, self._method = stated_bound(manifest), "area"
        if self._stated is not None:
            self._method = str(manifest["bound"].get("method"))
        self._packing = Packing(self.evidence.packs, stated_interference(manifest))
        self._why_not = trace if isinstance(trace, str) else speeds.why_not

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self._why_not:
            return
        assert not isinstance(self._trace, str)
        finished = self._tally.columns.equal("state", FINISHED)
        if len(finished) != len(self._trace.jobs):
            self._why_not = "the records are not those of the trace"
            return
        if self._method not in METHODS:
            self.report(f"bound.method is {self._method}; there are {', '.join(METHODS)}")
            return
        cluster, overheads = self.evidence.cluster, self.evidence.overheads
        try:
            bound = best_possible(
                self._trace.jobs,
                finished,
                cluster,
                self._speeds.speed(),
                overheads,
                self._method,
                packing=self._packing,
            )
        except (UserError, ArithmeticError, ValueError) as error:
            self._why_not = f"no bound can be computed: {error}"
            return
        wrong = [*better_than(bound, self._tally.columns), *self._otherwise(bound)]
        if wrong and not self._speeds.same_code:
            self._why_not = f"another version made the run, and by this one {wrong[0]}"
            return
        for text in wrong:
            self.report(text)

    def _otherwise(self, bound: Bound) -> list[str]:
        """The values of the manifest that are not those of the bound."""
        tolerance = _SAME if bound.method in _EXACT else _NEAR
        return [
            f"bound.{name} is {value} in manifest.json, {again} computed again"
            for name, value in (self._stated or {}).items()
            if not agrees(value, again := getattr(bound, name), RESOLUTION_S, relative=tolerance)
        ]

    def unproved(self) -> str:
        return self._why_not


def better_than(bound: Bound, records: Columns | Sequence[JobRecord]) -> list[str]:
    """The results of a run that are better than its bound allows, as sentences; there should be none."""
    times = completion_times(records) | {"makespan_s": makespan_s(records)}
    texts = []
    for name in ("jct_mean_s", "jct_p99_s", "makespan_s"):
        lower_bound, value = getattr(bound, name), times[name]
        if (
            lower_bound is not None
            and isinstance(value, int | float)
            and value < lower_bound - 2 * RESOLUTION_S
        ):
            texts.append(f"{name} is {value} by the records; no policy gets below {lower_bound}")
    met, upper_bound = deadlines(records)["deadline_met_ratio"], bound.deadline_met_ratio
    if upper_bound is not None and isinstance(met, int | float) and met > upper_bound:
        texts.append(f"deadline_met_ratio is {met} by the records; no policy gets above {upper_bound}")
    return texts
