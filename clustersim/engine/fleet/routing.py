"""To which cluster of a fleet a job is sent.

A rule sees each cluster that can run the job as it is when the job arrives: what runs and waits there, and
what users state about these jobs. Ties go to the cluster that stands first in the cluster file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import inf, isfinite
from typing import Any

from clustersim.jobs import ActiveJob
from clustersim.scheduler import JobView
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.speed import Offer
from itertime.errors import UnknownName, UserError, quoted
from traces.job import Job

__all__ = ["ROUTES", "Destination", "Routing"]

_UNKNOWN_S = 3600.0


@dataclass(frozen=True)
class Routing:
    """How the jobs of a fleet are sent to its clusters.

    | parameter | meaning | default |
    |---|---|---|
    | by | the rule, see `ROUTES` | first-fit |
    | policies | the registered policies of clusters that do not run that of the run, by cluster | none |
    | params | the parameters of these policies, by cluster | none |
    | homes | the home cluster of tenants, by tenant | none |
    | spill | whether jobs leave their home cluster where another has room and home has not | true |
    | move | whether a waiting job goes to a cluster with room for it where no other waits | false |
    """

    by: str = "first-fit"
    policies: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    spill: bool = True
    move: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.by, str) or self.by not in ROUTES:
            raise UnknownName("rule of routing", str(self.by), ROUTES)
        for name in ("policies", "params", "homes"):
            value = getattr(self, name)
            kind = Mapping if name == "params" else str
            sound = isinstance(value, Mapping) and all(
                isinstance(key, str) and isinstance(entry, kind) for key, entry in value.items()
            )
            if not sound:
                example = {"policies": "{east: srtf}", "params": "{east: {quantum_s: 60}}"}
                example_value = example.get(name, "{tenant7: east}")
                raise UserError(f"routing.{name}={quoted(value)}: must be a mapping, as in {example_value}")
        for name, policy in self.policies.items():
            if policy.endswith(".py") or ".py:" in policy:
                remedy = "must be a registered policy; name the one from a file with --policy"
                raise UserError(f"routing.policies.{name}={quoted(policy)}: {remedy}")
        for name in self.params:
            if name not in self.policies:
                remedy = "parameters without a policy of its own; name one under routing.policies"
                raise UserError(f"routing.params.{name}: {remedy}")
        for name in ("spill", "move"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"routing.{name}={quoted(getattr(self, name))}: must be true or false")
        if self.by == "home" and not self.homes:
            raise UserError("routing.by=home: states no homes; add routing.homes, as in {tenant7: east}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Routing:
        """From settings. UnknownName for a parameter that does not exist, UserError for a wrong value."""
        names = [f.name for f in fields(cls)]
        for name in settings:
            if name not in names:
                raise UnknownName("parameter of routing", str(name), names)
        return cls(**settings)

    def check(self, clusters: Collection[str]) -> None:
        """UserError for names that are no `clusters` of the fleet."""
        if not clusters:
            remedy = "the cluster file states no clusters; list them under clusters, or leave routing out"
            raise UserError(f"routing.by={self.by}: {remedy}")
        for name in (*self.policies, *self.homes.values()):
            if name not in clusters:
                raise UserError(f"routing: {UnknownName('cluster', name, clusters)}")

    def stated(self) -> dict[str, Any]:
        """Every parameter as plain JSON data."""
        return asdict(self)


class Destination:
    """A cluster to which a job may be sent: what it offers the job, and the work that is there already."""

    def __init__(
        self,
        name: str,
        facts: ClusterState[JobView],
        submitted: Collection[ActiveJob],
        candidate: ActiveJob,
        offers: Sequence[Offer],
    ):
        """`submitted`: jobs sent there at this instant, on which no decision was made yet. `candidate`: the
        job as it would enter the cluster.
        """
        self.name, self.offers = name, offers
        self._facts, self._submitted, self._candidate = facts, submitted, candidate

    def ever_fits(self) -> bool:
        """Whether the job has a place on the nodes that are not removed for good."""
        return self._facts.ever_fits(self._candidate)

    def has_room(self) -> bool:
        """Whether the job finds no other waiting, and has a place for its request now, on GPUs of one type
        and on nodes that are open to it.
        """
        facts, candidate = self._facts, self._candidate
        if facts.waiting.jobs:
            return False
        free_gpus = facts.capacity.free - sum(job.requested for job in self._submitted)
        view = JobView(candidate, facts)
        for offer in self.offers:
            room = facts.room_for(view, offer.gpu_type if facts.cluster.mixed else None)
            has_gpus = offer.requested <= free_gpus or candidate.millionths
            if has_gpus and room.place(facts.capacity, offer.requested) is not None:
                return True
        return False

    def load(self) -> float:
        """GPUs that jobs there hold and wait for, over the GPUs in service."""
        facts = self._facts
        held_gpus = facts.in_service - facts.capacity.free
        requested_gpus = sum(job.requested for job in facts.waiting.jobs)
        requested_gpus += sum(job.requested for job in self._submitted)
        return (held_gpus + requested_gpus) / facts.in_service if facts.in_service else inf

    def wait_s(self) -> float:
        """The wait that the job may expect: none with room for it, else the GPU-seconds that jobs there still
        need, over the GPUs in service.

        Those are what users state: estimates of run times, or iterations. Jobs that state neither count with
        the mean of the others, or with an hour where none does.
        """
        facts = self._facts
        if self.has_room():
            return 0.0
        views = [*facts.running, *facts.waiting.jobs, *(JobView(job, facts) for job in self._submitted)]
        seconds = [_remaining_s(view) for view in views]
        stated_s = [s for s in seconds if isfinite(s)]
        usual_s = sum(stated_s) / len(stated_s) if stated_s else _UNKNOWN_S
        need = sum(
            (view.gpus or view.requested) * (s if isfinite(s) else usual_s)
            for view, s in zip(views, seconds, strict=True)
        )
        return need / facts.in_service if facts.in_service else inf

    def run_s(self, job: Job) -> float:
        """Seconds that the job takes there on its request, by its iterations; 0 for a job that states none,
        which takes as long anywhere.
        """
        return self.offers[0].unit_s * job.iterations if job.iterations is not None else 0.0


def _remaining_s(job: JobView) -> float:
    """Seconds that a job still needs on its GPUs, or on those that it requests; infinite if unknown."""
    estimated_s = job.estimated_remaining()
    if isfinite(estimated_s):
        return max(0.0, estimated_s)
    work_left, rate = job.work_left, job.rate(job.gpus or job.requested)
    return work_left / rate if isfinite(work_left) and rate else inf


Key = Callable[[Destination, Job], tuple[float, float]]


def _first_fit(to: Destination, job: Job) -> tuple[float, float]:
    room = to.has_room()
    return (0.0, 0.0) if room else (1.0, to.load())


ROUTES: Mapping[str, Key] = {
    "first-fit": _first_fit,
    "least-loaded": lambda to, job: (to.load(), 0.0),
    "least-wait": lambda to, job: (to.wait_s(), to.load()),
    "fastest": lambda to, job: (to.run_s(job), to.wait_s()),
    "soonest": lambda to, job: (to.wait_s() + to.run_s(job), 0.0),
    "home": _first_fit,
}
"""The rules: the cluster of the lowest value. `home`: that of the tenant; the value ranks the others."""


def choose(routing: Routing, job: Job, candidates: Sequence[Destination]) -> Destination:
    """The cluster that `job` is sent to. `candidates`: those that can run it, in the order of the file."""
    if routing.by == "home":
        home = next((to for to in candidates if to.name == routing.homes.get(job.tenant)), None)
        if home is not None and (not routing.spill or home.has_room()):
            return home
        room = next((to for to in candidates if to.has_room()), None)
        if home is not None:
            return room or home
    key = ROUTES[routing.by]
    return min(candidates, key=lambda to: key(to, job))
