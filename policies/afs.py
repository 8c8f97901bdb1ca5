"""AFS: apathetic future share."""

from __future__ import annotations

from collections.abc import Mapping

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.divisions.afs_scan import Gain, Scan, gains
from policies.toolkit.stepwise import Walk, jobs_by

__all__ = ["Afs", "apathetic_shares"]


class Afs(Scheduler):
    """AFS-L: of any two jobs, the next GPU goes to the one where it lowers their mean completion time more,
    not counting GPUs that are freed later; at every event.

    Hwang et al., "Elastic Resource Sharing for Distributed Deep Learning", NSDI 2021, section 4. Of two jobs
    let `a` be the one that ends first on the GPUs it holds. A GPU goes to `b` if
    (p_b' - p_b) / p_b' > (p_a' - p_a) / p_a, where p and p' are the speeds without and with it, else to `a`.
    Of two jobs without GPUs, it goes to the shorter one. Run times that users do not state come from the
    oracle.
    """

    one_gpu_type = True
    elastic = True

    def __init__(self) -> None:
        self._gains: dict[JobView, tuple[Gain, ...]] = {}

    def schedule(self, state: State) -> Proposal:
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._gains.pop(event.job, None)
        walk = jobs_by(state, _run_time)
        proposal = state.proposal()
        proposal.run(apathetic_shares(walk, state.in_service, self._gains), let_settle=True)
        return proposal


def _run_time(job: JobView) -> float:
    """Seconds left on the fewest GPUs that the job can use."""
    return job.oracle_remaining(job.sizes[0])


def apathetic_shares(
    walk: Walk, gpus: int, gains_by_job: dict[JobView, tuple[Gain, ...]]
) -> dict[JobView, int]:
    """GPUs by job, in order of submission, without the jobs that get none.

    `walk` yields the jobs in the order of their run times on their smallest sizes. Of the jobs without GPUs
    only the shortest is compared: it comes before a job with GPUs unless the next step of that job doubles
    its speed per GPU. `gains_by_job`: the `gains` of jobs, filled in here.
    """
    remaining = gpus

    def fits(size: float) -> bool:
        return size <= remaining

    size_counts: dict[JobView, int] = {}  # by job, the number of its sizes taken
    steep: dict[JobView, None] = {}  # jobs with a next step that may come before a job without GPUs
    for idle in walk(fits):
        if idle not in gains_by_job:
            gains_by_job[idle] = gains(idle)
        while idle not in size_counts and idle.sizes[0] <= remaining:
            scan = _scan({**(size_counts if steep else {}), idle: 0}, gains_by_job)
            job = scan.first(remaining)
            assert job is not None
            gpus_taken, size_counts[job] = scan.take()
            remaining -= gpus_taken
            steep.pop(job, None)
            if any(as_first >= 1 for _, as_first, _ in gains_by_job[job][size_counts[job] :][:1]):
                steep[job] = None
    scan = _scan(size_counts, gains_by_job)
    while remaining and (job := scan.first(remaining)) is not None:
        gpus_taken, size_counts[job] = scan.take()
        remaining -= gpus_taken
    return {job: job.sizes[size_counts[job] - 1] for job in sorted(size_counts, key=lambda job: job.order)}


def _scan(size_counts: Mapping[JobView, int], gains_by_job: Mapping[JobView, tuple[Gain, ...]]) -> Scan:
    jobs = sorted(size_counts, key=lambda job: job.order)
    return Scan((job, size_counts[job], gains_by_job[job]) for job in jobs)
