"""Run times of jobs, predicted from those of jobs that have ended.

A run time is that on the requested GPUs, in seconds, without waits and overheads. The user of a job is its
`user`, or its tenant where the trace states none. Traces hold no names of jobs: jobs of one user that train
one model on as many GPUs count as alike.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from math import exp, log
from statistics import median
from typing import Any

from traces.job import Job

__all__ = ["PREDICTORS", "Blend", "History", "LastTwo", "Predictor", "Rolling"]

LEAST_S, MOST_S = 1e-3, 1e9
"""The shortest and longest prediction, in seconds."""

_DECAY = 0.9  # the weight of a run time for each later one of its group
_PRIOR = 1.0  # the weight of the wider group, in jobs


class Predictor:
    """Predicts the run time of each job that is submitted, and learns from each job that ends.

    `cold_s`: the prediction while nothing is known, in seconds; a job with an `estimate_s` of its user has
    that instead. A subclass implements `guess` and `note`.

    The caller decides what the predictor has seen: `predict` uses only the jobs that `learn` was given.
    """

    def __init__(self, cold_s: float):
        self.cold_s = cold_s
        self._open: dict[str, float] = {}  # predictions of the jobs that have not ended
        self._errors: list[float] = []  # log of prediction over run time
        self._cold = 0

    def predict(self, job: Job, gpus: int) -> float:
        """Seconds that `job` will run on the `gpus` GPUs of its request."""
        guess_s = self.guess(job, gpus)
        if guess_s is None:
            self._cold += 1
            guess_s = self.cold_s if job.estimate_s is None else job.estimate_s
        guess_s = self._open[job.job_id] = min(max(guess_s, LEAST_S), MOST_S)
        return guess_s

    def learn(self, job: Job, gpus: int, run_s: float) -> None:
        """`job` has ended, and would have run for `run_s` seconds on the `gpus` GPUs of its request."""
        run_s = min(max(run_s, LEAST_S), MOST_S)
        if (predicted_s := self._open.pop(job.job_id, None)) is not None:
            self._errors.append(log(predicted_s / run_s))
        self.note(job, gpus, run_s)

    def guess(self, job: Job, gpus: int) -> float | None:
        """Seconds; None if nothing is known that says anything about `job`."""
        raise NotImplementedError

    def note(self, job: Job, gpus: int, run_s: float) -> None:
        """Remember a run time."""
        raise NotImplementedError

    def errors(self) -> dict[str, Any]:
        """How wrong the predictions were, over the jobs that have ended: their number, the median of
        |ln(prediction / run time)|, the share within a factor of two, the median of prediction / run time,
        and the number of all predictions, also of other jobs, that were made without any history.

        The medians and the share are None without jobs.
        """
        errors = self._errors
        sizes = [abs(error) for error in errors]
        return {
            "jobs": len(errors),
            "median_abs_log_error": median(sizes) if sizes else None,
            "within_factor_2": sum(size <= log(2) for size in sizes) / len(sizes) if sizes else None,
            "median_ratio": exp(median(errors)) if errors else None,
            "cold_starts": self._cold,
        }


class History(Predictor):
    """The decayed mean of the logarithm of run times, in nested groups of jobs.

    The groups are all jobs, those on as many GPUs, those of the same user, of the user on as many GPUs, and
    of the user with the same model on as many GPUs. The mean of a group counts the last job fully, and each
    earlier one 0.9 times as much as the next. The mean of the wider group counts as one more job in it. So a
    user with many jobs is predicted by them, and one with few by all users.

    The groups, the decay and the weight are ours, and not fitted. The mean of the logarithm is the median of
    log-normal run times, so about half of the predictions are too long.
    """

    def __init__(self, cold_s: float):
        super().__init__(cold_s)
        self._groups: dict[Hashable, tuple[float, float]] = {}  # sum of weights, and of weighted logarithms

    def guess(self, job: Job, gpus: int) -> float | None:
        mean: float | None = None
        for group in _groups_of(job, gpus):
            group_mean = self._groups.get(group)
            if group_mean is None:
                continue
            weight, total = group_mean
            mean = total / weight if mean is None else (total + _PRIOR * mean) / (weight + _PRIOR)
        return None if mean is None else exp(mean)

    def note(self, job: Job, gpus: int, run_s: float) -> None:
        for group in _groups_of(job, gpus):
            weight, total = self._groups.get(group, (0.0, 0.0))
            self._groups[group] = 1 + _DECAY * weight, log(run_s) + _DECAY * total


class Rolling(Predictor):
    """The rolling estimate of Hu et al., "Characterization and Prediction of Deep Learning Workloads in
    Large-Scale GPU Datacenters" (Helios), SC 2021, the part of QSSF that knows the history of users.

    In this order: the decayed mean of the user's jobs that are alike; the mean of the user's jobs on as many
    GPUs; the mean of all jobs on as many GPUs. Helios compares the names of jobs, for which the model stands
    here; a user's jobs that state no model have only the second mean. The decay (0.9 a job) is ours.
    """

    def __init__(self, cold_s: float):
        super().__init__(cold_s)
        self._alike: dict[Hashable, tuple[float, float]] = {}
        self._means: dict[Hashable, tuple[int, float]] = {}

    def guess(self, job: Job, gpus: int) -> float | None:
        if job.model is not None and (similar_mean := self._alike.get(_alike(job, gpus))) is not None:
            return similar_mean[1] / similar_mean[0]
        for group in ((_user(job), gpus), gpus):
            if (group_mean := self._means.get(group)) is not None:
                return group_mean[1] / group_mean[0]
        return None

    def note(self, job: Job, gpus: int, run_s: float) -> None:
        weight, total = self._alike.get(_alike(job, gpus), (0.0, 0.0))
        self._alike[_alike(job, gpus)] = 1 + _DECAY * weight, run_s + _DECAY * total
        for group in ((_user(job), gpus), gpus):
            count, sum_s = self._means.get(group, (0, 0.0))
            self._means[group] = count + 1, sum_s + run_s


class LastTwo(Predictor):
    """The mean run time of the user's last two jobs that have ended, and no more than the user's estimate.

    Tsafrir, Etsion and Feitelson, "Backfilling using system-generated predictions rather than user runtime
    estimates", IEEE TPDS 18(6), 2007. A user with fewer than two has no history.
    """

    def __init__(self, cold_s: float):
        super().__init__(cold_s)
        self._last: dict[str, tuple[float, ...]] = {}

    def guess(self, job: Job, gpus: int) -> float | None:
        run_times = self._last.get(_user(job), ())
        if len(run_times) < 2:
            return None
        mean = sum(run_times) / 2
        return mean if job.estimate_s is None else min(mean, job.estimate_s)

    def note(self, job: Job, gpus: int, run_s: float) -> None:
        self._last[_user(job)] = (*self._last.get(_user(job), ()), run_s)[-2:]


class Blend(Predictor):
    """`weight` times the `Rolling` estimate, the rest the `History` of all groups.

    QSSF of Helios adds a rolling estimate and a model of gradient-boosted trees in this way. The means of
    nested groups stand for the trees here.
    """

    def __init__(self, cold_s: float, weight: float):
        super().__init__(cold_s)
        self.weight = weight
        self._rolling, self._history = Rolling(cold_s), History(cold_s)

    def guess(self, job: Job, gpus: int) -> float | None:
        rolling_s, history_s = self._rolling.guess(job, gpus), self._history.guess(job, gpus)
        if rolling_s is None or history_s is None:
            return history_s
        return self.weight * rolling_s + (1 - self.weight) * history_s

    def note(self, job: Job, gpus: int, run_s: float) -> None:
        self._rolling.note(job, gpus, run_s)
        self._history.note(job, gpus, run_s)


PREDICTORS = {
    "history": "decayed log means in nested groups: user, model and GPUs, back to all jobs",
    "rolling": "the user's jobs that are alike, else those on as many GPUs (Helios)",
    "last-two": "the mean of the user's last two jobs (Tsafrir et al.)",
    "blend": "`weight` x rolling + (1 - `weight`) x history, as in QSSF",
}


def _user(job: Job) -> str:
    return job.tenant if job.user is None else job.user


def _alike(job: Job, gpus: int) -> Hashable:
    return _user(job), job.model, gpus


def _groups_of(job: Job, gpus: int) -> Iterator[Hashable]:
    """The groups of a job, the widest first."""
    user = _user(job)
    yield ()
    yield gpus
    yield user
    yield user, gpus
    yield user, job.model, gpus
