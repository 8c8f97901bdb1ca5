"""What the parts of one simulation share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from clustersim.jobs import ActiveJob
from clustersim.records import FAIL, FAILED, FINISH, FINISHED, REJECT, JobRecord, Recorder, as_row
from clustersim.scheduler import Event, JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of

from .clock import Arrivals, Clock, Due
from .job_records import record_of
from .policy_calls import PolicyCalls

__all__ = ["World"]


class World:
    """Clock, facts, policy and recorder of a simulation, and what all its parts do with them.

    | field | |
    |---|---|
    | `clock`, `facts` | simulated time; the cluster and its jobs |
    | `policy`, `state` | calls of the policy; the state that it sees |
    | `events` | `state.events`: what happens until the next decision |
    | `recorder`, `overheads` | the records of the run; what starts and restarts cost |
    | `arrivals`, `submitted` | the jobs to be submitted; those submitted but not admitted yet |
    | `last_event_s`, `wake_ups` | the time of the last event but wake-ups; how many of these followed it |
    | `views` | what the policy sees of the jobs in the system, by job |
    | `waiting_apart`, `running_apart` | the number of jobs in the system that features run, not the policy |
    | `held` | the jobs in the system that are not to be run yet, and why (`HeldJobs`) |

    Features (`clustersim.engine.features`) append functions to these lists:

    | list | arguments | when they are called |
    |---|---|---|
    | `at_begin` | none | before the first event |
    | `before_decisions` | the time | the events of an instant are applied, and the policy is to be asked |
    | `on_node_loss` | the node, the reason | a node with GPUs in use has gone out of service |
    | `on_start` | the job | a job gets GPUs for the first time |
    | `on_finish` | the job | a job has done its work |
    | `on_departure` | the record | a job has left the system, or does not enter it |
    | `at_end` | the time | the run has ended, and the jobs of the policy are recorded |
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
        self.arrivals = arrivals
        self.submitted: deque[ActiveJob] = deque()
        self.views: dict[ActiveJob, JobView] = {}
        self.waiting_apart = self.running_apart = 0
        self.held: dict[ActiveJob, str] = {}
        self.last_event_s, self.wake_ups = clock.now, 0
        self.at_begin: list[Callable[[], None]] = []
        self.before_decisions: list[Callable[[float], None]] = []
        self.on_node_loss: list[Callable[[int, str], None]] = []
        self.on_start: list[Callable[[ActiveJob], None]] = []
        self.on_finish: list[Callable[[ActiveJob], None]] = []
        self.on_departure: list[Callable[[JobRecord], None]] = []
        self.at_end: list[Callable[[float], None]] = []
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

    def tell(self, event: Event) -> None:
        """Tell the policy at its next decision what happened: anything but a wake-up, so the stamp moves."""
        self.events.append(event)
        self.facts.stamp += 1

    def note_change(self, active: ActiveJob) -> None:
        """A running job goes on otherwise than before, which no event tells."""
        if self.facts.changes is not None:
            self.facts.changes.add(self.views[active])

    def drained(self) -> bool:
        """Whether no job is in the system or still to arrive: calling the policy has no further effect."""
        facts = self.facts
        jobs_inside = self.submitted or facts.running or facts.waiting.jobs or self.held
        return self.arrivals.next is None and not (jobs_inside or self.waiting_apart or self.running_apart)

    def leave(self, active: ActiveJob, now: float, failure: str = "") -> None:
        """A job leaves the system at `now`: finished, or unfinished because of a `failure`."""
        if not failure:
            active.work_left = 0.0
            active.finish_s = now
            for observe in self.on_finish:
                observe(active)
        self.tell(as_row(Event, ("finished", self.views.pop(active), None)))
        self.recorder.event(now, FAIL if failure else FINISH, active.job.job_id, detail=failure)
        self.depart(record_of(active, state=FAILED if failure else FINISHED, reason=failure), active.order)

    def hand_over(self, view: JobView) -> None:
        """A waiting job leaves this cluster for another one of its fleet."""
        self.facts.waiting.remove(view)
        del self.views[active_of(view)]
        self.tell(as_row(Event, ("finished", view, None)))

    def reject(self, record: JobRecord, order: int) -> None:
        """A submitted job does not enter the system. `order`: its position in the order of submission."""
        self.recorder.event(self.clock.now, REJECT, record.job_id, detail=record.reason)
        self.depart(record, order)

    def depart(self, record: JobRecord, order: int) -> None:
        """Keep the record of a job that has left the system, or does not enter it, and count it."""
        self.recorder.keep_job(record, order)
        for observe in self.on_departure:
            observe(record)
        self._departures += 1
        if self._on_progress is not None:
            self._on_progress(self._departures)
