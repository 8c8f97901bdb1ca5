"""How far two traces are apart, statistic by statistic, and how far two halves of one are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from .arrivals import profile
from .columns import DAY_S, JobColumns
from .shares import ranked

__all__ = ["Distance", "distances"]

_BLOCKS, _SPLITS = 40, 20
_QUANTILE = 0.95
_FAR = 3.0  # times the baseline
_ONE_S = 1.0  # added to gaps, so that those of simultaneous submissions have a logarithm

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Distance:
    """The distance of two traces in one statistic.

    `statistic` names it; `baseline` is its 95 % quantile between random halves of the first trace, and
    `times_baseline` the distance over it. `note` says how much that is.
    """

    name: str
    statistic: str
    distance: float
    baseline: float
    times_baseline: float
    note: str


@dataclass(frozen=True)
class _Half:
    """Jobs, and the whole hours in which others or the same were submitted."""

    jobs: JobColumns
    per_hour: Numbers


_Measure = Callable[[_Half, _Half], float | None]


def distances(columns_a: JobColumns, columns_b: JobColumns, seed: int = 0) -> list[dict[str, Any]]:
    """The distances of two traces, as mappings of `Distance`, those furthest beyond their baseline first.

    The baseline splits the first trace into 40 blocks of consecutive jobs, and its hours likewise, and
    draws 20 of them, 20 times. Blocks keep the dependence of neighbouring jobs, which halves of single jobs
    would destroy (Kunsch, Annals of Statistics 17, 1989). Statistics that either trace does not have are left
    out. Each is between 0 and 1, except the factors: the mean distance on a logarithmic scale as a factor.
    """
    pair_of_all = _Half(columns_a, columns_a.per_hour), _Half(columns_b, columns_b.per_hour)
    halves = list(_halves(columns_a, np.random.default_rng(seed)))
    results = []
    for name, statistic, measure in _MEASURES:
        distance = measure(*pair_of_all)
        baselines = [] if distance is None else [d for pair in halves if (d := measure(*pair)) is not None]
        if distance is None or not baselines:
            continue
        baseline = float(np.quantile(baselines, _QUANTILE))
        is_factor = statistic.endswith("factor")
        over = (np.log(distance), np.log(baseline)) if is_factor else (distance, baseline)
        times = float(over[0] / over[1]) if over[1] > 0 else (np.inf if over[0] > 0 else 0.0)
        results.append(Distance(name, statistic, distance, baseline, min(times, 1e6), _note(times)))
    return [asdict(result) for result in sorted(results, key=lambda result: -result.times_baseline)]


def _note(times: float) -> str:
    if times <= 1:
        return "as two halves of A"
    return "large" if times > _FAR else "more than two halves of A"


def _halves(columns: JobColumns, rng: np.random.Generator) -> Iterator[tuple[_Half, _Half]]:
    per_hour = columns.per_hour
    of_job = np.arange(len(columns)) * _BLOCKS // len(columns)
    of_hour = np.arange(len(per_hour)) * _BLOCKS // len(per_hour)
    for _ in range(_SPLITS):
        drawn = np.isin(np.arange(_BLOCKS), rng.permutation(_BLOCKS)[: _BLOCKS // 2])
        jobs, hours = drawn[of_job], drawn[of_hour]
        if jobs.any() and not jobs.all():
            yield _Half(columns.where(jobs), per_hour[hours]), _Half(columns.where(~jobs), per_hour[~hours])


def _run_times(a: _Half, b: _Half) -> float | None:
    return _ks(a.jobs.run_s, b.jobs.run_s)


def _run_times_factor(a: _Half, b: _Half) -> float | None:
    return _factor(a.jobs.run_s, b.jobs.run_s)


def _gaps(a: _Half, b: _Half) -> float | None:
    return _ks(a.jobs.gap_s, b.jobs.gap_s)


def _gaps_factor(a: _Half, b: _Half) -> float | None:
    return _factor(a.jobs.gap_s + _ONE_S, b.jobs.gap_s + _ONE_S)


def _sizes(a: _Half, b: _Half) -> float | None:
    return _variation(_by_size(a.jobs, np.ones(len(a.jobs))), _by_size(b.jobs, np.ones(len(b.jobs))))


def _gpu_hours(a: _Half, b: _Half) -> float | None:
    return _variation(_by_size(a.jobs, a.jobs.gpu_s), _by_size(b.jobs, b.jobs.gpu_s))


def _run_times_of_a_size(a: _Half, b: _Half) -> float | None:
    """Mean over sizes, by their mean share in both, of the distance of run times at that size."""
    shares = [_by_size(half.jobs, np.ones(len(half.jobs))) for half in (a, b)]
    size_distances = [
        ((shares[0][size] + shares[1][size]) / 2, distance)
        for size in sorted(shares[0].keys() & shares[1].keys())
        if (distance := _ks(*(h.jobs.run_s[h.jobs.gpus == size] for h in (a, b)))) is not None
    ]
    total = sum(share for share, _ in size_distances)
    return sum(share * distance for share, distance in size_distances) / total if total else None


def _hours(a: _Half, b: _Half) -> float | None:
    if min(a.jobs.span_s, b.jobs.span_s) < DAY_S or (a.jobs.zero_s is None) != (b.jobs.zero_s is None):
        return None
    return float(abs(profile(a.jobs.hour, 24) - profile(b.jobs.hour, 24)).sum() / 2)


def _per_hour(a: _Half, b: _Half) -> float | None:
    return _ks(a.per_hour, b.per_hour) if min(len(a.per_hour), len(b.per_hour)) > 1 else None


def _owners(a: _Half, b: _Half) -> float | None:
    shares = ranked(a.jobs.owner), ranked(b.jobs.owner)
    owner_count = max(map(len, shares))
    if owner_count == 1:
        return None
    padded = [np.pad(share, (0, owner_count - len(share))) for share in shares]
    return float(abs(padded[0] - padded[1]).sum() / 2)


def _states(a: _Half, b: _Half) -> float | None:
    if not all((half.jobs.state != "").any() for half in (a, b)):
        return None
    state_counts = [np.unique(half.jobs.state, return_counts=True) for half in (a, b)]
    return _variation(*(dict(zip(n.tolist(), (c / c.sum()).tolist(), strict=True)) for n, c in state_counts))


_TOTAL, _KS, _FACTOR = "total variation", "Kolmogorov-Smirnov", "Wasserstein-1, factor"
_MEASURES: tuple[tuple[str, str, _Measure], ...] = (
    ("run times", _KS, _run_times),
    ("run times", _FACTOR, _run_times_factor),
    ("run times at equal size", "mean " + _KS, _run_times_of_a_size),
    ("GPUs of jobs", _TOTAL, _sizes),
    ("GPU-hours by size", _TOTAL, _gpu_hours),
    ("gaps between submissions", _KS, _gaps),
    ("gaps between submissions", _FACTOR, _gaps_factor),
    ("submissions in an hour", _KS, _per_hour),
    ("hours of the day", _TOTAL, _hours),
    ("shares of owners by rank", _TOTAL, _owners),
    ("states", _TOTAL, _states),
)


def _ks(a: Numbers, b: Numbers) -> float | None:
    """The largest difference of two empirical distribution functions (Kolmogorov-Smirnov)."""
    a, b = np.sort(a[~np.isnan(a)]), np.sort(b[~np.isnan(b)])
    if not len(a) or not len(b):
        return None
    points = np.concatenate([a, b])
    below = [np.searchsorted(sample, points, side="right") / len(sample) for sample in (a, b)]
    return float(abs(below[0] - below[1]).max())


def _factor(a: Numbers, b: Numbers) -> float | None:
    """exp of the Wasserstein-1 distance of the logarithms: by which factor quantiles differ on average."""
    a, b = a[~np.isnan(a)], b[~np.isnan(b)]
    return float(np.exp(wasserstein_distance(np.log(a), np.log(b)))) if len(a) and len(b) else None


def _variation(a: dict[Any, float], b: dict[Any, float]) -> float:
    """The total variation distance of two distributions: half the sum of the differences of shares."""
    return sum(abs(a.get(key, 0.0) - b.get(key, 0.0)) for key in sorted(a.keys() | b.keys())) / 2


def _by_size(columns: JobColumns, weights: Numbers) -> dict[Any, float]:
    """Share of the weights by GPU count."""
    has_gpus = ~np.isnan(columns.gpus)
    sizes, of_job = np.unique(columns.gpus[has_gpus], return_inverse=True)
    sums = np.bincount(of_job, weights=weights[has_gpus], minlength=len(sizes))
    return dict(zip(sizes.tolist(), (sums / (sums.sum() or 1.0)).tolist(), strict=True))
