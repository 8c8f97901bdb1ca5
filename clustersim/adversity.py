"""What disturbs the jobs of a simulation beside its policy: nodes that go and come, jobs that fail by
themselves, storage that is shared. The engine asks here only if a run has any of it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from traces.job import Job

from .active import ActiveJob
from .calendar import Calendar
from .checkpoints import Cycle
from .cluster import Placement
from .failures import Failures, fate_of
from .fallible import FallibleJob
from .interruptions import Interruptions
from .loading import Loading
from .outages import Outages

if TYPE_CHECKING:
    from .curve import Curve
    from .simulation import Simulation

__all__ = ["Adversity", "adversity_of"]


def adversity_of(
    simulation: Simulation, failures: Failures | None, calendar: Calendar | None, seed: int
) -> Adversity | None:
    """None if nothing but the policy changes what a job does."""
    overheads = simulation.overheads
    saves = not isinstance(overheads.checkpoint_interval_s, str)
    planned = calendar is not None and (calendar.changes or calendar.absent)
    if failures is None and not planned and not saves and not overheads.storage_shared:
        return None
    return Adversity(simulation, failures, calendar, seed)


class Adversity:
    """Outages, fates, checkpoints and loads of one run."""

    def __init__(
        self, simulation: Simulation, failures: Failures | None, calendar: Calendar | None, seed: int
    ):
        self._simulation, self._failures, self._seed = simulation, failures, seed
        self._cluster = cluster = simulation.cluster
        gpus = [cluster.size_of(node) for node in range(cluster.nodes)]
        outages = Outages(gpus, simulation.clock.now, failures=failures, calendar=calendar, seed=seed)
        self._interruptions = Interruptions(simulation, outages, failures.retries if failures else 0)
        self.loading = Loading(simulation) if simulation.overheads.storage_shared else None

    def begin(self) -> None:
        """Called once, before anything happens."""
        self._interruptions.begin()

    def job(self, job: Job, order: int, curve: Curve, requested: int, note: str) -> ActiveJob:
        """A job that was submitted, with its fate."""
        active = FallibleJob(job, order, curve, requested, note, self._simulation.state)
        fate = fate_of(job, self._failures, self._seed) if self._failures is not None else None
        active.begin_life(self, *(fate or ()))
        return active

    def cycle(self, parameters: float, placement: Placement) -> Cycle:
        """How a job of a model of `parameters` parameters saves in `placement`: a failure of any node of it
        stops it, whose rate goes by all its GPUs.
        """
        overheads = self._simulation.overheads
        gpus = sum(self._cluster.size_of(node) for node, _ in placement)
        mtbf_s = self._failures.node_mtbf_s(gpus) if self._failures is not None else inf
        return overheads.cycle(parameters, len(placement), mtbf_s)
