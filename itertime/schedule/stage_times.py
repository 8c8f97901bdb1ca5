"""Seconds of the stages of pipelines, and of the chunks of interleaved stages; many plans together.

A pipeline has at most four kinds of stages, so arrays of shape (4, plans) describe all stages of all plans:
the first stage (FIRST, embedding), middle stages with one layer more (HEAVY) or fewer (LIGHT), and the last
stage (LAST, projection and loss). The only stage of a pipeline of one stage is a last one. Where a plan lists
the layers of its stages, each stage between the ends is a kind of its own, and arrays have more rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from itertime.arrays import Array, Flags, Whole
from itertime.cached import cached_property

from .closed_forms import InterleavedPasses

FIRST, HEAVY, LIGHT, LAST = 0, 1, 2, -1
_NOT_DIVIDED = ("embedding", "towers", "head", "p2p")


def stage_kinds(count: Whole) -> Whole:
    """The kind of every stage from the first to the last, (plans, largest number of stages).

    `count`: stages of each kind, (4, plans). Columns beyond the stages of a plan are LAST.

    >>> stage_kinds(np.array([[1, 1], [2, 0], [1, 0], [1, 1]])).tolist()
    [[0, 1, 1, 2, 3], [0, 3, 3, 3, 3]]
    """
    ends = np.cumsum(count, axis=0).T
    position = np.arange(ends[:, -1].max(initial=0))
    return np.minimum((position[None, :, None] >= ends[:, None, :]).sum(axis=2), len(count) - 1)


@cache
def kind_column(kinds: int) -> Whole:
    """The numbers of so many kinds as a column, not to be changed: FIRST, HEAVY, LIGHT, further ones, LAST.

    >>> kind_column(5).ravel().tolist()
    [0, 1, 2, 3, -1]
    """
    column = np.arange(kinds)[:, None]
    column[-1] = LAST
    return column


def divided_s(parts: Mapping[str, Array]) -> Array:
    """Seconds of a pass that the chunks of a stage share equally, (4, plans): not embedding, towers, head,
    sends.
    """
    divided = [seconds for name, seconds in parts.items() if name not in _NOT_DIVIDED]
    return sum(divided, np.zeros(parts["head"].shape))


def before_layers_s(parts: Mapping[str, Array]) -> Array:
    """Seconds of a pass ahead of the layers of the first chunk, (4, plans): embedding, and towers if any."""
    return parts["embedding"] + parts["towers"] if "towers" in parts else parts["embedding"]


@dataclass(frozen=True)
class ChunkTimes:
    """Seconds of one micro-batch, (plans, stages, chunks): its passes, and what sending adds to each.

    `ahead`: those of the backward pass that precede its gradients, 0 by most rules. `weight`: gradients of
    weights where these are a pass of their own.
    """

    forward: Array
    backward: Array
    ahead: Array
    send_forward: Array
    send_backward: Array
    weight: Array | None = None


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one micro-batch on a stage of each kind.

    | field | shape | meaning |
    |---|---|---|
    | `forward`, `backward` | (4, plans) each | seconds of a pass, by the name of the part |
    | `count` | (4, plans) | stages of this kind; where there are none, HEAVY has times all the same |
    | `interleave` | (plans,) | chunks of a stage, v |
    | `ahead` | names | parts of `backward` that need no gradients, so a stage does them before these come |
    | `weight` | (4, plans) | seconds of `backward` that a schedule may let wait, by the name of the part |

    `shares`, (kinds, chunks, plans) each: of the parts that the chunks of a stage share what each takes,
    forward and backward, where a plan lists the layers of several chunks; else None, and chunks are equal.

    Certain parts belong to certain chunks: "embedding" and "towers" to the first of a stage, "head" to
    the last, and "p2p", the sending, to all but the chunk at which the pass leaves the model. The chunks of a
    stage share the other parts. All chunks are equal, except the first chunk of the first stage and the last
    chunks of the other stages, which differ by what their stage differs from a HEAVY one.
    """

    forward: Mapping[str, Array]
    backward: Mapping[str, Array]
    count: Whole
    interleave: Whole
    ahead: tuple[str, ...] = ()
    weight: Mapping[str, Array] | None = None
    shares: tuple[Array, Array] | None = None

    @cached_property
    def present(self) -> Flags:
        """Which kinds of stages a plan has, (4, plans)."""
        return self.count > 0

    @cached_property
    def forward_s(self) -> Array:
        """Seconds of a forward pass, (4, plans); 0 where a plan has no such stage."""
        return self._pass_s(self.forward)

    @cached_property
    def backward_s(self) -> Array:
        """Seconds of a backward pass, (4, plans); 0 where a plan has no such stage."""
        return self._pass_s(self.backward)

    @cached_property
    def ahead_s(self) -> Array:
        """Seconds of the backward pass that precede its gradients, (4, plans); 0 where there is no stage."""
        return self._pass_s({name: self.backward[name] for name in self.ahead})

    @cached_property
    def divided_forward_s(self) -> Array:
        """`divided_s` of a forward pass, (4, plans)."""
        return divided_s(self.forward)

    @cached_property
    def divided_backward_s(self) -> Array:
        """`divided_s` of a backward pass, (4, plans)."""
        return divided_s(self.backward)

    def _pass_s(self, parts: Mapping[str, Array]) -> Array:
        return np.where(self.present, sum(parts.values(), np.zeros(self.count.shape)), 0.0)

    def chunks(self, rows: Whole, chunk_count: int) -> ChunkTimes:
        """The passes of every chunk of the plans at `rows`, whose stages have `chunk_count` chunks each.
        Columns beyond the stages of a plan repeat its last one.
        """
        count = self.count[:, rows]
        kinds = stage_kinds(count)
        shape = (*kinds.shape, chunk_count)
        send_forward = np.zeros(shape) + (self.forward["p2p"][FIRST, rows] / chunk_count)[:, None, None]
        send_backward = np.zeros(shape) + (self.backward["p2p"][LAST, rows] / chunk_count)[:, None, None]
        send_forward[np.arange(len(rows)), count.sum(axis=0) - 1, -1] = 0.0
        send_backward[:, 0, 0] = 0.0
        ahead = self.ahead_s[:, rows][kinds, np.arange(len(rows))[:, None]] / chunk_count
        return ChunkTimes(
            self._chunk_passes(self.forward, rows, kinds, chunk_count),
            self._chunk_passes(self.backward, rows, kinds, chunk_count),
            np.repeat(ahead[:, :, None], chunk_count, axis=2),
            send_forward,
            send_backward,
        )

    def split_chunks(self, schedule: str, rows: Whole) -> ChunkTimes:
        """The passes of every chunk of every device under a schedule that splits backward passes; all plans
        at `rows` have it and the same number of stages. `backward` is that of inputs alone.
        """
        assert self.weight is not None
        chunk_count, kinds = (2 if schedule == "zb-v" else 1), stage_kinds(self.count[:, rows])
        times = self.chunks(rows, chunk_count)
        weight = self._chunk_passes(self.weight, rows, kinds, chunk_count)
        backward, sent = times.backward - weight, (times.send_forward, times.send_backward)
        columns = [times.forward, backward, times.ahead, *sent, weight]
        if schedule == "zb-v":
            hop = np.stack([self.forward["p2p"][FIRST, rows], self.backward["p2p"][FIRST, rows]])
            sends = np.broadcast_to(hop[:, :, None, None], (2, *weight.shape)).copy()
            # The last device goes from its first chunk to its second, and back; the ends send nothing.
            sends[0, :, -1, 0] = sends[0, :, 0, 1] = sends[1, :, -1, 1] = sends[1, :, 0, 0] = 0.0
            columns[3:5] = sends
        elif schedule == "dualpipe":  # the stage of the other direction is the mirror image
            columns = [np.concatenate([each, each[:, ::-1]], axis=2) for each in columns]
        return ChunkTimes(*columns)

    def _chunk_passes(self, parts: Mapping[str, Array], rows: Whole, kinds: Whole, chunk_count: int) -> Array:
        """Seconds of a pass through every chunk, (rows, stages, chunks), without sends."""
        divided = self.divided_forward_s if parts is self.forward else self.divided_backward_s
        if parts is self.weight:
            divided = divided_s(parts)
        stage_s, column = divided[:, rows], np.arange(len(rows))[:, None]
        if self.shares is not None and chunk_count > 1:
            shares = self.shares[0 if parts is self.forward else 1][:, :, rows]
            chunk_s = stage_s[kinds, column][:, :, None] * np.moveaxis(shares, 1, 2)[kinds, column]
        elif chunk_count == 1:
            chunk_s = stage_s[kinds, column][:, :, None].copy()
        else:
            equal_s = (stage_s[HEAVY] / chunk_count)[column][:, :, None]
            chunk_s = np.repeat(np.repeat(equal_s, kinds.shape[1], axis=1), chunk_count, axis=2)
            excess_s = stage_s - stage_s[HEAVY]
            chunk_s[:, 0, 0] += excess_s[FIRST]
            chunk_s[:, :, -1] += np.where(kinds == FIRST, 0.0, excess_s[kinds, column])
        chunk_s[:, :, 0] += before_layers_s(parts)[kinds, rows[:, None]]
        chunk_s[:, :, -1] += parts["head"][kinds, rows[:, None]]
        return chunk_s

    def interleaved_passes(self, rows: Whole) -> InterleavedPasses:
        """The passes of the plans at `rows`, which must have no LIGHT stages, for the closed form."""
        chunk_count = self.interleave[rows]
        forward_s, backward_s = self.divided_forward_s[:, rows], self.divided_backward_s[:, rows]
        send_forward_s = self.forward["p2p"][FIRST, rows] / chunk_count
        send_backward_s = self.backward["p2p"][LAST, rows] / chunk_count
        first_forward_s = forward_s[FIRST] - forward_s[HEAVY] + before_layers_s(self.forward)[FIRST, rows]
        first_backward_s = backward_s[FIRST] - backward_s[HEAVY] + before_layers_s(self.backward)[FIRST, rows]
        last_forward_s = forward_s[LAST] - forward_s[HEAVY] + self.forward["head"][LAST, rows]
        last_backward_s = backward_s[LAST] - backward_s[HEAVY] + self.backward["head"][LAST, rows]
        return InterleavedPasses(
            forward=forward_s[HEAVY] / chunk_count + send_forward_s,
            backward=backward_s[HEAVY] / chunk_count + send_backward_s,
            first_forward=first_forward_s,
            first_backward=first_backward_s - send_backward_s,  # gradients leave the model here
            last_forward=last_forward_s - send_forward_s,  # the loss follows on the same stage
            last_backward=last_backward_s,
        )
