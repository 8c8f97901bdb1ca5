"""An instance as arrays: jobs by column, and what each kind of job can run on as flat tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np
import numpy.typing as npt

from .instance import Instance, Option

__all__ = ["Floats", "Ints", "JobKind", "OptionColumns"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_MOST_SUMS, _FEW_JOBS = 1_000_000, 64


@dataclass(frozen=True, eq=False)
class JobKind:
    """All ways to run a kind of job, as arrays of equal length: `gpu_type`, `gpus`, `rate` (units/s),
    `launch_s`, `restart_s`. `jobs`: the rows of the jobs of that kind.
    """

    gpu_type: Ints
    gpus: Floats
    rate: Floats
    launch_s: Floats
    restart_s: Floats
    jobs: Ints


@dataclass(frozen=True, eq=False)
class OptionColumns:
    """The jobs of an instance, one row each: `release_s`, `work` and `deadline_s` (NaN: none). Times count
    from the first release. `gpus`: the most of each type that jobs can hold at a time. `clock_error_s`: more
    than what the rounding of a run's clock adds to a JCT.
    """

    gpus: Floats
    release_s: Floats
    work: Floats
    deadline_s: Floats
    kinds: tuple[JobKind, ...]
    clock_error_s: float

    @classmethod
    def of(cls, instance: Instance) -> OptionColumns:
        jobs = instance.jobs
        rows: dict[int, list[int]] = {}
        options: dict[int, tuple[Option, ...]] = {}
        for row, job in enumerate(jobs):
            key = id(job.options)
            if key in rows:
                rows[key].append(row)
            else:
                rows[key], options[key] = [row], job.options
        release_s = np.array([job.release_s for job in jobs], dtype=np.float64)
        deadline_s = np.array([np.nan if job.deadline_s is None else job.deadline_s for job in jobs])
        first_s = release_s.min(initial=np.inf)
        return cls(
            gpus=np.array(
                [_usable(instance, gpu_type, rows, options) for gpu_type in range(len(instance.gpus))]
            ),
            release_s=release_s - first_s,
            work=np.array([job.work for job in jobs], dtype=np.float64),
            deadline_s=deadline_s - first_s,
            kinds=tuple(_kind(options[key], np.array(rows[key], dtype=np.int64)) for key in rows),
            clock_error_s=64 * float(np.spacing(np.abs(release_s).max(initial=1.0))),
        )

    def __len__(self) -> int:
        return len(self.work)

    @property
    def rigid(self) -> bool:
        """Whether each job has one option."""
        return all(len(kind.gpus) == 1 for kind in self.kinds)

    def part(self, rows: Ints) -> OptionColumns:
        """The jobs of some rows, ascending."""
        place = np.full(len(self), -1)
        place[rows] = np.arange(len(rows))
        kinds = (replace(kind, jobs=place[kind.jobs][place[kind.jobs] >= 0]) for kind in self.kinds)
        return OptionColumns(
            gpus=self.gpus,
            release_s=self.release_s[rows],
            work=self.work[rows],
            deadline_s=self.deadline_s[rows],
            kinds=tuple(kind for kind in kinds if len(kind.jobs)),
            clock_error_s=self.clock_error_s,
        )


def _usable(
    instance: Instance, gpu_type: int, rows: dict[int, list[int]], options: dict[int, tuple[Option, ...]]
) -> float:
    """The most GPUs of a type that jobs can hold at a time: the largest sum of one size each that fits; of
    any number of sizes if there are many jobs. At least 1, so that it can divide. All of them where jobs hold
    parts of GPUs.

    Bit n of `sums` says whether n GPUs are such a sum.
    """
    gpus = instance.gpus[gpu_type]
    if gpus > _MOST_SUMS or instance.shared:
        return float(gpus)
    sums, mask = 1, (1 << (gpus + 1)) - 1
    for key, jobs in rows.items():
        held = [n for option in options[key] if option.gpu_type == gpu_type for n in option.sizes]
        sizes = [int(n) for n in held]
        if sizes != held:
            return float(gpus)
        if len(instance.jobs) <= _FEW_JOBS:
            for _ in jobs:
                sums |= reduce(or_, (sums << n for n in sizes), 0) & mask
        else:
            for n in sizes:
                while n <= gpus:
                    sums |= sums << n & mask
                    n *= 2
    return float(max(1, sums.bit_length() - 1))


def _kind(options: tuple[Option, ...], jobs: Ints) -> JobKind:
    def flat(name: str) -> Floats:
        return np.array([value for option in options for value in getattr(option, name)], dtype=np.float64)

    gpu_type = np.array([option.gpu_type for option in options for _ in option.sizes], dtype=np.int64)
    return JobKind(gpu_type, flat("sizes"), flat("rates"), flat("launch_s"), flat("restart_s"), jobs)
