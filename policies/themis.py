"""Themis: finish-time fairness by auctions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.solvers.partial_allocation import auction
from policies.toolkit.parameters import number
from policies.toolkit.rounds import Rounds

__all__ = ["Themis"]


@dataclass
class _Record:
    """A job's run time on the GPUs it requests, and the integral over time of the number of jobs until its
    submission.
    """

    run_s: float
    crowd_before: float


class Themis(Scheduler):
    """Themis: GPUs are leased for `lease_s` seconds, in auctions among the fraction 1 - `fairness` of jobs
    that are worst off compared with 1/N of the cluster alone; the other jobs get what they leave.

    Mahajan et al., "Themis: Fair and Efficient GPU Cluster Scheduling", NSDI 2020. `fairness`, from 0 to 1,
    is the paper's f. Run times that users do not state come from the oracle. Later papers mean `gavel-ftf` by
    "Themis": Gavel's program for finish-time fairness, without auctions.
    """

    one_gpu_type = True

    def __init__(self, fairness: float = 0.8, lease_s: float = 1200.0):
        self.fairness = number("fairness", fairness, 0.0, 1.0)
        self.lease_s = number("lease_s", lease_s, 1.0, 1e7)
        self._rounds = Rounds(self.lease_s)
        self._records: dict[JobView, _Record] = {}
        self._crowd = 0.0  # integral over time of the number of jobs
        self._since_s = 0.0

    def schedule(self, state: State) -> Proposal:
        jobs = sorted([*state.running, *state.pending], key=lambda job: job.order)
        self._note_present(jobs, state.now)
        leased = [] if self._rounds.begins(state) else list(state.running)
        offered = state.in_service - sum(job.gpus for job in leased)
        proposal = state.proposal()
        if offered <= 0:  # less than 0 where leased jobs share GPUs, each of which counts as one
            return self._rounds.until_end(proposal, state)
        bidders = [job for job in jobs if not leased or not job.running]
        bidders.sort(key=lambda job: (-self.ratio(job, 0, state.now), job.order))
        shares = {job: job.gpus for job in leased} | self._allot(bidders, offered, state.now)
        proposal.run(shares, smaller=False, let_settle=True)
        return self._rounds.until_end(proposal, state)

    def ratio(self, job: JobView, gpus: int, now: float) -> float:
        """rho = T_shared / T_independent of a job that has `gpus` GPUs from now on (section 3).

        T_shared is the time from submission to finish. A job without GPUs is assumed to get the GPUs it
        requests after one lease. T_independent is its time alone on those GPUs, times the mean number of jobs
        since its submission.
        """
        record = self._records[job]
        elapsed_s = now - job.submit_s
        shared_s = elapsed_s + (job.oracle_remaining(gpus) if gpus else job.oracle_remaining() + self.lease_s)
        present = len(self._records)
        crowd = (self._crowd - record.crowd_before) / elapsed_s if elapsed_s > 0 else present
        return shared_s / (record.run_s * max(1.0, crowd))

    def _note_present(self, jobs: Sequence[JobView], now: float) -> None:
        self._crowd += len(self._records) * (now - self._since_s)
        self._since_s = now
        old_records = self._records
        self._records = {
            job: old_records.get(job) or _Record(max(job.oracle_remaining(), 1e-3), self._crowd)
            for job in jobs
        }

    def _allot(self, bidders: Sequence[JobView], gpus: int, now: float) -> dict[JobView, int]:
        """The GPUs that each of `bidders`, the worst off first, gets of the `gpus` on offer.

        First come the jobs in the auction, then the others, then again those in the auction that
        have less than they request after their payment.
        """
        bidding = bidders[: ceil(round((1 - self.fairness) * len(bidders), 9))]
        held = self._auction(bidding, gpus, now)
        remaining = gpus - sum(held.values())
        for job in [*bidders[len(bidding) :], *bidding]:
            next_size = max((size for size in _sizes(job) if size <= held.get(job, 0) + remaining), default=0)
            if next_size:
                remaining -= next_size - held.get(job, 0)
                held[job] = next_size
        return {job: held[job] for job in bidders if job in held}

    def _auction(self, bidding: Sequence[JobView], gpus: int, now: float) -> dict[JobView, int]:
        """The GPUs that each bidder keeps: what the payment leaves of the GPUs won, rounded down to a count
        that it can run on, but at least its smallest. The job that is worst off always wins some.
        """
        bids = [{n: -log(self.ratio(job, n, now)) for n in _sizes(job)} | {0: _NOTHING} for job in bidding]
        if bids:
            bids[0][0] = 2 * _NOTHING * len(bids)
        held = {}
        for job, award in zip(bidding, auction(bids, gpus), strict=True):
            if award.gpus:
                sizes = [n for n in _sizes(job) if n <= award.gpus * award.kept + _ROUNDING]
                held[job] = sizes[-1] if sizes else _sizes(job)[0]
        return held


_ROUNDING = 1e-6  # GPUs: a bidder without rivals keeps all, but sums of logarithms are rounded
_NOTHING = -1e3  # the logarithm of the value of no GPUs: the time to finish is unbounded, the value 0


def _sizes(job: JobView) -> tuple[int, ...]:
    """The counts that a job bids for: up to its request."""
    return (*(size for size in job.sizes if size < job.requested), job.requested)
