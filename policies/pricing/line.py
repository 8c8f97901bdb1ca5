"""The jobs of the system in order of the GPU-seconds that they need, with their prices."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from math import inf

from clustersim.scheduler import JobCurve, JobView, Ranking, State
from policies.toolkit import Values

from .claims import Claim, ClaimCurve
from .prices import Prices
from .stated import StatedWork

__all__ = ["Line"]


class _JobClaim(Claim[JobView]):
    """The claim of a job of the simulation."""

    __slots__ = ()

    def again_s(self) -> float:
        return self.job.start_cost_s(self.held)


class Line:
    """All jobs in order of their key: the least GPU-seconds that a job still needs, a launch on the fewest
    GPUs and then all work at the best efficiency; with `longest_first` in the opposite order, so that the key
    is their negative. Ties are in order of submission. Before all of them stand
    the first `most_overdue` jobs that are overdue, in order of `due_s`:

        due_s = submission + `patience` x least seconds of a launch and all work

    Both are constants of a waiting job. So two waiting jobs change places only when one of them is overdue,
    and no job that is submitted later can stand before the overdue job with the least `due_s`.

    Call `update` first in every decision.

    | field | |
    |---|---|
    | `claims` | of all jobs |
    | `overdue` | those of the overdue jobs that stand before all others, in order |
    | `next_due_s` | when there will be one more of them if no job ends; inf if there is none |
    | `running` | the claims of the running jobs, in order |
    | `gpus` | GPUs that are free or held, by type; the type is "" on a cluster of one type |
    | `worth` | what a GPU of each type counts, 1 for the best |
    """

    def __init__(
        self, prices: Prices, patience: float = inf, most_overdue: int = 1, longest_first: bool = False
    ):
        self._prices, self._patience, self._most_overdue = prices, patience, most_overdue
        self._sign = -1.0 if longest_first else 1.0
        self._curves: dict[JobCurve, ClaimCurve] = {}
        self._kinds: dict[JobCurve, Mapping[str, ClaimCurve]] = {}  # for clusters of one type
        self.claims: dict[JobView, Claim[JobView]] = {}
        self._due: list[tuple[float, int, JobView]] = []  # (due_s, order, job) of all jobs, sorted
        self._due_s: dict[JobView, float] = {}
        self._stated: dict[JobView, StatedWork] = {}
        self._keys: list[tuple[float, int]] = []  # of the waiting jobs, sorted
        self._waiting: Ranking[JobView]
        self._values: Values | None = None
        self._most = 0.0  # GPUs in service, by worth
        self.overdue: list[Claim[JobView]] = []
        self.next_due_s = inf
        self.running: list[Claim[JobView]] = []
        self._others: list[Claim[JobView]] = []  # the running jobs that are not in `overdue`
        self._late_keys: list[tuple[float, int]] = []  # of the waiting ones in `overdue`, sorted
        self.gpus: dict[str, int] = {}
        self.worth: Mapping[str, float] = {"": 1.0}

    def update(self, state: State) -> None:
        """Follow the events since the last decision, and the progress of the running jobs."""
        if state.cluster.mixed and self._values is None:
            self._values = Values(list(state.cluster.gpu_types))
            self.worth = self._values.of
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                self._forget(event.job)
            elif event.kind == "submitted" and event.job is not None and self._values is not None:
                self._values.note({name: 1 / curve.unit_gpu_s for name, curve in self._of(event.job).items()})
        self.gpus = state.in_service_by_type() if state.cluster.mixed else {"": state.in_service}
        self._most = sum([self.worth[name] * gpus for name, gpus in self.gpus.items()])
        self._waiting = state.pending_by(self.key, elastic=True)
        departed, arrived = self._waiting.changes()
        for key, order, _ in departed:
            del self._keys[bisect_left(self._keys, (key, order))]
        for key, order, _ in arrived:
            insort(self._keys, (key, order))
        self._sort_running(state)

    def __len__(self) -> int:
        return len(self.running) + len(self._keys)

    def walk(self, fits: Callable[[float], bool]) -> Iterator[Claim[JobView]]:
        """The claims in order, without waiting jobs whose smallest size does not satisfy `fits` when the walk
        reaches them. Sizes that do not must not begin to during the walk.
        """
        for claim in self.overdue:
            if claim.held or any(fits(curve.sizes[0]) for curve in claim.curves.values()):
                yield claim
        running = self._others
        number, count = 0, len(running)
        for job in self._waiting.walk(fits):
            claim = self.claims[job]
            if claim in self.overdue:
                continue
            place = claim.key, job.order
            while number < count and (running[number].key, running[number].job.order) < place:
                yield running[number]
                number += 1
            claim.price = self._price(number, place)
            yield claim
        yield from running[number:]

    def key(self, job: JobView) -> float:
        """See the class. Brings the claim of the job up to date."""
        claim = self.claims.get(job)
        work_left = job.oracle_work_left
        if claim is None:
            claim = self.claims[job] = _JobClaim(job, self._of(job), work_left)
            self._stated[job] = StatedWork(work_left)
            if self._patience < inf:
                alone_s = min([curve.alone_s(work_left) for curve in claim.curves.values()])
                due_s = self._due_s[job] = job.submit_s + self._patience * alone_s
                insort(self._due, (due_s, job.order, job))
        elif not claim.held and not job.gpus:
            return claim.key  # the worth of types may have changed; the place in the line does not
        if not claim.held:  # it has started since the last look
            claim.held, claim.gpu_type = job.gpus, self._type_of(job)
        claim.work = work_left
        if claim.held:
            claim.work = self._stated[job].left(work_left, job.productive_gpu_s, claim.rate() / claim.held)
        claim.held, claim.gpu_type, claim.fresh = job.gpus, self._type_of(job), not job.started
        claim.paying_s = job.paying_s
        if self._values is None:
            least_gpu_s = claim.curves[""].least_gpu_s(claim.work)
        else:
            least_gpu_s = min(
                [self.worth[name] * curve.least_gpu_s(claim.work) for name, curve in claim.curves.items()]
            )
        claim.key = self._sign * least_gpu_s
        return claim.key

    def _forget(self, job: JobView) -> None:
        due_s = self._due_s.pop(job, inf)
        if due_s < inf:
            del self._due[bisect_left(self._due, (due_s, job.order))]
        self.claims.pop(job, None)
        self._stated.pop(job, None)

    def _find_overdue(self, now: float) -> None:
        """Find the overdue jobs that the GPUs in service can hold, and when the next is due."""
        self.overdue, self.next_due_s = [], inf
        for due_s, _, job in self._due:
            if len(self.overdue) == self._most_overdue:
                break
            if due_s > now:
                self.next_due_s = due_s
                break
            claim = self.claims[job]
            if claim.held or any(
                curve.sizes[0] <= self.gpus.get(name, 0) for name, curve in claim.curves.items()
            ):
                self.overdue.append(claim)

    def _sort_running(self, state: State) -> None:
        """Put the running jobs in order, and price them and the overdue ones."""
        entries = [(self.key(job), job.order, self.claims[job]) for job in state.running]
        self._find_overdue(state.now)
        entries = [entry for entry in entries if entry[2] not in self.overdue]
        entries.sort()
        self._others = [claim for *_, claim in entries]
        self.running = [*(claim for claim in self.overdue if claim.held), *self._others]
        self._late_keys = sorted((claim.key, claim.job.order) for claim in self.overdue if not claim.held)
        for rank, claim in enumerate(self.overdue):
            claim.price = self._prices.of(rank, len(self), self._most)
        for place, (key, order, claim) in enumerate(entries):
            claim.price = self._price(place, (key, order))

    def _price(self, running: int, place: tuple[float, int]) -> float:
        """The price of a job with its `place` in the order of keys, which `running` running jobs precede."""
        waiting = bisect_left(self._keys, place) - bisect_left(self._late_keys, place)
        return self._prices.of(len(self.overdue) + running + waiting, len(self), self._most)

    def _type_of(self, job: JobView) -> str:
        """The type of the GPUs that a job holds; "" if it holds none, or there is one type."""
        return "" if self._values is None else job.gpu_type or ""

    def _of(self, job: JobView) -> Mapping[str, ClaimCurve]:
        """A job's curves by type."""
        if self._values is not None:
            return {name: self._kept(job.curve_on(name)) for name in job.gpu_types}
        job_curve = job.curve
        curves = self._kinds.get(job_curve)
        if curves is None:
            curves = self._kinds[job_curve] = {"": self._kept(job_curve)}
        return curves

    def _kept(self, job_curve: JobCurve) -> ClaimCurve:
        curve = self._curves.get(job_curve)
        if curve is None:
            curve = self._curves[job_curve] = self.curve(job_curve)
        return curve

    def curve(self, job_curve: JobCurve) -> ClaimCurve:
        """What the rule sees of a kind of jobs on one type; asked for once a kind."""
        return ClaimCurve(job_curve.sizes, job_curve.rates, job_curve.restarts, job_curve.launches)
