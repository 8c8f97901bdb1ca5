"""Jobs whose speed changes with their progress."""

from __future__ import annotations

from clustersim.jobs import ActiveJob, Phases

__all__ = ["PhasedJobs"]


class PhasedJobs:
    """Gives jobs their phases. That a phase ends is a stop of the job, like its own end."""

    columns = ("phases",)

    def receive(self, active: ActiveJob) -> bool:
        active.divide_into(Phases(active.curve, active.offers, active.work))
        return False
