"""Policies that act by observations: what an agent does in the environment, as a policy."""

from __future__ import annotations

from collections.abc import Sequence

from clustersim.scheduler import JobView, Proposal, Scheduler, State

from .observation import Observation, Observer

__all__ = ["ChoosingScheduler"]


class ChoosingScheduler(Scheduler):
    """Starts the jobs that `choose` names, one at a time, until it lets time pass. Not preemptive.

    `window`, `sizes`: as of `Observer`. A trained model becomes a policy by one method:

        class Mine(ChoosingScheduler):
            def choose(self, observation):
                return int(model.predict(observation))

    An action that is not possible counts as letting time pass.
    """

    def __init__(self, window: int = 16, sizes: Sequence[float] = (1.0,)):
        self.window, self.sizes = window, sizes
        self.observer = Observer(window, sizes)

    def choose(self, observation: Observation) -> int:
        """The action: 0 lets time pass, others start a job (see `Observer`)."""
        raise NotImplementedError(f"{type(self).__name__} must implement choose(self, observation)")

    def schedule(self, state: State) -> Proposal:
        """Ask `choose` for as long as some visible job can start."""
        proposal = state.proposal()
        started: set[JobView] = set()
        while (choice := self.observer.choice(state, proposal, started)) is not None:
            start = choice.start_of(self.choose(choice.observation))
            if start is None:
                break
            job, gpus = start
            started.add(job)  # if it has no place after all, it is not offered again at this instant
            proposal.start(job, gpus)
        return proposal
