"""A baseline that learns: the cross-entropy method over the weights of a linear score of jobs.

Szita and Lorincz, "Learning Tetris using the noisy cross-entropy method" (Neural Computation 18, 2006).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .choosing import ChoosingScheduler
from .environment import ClusterEnv
from .observation import JOB_FEATURES, WAIT, Observation

__all__ = ["LinearScheduler", "best_start", "episode_return", "learn"]


class LinearScheduler(ChoosingScheduler):
    """Starts the possible job with the highest score, the sum of weights times `JOB_FEATURES`.

    `weights`: one per feature, in their order. It lets time pass only where nothing can start.
    """

    def __init__(self, weights: Sequence[float] = (0.0,) * len(JOB_FEATURES), window: int = 16):
        super().__init__(window)
        self.weights = tuple(weights)

    def choose(self, observation: Observation) -> int:
        """The action of the highest score; the job submitted first among equal ones."""
        return best_start(observation, np.asarray(self.weights))


def best_start(observation: Observation, weights: NDArray[np.float64]) -> int:
    """The possible start with the highest score; `WAIT` without any. For one size a job."""
    scores = observation["jobs"] @ weights
    scores[observation["action_mask"][1:] == 0] = -np.inf
    best = int(np.argmax(scores))
    return 1 + best if np.isfinite(scores[best]) else WAIT


def episode_return(env: ClusterEnv, weights: NDArray[np.float64], seed: int) -> float:
    """The sum of rewards of one episode under these weights."""
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        observation, reward, terminated, truncated, _ = env.step(best_start(observation, weights))
        total, done = total + reward, terminated or truncated
    return total


def learn(
    env: ClusterEnv,
    *,
    generations: int = 10,
    population: int = 24,
    elite: int = 6,
    episodes: int = 2,
    seed: int = 0,
    on_generation: Callable[[int, float], None] = lambda generation, best: None,
) -> NDArray[np.float64]:
    """Weights (len(JOB_FEATURES),) that earn much in `env`, which must offer one size a job.

    Each generation draws `population` weights from a normal distribution, plays the same `episodes` streams
    with each, and fits mean and standard deviation to the `elite` that earn most; noise of 1 / generation
    keeps the search from narrowing early. `on_generation(number, mean return of the elite)`.
    """
    draws = np.random.default_rng(seed)
    mean, spread = np.zeros(len(JOB_FEATURES)), np.ones(len(JOB_FEATURES))
    for generation in range(1, generations + 1):
        candidates = mean + spread * draws.standard_normal((population, len(mean)))
        candidates[0] = mean
        streams = [int(stream_seed) for stream_seed in draws.integers(2**31, size=episodes)]
        earned = np.array([sum(episode_return(env, c, s) for s in streams) for c in candidates]) / episodes
        best = np.argsort(-earned, kind="stable")[:elite]
        mean = candidates[best].mean(axis=0)
        spread = candidates[best].std(axis=0) + 1.0 / (1 + generation) * 0.5
        on_generation(generation, float(earned[best].mean()))
    return mean
