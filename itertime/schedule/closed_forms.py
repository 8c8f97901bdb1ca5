"""Times of pipelines in one formula, and the conditions under which it is exact, with their proofs.

Where the conditions fail, `pipeline_s` steps through the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Flags, Whole, any_of


def last_stage_decides(forward: Array, backward: Array, present: Flags) -> Flags:
    """Where 1F1B takes exactly m max S + sum S - max S, S = forward + backward, for any number m of
    micro-batches.

    `forward`, `backward`: seconds of each kind of stage, (kinds, plans), the last stage in the last row; 0
    where a plan has no such stage. `present`: which kinds it has.

    Let the longest forward exceed the last stage's by x, the longest backward by y. The form is exact if the
    last stage has the largest S, no S is below x + y, and the last stage's forward is at least y, its
    backward at least x.

    Proof: a path through the schedule from the first forward to the last backward takes, over its steps (see
    `one_f_one_b_s`), one S a step after the warm-up whether it stays on a stage or returns to it, and during
    warm-up and cool-down at most the longest forward or backward. Comparing any path with the one that goes
    straight to the last stage, stays, and goes straight back leaves sums of the differences above, none of
    them negative.
    """
    forward_excess = forward.max(axis=0) - forward[-1]
    backward_excess = backward.max(axis=0) - backward[-1]
    total = forward + backward
    shortest = np.where(present, total, np.inf).min(axis=0)
    return (
        (total[-1] >= total.max(axis=0))
        & (shortest >= forward_excess + backward_excess)
        & (forward[-1] >= backward_excess)
        & (backward[-1] >= forward_excess)
    )


def middle_stages_decide(forward: Array, backward: Array) -> Flags:
    """Where `middle_stages_s` is exact for three or more stages: the first stage's passes are no longer than
    a middle stage's, nor are both passes of the last one together.

    `forward`, `backward`: seconds of the first, of every middle and of the last stage, (3, plans).
    """
    total = forward + backward
    return (forward[0] <= forward[1]) & (backward[0] <= backward[1]) & (total[2] <= total[1])


def middle_stages_s(forward: Array, backward: Array, stages: Whole, microbatches: Whole) -> Array:
    """Seconds of 1F1B with equal middle stages between shorter ends; arguments as `middle_stages_decide`.

    With F, B the passes of a middle stage, S = F + B, e what the last stage's passes take less, a and c what
    the first stage's forward and backward do: (m + p - 1) S - a - c - min(e, F) - min(e, B), or for a single
    micro-batch p S - a - c - e.

    Proof, with the steps of `one_f_one_b_s`: were e = 0, a path could be on the last stage in all m steps
    that have backwards. Every path loses a and c, at its first and its last pass. In the first of these steps
    the last stage is the first to run a backward; in the last one it alone has a forward. A path that is
    elsewhere in the first step loses B, or it is there and loses e; then it may go on to other stages without
    loss, because their backwards follow in the same step. A path that is elsewhere in the last step loses F.
    One that returns loses e; the backward that it skips as it moves is one that it gained as it left. With
    three stages or more, staying on the stage before the last meanwhile reaches the least of each.
    """
    total = forward + backward
    last_deficit = total[1] - total[2]
    path_loss = np.minimum(last_deficit, forward[1]) + np.minimum(last_deficit, backward[1])
    path_loss = np.where(microbatches > 1, path_loss, last_deficit)
    ends = (forward[0] - forward[1]) + (backward[0] - backward[1])
    return (microbatches + stages - 1) * total[1] + ends - path_loss


@dataclass(frozen=True)
class InterleavedPasses:
    """Seconds of one micro-batch under the interleaved schedule of equal chunks; one element a plan.

    A chunk takes `forward` and `backward`, sends included; the model's first chunk takes `first_forward` and
    `first_backward` more, its last one `last_forward` and `last_backward`. These may be negative, where the
    ends hold fewer layers; no pass may be. Below, F and B are a chunk's passes, S = F + B; a and c are the
    additional seconds of the first chunk's forward and backward, e those of the last chunk in both passes
    together; x+ = max(x, 0); p devices, v chunks a device, m micro-batches.
    """

    forward: Array
    backward: Array
    first_forward: Array
    first_backward: Array
    last_forward: Array
    last_backward: Array

    def last_chunk_decides(self) -> Flags:
        """Where the critical path stays on the last device, for any m and v >= 2: if e >= a+ + c+ and
        min(F, B) >= a+ + c+.

        Proof for a, c >= 0, with the slots of `interleaved_s`. A path of dependent passes is on one
        device in each slot. In the first p v - 1 slots no device has a backward, in the last p v - 1 none has
        a forward; in the slots between, the last device has both, and a path collects two passes
        unless it moves to another device, which forgoes one of them. The last chunk runs in windows of p
        slots, every p v slots, so that for v >= 2 windows have slots between them. The first chunk's forwards
        run one slot later than a window, its backwards one slot earlier; p forwards come before the first
        window, p backwards after the last. Nowhere else does anything take longer. Within a window and the
        slots beside it, a path that stays on the first device collects at most p (a + c) <= p e more, one
        that stays on the last device p e; one that does neither has moved: it collects at most e in each slot
        of the window and a + c beside it, and has forgone a pass of at least that. The last chunk cannot be
        entered or left with half its passes: its forward leads to its own backward only. So no path exceeds
        `seconds`. It is reached: p forwards of the first chunk, to the last device while there are no
        backwards, all its work, and back when there are no forwards, to p backwards of the first chunk.

        Where a < 0, every path still begins with a forward of the first chunk, so it takes at least |a| less
        than with a = 0; the same path with one such forward reaches that. The same holds of c and the end.
        """
        first_excess = np.maximum(self.first_forward, 0.0) + np.maximum(self.first_backward, 0.0)
        shortest = np.minimum(self.forward, self.backward)
        return (self.last_forward + self.last_backward >= first_excess) & (shortest >= first_excess)

    def middle_may_decide(self, devices: Whole, microbatches: Whole) -> Flags:
        """Where the last chunk is short, and `seconds` is exact all the same, for v >= 2: if e < 0,
        a <= 0, c <= 0 and p >= 3; with two devices, if staying on the last one costs no more than leaving it.

        Proof. Take the path of `last_chunk_decides` as if e were 0. Any other one loses against it: -a - c at
        its first and last pass; -e in each of the m slots of the last chunk that it spends on the last
        device; one pass for each move between devices while the last device has both passes. The first and
        the last of the slots in which it has both are slots of the last chunk. Only the last device has a
        backward in the first of them, and only it has a forward in the last. A path that is elsewhere in the
        first one loses B there; one that leaves later has lost -e, and loses F as it moves. A path that is
        elsewhere in the last one loses F; one that arrives before loses B as it moves, and -e. These are
        different passes, unless the path is elsewhere in the first slot alone, or in the last one alone. So
        no path loses less than the least of `_path_losses`. With three devices or more the one before the
        last reaches it, as its chunks are all equal.
        """
        e = self.last_forward + self.last_backward
        lighter = (e < 0) & (self.first_forward <= 0) & (self.first_backward <= 0)
        staying, leaving = self._path_losses(microbatches)
        return lighter & ((devices >= 3) | (staying <= leaving))

    def _path_losses(self, microbatches: Whole) -> tuple[Array, Array]:
        """Least seconds that a path loses to -e, which must be positive: on the last device in all but one or
        two slots of the last chunk, and leaving it for good.
        """
        deficit = -(self.last_forward + self.last_backward)
        shortest = np.minimum(self.forward, self.backward)
        staying = np.minimum(microbatches * deficit, shortest + (microbatches - 1) * deficit)
        leaving = np.minimum(self.backward, self.forward + deficit)
        leaving = leaving + np.minimum(self.forward, self.backward + deficit)
        return staying, leaving

    def seconds(self, devices: Whole, chunks: Whole, microbatches: Whole) -> Array:
        """m (v S + e) + (p - 1) S + max(p a, a) + max(p c, c), exact where `last_chunk_decides`; where
        `middle_may_decide`, the least loss of a path takes the place of -m e.
        """
        chunk_s = self.forward + self.backward
        last_excess = self.last_forward + self.last_backward
        last_device_s = microbatches * last_excess
        if any_of(last_excess < 0):
            last_device_s = np.where(
                last_excess < 0, -np.minimum(*self._path_losses(microbatches)), last_device_s
            )
        start = np.maximum(devices * self.first_forward, self.first_forward)
        end = np.maximum(devices * self.first_backward, self.first_backward)
        return microbatches * chunks * chunk_s + last_device_s + (devices - 1) * chunk_s + start + end
