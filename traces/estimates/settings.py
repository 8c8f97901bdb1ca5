"""How far the work that users state is off from the work that their jobs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import exp
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import shown
from traces.job import Job
from traces.native import MAX_COUNT, MIN_ITERATIONS
from traces.workload import stream

from .predictors import PREDICTORS, Blend, History, LastTwo, Predictor, Rolling

__all__ = ["MAX_SIGMA", "Estimates"]

MAX_SIGMA = 10.0
"""The largest `sigma`: every third job is then off by a factor of more than 20,000."""


@dataclass(frozen=True)
class Estimates:
    """What policies believe of the work of jobs: what users state, with errors or without, or a prediction.

    With `sigma`, stated work = true work x a log-normal factor of median 1; `sigma` is the standard deviation
    of its logarithm, from 0 (no errors) to `MAX_SIGMA`.

    The model of errors of Dell'Amico, Carra, Pastorelli and Michiardi, "Revisiting size-based scheduling with
    estimated job sizes", MASCOTS 2014. At sigma 0.5 every third job is off by more than a factor of 1.65, at
    sigma 1 by more than 2.7.

    With `scale`, the times that users state, their estimates and time limits, are multiplied by it, from 0.01
    to 100. None becomes shorter than what its job runs, so no job is stopped; one that its job reaches stays.

    With `predictor`, a name of `PREDICTORS`, run times are predicted from the jobs that ended before. The
    prediction stands for all that a job states: iterations, and its user's estimate. `cold_s`: the prediction
    in seconds while nothing is known, from 1 to 10 million. `weight`: of the rolling estimate in `blend`,
    from 0 to 1.

    UserError for a value out of range, and for `sigma` beside `predictor`.
    """

    sigma: float = 0.0
    predictor: str | None = None
    cold_s: float = 3600.0
    weight: float = 0.5
    scale: float = 1.0

    def __post_init__(self) -> None:
        self._check_number("cold_s", 1.0, 1e7, "the first prediction, in seconds")
        self._check_number("scale", 0.01, 100.0, "of the times that users state")
        self._check_number("weight", 0.0, 1.0, "the rolling estimate in a blend")
        if self.predictor is not None and self.predictor not in [*PREDICTORS]:
            raise UnknownName("predictor", str(self.predictor), [*PREDICTORS])
        value: object = self.sigma
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SIGMA:
            remedy = f"must be a number from 0 to {MAX_SIGMA:g}"
            raise UserError(f"sigma={shown(value)}: of the errors of stated work, {remedy}")
        if self.sigma and self.predictor is not None:
            text = f"sigma={self.sigma:g}, predictor={self.predictor}"
            raise UserError(
                f"estimates: {text}: work is stated with errors, or predicted; leave one of them out"
            )

    def _check_number(self, name: str, minimum: float, maximum: float, remedy: str) -> None:
        value: object = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value <= maximum:
            raise UserError(
                f"{name}={shown(value)}: {remedy}, must be a number from {minimum:g} to {maximum:,.0f}"
            )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Estimates:
        """From settings by name. UserError for an unknown name or a bad value."""
        for name in settings:
            if name not in cls.__dataclass_fields__:
                raise UnknownName("parameter of estimates", str(name), [*cls.__dataclass_fields__])
        return cls(**settings)

    def stated(self) -> dict[str, Any]:
        """The parameters as plain JSON data; `Estimates.of` reads them again."""
        values = {"sigma": self.sigma, "scale": self.scale} if self.predictor is None else asdict(self)
        return {name: value for name, value in values.items() if (name, value) != ("scale", 1.0)}

    def new_predictor(self) -> Predictor | None:
        """A predictor that knows nothing yet; None if run times are not predicted."""
        if self.predictor == "blend":
            return Blend(self.cold_s, self.weight)
        kinds = {"history": History, "rolling": Rolling, "last-two": LastTwo}
        return None if self.predictor is None else kinds[self.predictor](self.cold_s)

    def applied_to(self, job: Job, seed: int) -> Job:
        """`job` with scaled times, and with drawn `stated_iterations`; these are unchanged if it has some
        already, if it states no iterations, or if `sigma` is 0.

        The factor depends on `seed`, `sigma` and the job's id alone, not on other jobs or their order. The
        result is within what a trace can hold.
        """
        if self.scale != 1:
            job = replace(
                job,
                estimate_s=self._scaled_s(job, job.estimate_s),
                time_limit_s=self._scaled_s(job, job.time_limit_s),
            )
        if not self.sigma or job.stated_iterations is not None or job.kind != "iterations":
            return job
        assert job.iterations is not None
        normal = float(stream(seed, f"stated work of {job.job_id}").standard_normal())
        stated_iterations = job.iterations * exp(self.sigma * normal)
        return replace(job, stated_iterations=min(max(stated_iterations, MIN_ITERATIONS), float(MAX_COUNT)))

    def _scaled_s(self, job: Job, stated_s: float | None) -> float | None:
        """A time that the user of `job` states, times `scale`, but no less than the job runs."""
        run_s = None if job.duration_s is None else job.duration_s + (job.suspended_s or 0.0)
        if stated_s is None or run_s is None or stated_s <= run_s:
            return stated_s
        return max(stated_s * self.scale, run_s)
