"""What a feature of a simulation is."""

from __future__ import annotations

from typing import Protocol

from clustersim.jobs import ActiveJob

__all__ = ["Feature"]


class Feature(Protocol):
    """An optional part of a simulation, of which the rest of the engine knows no more than this.

    A job that was just submitted meets the features of its run, in the order of `features_of`. At all other
    moments a feature takes part by functions that it enters in the lists of the `World`: `at_begin`,
    `before_decisions`, `on_node_loss`, `on_finish` and `at_end`. It does so when it is made, or when the
    first job needs it. It may change the facts of the cluster, and expect events on the clock. So a run that
    does not use a feature meets no code of it.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of `Job` that ask for the feature; none: it concerns every job."""

    def receive(self, active: ActiveJob) -> bool:
        """Give a job that was just submitted what the feature adds to it. True if the feature runs the job
        from now on, so that neither further features nor the policy see it.
        """
