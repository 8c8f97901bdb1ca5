"""What would become of the jobs if GPUs were divided by some rule from now on (`State.look_ahead`).

A look-ahead counts GPUs and places nothing. Progress and overheads are those of `ActiveJob`, on copies of the
jobs, with every job packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf

from clustersim.cluster import Placement
from clustersim.errors import PolicyError
from clustersim.jobs import ActiveJob
from clustersim.records import MIGRATE, RESIZE, RESTART, START

from .cluster_state import ClusterState
from .internal import active_of
from .job_view import JobView

__all__ = ["Ahead", "Shares", "run_ahead"]

Shares = Mapping[JobView, int | tuple[int, str | None]]
"""GPUs by job, or (GPUs, type); jobs that are not named get none."""

_ROUNDING = 1e-6  # of sums of parts of GPUs
_MOST_STEPS = 10_000  # without an end of a job


class Ahead:
    """Copies of jobs and of what a policy sees of them, `facts`, in which time passes.

    `in_service`: GPUs by type.
    """

    def __init__(self, facts: ClusterState[JobView], jobs: Iterable[JobView], in_service: Mapping[str, int]):
        self.in_service = in_service
        self.facts: ClusterState[JobView] = ClusterState(
            facts.cluster, facts.placer, facts.overheads, facts.quotas
        )
        self.facts.now_s = facts.now_s
        self.facts.nodes.gpus_down = facts.nodes.gpus_down
        self.facts.nodes.removed_by = facts.nodes.removed_by
        self.facts.type_slowdown = facts.type_slowdown
        self.facts.restart_s, self.facts.curves = facts.restart_s, facts.curves
        self.real: dict[JobView, JobView] = {}
        self._copies: dict[JobView, JobView] = {}
        self._held: dict[JobView, tuple[int, str]] = {}  # of the running jobs: GPUs and their type
        self._done_s: dict[JobView, float] = {}
        self._ended: set[JobView] = set()
        for job in jobs:
            self._add(job)

    @property
    def free(self) -> int:
        """GPUs that no job holds."""
        held_gpus = sum([_counts(job, gpus) for job, (gpus, _) in self._held.items()])
        return int(self.facts.in_service - held_gpus + _ROUNDING)

    def divide(self, shares: Shares) -> None:
        """Let each job hold its share from now on. PolicyError for a share that is impossible."""
        new_shares: dict[JobView, tuple[int, str]] = {}
        spare_gpus: dict[str, float] = dict(self.in_service)
        held = self._held
        for key, share in shares.items():
            job = self._copies.get(key, key)
            gpus, type_asked = share if isinstance(share, tuple) else (share, None)
            now = held.get(job)
            if now is not None and gpus == now[0] and type_asked in (None, now[1]):
                new_shares[job] = now
                spare_gpus[now[1]] -= _counts(job, gpus)
                continue
            if job not in self.real:
                raise PolicyError(f"look_ahead: job {job.id} does not take part")
            if gpus == 0 or job in self._ended:
                continue
            gpu_type = type_asked or (now[1] if now is not None else job.gpu_types[0])
            if not job.can_run_on(gpus, gpu_type):
                raise PolicyError(f"look_ahead(job {job.id}, gpus={gpus!r}): it cannot run on them")
            new_shares[job] = gpus, gpu_type
            spare_gpus[gpu_type] -= _counts(job, gpus)
        for gpu_type, spare in spare_gpus.items():
            if spare < -_ROUNDING:
                had = self.in_service[gpu_type]
                raise PolicyError(f"look_ahead: {had - spare:g} GPUs of type {gpu_type} given out of {had}")
        for job in [job for job in held if job not in new_shares]:
            self._stop(job)
            self.facts.waiting.add(job)
        for job, share in new_shares.items():
            if held.get(job) != share:
                self._give(job, *share)

    def next_end_s(self) -> float:
        """When the next job ends if nothing changes; infinite if none runs."""
        return min(self._done_s.values(), default=inf)

    def advance(self, now: float) -> list[JobView]:
        """Let time pass until `now`. Returns the jobs that end then, in order of submission."""
        self.facts.now_s = now
        ended = sorted((job for job, done_s in self._done_s.items() if done_s <= now), key=_order)
        for job in ended:
            self._stop(job)
        self._ended.update(ended)
        return ended

    def _add(self, job: JobView) -> None:
        active, now = active_of(job), self.facts.now_s
        copy = _copy_of(job, active, now)
        view = JobView(copy, self.facts)
        self.real[view], self._copies[job] = job, view
        if active.placement is None:
            self.facts.waiting.add(view)
        else:
            assert job.gpu_type is not None
            copy.placement, copy.gpus, copy.unit_s = (
                self._counted(job.gpu_type, job.gpus),
                job.gpus,
                active.unit_s,
            )
            copy.held = active.held
            copy.ready_s = now + active.paying_s(now)
            self.facts.running[view] = copy.generation
            self._held[view] = job.gpus, job.gpu_type
            self._done_s[view] = copy.ready_s + copy.work_left * copy.unit_s

    def _counted(self, gpu_type: str, gpus: int) -> Placement:
        """A placement that says the type and the number of GPUs, and nothing of where they are."""
        return ((self.facts.cluster.pool(gpu_type).first, gpus),)

    def _give(self, job: JobView, gpus: int, gpu_type: str) -> None:
        active, facts = active_of(job), self.facts
        now, pool = facts.now_s, facts.cluster.pool(gpu_type)
        kind = START if active.start_s is None else RESTART if active.placement is None else RESIZE
        if kind == RESIZE and gpus == active.gpus:
            kind = MIGRATE
        active.settle(now)
        overhead_s = active.charge(facts.overheads, kind, gpus, -(-gpus // pool.gpus_per_node))
        if active.placement is None:
            facts.waiting.remove(job)
            active.start_s = now if active.start_s is None else active.start_s
        unit_s = active.unit_s_on(gpus, gpu_type)
        assert unit_s is not None
        self._done_s[job] = active.hold(self._counted(gpu_type, gpus), gpus, unit_s, now, overhead_s)
        facts.running[job], self._held[job] = active.generation, (gpus, gpu_type)

    def _stop(self, job: JobView) -> None:
        active = active_of(job)
        active.settle(self.facts.now_s)
        active.let_go()
        del self.facts.running[job], self._done_s[job], self._held[job]


def run_ahead(
    ahead: Ahead, shares: Callable[[list[JobView]], Shares], until_s: float, round_s: float
) -> dict[JobView, float]:
    """See `State.look_ahead`. `shares` is called with the jobs that have just ended."""
    ends: dict[JobView, float] = {}
    ended: list[JobView] = []
    steps = 0
    while len(ends) < len(ahead.real):
        ahead.divide(shares(ended))
        now = min(ahead.next_end_s(), ahead.facts.now_s + round_s)
        if now > until_s or now == inf:
            break
        ended = ahead.advance(now)
        ends.update((ahead.real[job], now) for job in ended)
        steps = 0 if ended else steps + 1
        if steps > _MOST_STEPS:
            raise PolicyError(f"look_ahead: no job has ended in {_MOST_STEPS:,} rounds; set until_s")
    never = sorted((job for job in ahead.real.values() if job not in ends), key=_order)
    return ends | dict.fromkeys(never, inf)


def _copy_of(job: JobView, active: ActiveJob, now: float) -> ActiveJob:
    """A waiting job with the past of another and, as far as the policy knows it, with its work left."""
    copy = ActiveJob(active.job, active.order, active.curve, active.requested, active.request_note)
    done, owed = active.work - active.work_left_at(now), active.save_owed_at(now)
    copy.states_work, copy.offers, copy.eligibility = active.states_work, active.offers, active.eligibility
    copy.start_s, copy.since_s = active.start_s, now
    copy.work_left = copy.saved_left = job.oracle_work_left
    copy.work, copy.misstated = copy.work_left + done, 0.0  # what is stated is true there
    copy.save_due, copy.save_s = owed, active.save_s
    if owed == 1.0 and not active.save_due:
        copy.save_due, copy.saved_left = 0.0, inf  # it has worked since its last save
    copy.gpu_seconds, copy.wait_s = job.attained, job.waited_s
    copy.paid_gpu_s = job.attained - job.productive_gpu_s
    return copy


def _counts(job: JobView, gpus: int) -> float:
    """What a job takes of the GPUs; a part of a GPU counts as that part."""
    return gpus if job.needs >= 1 else job.needs


def _order(job: JobView) -> int:
    return job.order
