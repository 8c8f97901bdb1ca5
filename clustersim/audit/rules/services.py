"""The rule that instances of services leave when their time is over, and no other job does."""

from __future__ import annotations

from clustersim.audit.evidence import agrees, slack_s
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.records import FINISH, SERVED, EventRecord

__all__ = ["ServicesLeave"]


class ServicesLeave(Rule):
    name = "services"
    text = "an instance of a service leaves when its time is over, with GPUs or without"

    def __init__(self, history: ClusterHistory):
        super().__init__(history)
        self.kinds = (SERVED, FINISH)

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        record = None if job is None else job.record
        if record is None:
            return
        if (event.event == SERVED) != bool(record.service):
            problem = (
                f"is an instance of {record.service}" if record.service else "is no instance of a service"
            )
            self.report_at(i, event, f"{event.event} of job {event.job_id}, which {problem}")
        elif record.service and record.isolated_s is not None:
            expected_s = record.submit_s + record.isolated_s
            if not agrees(event.time_s, expected_s, slack_s(expected_s, 3 * self.evidence.resolution_s)):
                self.report_at(i, event, f"job {event.job_id} leaves; its time is over at t={expected_s:g}")
