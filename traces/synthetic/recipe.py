"""The recipe of a synthetic trace: what to generate, and which load it is to offer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from itertime.costs import MEMORY_HEADROOM, checked_headroom
from itertime.errors import UnknownName, UserError, shown
from itertime.planning import planner_name
from itertime.spec import PRECISIONS
from traces.estimates import Estimates
from traces.native import MAX_SECONDS
from traces.phases import Phase, phases_text
from traces.workload import Deadlines, Rules

__all__ = ["LOADS", "GradientNoise", "Recipe", "parse_deadlines", "parse_gradient_noise", "parse_precisions"]

LOADS = ("trace", "process")
MAX_JOBS = 10_000_000
_MOST_WEIGHT = 1e9
_MOST_BATCH = 10**7  # what a trace can state
_NOISE_PHASES = 4
_MAX_FACTOR = MAX_SECONDS  # of a deadline, in run times


@dataclass(frozen=True)
class Recipe:
    """What to generate.

    | field | meaning |
    |---|---|
    | jobs | number of jobs |
    | load | offered load: requested GPU-seconds over those of `gpus` GPUs in the arrival window |
    | gpus | GPUs of the cluster that `load` refers to |
    | arrivals, cv | see `arrival_times`; jobs that all arrive at zero have no load |
    | sizes | bundled sizes or a file: GPU counts and run times, as logged |
    | rules | rules that assign models and multiply GPUs; "none": rigid jobs of a duration |
    | deadlines | "rules", "none", or LOW:HIGH or LOW:HIGH:SHARE for submit_s + U(LOW, HIGH) x run time |
    | memory_headroom | share of the GPU memory that plans leave free |
    | planner, system | determine the iteration time on the requested GPUs, under which the load holds |
    | seed | of all random draws; each purpose has a stream of its own |
    | precisions | NAME or NAME:WEIGHT,...: drawn for jobs with a model; their iterations are those of bf16 |
    | stated_sigma | the `sigma` of `Estimates`: users misstate the iterations of their jobs; 0: they do not |
    | load_of | "trace": each trace offers exactly `load`; "process": the rate of arrivals is as expected |
    | gradient_noise | "none", or LOW:HIGH[:LARGEST]: jobs with a choice of batches (`GradientNoise`) |
    | preset | bundled preset or file: sizes, arrivals and tenants, instead of `arrivals`, `cv` and `sizes` |

    `load` None, which only a preset may have, leaves the rate of arrivals that the preset states.

    The arrival window is the time from the first submission to the last. Run under `planner` on the requested
    GPUs, a job takes the run time that was drawn for it. So `load` is that of a run with this planner; a
    faster planner finishes the same work with fewer GPU-seconds.

    With `load_of="trace"` the window is scaled to the work that was drawn: GPU-seconds / (load x gpus). Jobs
    that request more than `gpus` GPUs cannot run, and do not count. Run times are heavy-tailed, so that a
    trace of a thousand jobs of the process with the expected rate may have half or twice the expected load.
    `load_of="process"` keeps this rate, load x gpus / (expected GPU-seconds of a job). It is for comparisons
    with queueing theory, where the arrivals must not depend on the work.

    N jobs have N - 1 gaps between them. With "trace" the mean gap is therefore N / (N - 1) times that of the
    process, a difference that only traces of a few jobs show.
    """

    jobs: int
    load: float | None = 1.0
    gpus: int = 1024
    arrivals: str = "poisson"
    cv: float | None = None
    sizes: str = "itp"
    rules: str = "llm-mix"
    deadlines: str = "rules"
    planner: str = "best"
    system: str = "dgx-a100-80gb"
    seed: int = 0
    memory_headroom: float = MEMORY_HEADROOM
    load_of: str = "trace"
    precisions: str = "bf16"
    stated_sigma: float = 0.0
    preset: str | None = None
    gradient_noise: str = "none"

    def __post_init__(self) -> None:
        for name, limit in (("jobs", MAX_JOBS), ("gpus", MAX_JOBS)):
            value = getattr(self, name)
            if not 1 <= value <= limit:
                raise UserError(f"{name}={value}: must be between 1 and {limit}")
        if self.load is None:
            if self.preset is None:
                raise UserError("load: is not stated; state it, or a preset, which has a rate of arrivals")
        elif not 0 < self.load < math.inf:
            raise UserError(f"load={self.load:g}: must be above 0 and finite")
        if self.seed < 0:
            raise UserError(f"seed={self.seed}: must not be negative")
        if self.load_of not in LOADS:
            raise UnknownName("load_of", self.load_of, LOADS)
        object.__setattr__(self, "planner", planner_name(self.planner))
        checked_headroom(self.memory_headroom)
        parse_precisions(self.precisions)
        Estimates(self.stated_sigma)
        if parse_gradient_noise(self.gradient_noise) is not None and self.rules == "none":
            raise UserError(f"gradient_noise={self.gradient_noise}: needs jobs with models; state rules")


class GradientNoise(NamedTuple):
    """The gradient noise scale of a job grows in even ratios from `low` to `high` times its global batch,
    over four phases of equal work. Policies may choose a batch of up to `largest` times its own.
    """

    low: float
    high: float
    largest: float = 16.0

    def phases(self, batch: int) -> str:
        """The `phases` of a job with this global batch.

        >>> GradientNoise(1.0, 8.0).phases(512)
        '0.25:512..8192:512 0.25:512..8192:1024 0.25:512..8192:2048 0.25:512..8192:4096'
        """
        largest_batch, growth = float(min(_MOST_BATCH, int(self.largest * batch))), self.high / self.low
        scales = [self.low * growth ** (k / (_NOISE_PHASES - 1)) for k in range(_NOISE_PHASES)]
        return phases_text(
            tuple(
                Phase(1 / _NOISE_PHASES, float(batch), largest_batch, float(f"{k * batch:.6g}"))
                for k in scales
            )
        )


def parse_gradient_noise(text: str) -> GradientNoise | None:
    """A recipe's `gradient_noise`. Raises UserError for text that is none."""
    if text == "none":
        return None
    try:
        noise = GradientNoise(*(float(part) for part in text.split(":")))
        if not (1e-3 <= noise.low <= noise.high <= 1e5 and 1 <= noise.largest <= 1e4):
            raise ValueError
    except (TypeError, ValueError):
        remedy = "must be none, LOW:HIGH or LOW:HIGH:LARGEST in multiples of the batch, for example 1:16"
        raise UserError(f"gradient_noise={text}: {remedy}") from None
    return noise


def parse_precisions(text: str) -> dict[str, float]:
    """A recipe's `precisions` as their shares. Raises UserError for text that is none."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition(":")
        if name not in PRECISIONS or name in weights:
            wrong = "stated twice" if name in weights else str(UnknownName("precision", name, PRECISIONS))
            raise UserError(f"precisions={text}: {wrong}; write NAME:WEIGHT,..., for example bf16:3,fp8:1")
        try:
            weights[name] = float(weight or 1)
        except ValueError:
            weights[name] = 0.0
        if not 0 < weights[name] <= _MOST_WEIGHT:
            raise UserError(
                f"precisions={text}: {part.strip()}: a weight is above 0, at most {_MOST_WEIGHT:g}"
            )
    return {name: weight / math.fsum(weights.values()) for name, weight in weights.items()}


def parse_deadlines(text: str, rules: Rules | None) -> Deadlines | None:
    """A recipe's `deadlines`. Raises UserError for text that is none."""
    if text == "none":
        return None
    if text == "rules":
        return rules.deadlines if rules else None
    try:
        low, high, *share = (float(part) for part in text.split(":"))
        if not 0 < low <= high < math.inf or len(share) > 1 or not 0 <= sum(share) <= 1:
            raise ValueError
    except (ValueError, AttributeError):
        remedy = "rules, none, LOW:HIGH or LOW:HIGH:SHARE, for example 0.5:1.5"
        raise UserError(f"deadlines={shown(text)}: must be {remedy}") from None
    if high > _MAX_FACTOR or low < 1 / _MAX_FACTOR:
        limits = f"from {1 / _MAX_FACTOR:g} to {_MAX_FACTOR:g}"
        raise UserError(f"deadlines={shown(text)}: LOW and HIGH are multiples of the run time, {limits}")
    return Deadlines(low, high, share[0] if share else 1.0)
