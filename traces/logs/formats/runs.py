"""Rows of a log that are runs of the same job: requeued jobs, jobs of several components, ids that come
again.

A cluster counts its jobs, and begins anew at some time; a requeued job keeps its number and gets a new
submission. So a job is known by cluster, id and submission, and a further row of an id is either its next run
or another job. Nothing here depends on the order of rows.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, tzinfo
from typing import Any

import numpy as np

from itertime.errors import UnknownName
from itertime.io import shown
from traces.attempts import Attempt
from traces.dependencies import KINDS, cycles_of
from traces.logs.log import LoggedJob, LogRows
from traces.native import PackedJobs

__all__ = ["AGAIN", "dependency_words", "join_rows"]

AGAIN = frozenset(("PREEMPTED", "REQUEUED", "NODE_FAIL", "REQUEUE_HOLD", "BOOT_FAIL", "RERUN"))
"""States of a run after which a job is submitted again, under its id."""

_REQUEUED_WITHIN_S = 86_400.0  # of the end of a run whose state says that it runs again
_RESTARTED_WITHIN_S = 60.0  # of the end of any other run of the same user and name
_TOGETHER_S = 60.0  # components of one job start within this time
_STATUS = re.compile(r"\([^)]*\)")
_COMPONENT = re.compile(r"(.+)\+(\d+)", re.ASCII)
_BETWEEN = re.compile(r"[:,?+]")  # what no id may hold that a dependency names
_MOST_NAMED = 5
_DATED_S = 1e8  # a clock that reads more than this counts from 1970

_Key = tuple[str | None, str]


def join_rows(rows: LogRows, zone: tzinfo, cluster: str | None = None) -> None:
    """Make one job of the rows that belong together, give jobs of one name ids of their own, and name in
    their dependencies jobs of the log. `cluster`: whose jobs are kept. UnknownName for one without jobs.
    """
    if cluster is not None:
        _keep_cluster(rows, cluster)
    rows.jobs = _with_runs(rows)
    rows.jobs = _with_components(rows)
    rows.jobs = _with_array_limits(rows.jobs)
    clusters = Counter(rows.jobs.column("cluster"))
    if len(clusters) > 1:
        rows.clusters = {name or "unnamed": count for name, count in clusters.most_common()}
        listed = ", ".join(f"{shown(name)} {count:,}" for name, count in rows.clusters.items())
        rows.warnings.append(
            f"the log is of {len(clusters)} clusters ({listed} jobs), which share no GPUs: jobs are called "
            "CLUSTER/ID; --log-cluster NAME keeps one"
        )
        rows.jobs = _by_cluster(rows.jobs)
    rows.jobs, own_ids = _with_own_ids(rows, zone)
    if any(rows.jobs.column("depends")):
        rows.jobs = _with_dependencies(rows, own_ids)


def _keep_cluster(rows: LogRows, cluster: str) -> None:
    clusters = list(rows.jobs.column("cluster"))
    cluster_jobs = rows.jobs.taken([place for place, name in enumerate(clusters) if name == cluster])
    if not cluster_jobs:
        raise UnknownName("cluster", shown(cluster), sorted({name or "unnamed" for name in clusters}))
    rows.joined["of_other_clusters"] += len(rows.jobs) - len(cluster_jobs)
    rows.notes.append(f"rows of other clusters than {shown(cluster)} are left out, as the user says")
    rows.jobs = cluster_jobs


def _repeated(keys: Iterable[object]) -> set[int]:
    """The hashes of keys that come several times, and perhaps a few others."""
    hashes = array("q", map(hash, keys))
    ordered = np.sort(np.frombuffer(hashes, dtype=np.int64))
    return set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())


def _with_runs(rows: LogRows) -> PackedJobs[LoggedJob]:
    """The jobs, those of several rows with all of their runs."""
    ids = rows.jobs.rows("cluster", "raw_id", "job_id")
    suspects = _repeated((cluster, raw_id or job_id) for cluster, raw_id, job_id in ids)
    if not suspects:
        return rows.jobs
    jobs, grouped = PackedJobs(LoggedJob), dict[_Key, list[LoggedJob]]()
    for job in rows.jobs:
        key = job.cluster, job.raw_id or job.job_id
        if hash(key) in suspects:
            grouped.setdefault(key, []).append(job)
        else:
            jobs.append(job)
    further = 0
    for rows_of_id in grouped.values():
        for chain in _chains(rows_of_id, rows):
            jobs.append(_of_runs(chain))
            further += len(chain) - 1
    rows.joined["runs"] += further
    if requeued := sum(map(bool, jobs.column("runs"))):
        rows.notes.append(
            f"{requeued:,} jobs were started more than once: they count from their first submission, their "
            "run time is that of the last run, and attempts holds all of them"
        )
    return jobs


def _order(job: LoggedJob) -> tuple[float, float, float, int]:
    start_s = job.logged_start_s if job.logged_start_s is not None else float("inf")
    return job.submit_s, start_s, -(job.logged_end_s or 0.0), job.line


def _chains(rows_of_id: list[LoggedJob], rows: LogRows) -> Iterator[list[LoggedJob]]:
    """The rows of one id by job, each a list of runs in order of time. A row that repeats one is dropped."""
    chain: list[LoggedJob] = []
    for row in sorted(rows_of_id, key=_order):
        last_row = chain[-1] if chain else None
        if last_row is not None and _is_same(last_row, row):
            text = f"the job of line {min(row.line, last_row.line)} again"
            rows.drop(max(row.line, last_row.line), row.job_id, text, "the job of another line again")
            if last_row.duration_s is None and row.duration_s is not None:
                chain[-1] = row
        elif last_row is None or _goes_on(last_row, row):
            chain.append(row)
        else:
            yield chain
            chain = [row]
    yield chain


def _is_same(row: LoggedJob, later_row: LoggedJob) -> bool:
    """Whether two rows state the same run, or the same wait."""
    return row.submit_s == later_row.submit_s and (
        row.logged_start_s == later_row.logged_start_s or later_row.logged_start_s is None
    )


def _goes_on(row: LoggedJob, later_row: LoggedJob) -> bool:
    """Whether a later row of an id is the same job again."""
    if row.submit_s == later_row.submit_s:
        return True
    ended_s = row.submit_s if row.logged_end_s is None else row.logged_end_s
    after_s = later_row.submit_s - ended_s
    if row.state in AGAIN:
        return after_s <= _REQUEUED_WITHIN_S
    if row.user is None and row.name is None:
        return False
    same_job = (row.user, row.name, row.tenant) == (later_row.user, later_row.name, later_row.tenant)
    return same_job and abs(after_s) <= _RESTARTED_WITHIN_S


def _of_runs(chain: list[LoggedJob]) -> LoggedJob:
    """The job of several rows: submitted as in the first, ended as in the last."""
    first_row, last_row = chain[0], chain[-1]
    if len(chain) == 1:
        return first_row
    attempts = tuple(attempt for row in chain for attempt in _attempts(row))
    spans = tuple(span for row in chain for span in row.on_nodes)
    suspended = [row.suspended_s for row in chain if row.suspended_s]
    options = {
        name: next((value for row in chain if (value := getattr(row, name)) is not None), None)
        for name in ("begin_s", "depends", "array_limit", "nice")
    }
    common: dict[str, Any] = {
        **options,
        "line": first_row.line,
        "submit_s": first_row.submit_s,
        "eligible_s": first_row.eligible_s,
        "spans": spans,
        "suspended_s": sum(suspended) if suspended else None,
    }
    if last_row.logged_start_s is None and last_row.duration_s is None:  # it waits to run again
        return replace(last_row, **common, runs=attempts)
    run = next((row for row in reversed(chain) if row.duration_s is not None and row.cancel_s is None), None)
    if run is None:
        return replace(last_row, **common)
    return replace(
        run,
        **common,
        logged_start_s=next((row.logged_start_s for row in chain if row.logged_start_s is not None), None),
        runs=attempts if len(attempts) > 1 else (),
        state=last_row.state,
        cancel_s=None,
    )


def _attempts(row: LoggedJob) -> Iterator[Attempt]:
    """The run of a row. Where an export states no starts, the run begins with the submission."""
    if row.duration_s is None or row.cancel_s is not None:
        return
    start_s = row.submit_s if row.logged_start_s is None else row.logged_start_s
    end_s = start_s + row.duration_s if row.logged_end_s is None else row.logged_end_s
    yield Attempt(start_s, end_s, _state_word(row.state))


def _state_word(state: str | None) -> str:
    return re.sub(r"[^A-Z_]", "_", (state or "ENDED").upper())[:31].lstrip("_") or "ENDED"


def _with_components(rows: LogRows) -> PackedJobs[LoggedJob]:
    """The jobs, components that start together being one."""
    if not any("+" in job_id for job_id in rows.jobs.column("job_id")):
        return rows.jobs
    jobs, grouped = PackedJobs(LoggedJob), dict[tuple[_Key, float], list[tuple[int, LoggedJob]]]()
    for job in rows.jobs:
        match = _COMPONENT.fullmatch(job.job_id) if "+" in job.job_id else None
        if match is None:
            jobs.append(job)
        else:
            grouped.setdefault(((job.cluster, match[1]), job.submit_s), []).append((int(match[2]), job))
    whole_jobs = unequal = 0
    for ((_, base), _), numbered in grouped.items():
        components = [job for _, job in sorted(numbered, key=lambda pair: (pair[0], pair[1].line))]
        starts = [job.logged_start_s for job in components if job.logged_start_s is not None]
        starts_differ = bool(starts) and (
            len(starts) < len(components) or max(starts) - min(starts) > _TOGETHER_S
        )
        if starts_differ:
            jobs.extend(components)
            continue
        job = _of_components(components, base)
        unequal += job.nodes is None
        whole_jobs += 1
        rows.joined["components"] += len(components) - 1
        jobs.append(job)
    if whole_jobs:
        nodes = f"; of {unequal:,} of them nodes differ, so none are stated" if unequal else ""
        rows.notes.append(
            f"{whole_jobs:,} heterogeneous jobs: their components start together and are one job with the "
            f"GPUs of all{nodes}"
        )
    return jobs


def _of_components(components: list[LoggedJob], base: str) -> LoggedJob:
    """The job of components that start together: the runs of the first one, on the GPUs of all."""
    leader = components[0]
    shapes = {(job.gpus_per_node, job.nodes is None) for job in components}
    types = {job.gpu_type for job in components}
    is_even = len(shapes) == 1 and leader.nodes is not None and leader.gpus_per_node is not None

    def total(name: str) -> float | None:
        amounts = [amount for job in components if (amount := getattr(job, name)) is not None]
        return sum(amounts) if len(amounts) == len(components) else None

    return replace(
        leader,
        job_id=base,
        gpus=sum(job.gpus for job in components),
        gpu_type=types.pop() if len(types) == 1 else None,
        part_of_gpu=any(job.part_of_gpu for job in components),
        nodes=sum(job.nodes or 0 for job in components) if is_even else None,
        gpus_per_node=leader.gpus_per_node if is_even else None,
        spans=tuple(span for job in components for span in job.on_nodes),
        cpus=total("cpus"),
        host_memory_gb=total("host_memory_gb"),
    )


def _with_array_limits(jobs: PackedJobs[LoggedJob]) -> PackedJobs[LoggedJob]:
    """The jobs, all tasks of an array with the limit that one of them states."""
    facts = ("cluster", "array_id", "array_limit")
    limits = {(cluster, array): limit for cluster, array, limit in jobs.rows(*facts) if limit is not None}
    if not limits:
        return jobs
    new_limits = (
        limits.get((cluster, array)) if array is not None and limit is None else limit
        for cluster, array, limit in jobs.rows(*facts)
    )
    return jobs.replaced(array_limit=new_limits)


def _by_cluster(jobs: PackedJobs[LoggedJob]) -> PackedJobs[LoggedJob]:
    """The jobs of several clusters with its name ahead of their ids."""
    names = [name or "unnamed" for name in jobs.column("cluster")]
    ids = (f"{name}/{job_id}" for name, job_id in zip(names, jobs.column("job_id"), strict=True))
    arrays = (
        None if array_id is None else f"{name}/{array_id}"
        for name, array_id in zip(names, jobs.column("array_id"), strict=True)
    )
    return jobs.replaced(job_id=ids, array_id=arrays)


_Ids = dict[tuple[str | None, str], list[tuple[float, str]]]
"""Id in a cluster -> the submissions of its jobs, each with the id that it has in the trace."""


def _with_own_ids(rows: LogRows, zone: tzinfo) -> tuple[PackedJobs[LoggedJob], _Ids]:
    """The jobs, the later ones of an id with their submission behind it."""
    suspects = _repeated(rows.jobs.column("job_id"))
    if not suspects:
        return rows.jobs, {}
    jobs, grouped = PackedJobs(LoggedJob), dict[str, list[LoggedJob]]()
    for job in rows.jobs:
        if hash(job.job_id) in suspects:
            grouped.setdefault(job.job_id, []).append(job)
        else:
            jobs.append(job)
    new_ids: _Ids = {}
    for job_id, jobs_of_id in grouped.items():
        jobs_of_id.sort(key=lambda job: (job.submit_s, job.line))
        for place, job in enumerate(jobs_of_id):
            own_id = job_id if not place else f"{job_id}@{_moment(job.submit_s, zone)}"
            if place and any(own_id == other_id for _, other_id in new_ids[job.cluster, job_id]):
                text = f"the job of line {jobs_of_id[place - 1].line} again"
                rows.drop(job.line, job_id, text, "the job of another line again")
                continue
            new_ids.setdefault((job.cluster, job_id), []).append((job.submit_s, own_id))
            jobs.append(job if not place else replace(job, job_id=own_id))
    again = sum(len(submissions) - 1 for submissions in new_ids.values())
    if again:
        rows.notes.append(
            f"{again:,} jobs have the id of an earlier one, and are called ID@SUBMISSION: the counter of "
            "jobs began anew"
        )
    return jobs, new_ids


def _moment(time_s: float, zone: tzinfo) -> str:
    if time_s < _DATED_S:
        return f"{time_s:.15g}"
    # Without colons, which divide the jobs of a dependency.
    return datetime.fromtimestamp(time_s, zone).strftime("%Y-%m-%dT%H%M%S")


def _with_dependencies(rows: LogRows, own_ids: _Ids) -> PackedJobs[LoggedJob]:
    """The jobs, their dependencies naming jobs of the log by their ids; others are dropped, and counted."""
    dependents = [job for job in rows.jobs if job.depends]
    names = _Names(rows.jobs, dependents, own_ids)
    missing_jobs, unknown_kinds = 0, Counter[str]()
    texts, arrays = dict[str, str](), dict[str, str | None]()
    for job in dependents:
        words, missing = names.words(job, unknown_kinds)
        missing_jobs += missing
        if words:
            texts[job.job_id] = words
            arrays[job.job_id] = job.array_id
    cycles = cycles_of((job_id, arrays[job_id], text) for job_id, text in texts.items())
    names_in_cycles = {name for cycle in cycles for name in cycle}
    cyclic_jobs = {job_id for job_id in texts if not names_in_cycles.isdisjoint((job_id, arrays[job_id]))}
    texts = {job_id: text for job_id, text in texts.items() if job_id not in cyclic_jobs}
    facts = rows.jobs.rows("job_id", "depends")
    jobs = rows.jobs.replaced(
        depends=(texts.get(job_id) if depends else depends for job_id, depends in facts)
    )
    _note_dependencies(rows, jobs, cyclic_jobs, missing_jobs, unknown_kinds)
    return jobs


def _note_dependencies(
    rows: LogRows,
    jobs: PackedJobs[LoggedJob],
    cyclic_jobs: set[str],
    missing_jobs: int,
    kinds: Counter[str],
) -> None:
    waiting = sum(depends is not None for depends in jobs.column("depends"))
    rows.notes.append(f"{waiting:,} jobs wait for other jobs of the log (depends)")
    if missing_jobs:
        rows.notes.append(
            f"{missing_jobs:,} dependencies name jobs that are not in the log, and are left out"
        )
    for kind, count in sorted(kinds.items()):
        rows.notes.append(f"{count:,} dependencies of the kind {shown(kind)} are left out")
    if cyclic_jobs:
        places = sorted(place for place in jobs.rows("line", "job_id") if place[1] in cyclic_jobs)
        listed = ", ".join(f"line {line}: {shown(name)}" for line, name in places[:_MOST_NAMED])
        rows.warnings.append(
            f"{len(places):,} jobs wait for themselves through others ({listed}); their dependencies are "
            "left out"
        )


class _Names:
    """The jobs that dependencies name: arrays, ids that users see, and numbers of tasks."""

    def __init__(self, jobs: PackedJobs[LoggedJob], dependents: Iterable[LoggedJob], own_ids: _Ids):
        self._own_ids = own_ids
        mentioned = {
            name.partition("+")[0] for job in dependents for _, name in dependency_words(job.depends or "")[0]
        }
        self._arrays = dict[tuple[str | None, str], str]()
        self._ids = dict[tuple[str | None, str], str]()
        self._numbers = dict[tuple[str | None, str], str]()
        for cluster, job_id, raw_id, array_id in jobs.rows("cluster", "job_id", "raw_id", "array_id"):
            plain = _plain(cluster, job_id).partition("@")[0]
            if plain in mentioned:
                self._ids.setdefault((cluster, plain), job_id)
            if raw_id in mentioned:
                self._numbers[cluster, raw_id or ""] = job_id
            if array_id is not None and (name := _plain(cluster, array_id)) in mentioned:
                self._arrays[cluster, name] = array_id

    def words(self, job: LoggedJob, unknown_kinds: Counter[str]) -> tuple[str, int]:
        """The dependencies of a job as a trace states them, and the number of those that name no job."""
        words, between = dependency_words(job.depends or "")
        texts, missing = dict[str, None](), 0
        for kind, name in words:
            if kind == "aftercorr":
                kind, name = "afterok", f"{name}_{job.job_id.rpartition('_')[2]}" if job.array_id else name
            if kind not in KINDS:
                unknown_kinds[kind] += 1
            elif kind == "singleton":
                texts[kind] = None
            elif (job_id := self._of(job, name.partition("+")[0])) is None:
                missing += 1
            else:
                delay = "+" + name.partition("+")[2] if "+" in name and kind == "after" else ""
                texts[f"{kind}:{job_id}{delay}"] = None
        return between.join(texts), missing

    def _of(self, job: LoggedJob, name: str) -> str | None:
        """The id of the job or the array that a dependency of a job names; None if it is not in the log."""
        key = job.cluster, name
        job_id = self._arrays.get(key) or self._ids.get(key) or self._numbers.get(key)
        if job_id is None:
            return None
        submissions = self._own_ids.get((job.cluster, job_id.partition("@")[0]), [(0.0, job_id)])
        earlier_ids = [own_id for submit_s, own_id in submissions if submit_s <= job.submit_s]
        other_ids = [own_id for own_id in earlier_ids if own_id != job.job_id]
        return other_ids[-1] if other_ids and not _BETWEEN.search(other_ids[-1]) else None


def _plain(cluster: str | None, job_id: str) -> str:
    """An id without the cluster ahead of it."""
    return job_id.removeprefix(f"{cluster or 'unnamed'}/")


def dependency_words(text: str) -> tuple[list[tuple[str, str]], str]:
    """The dependencies in a cell as (kind, job) and what is between them, `,` or `?`; a number alone is
    `afterany`. The live commands add `(unfulfilled)` and, to an array, `_*`.

    >>> dependency_words("afterok:36_*(unfulfilled),after:12+5(unfulfilled)")
    ([('afterok', '36'), ('after', '12+5')], ',')
    """
    between = "?" if "?" in text else ","
    words: list[tuple[str, str]] = []
    for word in _STATUS.sub("", text).split(between):
        kind, _, jobs = word.strip().partition(":")
        if kind not in KINDS and kind != "aftercorr":
            kind, jobs = ("afterany", word.strip()) if kind[:1].isdigit() else (kind, jobs)
        words += [(kind, job.replace("_*", "")) for job in jobs.split(":")] if jobs else [(kind, "")]
    return words, between
