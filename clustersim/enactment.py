"""What a proposal changes is done here: starts, preemptions, resizes and migrations, and what they cost."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .active import ActiveJob
from .cluster import Placement
from .network import Network
from .scheduler import Proposal

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["Enactment"]


class Enactment:
    """Gives the jobs of a simulation GPUs and takes them away, and records it.

    `network`: what makes of their speeds where they run; None where it is ideal.
    """

    def __init__(self, simulation: Simulation):
        self._simulation = simulation
        self._clock, self._state, self._questions = simulation.clock, simulation.state, simulation.questions
        self._on_completion_due = [simulation._on_completion]
        self.network: Network[ActiveJob] | None = None
        if simulation.cluster.network != "ideal":
            self.network = Network(simulation.cluster, simulation.speed)

    def enact(self, proposal: Proposal, now: float) -> None:
        """Turn the difference between the proposal and reality into starts, preemptions, resizes and
        migrations.
        """
        changes = proposal._changes
        if not changes and self.network is None:
            return
        self._state._adopt(proposal)
        speeds: dict[ActiveJob, float] = {}
        if self.network is not None:
            speeds = self.network.after({job._job: placement for job, placement in changes.items()})
        for job, placement in changes.items():
            active = job._job
            active.settle(now)
            if placement is None:
                self.preempt(active)
            else:
                self._give(active, placement, now, speeds.pop(active, None))
        for active, unit_s in speeds.items():
            self.change_speed(active, unit_s)

    def preempt(self, active: ActiveJob, why: str = "") -> None:
        """Let a running job wait again, with its progress; its GPUs are free already."""
        self._let_go(active)
        active.preemptions += 1
        self._questions.add_pending(active.view)
        self._simulation.recorder.event(self._clock.now, "preempt", active.job.job_id, detail=why)

    def withdraw(self, active: ActiveJob) -> None:
        """Free the GPUs of a running job, which is to end or has been interrupted."""
        assert active.placement is not None
        self._state._capacity.release(active.placement)
        self._let_go(active)

    def change_speed(self, active: ActiveJob, unit_s: float) -> None:
        """Let a running job go on at another speed, on the GPUs that it holds."""
        now = self._clock.now
        self.expect_completion(active, active.change_speed(unit_s, now), now)
        self._simulation.recorder.event(now, "rate", active.job.job_id, unit_s=unit_s)

    def expect_completion(self, active: ActiveJob, done_s: float, now: float) -> None:
        """The job will be done at `done_s` if nothing happens to its GPUs. Infinite while it loads, for a
        time that is not known yet.
        """
        if done_s < inf:
            self._clock.after(done_s - now, self._on_completion_due, (active, active.generation))

    def _let_go(self, active: ActiveJob) -> None:
        active.let_go()
        if self.network is not None:
            self.network.leave(active)
        del self._state._running[active.view]

    def _give(self, active: ActiveJob, placement: Placement, now: float, unit_s: float | None) -> None:
        """`unit_s`: what the network makes of it; None where it says nothing."""
        gpus = sum([count for _, count in placement])
        kind = _classify(active, gpus)
        overhead_s = active.overhead_s(self._simulation.overheads, kind, gpus, len(placement))
        if active.placement is None:
            self._state._drop_pending(active.view)
            self._state._running[active.view] = None
            if active.start_s is None:
                active.start_s = now
        curve = active.curve_at(placement)
        unit_s = curve.unit_s[gpus] if unit_s is None else unit_s
        self.expect_completion(active, active.hold(placement, gpus, unit_s, now, overhead_s), now)
        plan = curve.plans.get(gpus, "")
        recorder = self._simulation.recorder
        given = recorder.event(now, kind, active.job.job_id, gpus, placement, plan, overhead_s, unit_s=unit_s)
        if plan:
            recorder.plan(active.job, given)


def _classify(active: ActiveJob, gpus: int) -> str:
    """What it is for a job to be given `gpus` GPUs, which is counted."""
    if active.start_s is None:
        return "start"
    if active.placement is None:
        active.restarts += 1
        return "restart"
    if active.gpus != gpus:
        active.resizes += 1
        return "resize"
    active.migrations += 1
    return "migrate"
