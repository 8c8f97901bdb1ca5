"""A job whose speed changes with its progress: it trains with another global batch from some point on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from math import fsum

from clustersim.cluster import Placement
from clustersim.overheads import Cycle
from clustersim.speed import Curve, Offer
from traces.job import Job

from .checkpointed import CheckpointedJob, Loads

__all__ = ["PhasedJob"]

_NEVER = Cycle()
_ROUNDING = 1e-12  # of the work: a job as close as that to the end of a phase has reached it


class PhasedJob(CheckpointedJob):
    """A job in phases (`traces.phases`). `curve` and `offers` are those of its present phase and batch.

    | attribute | |
    |---|---|
    | `phase` | the present phase, from 0 |
    | `batch` | the global batch with which the job trains; None if it states none |
    | `in_all` | the curve of the job, with all its phases |
    | `left_after` | units of work left at the end of each phase |
    """

    __slots__ = ("_all_offers", "_chosen", "batch", "in_all", "left_after", "phase")

    def __init__(
        self, job: Job, order: int, curve: Curve, requested: int, note: str, *,
        cycle_of: Callable[[Placement], Cycle] = lambda _: _NEVER, loads: Loads | None = None,
        failure: str = "", share: float = 1.0, offers: tuple[Offer, ...] = (),
    ):  # fmt: skip
        """`offers`: by GPU type; empty on a cluster of one type. The rest is as in `CheckpointedJob`."""
        super().__init__(
            job, order, curve, requested, note, cycle_of=cycle_of, loads=loads, failure=failure, share=share
        )
        self.in_all, self._all_offers = curve, offers
        self._chosen: int | None = None  # the batch that a policy chose
        done = list(accumulate(phase.share for phase in curve.phases))
        self.left_after = (*[max(0.0, self.work * (1 - share)) for share in done[:-1]], 0.0)
        self._enter(0)

    def _enter(self, phase: int) -> None:
        self.phase, self.batch = phase, self.in_all.phases[phase].batch
        self.stops_left = max(self.never_done, self.left_after[phase])
        if self._chosen is not None and self._chosen in self.batches:
            self.batch = self._chosen
        self.curve = self._with_batch(self.in_all)
        self.offers = tuple(replace(offer, curve=self._with_batch(offer.curve)) for offer in self._all_offers)

    def _with_batch(self, in_all: Curve) -> Curve:
        phase = in_all.phases[self.phase]
        return phase.curve if self.batch == phase.batch else phase.choices[self.batch or 0]

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches that a policy may choose in the present phase, on all GPU types."""
        found = self.in_all.phases[self.phase].choices
        types = [offer.curve.phases[self.phase].choices for offer in self._all_offers]
        return tuple(batch for batch in found if all(batch in choices for choices in types))

    def train_with(self, batch: int) -> None:
        """From now on the job trains with `batch`, as far as its phases allow."""
        self._chosen = batch
        self._enter(self.phase)

    @property
    def ends_phase(self) -> bool:
        return self.stops_left > self.never_done

    def work_left_at(self, now: float) -> float:
        return max(super().work_left_at(now), self.left_after[self.phase])

    def next_phase(self, now: float) -> None:
        """The present phase ends at `now`, and the next one begins, at a speed that is still to be set."""
        self.settle(now)
        self.work_left = self.left_after[self.phase]
        self._enter(self.phase + 1)

    def let_go(self) -> None:
        """As for every job. A crash may have taken it back to an earlier phase."""
        super().let_go()
        left, rounding = self.work_left, _ROUNDING * self.work
        phase = 0
        while phase + 1 < len(self.left_after) and left <= self.left_after[phase] + rounding:
            phase += 1
        if phase != self.phase:
            self._enter(phase)

    # Times over several phases

    @property
    def isolated_s(self) -> float:
        return self.work * self.in_all.work_s(self.requested)

    def seconds_left(self, gpus: int, left: float) -> float | None:
        curves = [phase.curve for phase in self.in_all.phases]
        if gpus not in curves[0].unit_s:
            return None
        ends = self.left_after[self.phase :]
        begins = [left, *ends]
        return fsum(
            max(0.0, begin - end) * curve.unit_s[gpus]
            for begin, end, curve in zip(begins, ends, curves[self.phase :], strict=False)
        )

    def expected_end_s(self, now: float) -> float:
        ahead_s = self.seconds_left(self.gpus, self.work_left)
        assert ahead_s is not None
        slowed = self.unit_s / self.curve.unit_s[self.gpus]
        return max(self.since_s, self.ready_s) + ahead_s * slowed
