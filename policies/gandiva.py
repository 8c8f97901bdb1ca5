"""Gandiva: time slicing, and migration against fragmentation."""

from __future__ import annotations

from clustersim.scheduler import Proposal, State
from policies.round_robin import RoundRobin

__all__ = ["Gandiva"]


class Gandiva(RoundRobin):
    """Round robin in slices of `quantum_s` seconds; jobs smaller than a node migrate together where that lets
    the first waiting job start for which there are GPUs enough.

    Xiao et al., "Gandiva: Introspective Cluster Scheduling for Deep Learning", OSDI 2018: suspend-resume and
    migration. Two jobs never share a GPU here, and no job grows or shrinks. The paper's slices of about a
    minute presume its suspension within seconds; a slice should be long against a restart.
    """

    def schedule(self, state: State) -> Proposal:
        proposal = super().schedule(state)
        if not state.pending or not proposal.free or state.cluster.mixed:
            return proposal
        for job in state.pending_by(self._queue_position).walk(lambda gpus: gpus <= proposal.free):
            if proposal.placement(job) is None:
                draft = proposal.copy()
                draft.compact({job: job.requested})
                others_run = all(draft.gpus(other) == proposal.gpus(other) for other in proposal.running())
                return draft if draft.placement(job) and others_run else proposal
        return proposal
