"""Jobs that wait for other jobs: the column `depends` of a trace, in the syntax of `sbatch --dependency`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["KINDS", "Dependency", "cycle_of", "cycles_of", "parse_dependencies", "words_of_cycle"]

KINDS = ("after", "afterok", "afterany", "afternotok", "singleton")
"""A job may start after others have started, ended well, ended in any way, ended otherwise than well; or when
no other job of its name and user is left.
"""

_MOST_JOBS = 100_000
_DELAY = re.compile(r"(.+)\+([0-9]{1,9})")


class Dependency(NamedTuple):
    """What a job waits for: all of `jobs`, each a job id, or an `array_id` for all tasks of the array.
    `delay_s`: seconds after the last of them started, of the kind `after`.
    """

    kind: str
    jobs: tuple[str, ...] = ()
    delay_s: float = 0.0


def parse_dependencies(text: str) -> tuple[tuple[Dependency, ...], bool]:
    """The dependencies that a cell states, and whether one of them is enough, with `?` between them, instead
    of all, with `,`. A delay behind `+` is in minutes, as in Slurm.

    ValueError says what is wrong, and how to fix it.

    >>> parse_dependencies("afterok:3:4,singleton")[0][0]
    Dependency(kind='afterok', jobs=('3', '4'), delay_s=0.0)
    """
    is_any = "?" in text
    if is_any and "," in text:
        raise ValueError("mixes ',' (all of them) and '?' (any of them); use one of the two")
    words = [word.strip() for word in text.split("?" if is_any else ",")]
    dependencies = [dependency for word in words for dependency in _parsed(word)]
    if sum(len(dependency.jobs) for dependency in dependencies) > _MOST_JOBS:
        raise ValueError(f"names more than {_MOST_JOBS:,} jobs; leave the job out")
    return tuple(dependencies), is_any


def cycle_of(dependents: Iterable[tuple[str, str | None, str]]) -> tuple[str, ...]:
    """The first of the cycles; empty if there are none."""
    return next(cycles_of(dependents), ())


def cycles_of(dependents: Iterable[tuple[str, str | None, str]]) -> Iterator[tuple[str, ...]]:
    """Ids of jobs, or of arrays, each of which waits for the next, and the last for the first. Each cycle is
    one without the jobs of those ahead of it. `dependents`: job id, array and dependencies of each job that
    depends on others. Those of which one is enough can be fulfilled in a cycle.
    """
    names_of: dict[str, dict[str, None]] = {}  # what the jobs of a name wait for
    for job_id, array_id, depends in dependents:
        dependencies, is_any = parse_dependencies(depends)
        awaited = [] if is_any else [name for dependency in dependencies for name in dependency.jobs]
        for name in (job_id, array_id):
            if name is not None:
                names_of.setdefault(name, {}).update(dict.fromkeys(awaited))
    done: set[str] = set()
    for start in names_of:
        path: dict[str, Iterator[str]] = {} if start in done else {start: iter(names_of[start])}
        while path:
            name = next(reversed(path))
            successor = next((n for n in path[name] if n in names_of and n not in done), None)
            if successor is None:
                done.add(name)
                del path[name]
            elif successor in path:
                cycle = tuple(path)[list(path).index(successor) :]
                yield cycle
                done.update(cycle)
                for member in cycle:
                    del path[member]
            else:
                path[successor] = iter(names_of[successor])


def words_of_cycle(cycle: Sequence[str]) -> str:
    """What is wrong with jobs that wait for each other, and how to fix it."""
    names = [*cycle[:5], *(["..."] if len(cycle) > 5 else []), cycle[0]]
    return f"closes a cycle of jobs that wait for each other: {' -> '.join(names)}; take one of them out"


def _parsed(word: str) -> list[Dependency]:
    """The dependencies of one kind; several where the delays of their jobs differ."""
    kind, _, jobs_text = word.partition(":")
    if kind not in KINDS:
        raise ValueError(f"has the dependency {word[:60]!r}; write one of {', '.join(KINDS)} and :JOB_ID")
    if kind == "singleton":
        if jobs_text:
            raise ValueError(f"has the dependency {word[:60]!r}; singleton names no job")
        return [Dependency(kind)]
    if not jobs_text or not all(jobs_text.split(":")):
        raise ValueError(f"has the dependency {word[:60]!r}, which names no job; write {kind}:JOB_ID")
    jobs_by_delay: dict[float, list[str]] = {}
    for job in jobs_text.split(":"):
        match = _DELAY.fullmatch(job)
        if match and kind != "after":
            raise ValueError(f"delays {word[:60]!r} by minutes; only `after` takes a delay")
        name, delay_s = (match[1], 60.0 * int(match[2])) if match else (job, 0.0)
        jobs_by_delay.setdefault(delay_s, []).append(name)
    return [Dependency(kind, tuple(jobs), delay_s) for delay_s, jobs in jobs_by_delay.items()]
