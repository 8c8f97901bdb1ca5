"""The best schedules of tiny instances, by trying all of them in discrete time."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from math import inf

from clustersim.bounds import BoundJob, Instance, Option

Place = tuple[int, int, int]  # an option's index (-1: none), seconds of overhead left, units of work left


def elastic(
    name: str,
    release_s: int,
    work: int,
    rates: dict[int, int],
    overhead_s: int = 0,
    deadline_s: int | None = None,
    reload_s: int = 0,
) -> BoundJob:
    """A job with whole seconds and units: `rates` are units a second by GPUs."""
    sizes = tuple(rates)
    launch_s = (float(overhead_s),) * len(sizes)
    restart_s = (float(overhead_s + reload_s),) * len(sizes)
    option = Option(0, sizes, tuple(float(rates[n]) for n in sizes), launch_s, restart_s)
    return BoundJob(
        name, float(release_s), float(work), (option,), None if deadline_s is None else deadline_s
    )


def least(instance: Instance, price: Callable[[int, float], float], horizon_s: int) -> float:
    """The least sum over jobs of `price(job, end)`, over all schedules that decide at whole seconds.
    `price` gets the job's position and its end, which is infinite for a job that is not done by the horizon.

    Ends are exact to the fraction of a second, because only the decisions are discrete.
    """
    (gpus,) = instance.gpus
    jobs = instance.jobs

    @cache
    def best(now: int, places: tuple[Place, ...]) -> float:
        if all(work == 0 for _, _, work in places) or now >= horizon_s:
            return sum(price(j, inf) for j, place in enumerate(places) if place[2] > 0)
        return min(cost + best(now + 1, after) for cost, after in _choices(jobs, places, now, gpus, price))

    return best(0, tuple((-1, 0, round(job.work)) for job in jobs))


def _choices(
    jobs: tuple[BoundJob, ...],
    places: tuple[Place, ...],
    now: int,
    gpus: int,
    price: Callable[[int, float], float],
) -> Iterator[tuple[float, tuple[Place, ...]]]:
    """Cost of what ends in the next second, and the places after it, for all allocations."""
    options = [
        range(-1, len(job.options[0].sizes)) if work > 0 and job.release_s <= now else (-1,)
        for job, (_, _, work) in zip(jobs, places, strict=True)
    ]
    for chosen in product(*options):
        held = sum(job.options[0].sizes[o] for job, o in zip(jobs, chosen, strict=True) if o >= 0)
        if held > gpus:
            continue
        cost, after = 0.0, []
        for j, (job, o, place) in enumerate(zip(jobs, chosen, places, strict=True)):
            end_s, moved = _second(job, o, place, now)
            after.append(moved)
            if end_s < inf:
                cost += price(j, end_s)
        yield cost, tuple(after)


def _second(job: BoundJob, chosen: int, place: Place, now: int) -> tuple[float, Place]:
    """When the job ends in the second from `now` on (infinite if it does not), and its place after it."""
    held, pays_s, work = place
    if chosen < 0:
        return inf, (-1, 0, work)
    option = job.options[0]
    if held != chosen:
        pays_s = round(option.launch_s[chosen] if work == job.work else option.restart_s[chosen])
    if pays_s > 0:
        return inf, (chosen, pays_s - 1, work)
    rate = round(option.rates[chosen])
    if work <= rate:
        return now + work / rate, (-1, 0, 0)
    return inf, (chosen, 0, work - rate)
