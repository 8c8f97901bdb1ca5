"""Kernels as they were timed, looked up by their sizes: no formula, as in vTrain's tables of operators."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from functools import cached_property

import numpy as np
from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.arrays import Array
from itertime.io import CONFIG, Positive

from .queries import Elementwise, Gemm, Query

Formula = Callable[[Query], Array]


@dataclass(frozen=True, config=CONFIG)
class TimedProducts:
    """Seconds of products of one precision. A shape is (m, n, k, batch); `time_s` has an entry for each."""

    shapes: list[tuple[int, int, int, int]]
    time_s: list[Positive]

    @model_validator(mode="after")
    def _check(self) -> TimedProducts:
        if len(self.shapes) != len(self.time_s) or len(set(self.shapes)) != len(self.shapes):
            raise ValueError("shapes and time_s must have one entry for each shape")
        return self

    @cached_property
    def by_shape(self) -> dict[tuple[float, ...], float]:
        """Seconds by m, n, k and batch."""
        return dict(zip(self.shapes, self.time_s, strict=True))


@dataclass(frozen=True, config=CONFIG)
class TimedSizes:
    """Seconds of a memory-bound kernel by the bytes that it moves, in ascending order.

    Between two sizes the logarithm of the time is linear in that of the bytes. Outside, the bytes per second
    are those of the nearest size.
    """

    nbytes: list[Positive]
    time_s: list[Positive]

    @model_validator(mode="after")
    def _check(self) -> TimedSizes:
        if not self.nbytes or len(self.nbytes) != len(self.time_s):
            raise ValueError("nbytes and time_s must have one entry for each size")
        if any(a >= b for a, b in itertools.pairwise(self.nbytes)):
            raise ValueError(f"nbytes={self.nbytes} must rise")
        return self

    def seconds(self, nbytes: Array) -> Array:
        """Seconds of so many bytes; 0 for none."""
        sizes, times = self._logarithms
        moved = np.log(np.maximum(nbytes, 1e-300))
        within = np.clip(moved, sizes[0], sizes[-1])
        return np.where(nbytes > 0, np.exp(np.interp(within, sizes, times) + moved - within), 0.0)

    @cached_property
    def _logarithms(self) -> tuple[Array, Array]:
        return np.log(np.array(self.nbytes)), np.log(np.array(self.time_s))


@dataclass(frozen=True, config=CONFIG)
class TimedKernels:
    """The kernels that were timed: products by precision, memory-bound ones by kind, forward and backward.

    A kind without a backward pass of its own has the forward one's times.
    """

    products: dict[str, TimedProducts] = dataclasses.field(default_factory=dict)
    forward: dict[str, TimedSizes] = dataclasses.field(default_factory=dict)
    backward: dict[str, TimedSizes] = dataclasses.field(default_factory=dict)

    def has(self, query: Query) -> bool:
        """Whether a query is answered without the formulas."""
        match query:
            case Gemm():
                return all(shape in self._shapes(query) for shape in _shapes_of(query)[1])
            case Elementwise():
                return query.style is None and query.kind in self.forward
        return False

    def seconds(self, query: Query, formula: Formula) -> Array:
        """Seconds of a query; `formula` answers for what was not timed."""
        match query:
            case Gemm():
                return self._products_s(query, formula)
            case Elementwise() if query.style is None and query.kind in self.forward:
                nbytes = np.asarray(query.nbytes, dtype=float)
                forward = self.forward[query.kind]
                backward = self.backward.get(query.kind, forward)
                return np.where(query.backward, backward.seconds(nbytes), forward.seconds(nbytes))
        return formula(query)

    def _shapes(self, query: Gemm) -> dict[tuple[float, ...], float]:
        products = self.products.get(query.precision)
        return {} if products is None else products.by_shape

    def _products_s(self, query: Gemm, formula: Formula) -> Array:
        form, shapes = _shapes_of(query)
        timed = self._shapes(query)
        seconds = np.array([timed.get(shape, np.nan) for shape in shapes]).reshape(form)
        missing = np.isnan(seconds)
        return np.where(missing, formula(query), seconds) if missing.any() else seconds


def _shapes_of(query: Gemm) -> tuple[tuple[int, ...], list[tuple[float, ...]]]:
    """The common form of a query's arrays, and the shape of every product in it."""
    columns = np.broadcast_arrays(query.m, query.n, query.k, query.batch)
    return columns[0].shape, list(zip(*(column.ravel().tolist() for column in columns), strict=True))
