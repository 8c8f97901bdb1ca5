"""The part of a job whose speed changes with its progress: it trains with another global batch from some
point on.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from math import fsum

from clustersim.records import phase_words
from clustersim.speed import Curve, Offer

__all__ = ["Phases"]

_ROUNDING = 1e-12  # of the work: a job as close as that to the end of a phase has reached it


class Phases:
    """The phases of one job (`traces.phases`), and the one in which it is.

    | attribute | |
    |---|---|
    | `present` | the present phase, from 0 |
    | `batch` | the global batch with which the job trains; None if it states none |
    | `curve`, `offers` | those of the job in its present phase, with its present batch |
    | `in_all` | the curve of the job, with all its phases |
    | `left_after` | units of work left at the end of each phase |
    """

    __slots__ = (
        "_chosen_batch",
        "_in_all_offers",
        "_work",
        "batch",
        "curve",
        "in_all",
        "left_after",
        "offers",
        "present",
    )

    def __init__(self, in_all: Curve, offers: tuple[Offer, ...], work: float):
        """`offers`: with all phases, by GPU type; empty on a cluster of one type. `work`: units of it."""
        self.in_all, self._in_all_offers, self._work = in_all, offers, work
        self._chosen_batch: int | None = None  # by the policy
        ends = list(accumulate(phase.share for phase in in_all.phases))
        self.left_after = (*[max(0.0, work * (1 - share)) for share in ends[:-1]], 0.0)
        self.enter(0)

    def enter(self, phase: int) -> None:
        """Make a phase the present one."""
        self.present, self.batch = phase, self.in_all.phases[phase].batch
        if self._chosen_batch is not None and self._chosen_batch in self.batches:
            self.batch = self._chosen_batch
        self.curve = self._with_batch(self.in_all)
        self.offers = tuple(
            replace(offer, curve=self._with_batch(offer.curve)) for offer in self._in_all_offers
        )

    def _with_batch(self, in_all: Curve) -> Curve:
        phase = in_all.phases[self.present]
        return phase.curve if self.batch == phase.batch else phase.choices[self.batch or 0]

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches that a policy may choose in the present phase, on all GPU types."""
        choices = self.in_all.phases[self.present].choices
        by_type = [offer.curve.phases[self.present].choices for offer in self._in_all_offers]
        return tuple(batch for batch in choices if all(batch in batches for batches in by_type))

    def train_with(self, batch: int) -> None:
        """From now on the job trains with `batch`, as far as its phases allow."""
        self._chosen_batch = batch
        self.enter(self.present)

    def words(self) -> str:
        """The present phase and batch, as the log states them."""
        phases = self.in_all.phases
        return phase_words(self.present, len(phases), self.batch, phases[self.present].layers)

    @property
    def layers(self) -> int | None:
        """The layers of the model that trains in the present phase; None for all."""
        return self.in_all.phases[self.present].layers

    def reached(self, work_left: float) -> int:
        """The phase in which a job with `work_left` units of work left is."""
        rounding = _ROUNDING * self._work
        phase = 0
        while phase + 1 < len(self.left_after) and work_left <= self.left_after[phase] + rounding:
            phase += 1
        return phase

    def work_at(self, gpus: int, run_s: float) -> float:
        """Units of work done after `run_s` seconds of work on `gpus` GPUs, at most all of them."""
        begin = self._work
        for phase, end in zip(self.in_all.phases, self.left_after, strict=True):
            unit_s = phase.curve.unit_s[gpus]
            if run_s < (begin - end) * unit_s:
                return self._work - begin + run_s / unit_s
            run_s -= (begin - end) * unit_s
            begin = end
        return self._work

    def seconds_left(self, gpus: int, work_left: float) -> float | None:
        """Seconds for the last `work_left` units of work on `gpus` GPUs, through all phases that they belong
        to, the present one or not; None if the job cannot run there.
        """
        curves = [phase.curve for phase in self.in_all.phases]
        if gpus not in curves[0].unit_s:
            return None
        begins = [work_left, *(min(work_left, left) for left in self.left_after)]
        return fsum(
            max(0.0, begin - end) * curve.unit_s[gpus]
            for begin, end, curve in zip(begins, self.left_after, curves, strict=False)
        )
