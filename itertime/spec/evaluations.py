"""How often a training evaluates its model, and on how many samples."""

from __future__ import annotations

from dataclasses import dataclass

from itertime.errors import UserError


@dataclass(frozen=True)
class Evaluations:
    """An evaluation after every `every` samples of training, on `samples` samples of the evaluation set.
    `NO_EVALUATIONS` has 0 samples. Raises UserError for a number out of range.
    """

    every: int
    samples: int

    def __post_init__(self) -> None:
        for name, minimum in (("every", 1), ("samples", 0)):
            value = getattr(self, name)
            if not minimum <= value <= 10**12:
                raise UserError(f"evaluations: {name}={value}: must be from {minimum} to 10^12 samples")

    def count(self, trained: float) -> int:
        """Evaluations of a training on `trained` samples, the last of which ends it: at least one.

        >>> Evaluations(every=175_000, samples=10_000).count(684 * 4096)
        16
        """
        return max(round(trained / self.every), 1) if self.samples else 0


NO_EVALUATIONS = Evaluations(every=1, samples=0)


def mlperf_evaluations(global_batch: int) -> Evaluations:
    """The rule of MLPerf Training for BERT: every FLOOR(0.05 (230.23 GBS + 3,000,000), 25,000) samples, on
    10,000 sequences of the evaluation set (mlcommons/training_policies, training_rules.adoc, "Quality
    measurement"; mlcommons/training, language_model/tensorflow/bert, README, "Evaluation").

    >>> mlperf_evaluations(16_384)
    Evaluations(every=325000, samples=10000)
    """
    step = 25_000
    return Evaluations(every=int(0.05 * (230.23 * global_batch + 3_000_000) / step) * step, samples=10_000)
