"""Bounds of the makespan: from the area of the jobs, and from the speed that they need to be done in time."""

from __future__ import annotations

import numpy as np

from .area import areas
from .columns import Floats, Ints, OptionColumns

__all__ = ["makespan_by_area_s", "makespan_s"]

_HALVINGS = 40
_MOST_RELEASES, _MOST_WORK = 12, 4_000_000  # release times that are tried; times of jobs in all


def makespan_by_area_s(columns: OptionColumns, weights: Floats) -> float:
    """Makespan >= max over release times t of (t - first release) + the areas of the jobs released from t on,
    over all GPUs.

    *Proof.* These jobs hold their areas after t, and no more than all GPUs at a time. []
    """
    order, area_s = _areas_from(columns, weights)
    release_s = columns.release_s[order]
    return float(np.max(release_s - release_s[0] + area_s))


def _areas_from(columns: OptionColumns, weights: Floats) -> tuple[Ints, Floats]:
    """The jobs in order of release, and for each the areas of it and all later ones over all GPUs, in
    seconds.
    """
    order = np.argsort(columns.release_s, kind="stable")
    areas_after = np.cumsum(areas(columns, weights)[order][::-1])[::-1]
    return order, areas_after / float(weights @ columns.gpus)


def makespan_s(columns: OptionColumns, weights: Floats, at_least_s: float) -> float:
    """The least makespan T, from the first release on; `at_least_s`: a bound that is known.

    *Statement.* For any time t, let J be the jobs released from t on. The end T of the run satisfies the sum
    over J of G_j(T - a_j - L_j) + the least that j holds for a launch <= N (T - t). Here N are the weighted
    GPUs, a_j is the release, L_j the least launch, and G_j(x) = x h(w_j / x). h(y) are the least weighted
    GPUs that do y units a second, shared over time between options.

    *Proof.* After its release j spends at least L_j without work, so it works for at most x = T - a_j - L_j
    seconds. Working at rate y it holds at least h(y) weighted GPUs. h is convex and h(0) = 0, so by Jensen's
    inequality it holds at least x h(w_j / x) GPU-seconds while it works, and this falls with x. Where w_j / x
    is more than the greatest rate, j cannot be done by T, and G_j is infinite. While it pays the launch of
    its last allocation j holds more, at least the least GPUs x launch_s of its options. All that is held
    after t is at most N (T - t). []

    The left side falls in T and the right side grows: every T at which the inequality fails is exceeded, and
    bisection finds the largest. The bound is the maximum over the releases t that the area alone makes
    largest.
    """
    order, area_s = _areas_from(columns, weights)
    release_s, gpus = columns.release_s[order], float(weights @ columns.gpus)
    first_s = float(release_s[0])
    ends_s = release_s + area_s
    chances = min(_MOST_RELEASES, max(1, _MOST_WORK // (_HALVINGS * len(columns))))
    best_s = first_s + at_least_s
    for begin in np.argsort(-ends_s, kind="stable")[:chances].tolist():
        needs = _Needs(columns, weights, order[begin:])
        low_s, high_s = best_s, best_s + 4.0 * (best_s - first_s) + 1.0
        if needs.gpu_seconds(low_s) <= gpus * (low_s - release_s[begin]):
            continue
        for _ in range(_HALVINGS):
            middle_s = (low_s + high_s) / 2
            if needs.gpu_seconds(middle_s) > gpus * (middle_s - release_s[begin]):
                low_s = middle_s
            else:
                high_s = middle_s
        best_s = low_s
    return best_s - first_s


class _Needs:
    """The least weighted GPU-seconds that some jobs hold if they are done by a time."""

    def __init__(self, columns: OptionColumns, weights: Floats, rows: Ints):
        mask = np.zeros(len(columns), dtype=bool)
        mask[rows] = True
        self._idle = 0.0
        self._kinds = []
        for kind in columns.kinds:
            jobs = kind.jobs[mask[kind.jobs]]
            weighted = weights[kind.gpu_type] * kind.gpus
            self._idle += len(jobs) * float(np.min(weighted * kind.launch_s))
            latest = columns.release_s[jobs] + kind.launch_s.min()
            self._kinds.append((latest, columns.work[jobs], *_least_gpus(kind.rate, weighted)))

    def gpu_seconds(self, end_s: float) -> float:
        total = self._idle
        for latest_s, work, rates, gpus in self._kinds:
            span_s = end_s - latest_s
            with np.errstate(divide="ignore", invalid="ignore"):
                rate = np.where(work > 0, work / span_s, 0.0)
            if np.any((span_s < 0) | (rate > rates[-1] * (1 + 1e-12))):
                return float("inf")
            total += float(np.sum(span_s * np.interp(rate, rates, gpus)))
        return total


def _least_gpus(rate: Floats, gpus: Floats) -> tuple[Floats, Floats]:
    """The lower convex hull of (rate, GPUs) from (0, 0) to the greatest rate."""
    hull = [(0.0, 0.0)]
    for point in sorted(zip(rate.tolist(), gpus.tolist(), strict=True)):
        while len(hull) > 1 and _turns_right(hull[-2], hull[-1], point):
            hull.pop()
        if point[0] > hull[-1][0]:
            hull.append(point)
    rates, counts = zip(*hull, strict=True)
    return np.array(rates), np.array(counts)


def _turns_right(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b lies on or above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
