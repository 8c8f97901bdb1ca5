"""A job as the rule of prices sees it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

__all__ = ["Claim", "ClaimCurve", "J"]

J = TypeVar("J", bound=Hashable)
"""What stands for a job in the shares."""


class ClaimCurve:
    """What a kind of job does on each number of GPUs of one type.

    | field | |
    |---|---|
    | `sizes` | GPU counts, ascending |
    | `unit_s` | seconds for a unit of work on each, descending |
    | `restarts`, `launches` | seconds of a restart or resize onto each; of a first start there |
    | `launch_gpu_s` | the fewest GPU-seconds of a launch |
    | `unit_gpu_s` | the fewest GPU-seconds for a unit of work |
    | `first`, `later` | (GPUs, seconds of a launch or restart, seconds for a unit of work) of each size |
    """

    __slots__ = (
        "_at", "first", "later", "launch_gpu_s", "launches", "restarts", "sizes", "unit_gpu_s", "unit_s",
    )  # fmt: skip

    def __init__(
        self, sizes: Sequence[int], rates: Sequence[float], restarts: Sequence[float],
        launches: Sequence[float],
    ):  # fmt: skip
        """Sequences of equal length, one entry a size. `rates`: units of work per second."""
        self.sizes, self.restarts, self.launches = tuple(sizes), tuple(restarts), tuple(launches)
        self.unit_s = tuple(1.0 / rate for rate in rates)
        self.launch_gpu_s = min(size * launch_s for size, launch_s in zip(sizes, launches, strict=True))
        self.unit_gpu_s = min(size / rate for size, rate in zip(sizes, rates, strict=True))
        self.first = tuple(zip(self.sizes, self.launches, self.unit_s, strict=True))
        self.later = tuple(zip(self.sizes, self.restarts, self.unit_s, strict=True))
        self._at = {size: at for at, size in enumerate(self.sizes)}

    def at(self, size: int) -> int:
        """The index of a size."""
        return self._at[size]

    def least_gpu_s(self, work: float) -> float:
        """A bound from below of the GPU-seconds in which a job can do `work` units: a launch on the fewest
        GPUs, then all work at the best efficiency.

        >>> ClaimCurve((1, 2), (1.0, 1.5), (20.0, 20.0), (10.0, 10.0)).least_gpu_s(60.0)
        70.0
        """
        return self.launch_gpu_s + work * self.unit_gpu_s

    def alone_s(self, work: float) -> float:
        """The least seconds in which a job can be launched and do `work` units.

        >>> ClaimCurve((1, 2), (1.0, 1.5), (20.0, 20.0), (10.0, 10.0)).alone_s(60.0)
        50.0
        """
        return min([launch_s + work * unit_s for _, launch_s, unit_s in self.first])


class Claim(Generic[J]):
    """A job that wants GPUs, as of now.

    | field | |
    |---|---|
    | `job` | what stands for it in the shares |
    | `curves` | its curves by GPU type; at equal cost the first type is taken |
    | `work` | units of work left |
    | `held`, `gpu_type` | GPUs that it holds, 0 while it waits, and their type |
    | `paying_s` | seconds of overhead still to pay on them |
    | `fresh` | whether its next start is its first, which costs a launch |
    | `key` | its place in the order |
    | `price` | its price of a GPU-second of the best type, in seconds (`Prices`) |
    """

    __slots__ = (
        "curves", "fresh", "gpu_type", "held", "job", "key", "paying_s", "price", "work",
    )  # fmt: skip

    def __init__(
        self, job: J, curves: Mapping[str, ClaimCurve], work: float, price: float = 0.0, *,
        held: int = 0, gpu_type: str = "", paying_s: float = 0.0, fresh: bool = False,
    ):  # fmt: skip
        self.job, self.curves, self.work, self.price = job, curves, work, price
        self.held, self.gpu_type, self.paying_s, self.fresh = held, gpu_type, paying_s, fresh
        self.key = 0.0

    def seconds(self, gpu_type: str, size_index: int) -> float:
        """Seconds until the job is done if it holds the size of that index on that type from now on."""
        curve = self.curves[gpu_type]
        if curve.sizes[size_index] == self.held and gpu_type == self.gpu_type:
            overhead_s = self.paying_s
        else:
            overhead_s = curve.launches[size_index] if self.fresh else curve.restarts[size_index]
        return overhead_s + self.work * curve.unit_s[size_index]

    def again_s(self) -> float:
        """Seconds of a start on what the job holds, if it lost it now."""
        curve = self.curves[self.gpu_type]
        return curve.restarts[curve.at(self.held)]

    def rate(self) -> float:
        """Units of work per second on what it holds."""
        curve = self.curves[self.gpu_type]
        return 1.0 / curve.unit_s[curve.at(self.held)]

    def seconds_left(self) -> float:
        """Seconds until the job is done if it keeps what it holds, which must be one of its sizes."""
        curve = self.curves[self.gpu_type]
        return self.paying_s + self.work * curve.unit_s[curve.at(self.held)]
