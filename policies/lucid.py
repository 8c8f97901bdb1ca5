"""Lucid: two jobs on the same GPUs where they hardly notice each other."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from math import inf

from clustersim.scheduler import JobView, Proposal, Scheduler, State
from policies.toolkit.parameters import number, whole
from policies.toolkit.places import places_for

__all__ = ["Lucid"]

_INSTANT_S = 1e-6  # the end of a profile that is this close is reached
_PATIENCE = 10  # times `profile_s` that a job waits for its profile


class Lucid(Scheduler):
    """Least predicted GPU time first, not preemptive; a job that finds no free GPUs runs beside one of as
    many GPUs, if their sharing scores add up to at most `capacity`.

    Hu, Zhang, Sun, Wen and Zhang, "Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep
    Learning Training Jobs", ASPLOS 2023. The score of a job is 0 (tiny) if it keeps more than `tiny` of its
    speed beside others, 1 (medium) above `medium`, else 2 (jumbo), on average over the models seen so far and
    by the `sharing` of the run. New jobs first run alone for `profile_s` seconds on the last `profile_nodes`
    nodes, at most a quarter of all, which they then leave for a place elsewhere or to another job. Wider
    ones, and those that wait long for it, count as profiled. Run times are predicted by `blend`, the paper's
    by trees. Its updates of models and its scaling of the profiler by time are left out.
    """

    one_gpu_type = True
    packs = 2

    def __init__(
        self, capacity: int = 2, tiny: float = 0.95, medium: float = 0.85, profile_nodes: int = 1,
        profile_s: float = 200.0,
    ):  # fmt: skip
        self.capacity = whole("capacity", capacity, 0, 4)
        self.medium = number("medium", medium, minimum=0, maximum=1)
        self.tiny = number("tiny", tiny, minimum=self.medium, maximum=1)
        self.profile_nodes = whole("profile_nodes", profile_nodes, 0, 1_000_000)
        self.profile_s = number("profile_s", profile_s, minimum=1)
        self.estimates = {"predictor": "blend"}
        self._seen: dict[str | None, JobView] = {}  # a job of each model
        self._scores: dict[str | None, int] = {}
        self._new: dict[JobView, float] = {}  # jobs that wait to be profiled, with their submission
        self._profiling: dict[JobView, None] = {}

    def schedule(self, state: State) -> Proposal:
        count = min(self.profile_nodes, state.cluster.nodes // 4)
        first_profile_node = state.cluster.nodes - count  # of the nodes for profiles
        self._follow(state, sum(state.cluster.sizes[first_profile_node:]))
        proposal = state.proposal()
        profiled = [job for job in self._profiling if job.productive_s >= self.profile_s - _INSTANT_S]
        for job in profiled:
            del self._profiling[job]
            proposal.stop(job)
        self._profile(proposal, state, first_profile_node)
        self._serve(proposal, state, profiled, first_profile_node)
        for job in profiled:
            if proposal.placement(job) is None and proposal.keep(job):  # until another job gets its GPUs
                self._profiling[job] = None
        proposal.wake_at = self._next_s(state.now)
        return proposal

    def _follow(self, state: State, profile_gpus: int) -> None:
        for event in state.events:
            job = event.job
            if job is None:
                continue
            if event.kind == "submitted":
                if job.model not in self._seen:
                    self._seen[job.model] = job
                    self._scores.clear()
                if job.requested <= profile_gpus and job.needs >= 1:
                    self._new[job] = state.now
            else:
                self._new.pop(job, None)
                self._profiling.pop(job, None)
        for job, since_s in list(self._new.items()):
            if state.now < since_s + _PATIENCE * self.profile_s - _INSTANT_S:
                break  # they are in order of submission
            del self._new[job]

    def _profile(self, proposal: Proposal, state: State, first_profile_node: int) -> None:
        """Start new jobs on the nodes for profiles, the smallest first."""
        for job in sorted(self._new, key=lambda job: (job.requested, job.order)):
            free = [spot for spot in _fullest_first(proposal, job) if spot[0] >= first_profile_node]
            places = places_for(job, free, job.requested, state.cluster.sizes)
            if places is None:
                return
            del self._new[job]
            self._profiling[job] = None
            proposal.start(job, on=places)

    def _serve(
        self, proposal: Proposal, state: State, profiled: list[JobView], first_profile_node: int
    ) -> None:
        """Start the other jobs in order, on free GPUs or beside others."""
        hopeless = set[int]()
        node_end = (
            first_profile_node if self._new else state.cluster.nodes
        )  # idle nodes for profiles serve all
        alone: dict[int, list[JobView]] = {}  # jobs that another one could join, by GPUs
        for group in proposal.groups():
            if len(group) == 1:
                alone.setdefault(proposal.gpus(group[0]), []).append(group[0])

        def fits(gpus: float) -> bool:
            return gpus < 1 or gpus not in hopeless or bool(alone.get(int(gpus)))

        for job in self._in_order(state, profiled, fits):
            if job in self._new or proposal.gpus(job):
                continue
            if job.needs < 1:
                proposal.start(job)
                continue
            if job.requested not in hopeless:
                free = [spot for spot in _fullest_first(proposal, job) if spot[0] < node_end]
                places = places_for(job, free, job.requested, state.cluster.sizes)
                if places is not None:
                    proposal.start_shared(job, 1 / self.packs, on=places)
                    alone.setdefault(job.requested, []).append(job)
                    continue
                if not job.node_counts:
                    hopeless.add(job.requested)
            partner = self._partner(proposal, job, alone.get(job.requested, []))
            if partner is not None and proposal.start_shared(job, 1 / self.packs, beside=partner):
                alone[job.requested].remove(partner)

    def _in_order(self, state: State, profiled: list[JobView], fits: object) -> Iterator[JobView]:
        """The jobs that may start, by predicted GPU time."""
        waiting = state.pending_by(_service).walk(fits)  # type: ignore[arg-type]
        profiled_order = sorted(profiled, key=lambda job: (_service(job), job.order))
        return merge(profiled_order, waiting, key=lambda job: (_service(job), job.order))

    def _partner(self, proposal: Proposal, job: JobView, candidates: list[JobView]) -> JobView | None:
        """The job beside which both are slowed down least."""
        allowed = [
            candidate
            for candidate in candidates
            if self._score(job) + self._score(candidate) <= self.capacity
            and proposal.in_shape(job, proposal.placement(candidate) or ())
        ]
        return min(allowed, key=lambda candidate: (_mutual(job, candidate), candidate.order), default=None)

    def _score(self, job: JobView) -> int:
        """How much a job and others disturb each other: 0 hardly, 1, or 2 much."""
        score = self._scores.get(job.model)
        if score is None:
            speeds = [1 / job.slowdown_beside([profiled_job]) for profiled_job in self._seen.values()]
            speed = sum(speeds) / len(speeds)
            score = self._scores[job.model] = (speed <= self.tiny) + (speed <= self.medium)
        return score

    def _next_s(self, now: float) -> float | None:
        """When a profile ends, or a job has waited long enough for one."""
        left_s = [(job, self.profile_s - job.productive_s) for job in self._profiling]
        ends = [now + job.paying_s + seconds for job, seconds in left_s if seconds > _INSTANT_S]
        waits = [since_s + _PATIENCE * self.profile_s for since_s in list(self._new.values())[:1]]
        next_s = min([*ends, *waits], default=inf)
        return max(next_s, now + _INSTANT_S) if next_s < inf else None


def _service(job: JobView) -> float:
    return job.oracle_remaining() * job.requested


def _mutual(job: JobView, partner: JobView) -> float:
    return job.slowdown_beside([partner]) + partner.slowdown_beside([job])


def _fullest_first(proposal: Proposal, job: JobView) -> list[tuple[int, int]]:
    """(node, free GPUs) pairs, the nodes with the fewest first."""
    return sorted(proposal.free_nodes(job).items(), key=lambda spot: (spot[1], spot[0]))
