"""The rule that jobs which share a GPU run as fast as the interference of the run leaves them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.audit.evidence import agrees
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.audit.phases import factor_of
from clustersim.audit.settings import stated_interference
from clustersim.cluster import Placement, SharedPlacement
from clustersim.records import ALLOCATES, RATE, RELEASES, EventRecord, plan_key
from clustersim.speed import CoRunners

__all__ = ["SharersAsSlow"]


class SharersAsSlow(Rule):
    """Computes the speeds of jobs that share GPUs again, instant by instant. `complete`: the run ended by
    itself; if not, its last instant is not compared.
    """

    name = "sharing"
    text = "jobs that share a GPU run as fast as the others on it let them"

    def __init__(
        self, history: ClusterHistory, expected: Recomputed, manifest: Mapping[str, Any], complete: bool
    ):
        super().__init__(history)
        self.kinds, self._complete = (), complete
        self._due, self._models = expected, dict[str, str]()
        self._alone_s: dict[str, float | None] = {}  # None where it is unknown
        self._factors: dict[str, float] = {}
        self._co_runners = CoRunners[str](stated_interference(manifest), self._models.__getitem__)
        self._unknown = 0
        self._pending: list[tuple[int, EventRecord, str]] = []  # differences after the last instant

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        self._report_pending()
        if not self.history.shared and not self._alone_s:
            return
        changes: dict[str, Placement | None] = {}
        last_index: dict[str, int] = {}
        for i, event in enumerate(batch, first_index):
            if event.event in ALLOCATES or event.event in RELEASES:
                changes.pop(event.job_id, None)
                changes[event.job_id] = event.placement if event.event in ALLOCATES else None
                self._enter(event)
            if event.event in ALLOCATES or event.event == RATE:
                last_index[event.job_id] = i
        self._factors.update(changed := self._co_runners.move(changes))
        for job_id in dict.fromkeys([*last_index, *changed]):
            i = last_index.get(job_id, first_index + len(batch) - 1)
            self._check(job_id, i, batch[i - first_index])

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self._complete:
            self._report_pending()

    def _enter(self, event: EventRecord) -> None:
        """Note what is known of a job that gets GPUs, or releases them."""
        self._alone_s.pop(event.job_id, None)
        self._factors.pop(event.job_id, None)
        if event.event not in ALLOCATES or not isinstance(event.placement, SharedPlacement):
            return
        job = self.history.jobs.get(event.job_id)
        record = None if job is None else job.record
        self._models[event.job_id] = "" if record is None else record.model
        self._alone_s[event.job_id] = 1.0  # of a job with a duration
        has_duration = (
            not event.plan and job is not None and job.first is not None and job.first.unit_s == 1.0
        )
        if record is not None and record.model and not has_duration:
            curve = self._due.curve(*plan_key(record, event, self.history.cluster)[:8])
            self._alone_s[event.job_id] = None
            if not isinstance(curve, str) and event.gpus in curve.unit_s:
                self._alone_s[event.job_id] = self._due.unit_s(curve, event)
        alone_s, factor = self._alone_s[event.job_id], factor_of(record, event)
        if alone_s is not None and factor != 1.0:
            self._alone_s[event.job_id] = alone_s * factor

    def _check(self, job_id: str, i: int, event: EventRecord) -> None:
        """Compare the speed of a job after an instant with the one computed again."""
        job = self.history.jobs.get(job_id)
        if job is None or job.allocation is None or job_id not in self._alone_s:
            return
        alone_s = self._alone_s[job_id]
        if alone_s is None:
            self._unknown += 1
            return
        alone_s = self.evidence.in_truth(alone_s, job.allocation, self._models[job_id])
        recorded, expected = job.totals.unit_s, alone_s * self._factors.get(job_id, 1.0)
        if not agrees(recorded, expected):
            problem = (
                f"job {job_id}: beside the jobs on its GPU it takes {expected!r} s per unit, not {recorded!r}"
            )
            self._pending.append((i, event, problem))

    def _report_pending(self) -> None:
        """Report the differences after the previous instant."""
        for i, event, text in self._pending:
            self.report_at(i, event, text)
        self._pending.clear()

    def unproved(self) -> str:
        unknown = self._unknown
        return f"the speed alone of {unknown:,} allocations is unknown" if unknown else ""
