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

__all__ = ["MAX_SIGMA", "Estimates"]

MAX_SIGMA = 10.0
"""The largest `sigma`: every third job is then off by a factor of more than 20,000."""


@dataclass(frozen=True)
class Estimates:
    """Stated work = true work x a log-normal factor of median 1; `sigma` is the standard deviation of its
    logarithm, from 0 (no errors) to `MAX_SIGMA`.

    The model of errors of Dell'Amico, Carra, Pastorelli and Michiardi, "Revisiting size-based scheduling with
    estimated job sizes", MASCOTS 2014. At sigma 0.5 every third job is off by more than a factor of 1.65, at
    sigma 1 by more than 2.7. UserError for a `sigma` out of range.
    """

    sigma: float = 0.0

    def __post_init__(self) -> None:
        value: object = self.sigma
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SIGMA:
            wanted = f"must be a number from 0 to {MAX_SIGMA:g}"
            raise UserError(f"sigma={shown(value)}: of the errors of stated work, {wanted}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Estimates:
        """From settings by name. UserError for an unknown name or a bad value."""
        for name in settings:
            if name != "sigma":
                raise UnknownName("parameter of estimates", str(name), ["sigma"])
        return cls(**settings)

    def stated(self) -> dict[str, float]:
        """The parameters as plain JSON data; `Estimates.of` reads them again."""
        return asdict(self)

    def applied_to(self, job: Job, seed: int) -> Job:
        """`job` with drawn `stated_iterations`; unchanged if it has some already, if it states no iterations,
        or if `sigma` is 0.

        The factor depends on `seed`, `sigma` and the job's id alone, not on other jobs or their order. The
        result is within what a trace can hold.
        """
        if not self.sigma or job.stated_iterations is not None or job.kind != "iterations":
            return job
        assert job.iterations is not None
        normal = float(stream(seed, f"stated work of {job.job_id}").standard_normal())
        stated = job.iterations * exp(self.sigma * normal)
        return replace(job, stated_iterations=min(max(stated, MIN_ITERATIONS), float(MAX_COUNT)))
