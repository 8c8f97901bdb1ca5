"""Convex hulls of the work of ranks, whose corners are the ranks that can be the slowest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from itertime.arrays import Array

Points = Array
"""The last axis: tokens, and sum of squared lengths."""


def upper_hull(points: Points) -> Points:
    """Corners of the upper right hull of points x 2: one of them maximises every a x + b y, a and b >= 0.

    Andrew's monotone chain (1979) on the points that no other exceeds in both coordinates.

    >>> upper_hull(np.array([(0.0, 3.0), (1.0, 1.0), (2.0, 2.0), (3.0, 0.0), (1.0, 2.4)])).tolist()
    [[3.0, 0.0], [2.0, 2.0], [0.0, 3.0]]
    """
    order = np.lexsort((-points[:, 1], -points[:, 0]))
    ordered = points[order]
    best = np.maximum.accumulate(ordered[:, 1])
    front = ordered[np.concatenate(([True], best[1:] > best[:-1]))]
    corners: list[tuple[float, float]] = []
    for x, y in front.tolist():  # x falls, y rises
        while len(corners) > 1 and not _turns(corners[-2], corners[-1], (x, y)):
            corners.pop()
        corners.append((x, y))
    return np.array(corners)


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether `b` lies beyond the line from `a` to `c`, which goes to the upper left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) > 0


def stacked(hulls: Sequence[Points]) -> Points:
    """hulls x corners x 2; hulls with fewer corners repeat their last one. Memory holds the hulls along the
    first axis side by side, over which `highest` is fastest.
    """
    longest = max(map(len, hulls))
    columns = [np.concatenate([hull, np.repeat(hull[-1:], longest - len(hull), axis=0)]) for hull in hulls]
    return np.asfortranarray(columns)


def highest(hulls: Points, linear: float, quadratic: float) -> Points:
    """The largest linear * tokens + quadratic * squares of each of the `stacked` hulls."""
    work: Points = (linear * hulls[..., 0] + quadratic * hulls[..., 1]).max(axis=1)
    return work
