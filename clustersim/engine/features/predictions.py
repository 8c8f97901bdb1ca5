"""Run times that are predicted from the jobs before, in place of what users state."""

from __future__ import annotations

from clustersim.engine.world import World
from clustersim.jobs import ActiveJob
from traces.estimates import Predictor

__all__ = ["Predictions"]


class Predictions:
    """Predicts the run time of each job that arrives, and learns from each that finishes."""

    columns = ()

    def __init__(self, world: World, predictor: Predictor):
        self._world, self._predictor = world, predictor
        world.on_finish.append(self._learn)
        world.at_end.append(self._report)

    def receive(self, active: ActiveJob) -> bool:
        active.predict(self._predictor.predict(active.job, active.requested))
        return False

    def _learn(self, active: ActiveJob) -> None:
        run_s = active.seconds_left(active.requested, active.work) or 0.0
        self._predictor.learn(active.job, active.requested, run_s)

    def _report(self, now: float) -> None:
        self._world.recorder.predictions = self._predictor.errors()
