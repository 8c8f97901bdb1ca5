"""Times of pipelines in one formula, and the conditions under which it is exact, with their proofs.

Where the conditions fail, `pipeline` steps through the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["InterleavedPasses", "last_stage_decides"]

Array = NDArray[np.float64]
Whole = NDArray[np.int64]


def last_stage_decides(forward: Array, backward: Array, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Where 1F1B takes exactly m max S + sum S - max S, S = forward + backward, for any number m of
    micro-batches.

    `forward`, `backward`: seconds of each kind of stage, (kinds, plans), the last stage in the last row;
    `present`: which kinds a plan has. Let the longest forward exceed the last stage's by x, the longest
    backward by y. The form is exact if the last stage has the largest S, no S is below x + y, and the last
    stage's forward is at least y, its backward at least x.

    Proof: a path through the schedule from the first forward to the last backward takes, over its steps (see
    `one_f_one_b_s`), one S a step after the warm-up whether it stays on a stage or returns to it, and during
    warm-up and cool-down at most the longest forward or backward. Comparing any path with the one that goes
    straight to the last stage, stays, and goes straight back leaves sums of the differences above, none of
    them negative.
    """
    f, b = np.where(present, forward, 0.0), np.where(present, backward, 0.0)
    more_forward, more_backward = f.max(axis=0) - f[-1], b.max(axis=0) - b[-1]
    total = f + b
    shortest = np.where(present, total, np.inf).min(axis=0)
    return (
        (total[-1] >= total.max(axis=0))
        & (shortest >= more_forward + more_backward)
        & (f[-1] >= more_backward)
        & (b[-1] >= more_forward)
    )


@dataclass(frozen=True)
class InterleavedPasses:
    """Seconds of one micro-batch under the interleaved schedule of equal chunks; one element a plan.

    A chunk takes `forward` and `backward`, sends included; the model's first chunk takes `first_forward` and
    `first_backward` more, its last one `last_forward` and `last_backward`. `first_forward` must not be
    negative, nor any pass.
    """

    forward: Array
    backward: Array
    first_forward: Array
    first_backward: Array
    last_forward: Array
    last_backward: Array

    def last_chunk_decides(self) -> NDArray[np.bool_]:
        """Where `seconds` is exact, for any number of micro-batches and two or more chunks a device.

        Write a, c for the additional seconds of the first chunk, e for those of the last chunk in both passes
        together, c+ = max(c, 0). The conditions are e >= a + c+ and min(forward, backward) >= a + c+.

        Proof, with the slots of `interleaved_s`; p devices, v chunks. A path of dependent passes is on one
        device in each slot. In the first p v - 1 slots no device has a backward, in the last p v - 1 none has
        a forward; in the slots between, the last device has both, and a path collects two passes
        unless it moves to another device, which forgoes one of them. The last chunk runs in windows of p
        slots, every p v slots, so that for v >= 2 windows have slots between them. The first chunk's forwards
        run one slot later than a window, its backwards one slot earlier; p forwards come before the first
        window, p backwards after the last. Nowhere else does anything take longer. Within a window and the
        slots beside it, a path that stays on the first device collects at most p (a + c+) <= p e more, one
        that stays on the last device p e; one that does neither has moved: it collects at most e in each slot
        of the window and a + c+ beside it, and has forgone a pass of at least that. The last chunk cannot be
        entered or left with half its passes: its forward leads to its own backward only. So no path exceeds
        `seconds`. It is reached: p forwards of the first chunk, to the last device while there are no
        backwards, all its work, and back when there are no forwards, to p backwards of the first chunk (to
        the very last of them where c < 0).
        """
        first = self.first_forward + np.maximum(self.first_backward, 0.0)
        shortest = np.minimum(self.forward, self.backward)
        return (self.last_forward + self.last_backward >= first) & (shortest >= first)

    def seconds(self, devices: Whole, chunks: Whole, microbatches: Whole) -> Array:
        """m (v S + e) + (p - 1) S + p a + max(p c, c), where S = forward + backward of a chunk; exact where
        `last_chunk_decides`, if v >= 2.
        """
        both = self.forward + self.backward
        last = microbatches * (chunks * both + self.last_forward + self.last_backward)
        start = devices * self.first_forward
        end = np.maximum(devices * self.first_backward, self.first_backward)
        return last + (devices - 1) * both + start + end
