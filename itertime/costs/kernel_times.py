"""What the cost functions ask of a GPU's profile."""

from __future__ import annotations

from typing import Protocol

from itertime.arrays import Array
from itertime.spec import Query


class KernelTimes(Protocol):
    """Seconds of one GPU type's kernels and in-node collectives, its peak and its memory.

    A `Profile` answers all of it; so does what notes the queries on their way to one.
    """

    @property
    def memory_bytes(self) -> float: ...

    @property
    def peak_flops(self) -> float: ...

    @property
    def nvlink_bytes_per_s(self) -> float | None: ...

    @property
    def gemm_in_training(self) -> float: ...

    def seconds(self, query: Query) -> Array: ...
