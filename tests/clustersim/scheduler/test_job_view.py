"""What a view says of a job's past: service, payment and waiting, by hand."""

from __future__ import annotations

import pytest

from clustersim.overheads import Overheads
from clustersim.scheduler import Proposal, Scheduler, State
from clustersim.testing import simulate
from tests.builders import rigid


class Watcher(Scheduler):
    """The job runs from 10 s on, is stopped at 50 s and runs again from 80 s; noted every 5 s: (attained,
    productive GPU-seconds, waited).
    """

    def __init__(self) -> None:
        self.seen: dict[float, tuple[float, float, float]] = {}

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in [*state.running, *state.pending]:
            self.seen[state.now] = job.attained, job.productive_gpu_s, job.waited_s
            runs = 10 <= state.now < 50 or state.now >= 80
            if runs and not job.running:
                proposal.start(job)
            elif not runs and job.running:
                proposal.stop(job)
            proposal.wake_at = state.now + 5
        return proposal


@pytest.mark.parametrize(
    ("time_s", "attained", "productive", "waited"),
    [
        (0, 0, 0, 0),
        (10, 0, 0, 10),
        (20, 40, 0, 10),  # 20 s of launch, on 4 GPUs
        (30, 80, 0, 10),
        (45, 140, 60, 10),
        (50, 160, 80, 10),
        (65, 160, 80, 25),
        (80, 160, 80, 40),
        (95, 220, 80, 40),  # 30 s of restart
        (110, 280, 80, 40),
        (130, 360, 160, 40),
    ],
)
def test_the_past_of_a_job(time_s: float, attained: float, productive: float, waited: float) -> None:
    policy = Watcher()
    charged = Overheads(scheduling_s=0.0, launch_s=20.0, plain_restart_s=10.0)
    simulate([rigid("a", 0, 4, 100)], policy, "n1g4", overheads=charged)
    assert policy.seen[time_s] == pytest.approx((attained, productive, waited))
