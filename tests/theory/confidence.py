"""Confidence intervals of the mean of independent replications, by Student's t (Law, Simulation Modeling and
Analysis, section 9.4.2).
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

CONFIDENCE = 0.99
HALF_WIDTH = 0.05  # of the mean, at most: a wider interval could not tell a wrong engine from a right one


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Mean and half-width."""
    t = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(np.mean(values)), float(t * stats.sem(values))
