"""Time of kernels that memory bandwidth bounds: element-wise ones, norms, casts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.arrays import Array
from itertime.io import CONFIG, Count, NonNegative, Positive

FEW = 10  # numbers: up to this many, plain Python is faster than arrays


@dataclass(frozen=True, config=CONFIG)
class WidthRate:
    """Bandwidth of a kernel that reduces over rows of `width` elements."""

    width: Count
    bytes_per_s: Positive


@dataclass(frozen=True, config=CONFIG)
class ElementwiseModel:
    """Time of a memory-bound kernel: bytes read and written over the achieved bandwidth, plus a launch.

    `by_width`, in ascending order, gives the bandwidth by the length of a row: linear in log2(width) between
    widths, constant outside. `bytes_per_s` is the bandwidth without a stated length.
    """

    bytes_per_s: Positive
    launch_s: NonNegative
    by_width: list[WidthRate] = dataclasses.field(default_factory=list)

    @model_validator(mode="after")
    def _check(self) -> ElementwiseModel:
        widths = [rate.width for rate in self.by_width]
        if any(a >= b for a, b in itertools.pairwise(widths)):
            raise ValueError(f"by_width: widths {widths} must rise")
        return self

    def seconds(self, nbytes: ArrayLike, width: float | None = None) -> Array:
        """Seconds to read and write `nbytes` bytes in one kernel; 0 for 0 bytes."""
        nbytes, rate = np.asarray(nbytes, dtype=float), self.rate(width)
        if nbytes.size <= FEW:
            times = [size / rate + self.launch_s if size > 0 else 0.0 for size in nbytes.ravel().tolist()]
            return np.array(times).reshape(nbytes.shape)
        return np.where(nbytes > 0, nbytes / rate + self.launch_s, 0.0)

    def scaled(self, ratio: float) -> ElementwiseModel:
        """The kernel on a GPU with `ratio` times the memory bandwidth."""
        by_width = [
            WidthRate(width_rate.width, width_rate.bytes_per_s * ratio) for width_rate in self.by_width
        ]
        return ElementwiseModel(self.bytes_per_s * ratio, self.launch_s, by_width)

    def rate(self, width: float | None = None) -> float:
        """Bytes/s for rows of `width` elements."""
        if width is None or not self.by_width:
            return self.bytes_per_s
        rates = self._known_rates
        if width not in rates:
            rates[width] = float(np.interp(math.log2(width), *self._rates))
        return rates[width]

    @cached_property
    def _known_rates(self) -> dict[float, float]:
        """Rates by width. A language model has only one or two widths."""
        return {}

    @cached_property
    def _rates(self) -> tuple[Array, Array]:
        """Binary logarithms of the widths, and bytes/s."""
        widths, rates = np.array(
            [(width_rate.width, width_rate.bytes_per_s) for width_rate in self.by_width]
        ).T
        return np.log2(widths), rates


@dataclass(frozen=True, config=CONFIG)
class ElementwiseStyle:
    """One kind of memory-bound kernel in one way of writing it, forward and backward."""

    forward: ElementwiseModel
    backward: ElementwiseModel

    def scaled(self, ratio: float) -> ElementwiseStyle:
        """The kernel on a GPU with `ratio` times the memory bandwidth."""
        return ElementwiseStyle(self.forward.scaled(ratio), self.backward.scaled(ratio))

    def seconds(self, nbytes: ArrayLike, width: float | None, backward: ArrayLike) -> Array:
        """Seconds as `ElementwiseModel.seconds`; `backward` says, by element, which of the two it is."""
        if isinstance(backward, bool):
            return (self.backward if backward else self.forward).seconds(nbytes, width)
        nbytes = np.asarray(nbytes, dtype=float)
        rate = np.where(backward, self.backward.rate(width), self.forward.rate(width))
        launch_s = np.where(backward, self.backward.launch_s, self.forward.launch_s)
        return np.where(nbytes > 0, nbytes / rate + launch_s, 0.0)


@dataclass(frozen=True, config=CONFIG)
class CastModel:
    """Time to quantise a 16-bit tensor: the bytes that all its kernels move over their rate, plus launches.

    `bytes_per_element` counts every read and write of the recipe: finding the largest magnitude, scaling, and
    a transposed copy where the GPU's matrix units need one.
    """

    bytes_per_element: Positive
    bytes_per_s: Positive
    launch_s: NonNegative

    def scaled(self, ratio: float) -> CastModel:
        """The cast on a GPU with `ratio` times the memory bandwidth."""
        return CastModel(self.bytes_per_element, self.bytes_per_s * ratio, self.launch_s)

    def seconds(self, elements: ArrayLike) -> Array:
        """Seconds of a tensor of so many elements; 0 for none."""
        elements = np.asarray(elements, dtype=float)
        moved = elements * (self.bytes_per_element / self.bytes_per_s)
        return np.where(elements > 0, moved + self.launch_s, 0.0)
