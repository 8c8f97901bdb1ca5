"""Gavel's space sharing: policies over shares of time in which two jobs may run on the same GPUs.

Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads" (Gavel), OSDI
2020, sections 3.1 and 5. The programs are in `policies/solvers/packed_shares.py`. Rounds run combinations of
jobs in the order of their priorities, each job in at most one.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from clustersim.scheduler import JobView, Proposal, State
from policies.solvers.packed_shares import Partners
from policies.toolkit.gavel import Gavel, Ledger
from policies.toolkit.parameters import switch

from .groups import Group, Wanted, groups_of, run_groups, start_group

__all__ = ["SpaceSharing"]

Array = NDArray[np.float64]
Kind = tuple[str | None, int, tuple[int, ...]]
"""Model, GPUs and the nodes that these are to lie on: what decides beside which jobs a job may run, and how
fast.
"""

_LEAST_GAIN = 1e-9  # of the work of a pair over that of a job alone
_LEAST_SHARE = 1e-4  # of its time that a job spends beside others: less is a rounding error of the solver


class SpaceSharing(Gavel):
    """A policy of Gavel's which with `packing` runs two jobs of as many GPUs on the same ones, where its
    program finds that better; without it the same as `Gavel`.

    How much jobs slow each other down is the `sharing` of the run.
    """

    def __init__(self, round_s: float = 360.0, recompute_every_round: bool = False, packing: bool = False):
        super().__init__(round_s, recompute_every_round)
        self.packing = switch("packing", packing)
        self.packs = 2 if self.packing else 1
        self.partners: Partners | None = None
        """Which of the present jobs may share GPUs, for the program; None if no two of them gain by it."""
        self._numbers: dict[Kind, int] = {}  # of all kinds that were part of a pair, as in the ledger

    def columns(self, jobs: Sequence[JobView], rates: Array, capacity: Sequence[int], now: float) -> Array:
        """The shares of `time_shares` for the ledger: alone on each type, then beside each kind ever seen."""
        present = self._find_partners(jobs) if self.packing else []
        shares, types = self.time_shares(jobs, rates, capacity, now), len(capacity)
        table = np.zeros((len(jobs), 1 + len(self._numbers), types))
        blocks = shares.reshape(len(jobs), -1, types)
        blocks[:, 1:][blocks[:, 1:] < _LEAST_SHARE] = 0.0
        table[:, [0, *(1 + number for number in present)]] = blocks
        return table.reshape(len(jobs), -1)

    def run(self, proposal: Proposal, ledger: Ledger, state: State) -> None:
        if not self._numbers:
            super().run(proposal, ledger, state)
            return
        types = state.cluster.gpu_types
        ranked = ledger.ranked(self.round_s)
        _Round(ranked, ledger, self._numbers, state).run(proposal)
        partners = _beside(proposal)
        parts = {job for group in proposal.groups() for job in group}
        for job in proposal.running():
            partner, column = partners.get(job), types.index(proposal.gpu_type(job))
            block = 0 if partner is None else 1 + self._numbers.get(_kind(partner), -1)
            ledger.ran_on(job, block * len(types) + column, 0.5 if job in parts else 1.0)

    def _find_partners(self, jobs: Sequence[JobView]) -> list[int]:
        """Set `partners`. Returns the number of each of its kinds."""
        job_of_kind: dict[Kind, JobView] = {}
        for job in jobs:
            if job.needs >= 1:  # it holds no part of a GPU by its trace
                job_of_kind.setdefault(_kind(job), job)
        speed = {
            (a, b): 1 / job_a.slowdown_beside([job_b])
            for a, job_a in job_of_kind.items()
            for b, job_b in job_of_kind.items()
            if a[1:] == b[1:]
        }
        gaining = {
            (a, b): speed_beside
            for (a, b), speed_beside in speed.items()
            if speed_beside + speed[b, a] > 1 + _LEAST_GAIN
        }
        row = {kind: i for i, kind in enumerate(dict.fromkeys(a for a, _ in gaining))}
        if not row:
            self.partners = None
            return []
        table = np.zeros((len(row), len(row)))
        for (a, b), speed_beside in gaining.items():
            table[row[a], row[b]] = speed_beside
        of_job = [row.get(_kind(job), -1) if job.needs >= 1 else -1 for job in jobs]
        self.partners = Partners(of_job, table)
        return [self._numbers.setdefault(kind, len(self._numbers)) for kind in row]


class _Round:
    """What runs in a round.

    `ranked`: (job, column) pairs by priority. A pair whose column is beside a kind runs if there is a partner
    of that kind that is owed time beside this one: the present partner first, then the one with the highest
    priority. Jobs of a kind do each other the same, so which it is makes no difference to any throughput.
    """

    def __init__(
        self, ranked: Sequence[tuple[JobView, int]], ledger: Ledger, numbers: dict[Kind, int], state: State
    ):
        self._ranked, self._ledger, self._numbers, self._state = ranked, ledger, numbers, state
        self._types = state.cluster.gpu_types
        self._beside = _beside(state.proposal())
        self._queues: dict[tuple[int, int], list[JobView]] = {}  # by own kind and column, by priority
        for job, column in ranked:
            if column >= len(self._types):
                self._queues.setdefault((self._number(job), column), []).append(job)
        for queue in self._queues.values():
            queue.reverse()

    def run(self, proposal: Proposal) -> None:
        settling = self._state.unsettled()
        stay = [group for group in groups_of(proposal) if any(job in settling for job in group)]
        settling_groups: list[Wanted] = [(group, proposal.gpu_type(group[0])) for group in stay]
        new_groups, blocked = self._chosen(settling_groups)
        unplaced = run_groups(proposal, [*settling_groups, *new_groups], self._parts)
        if (
            new_groups and new_groups[0] in unplaced and not settling_groups
        ):  # free GPUs are too scattered for the first
            for job in proposal.running():
                proposal.stop(job)
            for group, gpu_type in new_groups:
                start_group(proposal, group, self._parts(group[0]), gpu_type)
        self._fill(proposal, blocked)

    def _chosen(self, settling_groups: Sequence[Wanted]) -> tuple[list[Wanted], bool]:
        """The groups that get GPUs, by counting them, beside those that stay; and whether the first of all
        must wait for these. No new group is chosen then.
        """
        room = self._state.in_service_by_type()
        busy_jobs = {job for group, _ in settling_groups for job in group}
        for (head, *_), on_type in settling_groups:
            room[str(on_type)] -= head.requested
        new_groups: list[Wanted] = []
        seen, blocked = False, False
        for job, column in self._ranked:
            gpu_type = self._types[column % len(self._types)]
            if job in busy_jobs or not job.can_run_on(job.requested, gpu_type):
                continue
            enough = job.requested <= room[gpu_type]
            blocked |= bool(settling_groups) and not seen and not enough
            seen = True
            if not enough or (blocked and not job.running):
                continue
            group: Group = (job,)
            if column >= len(self._types):
                partner = self._partner(job, column, busy_jobs)
                if partner is None:
                    continue
                group = (job, partner)
            new_groups.append((group, gpu_type))
            busy_jobs.update(group)
            room[gpu_type] -= job.requested
        return new_groups, blocked

    def _partner(self, job: JobView, column: int, busy_jobs: Container[JobView]) -> JobView | None:
        partner_kind, type_ = column // len(self._types) - 1, column % len(self._types)
        partner_column = (1 + self._number(job)) * len(self._types) + type_
        present_partner = self._beside.get(job)
        fits = (
            present_partner is not None
            and present_partner not in busy_jobs
            and self._number(present_partner) == partner_kind
        )
        if present_partner is not None and fits and self._ledger.share(present_partner, partner_column) > 0:
            return present_partner
        queue = self._queues.get((partner_kind, partner_column), [])
        while queue and queue[-1] in busy_jobs:
            queue.pop()
        return next(
            (
                candidate
                for candidate in reversed(queue)
                if candidate is not job and candidate not in busy_jobs
            ),
            None,
        )

    def _fill(self, proposal: Proposal, blocked: bool) -> None:
        """Start jobs that were not chosen, alone, on GPUs that are left."""
        hopeless: set[tuple[int, str]] = set()
        for job, column in self._ranked:
            if not proposal.free:
                return
            gpu_type = self._types[column % len(self._types)]
            size = job.requested, gpu_type
            if proposal.gpus(job) or size in hopeless or (blocked and not job.running):
                continue
            if job.can_run_on(job.requested, gpu_type):
                if not proposal.fits(job.requested, gpu_type):
                    hopeless.add(size)
                else:
                    start_group(proposal, (job,), self._parts(job), gpu_type)

    def _parts(self, job: JobView) -> int:
        """Into how many parts the GPUs of a job are divided."""
        return 2 if self._number(job) >= 0 else 1

    def _number(self, job: JobView) -> int:
        return self._numbers.get(_kind(job), -1) if job.needs >= 1 else -1


def _kind(job: JobView) -> Kind:
    return job.model, job.requested, job.node_counts


def _beside(proposal: Proposal) -> dict[JobView, JobView]:
    """The job on the same GPUs, for each job of a pair."""
    pairs = [group for group in proposal.groups() if len(group) == 2]
    return {one: other for a, b in pairs for one, other in ((a, b), (b, a))}
