"""How often 95 % intervals of a mean difference cover the truth, for few pairs.

python benchmarks/intervals.py --cases 2000

Bootstrap-t intervals (`clustersim.statistics`) against those of `scipy.stats.bootstrap` (BCa, percentile),
for differences that are normal (mean 1, standard deviation 1) and log-normal (mu 0, sigma 1).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from scipy import stats

from clustersim.statistics import paired_difference

RESAMPLES = 2000
DRAWS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "normal": (lambda rng, n: rng.normal(1.0, 1.0, n), 1.0),
    "log-normal": (lambda rng, n: rng.lognormal(0.0, 1.0, n), float(np.exp(0.5))),
}


def interval(method: str, differences: np.ndarray, seed: int) -> tuple[float, float]:
    if method == "bootstrap-t":
        d = paired_difference([0.0] * len(differences), differences.tolist(), seed=seed)
        assert d.low is not None
        assert d.high is not None
        return d.low, d.high
    found = stats.bootstrap((differences,), np.mean, n_resamples=RESAMPLES, method=method, rng=seed)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    cases = parser.parse_args().cases
    methods = ("bootstrap-t", "BCa", "percentile")
    print("differences  pairs  " + "  ".join(methods))
    for name, (draw, truth) in DRAWS.items():
        for pairs in (5, 10, 20, 40):
            rng = np.random.default_rng(pairs)
            hits = dict.fromkeys(methods, 0)
            for seed in range(cases):
                differences = draw(rng, pairs)
                for method in methods:
                    low, high = interval(method, differences, seed)
                    hits[method] += low <= truth <= high
            shares = "  ".join(f"{hits[method] / cases:>{len(method)}.1%}" for method in methods)
            print(f"{name:<11}  {pairs:>5}  {shares}")


if __name__ == "__main__":
    main()
