"""A job as the rule of prices sees it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

__all__ = ["Claim", "Curve", "J", "least_gpu_s"]

J = TypeVar("J", bound=Hashable)
"""What stands for a job in the shares."""


class Curve(NamedTuple):
    """What a job does on each number of GPUs of one type: tuples of equal length, `sizes` ascending.

    `rates`: units of work per second. `launches`: seconds of a first start. `restarts`: seconds of a restart
    or resize onto so many GPUs.
    """

    sizes: tuple[int, ...]
    rates: tuple[float, ...]
    restarts: tuple[float, ...]
    launches: tuple[float, ...]


class Claim(Generic[J]):
    """A job that wants GPUs, as of now.

    | field | |
    |---|---|
    | `job` | what stands for it in the shares |
    | `curves` | its speeds and overheads by GPU type; `Market` takes types of equal cost in this order |
    | `work` | units of work left |
    | `held`, `gpu_type` | GPUs that it holds, 0 while it waits, and their type |
    | `paying_s` | seconds of overhead still to pay on them |
    | `fresh` | whether its next start is its first, which costs a launch |
    | `price` | its price of a GPU-second of the best type, in seconds (`Prices`) |
    """

    __slots__ = ("curves", "fresh", "gpu_type", "held", "job", "paying_s", "price", "work")

    def __init__(
        self, job: J, curves: Mapping[str, Curve], work: float, price: float = 0.0, *,
        held: int = 0, gpu_type: str = "", paying_s: float = 0.0, fresh: bool = False,
    ):  # fmt: skip
        self.job, self.curves, self.work, self.price = job, curves, work, price
        self.held, self.gpu_type, self.paying_s, self.fresh = held, gpu_type, paying_s, fresh

    def seconds(self, gpu_type: str, at: int) -> float:
        """Seconds until the job is done if from now on it holds the size with index `at` of that type."""
        curve = self.curves[gpu_type]
        if curve.sizes[at] == self.held and gpu_type == self.gpu_type:
            overhead_s = self.paying_s
        else:
            overhead_s = curve.launches[at] if self.fresh else curve.restarts[at]
        return overhead_s + self.work / curve.rates[at]

    def seconds_left(self) -> float:
        """Seconds until the job is done if it keeps what it holds, which must be one of its sizes."""
        curve = self.curves[self.gpu_type]
        return self.paying_s + self.work / curve.rates[curve.sizes.index(self.held)]


def least_gpu_s(curves: Mapping[str, Curve], work: float, worth: Mapping[str, float]) -> float:
    """The fewest GPU-seconds in which a job can do `work` units, a launch included. `worth`: what a GPU of
    each type counts.

    >>> least_gpu_s({"": Curve((1, 2), (1.0, 1.5), (20.0, 20.0), (10.0, 10.0))}, 60.0, {"": 1.0})
    70.0
    """
    return min(
        [
            worth[gpu_type] * size * (launch_s + work / rate)
            for gpu_type, curve in curves.items()
            for size, rate, launch_s in zip(curve.sizes, curve.rates, curve.launches, strict=True)
        ]
    )
