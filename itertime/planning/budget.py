"""The largest model that a number of GPUs trains compute-optimally in a number of days.

Compute-optimal is 20 tokens per parameter (Hoffmann et al., Training Compute-Optimal Large Language Models,
2022, Table 3). The naive answer assumes the GPUs' peak speed; the simulated one uses the predicted
iteration of the best plan (the study of Bang et al., vTrain, MICRO 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from itertime.costs import MEMORY_HEADROOM, checked_headroom
from itertime.errors import UserError
from itertime.spec import ModelSpec, Profile, System, load_model, profile_of

from .search import RankedPlan, search
from .space import Space
from .training_cost import DAY_S, training_days, training_flops

TOKENS_PER_PARAMETER = 20.0
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
        return math.sqrt(self.flops() / (6 * self.tokens_per_parameter))

    def flops(self) -> float:
        """What the GPUs compute in the days at their peak."""
        return self.gpus * self.days * DAY_S * self._profile().peak_flops

    def ideal_days(self, model: ModelSpec) -> float:
        """Days at the peak of all GPUs; the FLOPs are those of MFU, attention and vocabulary included."""
        tokens = self.tokens_per_parameter * model.parameters
        return training_flops(model, tokens) / (self.gpus * self._profile().peak_flops) / DAY_S

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
        days = training_days(tokens, best[0]) if best else math.inf
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
