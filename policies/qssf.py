"""Quasi-shortest service first."""

from __future__ import annotations

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number

__all__ = ["Qssf"]


class Qssf(Scheduler):
    """Least predicted GPU time (requested GPUs x predicted run time) first, not preemptive; the first job
    that does not fit blocks.

    Hu, Sun, Yan, Wen and Zhang, "Characterization and Prediction of Deep Learning Workloads in Large-Scale
    GPU Datacenters", SC 2021, the QSSF service of Helios. Run times are predicted from the jobs that ended
    before a job was submitted, by `weight` x a rolling estimate of its user's history + (1 - `weight`) x a
    model of all jobs. The paper's model is gradient-boosted trees; ours is means of nested groups of jobs,
    the predictor `blend`. A run that sets `estimates` replaces the predictor. A job that fits on no nodes
    that remain in the cluster is skipped.
    """

    def __init__(self, weight: float = 0.5):
        self.weight = number("weight", weight, minimum=0, maximum=1)
        self.estimates = {"predictor": "blend", "weight": self.weight}

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        for job in state.pending_by(_service):
            if not proposal.start(job) and state.ever_fits(job):
                break
        return proposal


def _service(job: JobView) -> float:
    return job.oracle_remaining() * job.requested
