"""One decision of a policy: `decide` sets up a situation and returns the changes that the policy proposes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from clustersim.cluster import Cluster, Placement
from clustersim.engine import PolicyCalls
from clustersim.jobs import ActiveJob
from clustersim.overheads import Overheads
from clustersim.placement import placer
from clustersim.scheduler import Event, JobView, Scheduler
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import active_of
from clustersim.speed import CannotRun
from itertime.errors import UserError, quoted
from traces.job import Job, submission_order

from .outcome import Table, TableSpeed

__all__ = ["Decision", "Running", "decide"]

_STAMPS = count(1)  # one for each scene: a policy may be asked in several, which have nothing in common

Running = Job | tuple[Job, int]
"""A running job on the GPUs that it requests, or a pair of a job and the number of its GPUs."""


@dataclass(frozen=True)
class Decision:
    """The changes that a policy proposes at `now_s`, by job id, in order of submission.

    `starts`, `resizes`, `moves`: the GPUs that each job gets, by node. `stops`: jobs that lose their GPUs.
    `waits`: jobs that stay pending. `declined`: jobs that the policy's `admit` refuses. `wake_at_s`: the
    wake-up that the policy requests. `held`: the number of GPUs that each running job held before.
    """

    now_s: float
    starts: Mapping[str, Placement]
    stops: tuple[str, ...]
    resizes: Mapping[str, Placement]
    moves: Mapping[str, Placement]
    waits: tuple[str, ...]
    declined: tuple[str, ...]
    wake_at_s: float | None
    held: Mapping[str, int]

    def gpus(self, job_id: str) -> int:
        """The GPUs that a job holds after the decision; 0 for a job that waits or was declined."""
        for changed in (self.starts, self.resizes, self.moves):
            if job_id in changed:
                return _size(changed[job_id])
        return 0 if job_id in self.stops else self.held.get(job_id, 0)

    def __str__(self) -> str:
        parts = [f"decline {job}" for job in self.declined]
        parts += [f"stop {job}" for job in self.stops]
        for job, place in self.resizes.items():
            parts.append(f"resize {job} from {self.held[job]} to {_on(place)}")
        parts += [f"move {job} to {_on(place)}" for job, place in self.moves.items()]
        parts += [f"start {job} on {_on(place)}" for job, place in self.starts.items()]
        if not parts:
            parts = ["nothing changes"]
        if self.waits:
            parts.append(f"{', '.join(self.waits)} wait{'s' if len(self.waits) == 1 else ''}")
        if self.wake_at_s is not None:
            parts.append(f"wake up at t={self.wake_at_s:g} s")
        return f"t={self.now_s:g} s: " + "; ".join(parts)


def decide(
    policy: Scheduler,
    *,
    pending: Sequence[Job] = (),
    running: Sequence[Running] = (),
    cluster: str | Cluster = "n1g8",
    now_s: float | None = None,
    table: Table | None = None,
    overheads: Overheads | None = None,
    placement: str = "pack",
) -> Decision:
    """One decision of `policy` in the situation that the arguments describe. Nothing is simulated.

    `running` jobs have held their GPUs since their submission; the placer called `placement` places them in
    order of submission. `pending` jobs have just been submitted and go through the policy's `admit`. Jobs
    with a model take their speeds from `table` (model and global batch -> GPUs -> iterations/s), as in
    `simulate`. `now_s`: by default the latest submission.

    UserError for an impossible situation (running jobs that do not fit, a job that cannot run anywhere);
    PolicyError for a policy that breaks a rule.

    >>> from clustersim.testing import decide
    >>> from policies.fifo import Fifo
    >>> print(decide(Fifo(), pending=[Job("a", 0.0, gpus=8, duration_s=60.0)], cluster="1x8"))
    t=0 s: start a on 8 GPUs (node 0)
    """
    shape = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    facts: ClusterState[JobView] = ClusterState(shape, placer(placement), overheads or Overheads())
    scene = _Scene(policy, facts, TableSpeed(shape, table or {}))
    sizes = [entry if isinstance(entry, tuple) else (entry, None) for entry in running]
    jobs = [*pending, *(job for job, _ in sizes)]
    if len({job.job_id for job in jobs}) < len(jobs):
        raise UserError("decide: two jobs have the same id; give each its own")
    facts.stamp = next(_STAMPS)
    facts.now_s = max((job.submit_s for job in jobs), default=0.0) if now_s is None else now_s
    order = {job.job_id: i for i, job in enumerate(submission_order(jobs))}
    for job, gpus in sorted(sizes, key=lambda entry: order[entry[0].job_id]):
        scene.run(job, order[job.job_id], gpus)
    for job in submission_order(pending):
        scene.submit(job, order[job.job_id])
    return scene.ask()


class _Scene:
    """The described situation, and the policy that decides in it."""

    def __init__(self, policy: Scheduler, facts: ClusterState[JobView], speed: TableSpeed):
        self.facts, self.speed = facts, speed
        self.policy = PolicyCalls(policy, facts)
        self.declined: list[str] = []

    def run(self, job: Job, order: int, gpus: int | None) -> None:
        """Let `job` hold `gpus` GPUs, by default those it requests, since its submission."""
        view, now = self._enter(job, order), self.facts.now_s
        if self.policy.why_declined(view):
            raise UserError(f"decide: job {job.job_id} is listed as running, but the policy declines it")
        active, count = active_of(view), view.requested if gpus is None else gpus
        if not view.can_run_on(count):
            sizes = ", ".join(map(str, view.sizes))
            raise UserError(f"decide: job {job.job_id} on {quoted(count)} GPUs: it can run on {sizes}")
        place = self.facts.room_for(view).place(self.facts.capacity, count)
        if place is None:
            raise UserError(f"decide: running job {job.job_id} has no room for its {count} GPUs")
        active.start_s = job.submit_s
        self.facts.capacity.take(place, active.demand)
        done_s = active.hold(place, count, active.curve.unit_s[count], job.submit_s, 0.0)
        if done_s <= now:
            text = f"would have finished at t={done_s:g} s, before now, t={now:g} s"
            raise UserError(
                f"decide: running job {job.job_id} {text}; give it more work or a later submission"
            )
        self.facts.running[view] = active.generation

    def submit(self, job: Job, order: int) -> None:
        view = self._enter(job, order)
        if self.policy.why_declined(view):
            self.declined.append(view.id)
        else:
            self.policy.add_waiting(view)
            self.policy.state.events.append(Event("submitted", view))

    def ask(self) -> Decision:
        state = self.policy.state
        waiting = list(state.pending)
        proposal = self.policy.schedule()
        starts: dict[str, Placement] = {}
        resizes: dict[str, Placement] = {}
        moves: dict[str, Placement] = {}
        stops = []
        for job in sorted(proposal.changes, key=lambda job: job.order):
            place = proposal.changes[job]
            if place is None:
                stops.append(job.id)
            elif not job.running:
                starts[job.id] = place
            elif _size(place) == job.gpus:
                moves[job.id] = place
            else:
                resizes[job.id] = place
        return Decision(
            now_s=state.now,
            starts=starts,
            stops=tuple(stops),
            resizes=resizes,
            moves=moves,
            waits=tuple(job.id for job in waiting if job.id not in starts),
            declined=tuple(self.declined),
            wake_at_s=proposal.wake_at,
            held={job.id: job.gpus for job in state.running},
        )

    def _enter(self, job: Job, order: int) -> JobView:
        if job.submit_s > self.facts.now_s:
            raise UserError(f"decide: job {job.job_id} is submitted after now, t={self.facts.now_s:g} s")
        try:
            curve = self.speed.curve(job)
            requested, note = self.speed.requested(job, curve)
        except CannotRun as reason:
            raise UserError(f"decide: job {job.job_id} cannot run here: {reason}") from None
        active = ActiveJob(job, order, curve, requested, note)
        self.facts.note_demand(active)
        return JobView(active, self.facts)


def _size(place: Placement) -> int:
    return sum(count for _, count in place)


def _on(place: Placement) -> str:
    """`12 GPUs (nodes 0-1)`."""
    gpus, nodes = _size(place), [node for node, _ in place]
    runs: list[list[int]] = []
    for node in nodes:
        if runs and node == runs[-1][1] + 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"{gpus} GPU{'' if gpus == 1 else 's'} (node{'' if len(nodes) == 1 else 's'} {spans})"
