"""Days and dollars of training one model, over the utilisation of the GPUs.

    days = FLOPs of the training / (GPUs x peak FLOP/s x utilisation) / 86,400
    dollars = days x 24 x GPUs x dollars per GPU-hour

The question is that of Fig. 1 of Bang et al., vTrain (MICRO 2024): what a few points of utilisation are
worth. Three counts of the FLOPs are in use, and a utilisation means something only with its count:

| count | FLOPs of T tokens, N parameters | utilisation |
|---|---|---|
| `model` | forward and backward of all matrix products, attention and vocabulary included | MFU |
| `6nt` | 6 N T: the same without attention (Kaplan et al., Scaling Laws, 2020, section 2.1) | close to MFU |
| `8nt` | 8 N T: the forward pass done again (Narayanan et al., SC'21, equation 4) | of the hardware |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from itertime.costs import MEMORY_HEADROOM
from itertime.errors import UnknownName, UserError
from itertime.spec import ModelSpec, System, profile_of

from .search import RankedPlan, search
from .space import Space

__all__ = ["COUNTS", "CostPoint", "TrainingCost"]

COUNTS = ("model", "6nt", "8nt")
DAY_S = 86_400.0


class CostPoint(NamedTuple):
    """Days and dollars of a training at a utilisation, a share of the peak."""

    utilisation: float
    days: float
    cost_usd: float


@dataclass(frozen=True)
class TrainingCost:
    """`tokens` tokens of training of a model on `gpus` GPUs of a system, at a price in dollars.

    `count`: which FLOPs the utilisation refers to, one of `COUNTS`. The peak is that of 16-bit matrix
    products. UserError for numbers out of range.
    """

    model: ModelSpec
    system: System
    tokens: float
    gpus: int
    usd_per_gpu_hour: float
    count: str = "model"

    def __post_init__(self) -> None:
        if self.count not in COUNTS:
            raise UnknownName("count of FLOPs", self.count, COUNTS)
        if not 1 <= self.tokens <= 1e18:
            raise UserError(f"tokens={self.tokens:g}: must be a number from 1 to 1e18")
        if not 1 <= self.gpus <= 10_000_000:
            raise UserError(f"gpus={self.gpus}: must be between 1 and 10,000,000")
        if not 0 < self.usd_per_gpu_hour <= 1e9:
            raise UserError(f"price={self.usd_per_gpu_hour:g}: must be dollars per GPU-hour, above 0")

    @property
    def flops(self) -> float:
        """FLOPs of the whole training, by `count`."""
        if self.count == "model":
            return self.tokens / self.model.seq_len * self.model.flops_per_iteration(1)
        return (6 if self.count == "6nt" else 8) * self.model.parameters * self.tokens

    @property
    def peak_flops(self) -> float:
        """FLOP/s of all GPUs."""
        return self.gpus * profile_of(self.system).peak_flops

    def at(self, utilisation: float) -> CostPoint:
        """The training at a utilisation above 0, at most 1; UserError for any other."""
        if not 0 < utilisation <= 1:
            raise UserError(f"utilisation={utilisation:g}: must be above 0, at most 1")
        days = self.flops / (self.peak_flops * utilisation) / DAY_S
        return CostPoint(utilisation, days, self._cost_usd(days))

    def predicted(
        self, global_batch: int, space: Space, memory_headroom: float = MEMORY_HEADROOM
    ) -> tuple[CostPoint, RankedPlan] | None:
        """The training with the fastest plan of `space` on exactly the GPUs, and that plan; None if none
        fits. Its days are predicted, and its utilisation follows from them, so it lies on the same curve.
        """
        plans = search(
            self.model,
            global_batch,
            self.system,
            self.gpus,
            space=space,
            top=1,
            memory_headroom=memory_headroom,
        ).plans
        if not plans:
            return None
        iterations = self.tokens / (global_batch * self.model.seq_len)
        days = iterations * plans[0].prediction.iteration_s / DAY_S
        utilisation = self.flops / (self.peak_flops * days * DAY_S)
        return CostPoint(utilisation, days, self._cost_usd(days)), plans[0]

    def _cost_usd(self, days: float) -> float:
        return days * 24 * self.gpus * self.usd_per_gpu_hour
