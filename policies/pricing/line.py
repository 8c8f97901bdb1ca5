"""The jobs of the system in order of the GPU-seconds that they need, with their prices."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from math import inf, log1p

from clustersim.scheduler import JobCurve, JobView, Ranking, State
from policies.reservation.gpu_types import Values

from .claims import Claim, Curve
from .prices import Prices
from .stated import StatedWork

__all__ = ["Line"]


class _JobClaim(Claim[JobView]):
    """The claim of a job of the simulation."""

    __slots__ = ()

    def again_s(self) -> float:
        return self.job.start_cost_s(self.held)


class Line:
    """All jobs in the order of

        key = ln(1 + A / N) + B / patience,

    ties in order of submission. A are the least GPU-seconds that a job still needs: a launch on the fewest
    GPUs, then all work at the best efficiency. N are the GPUs of the cluster, so A / N is in seconds. B is
    the number of jobs that were submitted at earlier instants. So a job that has seen `patience` more jobs
    arrive counts as 2.7 times as short, two waiting jobs never change places, and of the jobs submitted later
    at most patience x ln(1 + A / N) can ever pass it, and those that come at the same instant as the last of
    these.

    Call `update` first in every decision.

    | field | |
    |---|---|
    | `claims` | of all jobs |
    | `running` | the claims of the running jobs, in order |
    | `gpus` | GPUs that are free or held, by type; the type is "" on a cluster of one type |
    | `worth` | what a GPU of each type counts, 1 for the best |
    """

    def __init__(self, prices: Prices, patience: float = inf):
        self._prices, self._patience = prices, patience
        self._curves: dict[JobCurve, Curve] = {}
        self._kinds: dict[JobCurve, Mapping[str, Curve]] = {}  # for clusters of one type
        self.claims: dict[JobView, Claim[JobView]] = {}
        self._before: dict[JobView, int] = {}
        self._stated: dict[JobView, StatedWork] = {}
        self._keys: list[tuple[float, int]] = []  # of the waiting jobs, sorted
        self._waiting: Ranking[JobView]
        self._values: Values | None = None
        self._most = 0.0  # GPUs in service, by worth
        self._cluster_gpus = 1
        self._seen = self._earlier = 0  # jobs so far, and those of earlier instants
        self.running: list[Claim[JobView]] = []
        self.gpus: dict[str, int] = {}
        self.worth: Mapping[str, float] = {"": 1.0}

    def update(self, state: State) -> None:
        """Follow the events since the last decision, and the progress of the running jobs."""
        self._cluster_gpus = state.cluster.gpus
        self._earlier = self._seen
        if state.cluster.mixed and self._values is None:
            self._values = Values(list(state.cluster.gpu_types))
            self.worth = self._values.of
        for event in state.events:
            if event.kind == "finished" and event.job is not None:
                for known in (self.claims, self._before, self._stated):
                    known.pop(event.job, None)
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

    def walk(self, fits: Callable[[int], bool]) -> Iterator[Claim[JobView]]:
        """The claims in order, without waiting jobs whose smallest size does not satisfy `fits` when the walk
        reaches them. Sizes that do not must not begin to during the walk.
        """
        number, running, keys, of = 0, self.running, self._keys, self._prices.of
        jobs, count, gpus = len(self), len(self.running), self._most
        for job in self._waiting.walk(fits):
            claim = self.claims[job]
            place = claim.key, job.order
            while number < count and (running[number].key, running[number].job.order) < place:
                yield running[number]
                number += 1
            claim.price = of(number + bisect_left(keys, place), jobs, gpus)
            yield claim
        yield from running[number:]

    def key(self, job: JobView) -> float:
        """See the class. Brings the claim of the job up to date."""
        claim = self.claims.get(job)
        left = job.oracle_work_left
        if claim is None:
            claim = self.claims[job] = _JobClaim(job, self._of(job), left)
            self._before[job] = self._earlier
            self._stated[job] = StatedWork(left)
            self._seen += 1
        elif not claim.held and not job.gpus:
            return claim.key  # the worth of types may have changed; the place in the line does not
        if not claim.held:  # it has started since the last look
            claim.held, claim.gpu_type = job.gpus, self._type_of(job)
        claim.work = left
        if claim.held:
            claim.work = self._stated[job].left(left, job.productive_gpu_s, claim.rate() / claim.held)
        claim.held, claim.gpu_type, claim.fresh = job.gpus, self._type_of(job), not job.started
        claim.paying_s = job.paying_s
        if self._values is None:
            least = claim.curves[""].least_gpu_s(claim.work)
        else:
            least = min(
                [self.worth[name] * curve.least_gpu_s(claim.work) for name, curve in claim.curves.items()]
            )
        claim.key = log1p(least / self._cluster_gpus) + self._before[job] / self._patience
        return claim.key

    def _sort_running(self, state: State) -> None:
        entries = [(self.key(job), job.order, self.claims[job]) for job in state.running]
        entries.sort()
        keys, of, gpus = self._keys, self._prices.of, self._most
        jobs = len(entries) + len(keys)
        for at, (key, order, claim) in enumerate(entries):
            claim.price = of(at + bisect_left(keys, (key, order)), jobs, gpus)
        self.running = [claim for *_, claim in entries]

    def _type_of(self, job: JobView) -> str:
        """The type of the GPUs that a job holds; "" if it holds none, or there is one type."""
        return "" if self._values is None else job.gpu_type or ""

    def _of(self, job: JobView) -> Mapping[str, Curve]:
        """A job's curves by type."""
        if self._values is not None:
            return {name: self._kept(job.curve_on(name)) for name in job.gpu_types}
        known = job.curve
        curves = self._kinds.get(known)
        if curves is None:
            curves = self._kinds[known] = {"": self._kept(known)}
        return curves

    def _kept(self, known: JobCurve) -> Curve:
        curve = self._curves.get(known)
        if curve is None:
            curve = self._curves[known] = self.curve(known)
        return curve

    def curve(self, known: JobCurve) -> Curve:
        """What the rule sees of a kind of jobs on one type; asked for once a kind."""
        return Curve(known.sizes, known.rates, known.restarts, known.launches)
