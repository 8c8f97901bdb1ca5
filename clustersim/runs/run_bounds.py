"""What no policy can do better in a run: the bound of its jobs.

Policies are compared on the same jobs, and cells of a grid often have the same. So a process keeps recent
bounds, and processes that share a folder compute each bound once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from itertools import compress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from clustersim.bounds import METHODS, Bound, Instance, bound_of, instance_of, is_settled, method_of
from clustersim.cluster import Cluster
from clustersim.overheads import Overheads
from clustersim.speed import Packing, Speed
from itertime.errors import UserError
from itertime.io import MAX_BYTES, open_own, read_bytes, write_bytes
from traces.job import Job

from .fingerprints import code_hash

__all__ = ["best_possible"]

_MOST_RECENT = 64
_recent: dict[str, Bound] = {}  # of this process, by digest

_MOST_SHARED = 50_000  # jobs; to compare more of them with earlier ones takes as long as a cheap bound
_CHEAP = ("alone", "area")  # methods that take no longer than reading a file


def best_possible(
    jobs: Iterable[Job], finished: Sequence[bool] | np.ndarray, cluster: Cluster, speed: Speed,
    overheads: Overheads, method: str = "auto", folder: Path | None = None, packing: Packing | None = None,
    run_values: Mapping[str, Any] | None = None,
) -> Bound:  # fmt: skip
    """The bound of a run, by a method of `clustersim.bounds`; `seconds` includes reading the jobs.

    `jobs`: all submitted ones, which are iterated several times; `finished`: whether each of them finished.
    Times are bounded over the jobs that finished, as in the metrics: a run that leaves out the others is a
    run of these alone. The makespan counts from the first submission of all. Deadlines are bounded over all
    jobs that have one, because those that miss it only take GPUs away.

    `packing`: how many jobs the policy runs on the same GPUs, if any; the bound is then about all policies
    that run as many.

    `run_values`: `jct_mean_s` and `deadline_met_ratio` of the run. If the method `area` shows that they can
    hardly be better (`is_settled`), `auto` is `area`. So the bound of a run follows from this run alone, in
    a comparison too.

    `folder`: a folder of bounds that other processes compute and use at the same time; it need not exist.
    """
    began = perf_counter()
    density = 1.0 if packing is None else packing.density(jobs)
    instance = submitted = instance_of(jobs, cluster, speed, overheads, density)
    ended = np.asarray(finished, bool)
    if int(ended.sum()) < len(submitted.jobs):
        ids = set(compress((job.job_id for job in jobs), ended.tolist()))
        times = (job._replace(deadline_s=None) for job in submitted.jobs if job.job_id in ids)
        instance = Instance(submitted.gpus, tuple(times), shared=submitted.shared)
    late_s = 0.0
    if instance.jobs and not ended.all():
        late_s = min(job.release_s for job in instance.jobs) - min(job.submit_s for job in jobs)
    run_values = run_values or {}
    mean_s, met_ratio = run_values.get("jct_mean_s"), run_values.get("deadline_met_ratio")
    method, may_be_settled = method_of(instance, method), method == "auto" and mean_s is not None
    bound = None
    if may_be_settled and method not in _CHEAP:
        bound = _bound_of_run(instance, submitted, "area", None, met_ratio)
    if bound is None or not is_settled(bound, mean_s, met_ratio):
        bound = _bound_of_run(instance, submitted, method, folder, met_ratio, bound)
    if bound.makespan_s is not None:
        bound = replace(bound, makespan_s=bound.makespan_s + late_s)
    return replace(bound, seconds=perf_counter() - began)


def _bound_of_run(
    instance: Instance, submitted: Instance, method: str, folder: Path | None, met_ratio: float | None,
    area: Bound | None = None,
) -> Bound:  # fmt: skip
    """The bound of the times of `instance`, and of the deadlines of `submitted`, of which it is a part."""
    bound = _bound(instance, method, folder, met_ratio=met_ratio, area=area)
    if instance is submitted or not submitted.deadline_jobs:
        return bound
    with_deadline = tuple(job for job in submitted.jobs if job.deadline_s is not None)
    due = Instance(submitted.gpus, with_deadline, submitted.deadline_jobs, submitted.shared)
    of_deadlines = _bound(due, method, folder, times=False, met_ratio=met_ratio)
    return replace(bound, deadline_met_ratio=of_deadlines.deadline_met_ratio)


def _bound(
    instance: Instance, method: str, folder: Path | None, *, times: bool = True,
    met_ratio: float | None = None, area: Bound | None = None,
) -> Bound:  # fmt: skip
    """The bound of an instance, maybe one in the folder; without `times` that of its deadlines alone."""
    if method in _CHEAP or len(instance.jobs) > _MOST_SHARED:
        return bound_of(instance, method, times=times)
    key = _digest(instance, method, times, "" if folder is None else code_hash())
    bound = _recent.pop(key, None)
    if bound is None:
        path = None if folder is None else folder / f"{key}.json"
        compute = partial(bound_of, instance, method, times=times, met_ratio=met_ratio or 0.0, area=area)
        bound = _shared(path, compute)
    _recent[key] = bound  # as the last one
    if len(_recent) > _MOST_RECENT:
        del _recent[next(iter(_recent))]
    return bound


def _shared(path: Path | None, compute: Callable[[], Bound]) -> Bound:
    """The bound in the file `path`; computed, and written there, if the file holds none. A folder that cannot
    be used is left alone, because a run does not fail for it.
    """
    if path is None:
        return compute()
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(_alone(path))  # others wait, rather than compute the same
        bound = _read(path)
        if bound is None:
            bound = compute()
            values = {name: value for name, value in asdict(bound).items() if name != "seconds"}
            with suppress(UserError):
                write_bytes(path, json.dumps(values).encode())  # a function of the instance alone
        return bound


def _read(path: Path) -> Bound | None:
    """The bound in a file; None if it holds none."""
    with suppress(OSError, ValueError, TypeError):
        bound = Bound(**json.loads(read_bytes(path, MAX_BYTES, links=False)), seconds=0.0)
        numbers = [value for name, value in asdict(bound).items() if name != "method"]
        if all(value is None or isinstance(value, float) for value in numbers) and bound.method in METHODS:
            return bound
    return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file, across processes; OSError if its folder cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_own(path.with_suffix(".lock")) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(instance: Instance, method: str, times: bool, code: str) -> str:
    """A hash of everything that the bound depends on; `code`: of the program, where another may read it."""
    total = hashlib.sha256(
        repr((code, method, times, instance.gpus, instance.deadline_jobs, instance.shared)).encode()
    )
    kinds: dict[int, int] = {}
    for job in instance.jobs:
        if id(job.options) not in kinds:
            kinds[id(job.options)] = len(kinds)
            total.update(repr(job.options).encode())
        kind = kinds[id(job.options)]
        total.update(repr((job.release_s, job.work, kind, job.deadline_s)).encode())
    return total.hexdigest()
