"""The rule that jobs run at the speeds that their placement and the jobs on the same links leave them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clustersim.audit.evidence import agrees
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory
from clustersim.audit.phases import factor_of
from clustersim.cluster import Placement, SharedPlacement
from clustersim.records import ALLOCATES, RATE, RELEASES, EventRecord, PlanRecord, plan_key
from clustersim.speed import Curve, Network, network_for

from .plans import PlansAsPredicted

__all__ = ["PlansOnNetwork"]


class _Sender:
    """A job on the links of the cluster, as a `Network` asks for it."""

    __slots__ = ("curve", "job_id")

    def __init__(self, job_id: str, curve: Curve):
        self.job_id, self.curve = job_id, curve

    def curve_at(self, gpu_type: str) -> Curve:
        return self.curve


class PlansOnNetwork(PlansAsPredicted):
    """For networks with tiers or contention. Computes all speeds again, instant by instant."""

    def __init__(
        self, history: ClusterHistory, expected: Recomputed, rows: Iterable[PlanRecord], complete: bool
    ):
        super().__init__(history, expected, rows, complete)
        self._network: Network[_Sender] | None = None
        if not expected.why_not:
            self._network = network_for(history.cluster, expected.speed())
        self._senders: dict[str, _Sender] = {}
        self._speeds: dict[_Sender, float] = {}
        self._pending: list[tuple[int, EventRecord, str]] = []  # differences after the last instant

    def _check_rate(self, i: int, event: EventRecord) -> None:
        """Speeds are checked after the instant, in `_check_speed`."""

    def speed_of(self, event: EventRecord, curve: Curve) -> float | None:
        if not curve.plans:
            return curve.unit_s[event.gpus]  # from a throughput table: independent of placement
        return None

    def on_instant(self, first_index: int, batch: Sequence[EventRecord]) -> None:
        self._report_pending()
        if self._network is None:
            return
        changes: dict[_Sender, Placement | None] = {}
        event_of_job: dict[str, int] = {}  # jobs whose speed the log states at this instant, by the event
        for i, event in enumerate(batch, first_index):
            if event.event in RELEASES or event.event in ALLOCATES:
                old = self._senders.pop(event.job_id, None)
                if old is not None:
                    changes[old] = None
            if event.event in ALLOCATES and event.plan and event.placement:
                new = self._sender(event)
                if new is None:
                    self._network = None  # the speeds of jobs that share its links depend on it
                    return
                changes[new], self._senders[event.job_id] = event.placement, new
            if event.event in ALLOCATES or event.event == RATE:
                event_of_job[event.job_id] = i
        changed = self._network.move(changes)
        self._speeds.update(changed)
        for sender, placement in changes.items():
            if placement is None:
                self._speeds.pop(sender, None)
        last_index = first_index + len(batch) - 1
        for job_id in dict.fromkeys([*event_of_job, *[sender.job_id for sender in changed]]):
            i = event_of_job.get(job_id, last_index)
            self._check_speed(job_id, i, batch[i - first_index])

    def _check_speed(self, job_id: str, i: int, event: EventRecord) -> None:
        """Compare the speed of a job after an instant with the one computed again."""
        job, sender = self.history.jobs.get(job_id), self._senders.get(job_id)
        if job is None or job.allocation is None or isinstance(job.allocation.placement, SharedPlacement):
            return
        recorded, expected = job.totals.unit_s, self._speeds.get(sender) if sender is not None else None
        if expected is None:
            if event.event == RATE:
                self._pending.append((i, event, f"job {job_id} shares no link, but its speed changes"))
            return
        expected = self.evidence.in_truth(expected, job.allocation, job.record.model if job.record else "")
        if not agrees(recorded, expected):
            text = f"job {job_id}: its placement takes {expected!r} s per unit, not {recorded!r}"
            self._pending.append((i, event, text))

    def _sender(self, event: EventRecord) -> _Sender | None:
        job = self.history.jobs.get(event.job_id)
        record = None if job is None else job.record
        if record is None:
            return None
        key = plan_key(record, event, self.history.cluster)
        curve = self.due.curve(*key[:8])
        if isinstance(curve, str):
            return None
        factor = factor_of(record, event)
        return _Sender(event.job_id, curve if factor == 1.0 else replace(curve, per_unit=factor))

    def _report_pending(self) -> None:
        """Report the differences after the previous instant. Those after the last instant of a run are
        dropped if the run was stopped within it.
        """
        for i, event, text in self._pending:
            self.report_difference(i, event, text)
        self._pending.clear()

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self.complete:
            self._report_pending()
        super().on_end(unrecorded)
