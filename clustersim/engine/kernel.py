"""What the parts of one simulation share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from clustersim.jobs import ActiveJob
from clustersim.records import FAIL, FAILED, FINISH, FINISHED, REJECT, SERVED, JobRecord, Recorder, as_row
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of

from .clock import Arrivals, Clock, Due
from .job_records import record_of
from .policy_calls import PolicyCalls

__all__ = ["Kernel", "ServicesInside"]


class ServicesInside(Protocol):
    """The instances of services in the system (see `clustersim.engine.services`)."""

    def __len__(self) -> int: ...

    def stop_on(self, node: int, reason: str) -> None:
        """Instances on a node that goes out of service wait again."""


class Kernel:
    """Clock, facts, policy and recorder of a simulation, and what all its parts do with them.

    | field | |
    |---|---|
    | `clock`, `facts` | simulated time; the cluster and its jobs |
    | `policy`, `state` | calls of the policy; the state that it sees |
    | `events` | `state.events`: what happens until the next decision |
    | `recorder`, `overheads` | the records of the run; what starts and restarts cost |
    | `arrivals`, `submitted` | the jobs to be submitted; those submitted but not admitted yet |
    | `predictor` | of run times; None if these are not predicted |
    | `views` | what the policy sees of the jobs in the system, by job |
    | `services` | the instances of services in the system; None before the first |
    """

    def __init__(
        self,
        clock: Clock,
        facts: ClusterState[JobView],
        policy: PolicyCalls,
        recorder: Recorder,
        arrivals: Arrivals,
        decide: Callable[[], None],
        on_progress: Callable[[int], None] | None = None,
    ):
        """`decide`: makes the decision of an instant. `on_progress` is called with the number of jobs that
        have left the system.
        """
        self.clock, self.facts, self.policy, self.recorder = clock, facts, policy, recorder
        self.overheads, self.state, self.events = facts.overheads, policy.state, policy.state.events
        self.arrivals, self.predictor = arrivals, arrivals.predictor
        self.submitted: deque[ActiveJob] = deque()
        self.views: dict[ActiveJob, JobView] = {}
        self.services: ServicesInside | None = None
        self._decide, self._on_decision_due = decide, [self._on_decision]
        self._decision_due = False
        self._on_progress, self._departures = on_progress, 0

    def decide_at_this_instant(self, now: float) -> None:
        """Decide once, behind everything else that is due at this instant, `now`."""
        if self._decision_due:
            return
        if self.clock.peek() > now:
            self._decide()
        else:
            self._decision_due = True
            self.clock.after(0.0, self._on_decision_due)

    def _on_decision(self, _: Due) -> None:
        self._decision_due = False
        self._decide()

    def drained(self) -> bool:
        """Whether no job is in the system or still to arrive: calling the policy has no further effect."""
        inside = self.submitted or self.facts.running or self.facts.waiting.jobs or self.services
        return self.arrivals.next is None and not inside

    def leave(self, active: ActiveJob, now: float, failure: str = "") -> None:
        """A job leaves the system at `now`: finished, or unfinished because of a `failure`."""
        if not failure:
            active.work_left = 0.0
            active.finish_s = now
            if self.predictor is not None:
                run_s = active.seconds_left(active.requested, active.work) or 0.0
                self.predictor.learn(active.job, active.requested, run_s)
        self.events.append(as_row(Event, ("finished", self.views.pop(active), None)))
        self.recorder.event(now, FAIL if failure else FINISH, active.job.job_id, detail=failure)
        record = record_of(active, state=FAILED if failure else FINISHED, reason=failure)
        self.recorder.keep_job(record, active.order)
        self._count_departure()

    def withdraw(self, view: JobView) -> None:
        """A waiting job leaves this cluster for another one of its fleet."""
        self.facts.waiting.remove(view)
        del self.views[active_of(view)]
        self.events.append(as_row(Event, ("finished", view, None)))

    def leave_served(self, active: ActiveJob, now: float) -> None:
        """The time of an instance of a service is over at `now`."""
        active.finish_s = now
        self.recorder.event(now, SERVED, active.job.job_id)
        self.recorder.keep_job(record_of(active, state=SERVED), active.order)
        self._count_departure()

    def reject(self, record: JobRecord, order: int) -> None:
        """A submitted job does not enter the system. `order`: its position in the order of submission."""
        self.recorder.event(self.clock.now, REJECT, record.job_id, detail=record.reason)
        self.recorder.keep_job(record, order)
        self._count_departure()

    def _count_departure(self) -> None:
        self._departures += 1
        if self._on_progress is not None:
            self._on_progress(self._departures)
