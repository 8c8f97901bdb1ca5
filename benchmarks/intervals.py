"""How often 95 % intervals of a mean difference cover the truth, and how long they are, for few pairs.

python benchmarks/intervals.py --cases 2000

Bootstrap-t intervals (`clustersim.analysis`) against Student's t and those of `scipy.stats.bootstrap` (BCa,
percentile), for differences that are normal (mean 1, standard deviation 1), log-normal (mu 0, sigma 1), and
exponential (mean 1) in half of the pairs, 0 in the others. The output per method is the share of intervals
that cover the true mean, the 95th percentile of their lengths, and the share of cases without an interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from clustersim.analysis import paired_difference

RESAMPLES = 2000
DRAWS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, n: rng.normal(1.0, 1.0, n), 1.0),
    "log-normal": (lambda rng, n: rng.lognormal(0.0, 1.0, n), float(np.exp(0.5))),
    "half alike": (lambda rng, n: rng.exponential(1.0, n) * (rng.random(n) < 0.5), 0.5),
}


def interval(method: str, differences: np.ndarray, seed: int) -> tuple[float, float] | None:
    if np.all(differences == differences[0]):
        return None
    if method == "bootstrap-t":
        d = paired_difference([0.0] * len(differences), differences.tolist(), seed=seed)
        return None if d.low is None or d.high is None else (d.low, d.high)
    if method == "Student":
        n = len(differences)
        low, high = stats.t.interval(0.95, n - 1, differences.mean(), stats.sem(differences))
        return float(low), float(high)
    found = stats.bootstrap((differences,), np.mean, n_resamples=RESAMPLES, method=method, rng=seed)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    cases = parser.parse_args().cases
    methods = ("bootstrap-t", "Student", "BCa", "percentile")
    print("differences  pairs  " + "".join(f"{method:<21}" for method in methods))
    for name, (draw, truth) in DRAWS.items():
        for pairs in (5, 10, 20, 40):
            rng = np.random.default_rng(pairs)
            found: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
            for seed in range(cases):
                differences = draw(rng, pairs)
                for method in methods:
                    ends = interval(method, differences, seed)
                    if ends is not None:
                        found[method].append(ends)
            texts = [_summary(found[method], truth, cases) for method in methods]
            print(f"{name:<11}  {pairs:>5}  " + "".join(f"{text:<21}" for text in texts), flush=True)


def _summary(ends: list[tuple[float, float]], truth: float, cases: int) -> str:
    low, high = np.array(ends).T
    covering = np.mean((low <= truth) & (truth <= high))
    return f"{covering:.0%} {np.quantile(high - low, 0.95):.1f} none {1 - len(ends) / cases:.0%}"


if __name__ == "__main__":
    main()
