"""The largest model that a number of GPUs trains compute-optimally in a number of days.

Compute-optimal is 20 tokens per parameter (Hoffmann et al., Training Compute-Optimal Large Language Models,
2022, Table 3). The naive answer assumes the GPUs' peak speed; the simulated one uses the predicted
iteration of the best plan (the study of Bang et al., vTrain, MICRO 2024).

Days and dollars of training one model, over the utilisation of the GPUs.

    days = FLOPs of the training / (GPUs x peak FLOP/s x utilisation) / 86,400
    dollars = days x 24 x GPUs x dollars per GPU-hour

The question is that of Fig. 1 of Bang et al., vTrain (MICRO 2024): what a few points of utilisation are
worth. Three counts of the FLOPs are in use, and a utilisation means something only with its count:

| count | FLOPs of T tokens, N parameters that a token passes | utilisation |
|---|---|---|
| `model` | forward and backward of all matrix products, attention and vocabulary included | MFU |
| `6nt` | 6 N T: the same without attention (Kaplan et al., Scaling Laws, 2020, section 2.1) | close to MFU |
| `8nt` | 8 N T: the forward pass done again (Narayanan et al., SC'21, equation 4) | of the hardware |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from itertime.costs import MEMORY_HEADROOM, checked_headroom
from itertime.errors import UnknownName, UserError
from itertime.spec import ModelSpec, Price, Profile, System, checked_price, load_model, price_of, profile_of

from .search import RankedPlan, SearchResult, search
from .space import Space

TOKENS_PER_PARAMETER = 20.0
DAY_S = 86_400.0
# Narayanan et al. (SC'21), Table 1: widths 2,304 to 25,600, heads of 128 but for the two smallest, 96 to 200
# times as wide as deep.
SIZES = ("1.7b", "3.6b", "7.5b", "18.4b", "39.1b", "76.1b", "145.6b", "310.1b", "529.6b", "1008b")
WIDTHS, HEAD = range(2048, 25_601, 1024), 128
NARROWEST, WIDEST = 96, 200


def published() -> list[ModelSpec]:
    """The shapes of SC'21, Table 1."""
    return [load_model(f"megatron-{size}") for size in SIZES]


def generated() -> list[ModelSpec]:
    """Shapes between those of SC'21: all widths that are multiples of 1,024, all even depths in range.

    >>> [shape.name for shape in generated()[:3]]
    ['h2048-l12', 'h2048-l14', 'h2048-l16']
    """
    return [
        ModelSpec(
            name=f"h{h}-l{layers}",
            layers=layers,
            hidden=h,
            heads=h // HEAD,
            vocab=51_200,
            seq_len=2048,
            source="generated",
        )
        for h in WIDTHS
        for layers in range(2, h, 2)
        if NARROWEST <= h / layers <= WIDEST
    ]


@dataclass(frozen=True)
class Training:
    """One model trained on its compute-optimal number of tokens.

    `ideal_days` at the GPUs' peak, `days` with the `fastest` plan; infinite and None where no plan fits.
    """

    model: ModelSpec
    tokens: float
    ideal_days: float
    days: float
    fastest: RankedPlan | None


@dataclass(frozen=True)
class Answer:
    """The largest of some shapes at 100 % utilisation (`naive`) and at the simulated one (`simulated`).

    None where not even the smallest finishes in time. `tried`: all simulated shapes, largest first.
    """

    naive: Training | None
    simulated: Training | None
    tried: tuple[Training, ...]


@dataclass(frozen=True)
class Budget:
    """`gpus` GPUs of a system for `days` days; training runs at `global_batch` sequences an iteration.

    The plans are those that `search` finds in `space` on at most `gpus` GPUs and that leave
    `memory_headroom`, a share of a GPU's memory, free. `profile`: by default that of the system. Raises
    UserError for numbers out of range.
    """

    gpus: int
    days: float
    global_batch: int
    system: System
    space: Space = field(default_factory=Space)
    tokens_per_parameter: float = TOKENS_PER_PARAMETER
    memory_headroom: float = MEMORY_HEADROOM
    profile: Profile | None = None

    def __post_init__(self) -> None:
        checked_headroom(self.memory_headroom)
        if self.gpus < 1:
            raise UserError(f"budget: gpus={self.gpus}: must be at least 1")
        for name in ("days", "tokens_per_parameter"):
            value = getattr(self, name)
            if not 1e-12 <= value <= 1e12:
                raise UserError(f"budget: {name}={value}: must be a number from 1e-12 to 1e12")

    def rule_parameters(self) -> float:
        """Parameters N that the rule gives at 100 % utilisation, for a model of any size.

        6 N D FLOPs over D = 20 N tokens (Hoffmann et al., 2022, section 3.3 and appendix F) fill the budget.
        """
        flops = self.gpus * self.days * DAY_S * self._profile().peak_flops
        return math.sqrt(flops / (6 * self.tokens_per_parameter))

    def ideal_days(self, model: ModelSpec) -> float:
        """Days at the peak of all GPUs; the FLOPs are those of MFU, attention and vocabulary included."""
        tokens = self.tokens_per_parameter * model.parameters
        flops = tokens / model.seq_len * model.flops_per_iteration(1)
        return flops / (self.gpus * self._profile().peak_flops) / DAY_S

    def train(self, model: ModelSpec) -> Training:
        """The fastest plan and its days of training."""
        tokens = self.tokens_per_parameter * model.parameters
        best = search(
            model,
            self.global_batch,
            self.system,
            max_gpus=self.gpus,
            space=self.space,
            top=1,
            profile=self.profile,
            memory_headroom=self.memory_headroom,
        ).plans
        days = training_days(model, tokens, best[0]) if best else math.inf
        return Training(model, tokens, self.ideal_days(model), days, best[0] if best else None)

    def largest(self, models: Sequence[ModelSpec]) -> Answer:
        """Simulates shapes from the largest one that the peak allows downwards, until one finishes in time.

        Larger shapes need no simulation: nothing is faster than the peak.
        """
        trainings: list[Training] = []
        for model in sorted(models, key=lambda shape: (-shape.parameters, shape.name)):
            if self.ideal_days(model) > self.days:
                continue
            trainings.append(self.train(model))
            if trainings[-1].days <= self.days:
                return Answer(trainings[0], trainings[-1], tuple(trainings))
        return Answer(trainings[0] if trainings else None, None, tuple(trainings))

    def _profile(self) -> Profile:
        return self.profile or profile_of(self.system)


def training_days(model: ModelSpec, tokens: float, ranked_plan: RankedPlan) -> float:
    """Days that a model trains on `tokens` tokens under a plan, without failures and evaluations."""
    iterations = tokens / (ranked_plan.plan.global_batch * model.seq_len)
    return iterations * ranked_plan.prediction.iteration_s / DAY_S


def checked_tokens(tokens: float) -> float:
    """The tokens of a training; UserError if they are out of range."""
    if not 1 <= tokens <= 1e18:
        raise UserError(f"tokens={tokens:g}: must be a number from 1 to 1e18")
    return tokens


COUNTS = ("model", "6nt", "8nt")


class CostPoint(NamedTuple):
    """Days and dollars of a training at a utilisation, a share of the peak."""

    utilisation: float
    days: float
    cost_usd: float


@dataclass(frozen=True)
class TrainingCost:
    """`tokens` tokens of training of a model on `gpus` GPUs of a system.

    `usd_per_gpu_hour`: by default as `price_of` says. `count`: which FLOPs the utilisation refers to, one of
    `COUNTS`. The peak is that of 16-bit matrix products. `profile`: by default that of the system. UserError
    for numbers out of range.
    """

    model: ModelSpec
    system: System
    tokens: float
    gpus: int
    usd_per_gpu_hour: float | None = None
    count: str = "model"
    profile: Profile | None = None

    def __post_init__(self) -> None:
        if self.count not in COUNTS:
            raise UnknownName("count of FLOPs", self.count, COUNTS)
        checked_tokens(self.tokens)
        if not 1 <= self.gpus <= 10_000_000:
            raise UserError(f"gpus={self.gpus}: must be between 1 and 10,000,000")
        checked_price(self.usd_per_gpu_hour, "price")

    @property
    def price(self) -> Price:
        """Dollars of a GPU-hour, and what says so."""
        return price_of(self.system, self.usd_per_gpu_hour)

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, by `count`."""
        if self.count == "model":
            return self.tokens / self.model.seq_len * self.model.flops_per_iteration(1)
        return (6 if self.count == "6nt" else 8) * self.model.active_parameters * self.tokens

    @property
    def peak_flops(self) -> float:
        """FLOP/s of all GPUs."""
        return self.gpus * (self.profile or profile_of(self.system)).peak_flops

    def at(self, utilisation: float) -> CostPoint:
        """The training at a utilisation above 0, at most 1; UserError for any other."""
        if not 0 < utilisation <= 1:
            raise UserError(f"utilisation={utilisation:g}: must be above 0, at most 1")
        days = self.flops / (self.peak_flops * utilisation) / DAY_S
        return CostPoint(utilisation, days, self._cost_usd(days))

    def predicted(
        self, global_batch: int, space: Space | None = None, memory_headroom: float = MEMORY_HEADROOM
    ) -> tuple[CostPoint, RankedPlan] | None:
        """The training with the best plan of `searched`, and that plan; None if none fits."""
        plans = self.searched(global_batch, space, memory_headroom).plans
        return (self.under(plans[0]), plans[0]) if plans else None

    def searched(
        self, global_batch: int, space: Space | None = None, memory_headroom: float = MEMORY_HEADROOM
    ) -> SearchResult:
        """What `search` finds on exactly the GPUs, with the best plan alone."""
        return search(
            self.model,
            global_batch,
            self.system,
            self.gpus,
            space=space,
            top=1,
            profile=self.profile,
            memory_headroom=memory_headroom,
        )

    def under(self, ranked_plan: RankedPlan) -> CostPoint:
        """The training under a plan of its GPUs. Its days are predicted, and its utilisation follows from
        them, so it lies on the same curve.
        """
        days = training_days(self.model, self.tokens, ranked_plan)
        utilisation = self.flops / (self.peak_flops * days * DAY_S)
        return CostPoint(utilisation, days, self._cost_usd(days))

    def _cost_usd(self, days: float) -> float:
        return self.price.usd(self.gpus, days * DAY_S)
