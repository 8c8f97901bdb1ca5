"""The rule that reserved nodes serve those jobs alone for which they are reserved."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from clustersim.audit.evidence import slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.failures import Reservation
from clustersim.records import ALLOCATES, RELEASES, EventRecord

__all__ = ["ReservationsKept"]


class ReservationsKept(Rule):
    """Each stretch of time in which a job holds GPUs is compared with the reservations of its nodes."""

    name = "reservations"
    text = "during a reservation no other job holds GPUs of its nodes"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (*ALLOCATES, *RELEASES)
        self._of_node: dict[int, list[Reservation]] = {}
        for one in self.evidence.reservations:
            for node in sorted(one.nodes):
                self._of_node.setdefault(node, []).append(one)
        self._held: dict[str, tuple[int, EventRecord, str]] = {}  # by job: its allocation, and the tenant

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if job is None:
            return
        self._end_hold(event.job_id, event.time_s)
        if event.event in ALLOCATES:
            tenant = "" if job.record is None else job.record.tenant
            self._held[event.job_id] = i, event, tenant

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        end_s = inf if self.evidence.end_s is None else self.evidence.end_s
        for job_id in list(self._held):
            self._end_hold(job_id, end_s)

    def _end_hold(self, job_id: str, until_s: float) -> None:
        """The job held its GPUs until `until_s`."""
        held = self._held.pop(job_id, None)
        if held is None:
            return
        i, given, tenant = held
        for node, _ in given.placement:
            for one in self._of_node.get(node, ()):
                shared_s = min(until_s, one.end_s) - max(given.time_s, one.start_s)
                if shared_s > self._slack_s(one.end_s) and not one.admits(job_id, tenant):
                    text = f"job {job_id} holds node {node}, which reservation {one.number} keeps for others"
                    self.report_at(i, given, f"{text} for {shared_s:g} s from t={one.start_s:g} on")
                    return

    def _slack_s(self, now: float) -> float:
        return slack_s(now, 3 * self.evidence.resolution_s)
