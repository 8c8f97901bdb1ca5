"""What mixes the tokens of a layer in place of attention: matrices, convolution, and the recurrence's work.

With I = `state_heads` x `state_head_dim` values, G = `state_groups` heads of keys of width N = `state_size`:

| mixer | matrices | convolution over | FLOPs of the recurrence, a token |
|---|---|---|---|
| mamba2 | h x (2 I + 2 G N + heads), I x h | I + 2 G N | 7 I N |
| delta | h x (2 I + 2 G N + 2 heads), I x h | I + 2 G N | 8 I N |
| mamba | h x 2 I, I x (r + 2 N), r x I, I x h | I | 7 I N |
| linear | h x 4 I, I x h | | 5 I N |
| conv | h x 3 I, I x h | I | 2 I N |

mamba2: Dao and Gu, Transformers are SSMs (2024), section 7; 7 I N is Megatron-LM's count
(`num_floating_point_operations`). delta: Yang et al., Gated Delta Networks (2024), and Qwen3-Next: decay (1),
value read with the key (2), its correction added (3), read with the query (2). mamba: Gu and Dao (2023), with
steps of rank r = `step_rank`. linear: lightning attention of MiniMax-01 (2025), whose queries, keys, values
and gate have I columns each, N being the width of a head: decay (1), outer product (2), read (2). conv: the
convolution of LFM2 (Liquid AI 2025) between two gates, N = 1. Decay and gate of Kimi Delta Attention (2025,
section 3), a delta net, have a rank r: h x (I + 2 G N + heads + 2 r), two of r x I, I x h.
"""

from __future__ import annotations

from typing import Protocol

MIXERS = ("attention", "mamba2", "delta", "mamba", "linear", "none", "conv")
_FLOPS = {"mamba2": 7.0, "delta": 8.0, "mamba": 7.0, "linear": 5.0, "conv": 2.0}


class StateShape(Protocol):
    """Of a model, what its mixer's matrices and work follow from."""

    @property
    def mixer(self) -> str: ...
    @property
    def hidden(self) -> int: ...
    @property
    def state_heads(self) -> int: ...
    @property
    def state_inner(self) -> int: ...
    @property
    def state_keys(self) -> int: ...
    @property
    def state_size(self) -> int: ...
    @property
    def conv_width(self) -> int: ...
    @property
    def step_rank(self) -> int: ...


def mixer_shapes(model: StateShape) -> tuple[tuple[int, int], ...]:
    """Widths, in and out, of the matrices of a mixer that is no attention."""
    h, inner, keys = model.hidden, model.state_inner, model.state_keys
    heads, rank = model.state_heads, model.step_rank
    shapes = {
        "mamba2": ((h, 2 * inner + 2 * keys + heads), (inner, h)),
        "delta": ((h, 2 * inner + 2 * keys + 2 * heads), (inner, h)),
        "mamba": ((h, 2 * inner), (inner, rank + 2 * model.state_size), (rank, inner), (inner, h)),
        "linear": ((h, 4 * inner), (inner, h)),
        "conv": ((h, 3 * inner), (inner, h)),
    }
    if model.mixer == "delta" and rank:
        return ((h, inner + 2 * keys + heads + 2 * rank), (rank, inner), (rank, inner), (inner, h))
    return shapes.get(model.mixer, ())


def convolved_width(model: StateShape) -> int:
    """Channels that a mixer's causal convolution filters, `conv_width` tokens each."""
    if model.mixer in ("mamba2", "delta"):
        return model.state_inner + 2 * model.state_keys
    return model.state_inner if model.mixer in ("mamba", "conv") else 0


def mixer_parameters(model: StateShape) -> int:
    """Weights of a mixer's matrices and of its convolution."""
    matrices = sum(narrow * wide for narrow, wide in mixer_shapes(model))
    return matrices + model.conv_width * convolved_width(model)


def recurrence_flops(model: StateShape) -> float:
    """FLOPs of a token in a mixer's recurrence and convolution."""
    recurrence = _FLOPS.get(model.mixer, 0.0) * model.state_inner * model.state_size
    return recurrence + 2.0 * model.conv_width * convolved_width(model)
