"""How much slower jobs run than predictions say: the settings `step_time` and `variability`."""

from __future__ import annotations

from dataclasses import dataclass

from clustersim.cluster import Placement

from .step_times import StepTimes
from .variability import NodeSpeeds

__all__ = ["Slowdown"]


@dataclass(frozen=True)
class Slowdown:
    """What makes jobs slower than predicted: their steps, which are drawn with `seed`, and their nodes."""

    step_times: StepTimes | None
    node_speeds: NodeSpeeds | None
    seed: int

    def factors(self, job_id: str, model: str | None, gpus: int, placement: Placement) -> tuple[float, float]:
        """How many times as long as predicted a unit of work of a job takes, because of its steps and because
        of its nodes. Both hold as long as the job keeps its GPUs. A placement is empty in the audit of a
        wrong record, all of whose nodes the cluster lacks; then no node makes the job slow.
        """
        by_steps = by_nodes = 1.0
        if self.step_times is not None:
            by_steps = self.step_times.factor(job_id, gpus, self.seed)
        if self.node_speeds is not None and placement:
            by_nodes = self.node_speeds.factor(model, placement)
        return by_steps, by_nodes
