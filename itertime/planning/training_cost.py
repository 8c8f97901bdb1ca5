"""Days and dollars of training one model, over the utilisation of the GPUs and under a plan.

    days = FLOPs of the training / (GPUs x peak FLOP/s x utilisation) / 86,400 / goodput
    dollars = days x 24 x GPUs x dollars per GPU-hour

The question is that of Fig. 1 of Bang et al., vTrain (MICRO 2024): what a few points of utilisation are
worth. Three counts of the FLOPs are in use, and a utilisation means something only with its count:

| count | FLOPs of T tokens, N parameters that a token passes | utilisation |
|---|---|---|
| `model` | forward and backward of all matrix products, attention and vocabulary included | MFU |
| `6nt` | 6 N T: the same without attention (Kaplan et al., Scaling Laws, 2020, section 2.1) | close to MFU |
| `8nt` | 8 N T: the forward pass done again (Narayanan et al., SC'21, equation 4) | of the hardware |

Tokens are those of the samples: what pads them counts neither as tokens nor as FLOPs. The goodput is 1 unless
a downtime is stated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from itertime.costs import MEMORY_HEADROOM
from itertime.errors import UnknownName, UserError
from itertime.spec import ModelSpec, Price, Profile, System, checked_price, price_of, profile_of

from .goodput import DOWNTIMES, Downtime, Goodput, goodput
from .search import RankedPlan, SearchResult, search
from .space import Space

COUNTS = ("model", "6nt", "8nt")
DAY_S = 86_400.0


def training_flops(model: ModelSpec, tokens: float) -> float:
    """FLOPs of a training on `tokens` tokens, as MFU counts them."""
    return model.flops_of(tokens, model.sample_lengths())


def training_days(tokens: float, ranked_plan: RankedPlan) -> float:
    """Days of a training on `tokens` tokens under a plan, without failures and evaluations."""
    prediction = ranked_plan.prediction
    return tokens / prediction.tokens * prediction.iteration_s / DAY_S


def checked_tokens(tokens: float) -> float:
    """The tokens of a training; UserError if they are out of range."""
    if not 1 <= tokens <= 1e18:
        raise UserError(f"tokens={tokens:g}: must be a number from 1 to 1e18")
    return tokens


class CostPoint(NamedTuple):
    """Days and dollars of a training at a utilisation, a share of the peak while iterations are done."""

    utilisation: float
    days: float
    cost_usd: float


@dataclass(frozen=True)
class TrainingCost:
    """`tokens` tokens of training of a model on `gpus` GPUs of a system.

    `usd_per_gpu_hour`: by default as `price_of` says. `count`: which FLOPs the utilisation refers to, one of
    `COUNTS`. The peak is that of 16-bit matrix products. `profile`: by default that of the system.
    `downtime`: what keeps the training from its iterations; by default nothing. UserError for numbers out of
    range.
    """

    model: ModelSpec
    system: System
    tokens: float
    gpus: int
    usd_per_gpu_hour: float | None = None
    count: str = "model"
    profile: Profile | None = None
    downtime: Downtime = DOWNTIMES["none"]

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

    @cached_property
    def goodput(self) -> Goodput:
        """The share of the days in which iterations are done. UserError if the training would never end."""
        return goodput(self.downtime, self.model.parameters, self.gpus, self.system.gpus_per_node)

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, by `count`."""
        if self.count == "model":
            return training_flops(self.model, self.tokens)
        return (6 if self.count == "6nt" else 8) * self.model.active_parameters * self.tokens

    @property
    def peak_flops(self) -> float:
        """FLOP/s of all GPUs."""
        return self.gpus * (self.profile or profile_of(self.system)).peak_flops

    def at(self, utilisation: float) -> CostPoint:
        """The training at a utilisation above 0, at most 1; UserError for any other."""
        if not 0 < utilisation <= 1:
            raise UserError(f"utilisation={utilisation:g}: must be above 0, at most 1")
        return self._point(utilisation, self.flops / (self.peak_flops * utilisation) / DAY_S)

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
        those of its iterations, so it lies on the same curve.
        """
        days = training_days(self.tokens, ranked_plan)
        utilisation = self.flops / (self.peak_flops * days * DAY_S)
        return self._point(utilisation, days)

    def _point(self, utilisation: float, days_of_iterations: float) -> CostPoint:
        days = days_of_iterations / self.goodput.share
        return CostPoint(utilisation, days, self.price.usd(self.gpus, days * DAY_S))
