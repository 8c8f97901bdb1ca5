"""Recurrences of Mamba-2, gated delta nets and linear attention, computed chunk by chunk.

A sequence is cut into chunks of Q tokens. Within a chunk everything is a product of small matrices, one for
each head and chunk; between chunks a state of N x P is carried on (N: `state_size`, P: `state_head_dim`).
Products of one micro-batch, m x n x k, for each chunk and head (of keys: group):

| mixer | Q | products | source |
|---|---|---|---|
| mamba2 | 256 | Q Q N (groups), Q P Q, N P Q, Q P N | Dao and Gu 2024, section 6, listing 1 |
| delta | 64 | 2 of Q Q N, Q N Q, 2 of Q P Q, Q Q Q, N P Q, 2 of Q P N | Yang et al. 2024, section 3.2 |
| linear | 256 | Q Q N, Q P Q, N P Q, Q P N | MiniMax-01 2025, section 2.2 |
| mamba | | none; `scan.py` has its kernel | Gu and Dao 2023, section 3.3.2 |
| conv | | none: two gates around the convolution, bytes alone | Transformers, `Lfm2ShortConv` |

The kernels read what the products read and write what they write once: x and y, keys and queries in 16 bit,
and the state of every chunk in 32 bit, which is written, carried on and read. Backward every product has two,
and the states and the scores within chunks are computed again (mamba_ssm, `_mamba_chunk_scan_combined_bwd`;
fla, `chunk_gated_delta_rule_bwd`): 2.5 times the forward pass, as in flash attention. That such products
reach the profile's rates of batched products of their size is assumed; no table here measures them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array
from itertime.costs.partition import Workload
from itertime.spec import Elementwise
from itertime.spec.layers import convolved_width, mixer_shapes
from itertime.spec.model import ModelSpec

from .scan import scan_s

Shape = tuple[Array, Array, Array]
_BACKWARD = 2.5
_BACKWARD_OF_GATES = 28 / 16  # bytes, of two gates and a convolution
_CHUNKS = {"mamba2": 256, "delta": 64, "linear": 256}
# Kernels of one recurrence with its convolution and its gated norm: mamba_ssm 2.2 (cumulative sum, states,
# their passing, products of groups, scan), fla (sums, inverse, W and U, states, output).
_KERNELS = {"mamba2": (7, 12), "delta": (8, 14), "linear": (5, 10), "mamba": (2, 4), "conv": (3, 5)}


@dataclass(frozen=True)
class _Sizes:
    """What a rank has of a recurrence: chunks, heads of values and of keys, (plans,), and the widths."""

    chunks: Array
    heads: Array
    groups: Array
    chunk: int
    state: int
    width: int

    @classmethod
    def of(cls, workload: Workload) -> _Sizes:
        model, tp = workload.model, workload.plans.tp
        chunk = min(_CHUNKS[model.mixer], model.seq_len)
        heads = model.state_heads / tp
        groups = np.maximum(model.state_groups / tp, 1.0) if model.state_groups else heads
        return cls(workload.tokens / chunk, heads, groups, chunk, model.state_size, model.state_head_dim)

    def products(self, mixer: str) -> list[tuple[int, int, int, Array]]:
        """m, n, k and how many of each, (plans,)."""
        q, n, p = self.chunk, self.state, self.width
        by_head, by_group = self.chunks * self.heads, self.chunks * self.groups
        if mixer == "delta":
            within = [(q, q, n, 2 * by_head), (q, n, q, by_head), (q, p, q, 2 * by_head), (q, q, q, by_head)]
            return [*within, (n, p, q, by_head), (q, p, n, 2 * by_head)]
        scores = by_group if mixer == "mamba2" else by_head
        return [(q, q, n, scores), (q, p, q, by_head), (n, p, q, by_head), (q, p, n, by_head)]


def recurrence_s(workload: Workload) -> tuple[Array, Array]:
    """Seconds of a layer's recurrence, its convolution and its gated norm, forward and backward."""
    model, tokens, tp = workload.model, workload.tokens, workload.plans.tp
    if model.mixer == "none":
        return np.zeros(len(workload)), np.zeros(len(workload))
    if model.mixer == "mamba":
        convolved = 4.0 * tokens * convolved_width(model) / tp
        convolved_s = workload.profile.seconds(Elementwise(convolved)) / workload.system.site.hbm_fraction
        scanned = workload.framework.elementwise_multiplier * convolved_s + scan_s(workload)
        return scanned, _BACKWARD * scanned
    if model.mixer == "conv":  # each gate reads two and writes one; their gradients read three and write two
        gated = workload.profile.seconds(Elementwise(16.0 * tokens * model.state_inner / tp))
        gated_s = workload.framework.elementwise_multiplier * gated / workload.system.site.hbm_fraction
        return gated_s, _BACKWARD_OF_GATES * gated_s
    sizes = _Sizes.of(workload)
    columns = zip(*sizes.products(model.mixer), strict=True)
    m, n, k, batch = (
        np.array([np.broadcast_to(value, tokens.shape) for value in column]) for column in columns
    )
    products = workload.gemm_factor * workload.gemm_s(m, n, k, batch).sum(axis=0)
    inner = tokens * model.state_inner / tp
    # x and y; keys and queries; the states of all chunks, written, read and written, and read.
    moved = 4.0 * inner + 4.0 * tokens * sizes.groups * sizes.state
    moved = moved + 16.0 * sizes.chunks * sizes.heads * sizes.state * sizes.width
    # The convolution reads and writes; the norm reads the output and its gate, and writes.
    moved = moved + 4.0 * tokens * convolved_width(model) / tp + 6.0 * inner
    moved_s = workload.profile.seconds(Elementwise(moved)) / workload.system.site.hbm_fraction
    forward = products + workload.framework.elementwise_multiplier * moved_s
    return forward, _BACKWARD * forward


def mixer_gemms(workload: Workload) -> list[Shape]:
    """m, n and k of a mixer's matrices on one rank: into its heads by columns, back by rows; so are those to
    Mamba's steps and keys.
    """
    model, tp, tokens = workload.model, workload.plans.tp, workload.tokens
    nothing, shapes = np.zeros(len(workload)), mixer_shapes(model)
    by_rows = {len(shapes) - 1} | ({1} if model.mixer == "mamba" else set())
    return [
        (tokens, nothing + wide, nothing + narrow / tp)
        if place in by_rows
        else (tokens, nothing + wide / tp, nothing + narrow)
        for place, (narrow, wide) in enumerate(shapes)
    ]


def recurrence_kernels(model: ModelSpec) -> tuple[int, int]:
    """Kernels of a recurrence with its convolution and norm, forward and backward."""
    return _KERNELS.get(model.mixer, (0, 0))


def kept_bytes(workload: Workload) -> Array:
    """Bytes that a layer's mixer keeps for the backward pass: what the first product writes, and what the
    recurrence does; the convolution is computed again (mamba_ssm, `MambaSplitConv1dScanCombinedFn`). A delta
    net keeps what the convolution writes, too, and its output before the norm (fla). Mamba's steps are
    computed again (mamba_ssm, `MambaInnerFn`).
    """
    model = workload.model
    shapes = mixer_shapes(model)
    if not shapes:
        return np.zeros(len(workload))
    width = shapes[0][1] + model.state_inner
    if model.mixer == "delta":
        width += convolved_width(model) + model.state_inner * (3 if model.step_rank else 1)
    if model.mixer == "conv":  # the convolution's input and output, too
        width += 2 * model.state_inner
    nbytes = 2.0 * workload.tokens * width / workload.plans.tp
    if model.mixer == "mamba":  # whose steps and keys lie on every rank
        nbytes = nbytes + 2.0 * workload.tokens * (model.step_rank + 2 * model.state_size)
    return np.asarray(nbytes)
