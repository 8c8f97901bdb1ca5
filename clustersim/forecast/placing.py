"""Where running jobs lie, which no log says: the past is placed again, job by job.

Starts and ends of past jobs and the starts of those that run are gone through in order of time. Each job gets
the GPUs that the placer chooses, or any free ones if it finds no place; a past job for which there are too
few is left out. So nodes are as fragmented as this placer would have left them. Without past jobs, the
running ones are placed in the order of their starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from clustersim.cluster import Capacity, Cluster, Placement
from clustersim.placement import Placer, placer
from itertime.errors import UserError
from traces.job import submission_key
from traces.logs.log import LoggedJob

from .state import end_of

__all__ = ["places_of"]


def places_of(
    running: Sequence[LoggedJob],
    past: Iterable[LoggedJob],
    cluster: Cluster,
    rule: Placer,
    closed_nodes: Sequence[int] = (),
) -> dict[str, Placement]:
    """The GPUs of each running job. On a cluster of several GPU types empty places: the placer decides as the
    simulation begins. No job lies on `closed_nodes`. UserError if the jobs hold more GPUs than there are.
    """
    held = sum(job.gpus for job in running)
    closed_gpus = [(node, cluster.sizes[node]) for node in closed_nodes]
    open_gpus = cluster.gpus - sum(gpus for _, gpus in closed_gpus)
    if open_gpus < held <= cluster.gpus:
        problem = (
            f"{len(closed_nodes)} nodes are down, the others have {open_gpus:,} GPUs, and {held:,} are in use"
        )
        raise UserError(f"--site: {problem}; state nodes that drain as up: --set site.nodes.HOSTS.state=up")
    if held > cluster.gpus:
        problem = f"--cluster {cluster.shape}: has {cluster.gpus:,} GPUs, and {held:,} are in use"
        raise UserError(f"{problem}; state a larger one, or leave it out")
    if cluster.mixed:
        return {job.job_id: () for job in running}
    capacity, places = Capacity(cluster), dict[int, Placement]()
    capacity.take(tuple(closed_gpus))
    jobs = [*past, *running]
    for _, is_start, _, i in sorted(_steps(jobs, len(jobs) - len(running))):
        if is_start:
            place = _place(capacity, jobs[i].gpus, rule)
            if place is not None:
                capacity.take(place)
                places[i] = place
        elif i in places:
            capacity.release(places.pop(i))
    first_running = len(jobs) - len(running)
    for i in range(first_running, len(jobs)):
        if i not in places:  # as it started, past jobs were in its way
            place = _place(capacity, jobs[i].gpus, rule)
            assert place is not None, "all running jobs fit together"
            capacity.take(place)
            places[i] = place
    return {jobs[i].job_id: places[i] for i in range(first_running, len(jobs))}


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
