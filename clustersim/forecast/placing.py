"""Where running jobs lie: on the nodes that the state lists, else where the placer would have left them.

A state names nodes, and not the GPUs of each: those of a job are divided evenly among its nodes, as far as
these have room.

For jobs without a list of nodes the past is placed again, job by job. Starts and ends of past jobs and the
starts of those that run are gone through in order of time. Each job gets the GPUs that the placer chooses, or
any free ones if it finds no place; a past job for which there are too few is left out. So nodes are as
fragmented as this placer would have left them. Without past jobs, the running ones are placed in the order of
their starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from clustersim.backtest.pools import SitePool
from clustersim.cluster import Capacity, Cluster, Placement
from clustersim.placement import Placer, placer
from itertime.errors import UserError
from traces.job import submission_key
from traces.logs.log import LoggedJob

from .site import LiveSite
from .state import end_of

__all__ = ["RunningJobs"]


@dataclass(frozen=True)
class RunningJobs:
    """The running jobs of a state, by pool. `listed`: the GPUs of those whose nodes the state lists. `site`:
    that of the settings, of whose closed nodes jobs run on those `draining`.
    """

    jobs: Mapping[str, Sequence[LoggedJob]]
    listed: Mapping[str, Placement]
    site: LiveSite | None
    draining: Sequence[int]

    @classmethod
    def of(
        cls,
        running_jobs: Sequence[LoggedJob],
        pools: Sequence[SitePool],
        pool_of: Mapping[str, str],
        site: LiveSite | None,
    ) -> RunningJobs:
        """`pool_of`: the pool of each job, by its id."""
        jobs = {
            pool.name: [job for job in running_jobs if pool_of[job.job_id] == pool.name] for pool in pools
        }
        numbers = {} if site is None else site.numbers
        listed: dict[str, Placement] = {}
        for pool in pools:
            listed |= _listed_places(jobs[pool.name], pool.cluster, numbers)
        return cls(jobs, listed, site, [] if site is None else site.draining(listed))

    def places(self, pool: SitePool, history: Sequence[LoggedJob], rule: Placer) -> dict[str, Placement]:
        """The GPUs of each running job of a pool. `history`: jobs that had ended, which are the first rows of
        the log. UserError if the jobs hold more GPUs than there are.
        """
        past = [history[i] for i in pool.rows if i < len(history)]
        closed_nodes = () if self.site is None else self.site.closed
        return _places_of(self.jobs[pool.name], past, pool.cluster, rule, self.listed, closed_nodes)

    def free(self, pool: SitePool, places: Mapping[str, Placement]) -> int:
        """The GPUs of a pool that no running job holds, on nodes that take jobs. `places`: those of all of
        them.
        """
        closed_nodes = frozenset(() if self.site is None else self.site.closed)
        held = 0
        for job in self.jobs[pool.name]:
            place = places[job.job_id] or ((-1, job.gpus),)  # not placed yet
            held += sum(count for node, count in place if node not in closed_nodes)
        return pool.cluster.gpus - sum(pool.cluster.sizes[node] for node in closed_nodes) - held


def _listed_places(
    running: Sequence[LoggedJob], cluster: Cluster, numbers: Mapping[str, int]
) -> dict[str, Placement]:
    """The GPUs of the running jobs whose nodes the state lists, as far as these have as many GPUs.

    `numbers`: the number of each node by its name; empty where no site names them. The names of the state are
    then those of the first nodes, in their order, if there are enough nodes and all jobs fit on them.
    """
    listing_jobs = [job for job in running if job.node_names]
    if not numbers and listing_jobs:
        names = sorted({name for job in listing_jobs for name in job.node_names})
        if cluster.mixed or cluster.node_sizes > 1 or len(names) > cluster.nodes:
            return {}
        places = _listed_places(listing_jobs, cluster, {name: number for number, name in enumerate(names)})
        return places if len(places) == len(listing_jobs) else {}
    capacity, places = Capacity(cluster), dict[str, Placement]()
    for job in sorted(listing_jobs, key=lambda job: (len(job.node_names), job.line)):
        nodes = [numbers[name] for name in job.node_names if name in numbers]
        types = {cluster.type_of(node) for node in nodes} if cluster.mixed else set()
        if len(types) > 1 or (types and job.gpu_type is not None and job.gpu_type not in types):
            continue
        place = _divided(job.gpus, nodes, capacity)
        if place is not None:
            capacity.take(place)
            places[job.job_id] = place
    return places


def _divided(gpus: int, nodes: Sequence[int], capacity: Capacity) -> Placement | None:
    """The GPUs of a job on its nodes, as evenly as they are free; None if too few are."""
    counts = dict.fromkeys(nodes, 0)
    for _ in range(gpus):
        open_nodes = [node for node in counts if counts[node] < capacity.free_on(node)]
        if not open_nodes:
            return None
        counts[min(open_nodes, key=counts.__getitem__)] += 1
    return tuple(sorted((node, count) for node, count in counts.items() if count))


def _places_of(
    running: Sequence[LoggedJob],
    past: Iterable[LoggedJob],
    cluster: Cluster,
    rule: Placer,
    places_by_job: Mapping[str, Placement],
    closed_nodes: Sequence[int] = (),
) -> dict[str, Placement]:
    """The GPUs of each running job: those that are listed, perhaps on `closed_nodes`, and others elsewhere.
    On a cluster of several GPU types places that are not listed are empty: the placer decides as the
    simulation begins. UserError if the jobs hold more GPUs than there are.
    """
    capacity = Capacity(cluster)
    listed = {job.job_id: places_by_job[job.job_id] for job in running if job.job_id in places_by_job}
    for listed_place in listed.values():
        capacity.take(listed_place)
    unlisted = [job for job in running if job.job_id not in listed]
    closed_gpus = tuple((node, free) for node in closed_nodes if (free := capacity.free_on(node)))
    capacity.take(closed_gpus)
    _refuse_too_many(running, unlisted, cluster, capacity, len(closed_nodes))
    if cluster.mixed:
        return {**dict.fromkeys((job.job_id for job in unlisted), ()), **listed}
    if not unlisted:
        return listed
    places = dict[int, Placement]()
    jobs = [*past, *unlisted]
    first_running = len(jobs) - len(unlisted)
    for _, is_start, _, i in sorted(_steps(jobs, first_running)):
        if is_start:
            place = _place(capacity, jobs[i].gpus, rule)
            if place is not None:
                capacity.take(place)
                places[i] = place
        elif i in places:
            capacity.release(places.pop(i))
    for i in range(first_running, len(jobs)):
        if i not in places:  # as it started, past jobs were in its way
            place = _place(capacity, jobs[i].gpus, rule)
            assert place is not None, "all running jobs fit together"
            capacity.take(place)
            places[i] = place
    return {**listed, **{jobs[i].job_id: places[i] for i in range(first_running, len(jobs))}}


def _refuse_too_many(
    running: Sequence[LoggedJob],
    unlisted: Sequence[LoggedJob],
    cluster: Cluster,
    capacity: Capacity,
    closed_nodes: int,
) -> None:
    """UserError if the jobs hold more GPUs than there are, or more than the nodes that are up have."""
    held, unlisted_gpus = sum(job.gpus for job in running), sum(job.gpus for job in unlisted)
    if held > cluster.gpus:
        problem = f"--cluster {cluster.shape}: has {cluster.gpus:,} GPUs, and {held:,} are in use"
        raise UserError(f"{problem}; state a larger one, or leave it out")
    if unlisted_gpus > capacity.free:
        open_gpus = held - unlisted_gpus + capacity.free
        problem = (
            f"{closed_nodes} nodes are down, the others have {open_gpus:,} GPUs, and {held:,} are in use"
        )
        raise UserError(f"--site: {problem}; state nodes that drain as up: --set site.nodes.HOSTS.state=up")


def _steps(jobs: Sequence[LoggedJob], past: int) -> Iterable[tuple[float, int, tuple[object, ...], int]]:
    """(time, 1 for a start and 0 for an end, order of submission, place in the list); no ends of those that
    run.
    """
    for i, job in enumerate(jobs):
        if job.logged_start_s is None:
            continue
        order = submission_key(job.submit_s, job.job_id)
        yield job.logged_start_s, 1, order, i
        if i < past and (end_s := end_of(job)) is not None:
            yield end_s, 0, order, i


def _place(capacity: Capacity, gpus: int, rule: Placer) -> Placement | None:
    return rule.place(capacity, gpus, ()) or placer("any").place(capacity, gpus, ())
