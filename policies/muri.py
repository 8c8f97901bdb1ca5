"""Muri: jobs that use different resources take turns on the same GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import merge
from reprlib import repr as brief

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.packing.groups import Group, groups_of, start_group
from policies.solvers.pairing import best_pairs
from policies.toolkit.parameters import number, whole
from policies.toolkit.rounds import Rounds

__all__ = ["Muri"]

_ORDERS = ("srsf", "las")


class Muri(Scheduler):
    """The first jobs by `order` (srsf: least GPU time left, las: least attained) run in groups of up to
    `group` jobs on the same GPUs, chosen for the most work per GPU, in rounds of `round_s`; preemptive.

    Zhao et al., "Multi-Resource Interleaving for Deep Learning Training", SIGCOMM 2022: Muri-S and Muri-L.
    Jobs of as many GPUs are grouped by repeated matchings of the greatest weight, as in the paper, if they
    may run on the same GPU types. The weight is the work per time that a group does beyond what its parts do
    in turns. How fast jobs run in a group is the `sharing` of the run, where `profiles` state the stages of
    their iterations. If all jobs fit alone, none share.
    """

    leaves_idle = False

    def __init__(self, order: str = "srsf", group: int = 2, round_s: float = 360.0):
        if order not in _ORDERS:
            raise ValueError(f"order={brief(order)}: must be one of {', '.join(_ORDERS)}")
        self.order = order
        self.group = self.packs = whole("group", group, 1, 4)
        self.round_s = number("round_s", round_s, minimum=1)
        self._rounds = Rounds(self.round_s)
        self._key = _service if order == "srsf" else _attained

    def schedule(self, state: State) -> Proposal:
        proposal = state.proposal()
        if self._rounds.begins(state):
            self._regroup(proposal, state)
        stopped_jobs = sorted((job for job in proposal.changes if job.running), key=self._rank)
        stopped_jobs = [job for job in stopped_jobs if not proposal.gpus(job)]
        waiting_jobs = state.pending_by(self._key).walk(proposal.fits)
        for job in merge(waiting_jobs, stopped_jobs, key=self._rank):
            if not proposal.gpus(job):
                proposal.start(job)
        return self._rounds.until_end(proposal, state)

    def _rank(self, job: JobView) -> tuple[float, int]:
        return self._key(job), job.order

    def _regroup(self, proposal: Proposal, state: State) -> None:
        """Stop the jobs that are not of a group that stays, then start groups in order."""
        old_groups = dict.fromkeys(groups_of(proposal))
        room, next_groups = state.in_service, []
        for group in self._groups(state, list(old_groups)):
            if group[0].requested <= room:
                next_groups.append(group)
                room -= group[0].requested
        stay = {job for group in next_groups if group in old_groups for job in group}
        for job in proposal.running():
            if job not in stay:
                proposal.stop(job)
        for group in next_groups:
            if group not in old_groups:
                start_group(proposal, group, len(group))

    def _groups(self, state: State, old_groups: list[Group]) -> list[Group]:
        """The groups that are to run, in order of their first job."""
        ranked = sorted([*state.running, *state.pending], key=self._rank)
        room, candidates = self.group * state.in_service, []
        for job in ranked:
            if job.requested <= room:
                candidates.append(job)
                room -= job.requested
        rank = {job: i for i, job in enumerate(ranked)}
        groups: list[Group] = [(job,) for job in candidates]
        size = 1
        while sum(job.requested for job, *_ in groups) > state.in_service and 2 * size <= self.group:
            groups = self._merged(groups, old_groups, rank)
            size *= 2
        return sorted(groups, key=lambda group: min(rank[job] for job in group))

    def _merged(
        self, groups: list[Group], old_groups: list[Group], rank: Mapping[JobView, int]
    ) -> list[Group]:
        """Pairs of groups of as many GPUs of the same types, so that they do the most work in all; and the
        groups left over.
        """
        buckets: dict[object, dict[tuple[str, ...], list[Group]]] = defaultdict(lambda: defaultdict(list))
        for group in sorted(groups, key=lambda group: min(rank[job] for job in group)):
            alone = group[0].needs < 1  # by its trace it holds part of a GPU: it is no part of a group
            bucket = group[0] if alone else _kind(group[0])
            buckets[bucket][tuple(sorted(job.model or "" for job in group))].append(group)
        merged: list[Group] = []
        for kinds in buckets.values():
            groups_of_kind = [dict.fromkeys(kind_groups) for kind_groups in kinds.values()]
            weights = [[_gain(next(iter(a)), next(iter(b))) for b in groups_of_kind] for a in groups_of_kind]
            pair_counts = best_pairs([len(kind_groups) for kind_groups in groups_of_kind], weights)
            old_pairs = _pairs_of(old_groups, groups_of_kind)
            for (a, b), count in pair_counts.items():
                merged += _take(groups_of_kind, a, b, count, old_pairs)
            merged += [group for kind_groups in groups_of_kind for group in kind_groups]
        return merged


def _pairs_of(
    old_groups: Iterable[Group], groups_of_kind: Sequence[Iterable[Group]]
) -> dict[Group, tuple[Group, Group]]:
    """The groups that run already and consist of two of the groups in `groups_of_kind`, with these two."""
    part_of = {job: part for kind_groups in groups_of_kind for part in kind_groups for job in part}
    pairs = {}
    for group in old_groups:
        parts = list(dict.fromkeys(part_of[job] for job in group if job in part_of))
        if len(parts) == 2 and sum(map(len, parts)) == len(group):
            pairs[group] = parts[0], parts[1]
    return pairs


def _take(
    groups_of_kind: Sequence[dict[Group, None]],
    a: int,
    b: int,
    count: int,
    old_pairs: Mapping[Group, tuple[Group, Group]],
) -> list[Group]:
    """Take `count` pairs of these kinds from the groups: those that run already, then the first ones."""
    pairs: list[Group] = []
    for group, (group_a, group_b) in old_pairs.items():
        if len(pairs) < count:
            if group_a not in groups_of_kind[a] or group_b not in groups_of_kind[b]:
                group_a, group_b = group_b, group_a
            if group_a in groups_of_kind[a] and group_b in groups_of_kind[b]:
                del groups_of_kind[a][group_a], groups_of_kind[b][group_b]
                pairs.append(group)
    while len(pairs) < count:
        group_a = next(iter(groups_of_kind[a]))
        del groups_of_kind[a][group_a]
        group_b = next(iter(groups_of_kind[b]))
        del groups_of_kind[b][group_b]
        pairs.append(_in_order(group_a + group_b))
    return pairs


def _in_order(jobs: Iterable[JobView]) -> Group:
    return tuple(sorted(jobs, key=lambda job: job.order))


def _work(group: Sequence[JobView]) -> float:
    """Work of a group per time, in jobs alone."""
    return sum(
        1 / job.slowdown_beside([neighbour for neighbour in group if neighbour is not job]) for job in group
    )


def _gain(group_a: Group, group_b: Group) -> float:
    """The work per time of two groups together, beyond what they do if each has half of the time."""
    if group_a is group_b:  # two groups of the same kind
        twice = [job for job in group_a for _ in range(2)]
        slowdowns = [job.slowdown_beside(twice[:i] + twice[i + 1 :]) for i, job in enumerate(twice)]
        return sum(1 / slowdown for slowdown in slowdowns) - _work(group_a)
    return _work([*group_a, *group_b]) - (_work(group_a) + _work(group_b)) / 2


def _kind(job: JobView) -> tuple[object, ...]:
    """What jobs must have in common to run on the same GPUs."""
    return job.requested, frozenset(job.start_types), job.node_counts


def _service(job: JobView) -> float:
    return job.oracle_remaining() * job.requested


def _attained(job: JobView) -> float:
    return job.attained
