"""What of a model's architecture a prediction leaves out: small parts are named, large ones refused.

Shares are of the arithmetic of a layer's forward pass, with half of the attention's scores masked. Attention
takes a larger share of the time than of the arithmetic, so errors of the time are larger than these.
"""

from __future__ import annotations

from itertime.errors import UserError

from .model import ModelSpec

LARGEST_SHARE = 0.1
"""Of the arithmetic; a model of which a prediction would misstate more is refused."""


def approximations_of(model: ModelSpec) -> tuple[str, ...]:
    """Sentences on what a prediction of `model` leaves out or overstates; none if it is modelled as it is."""
    sentences = []
    if model.attention == "core" and (share := windowed_share(model)):
        sentences.append(
            f"Attention of {model.windowed_layers} of the {model.layers} layers reaches back {model.window} "
            f"tokens and is charged for all {model.seq_len}, as unfused attention computes them, which "
            f"overstates the arithmetic by {share:.1%}."
        )
    for mixer in dict.fromkeys(kind.mixer for kind in model.layer_kinds):
        if mixer == "mamba":
            sentences.append(
                "The scan (mixer=mamba) is charged by its bytes or its exponentials, whichever take longer, "
                "which no measured run here confirms; sums of its step sizes over tensor-parallel ranks are "
                "left out."
            )
        elif mixer not in ("attention", "conv", "none"):
            sentences.append(
                f"Products of the recurrence (mixer={mixer}) are charged at the rates of batched products of "
                "their sizes, which no measured run here confirms."
            )
    if any(kind.index_heads for kind in model.layer_kinds):
        sentences.append(_sparse_sentence(model))
    if any(kind.latent_kv for kind in model.layer_kinds):
        sentences.append(
            "Tensor-parallel communication of compressed keys and values is charged at full width."
        )
    if any(kind.experts > 1 and kind.load_imbalance == 1 for kind in model.layer_kinds):
        sentences.append("All experts are charged for equally many tokens; load_imbalance states otherwise.")
    return (*sentences, *model.approximations)


def _sparse_sentence(model: ModelSpec) -> str:
    """What a prediction takes for sparse attention."""
    picked = max(kind.index_keys for kind in model.layer_kinds)
    if not any(kind.is_sparse for kind in model.layer_kinds):
        return f"Sequences are no longer than index_keys={picked}: attention is full, and no indexer runs."
    return (
        f"Sparse attention is charged as a flash kernel over {picked} compressed keys, its indexer as "
        "products in 16 bit and its loss as half a pass of the attention; no measured run here confirms it."
    )


def refusal_of(model: ModelSpec) -> str:
    """Why no prediction of `model` is made; empty if one is."""
    if model.not_predicted:
        return model.not_predicted
    if model.attention == "core" and (share := windowed_share(model)) > LARGEST_SHARE:
        return (
            f"attention windows of {model.window} tokens are not modelled without a flash kernel, and full "
            f"attention over {model.seq_len} tokens would overstate the arithmetic by {share:.0%}; choose a "
            "shorter seq_len, or attention=flash"
        )
    if model.attention == "core" and any(kind.latent_kv for kind in model.layer_kinds):
        return "compressed keys and values (latent_kv) are modelled with a flash kernel only: attention=flash"
    return ""


def check_predictable(model: ModelSpec) -> None:
    """UserError with the reason for a model that cannot be predicted."""
    if reason := refusal_of(model):
        raise UserError(
            f"model {model.name} cannot be predicted: {reason} "
            f"(`itertime models show {model.name}` lists its architecture)"
        )


def windowed_share(model: ModelSpec) -> float:
    """By how much full attention overstates the arithmetic of a model with windows; 0 if none is shorter than
    the sequence.

    A token at position i attends to min(i, w) tokens: s w - w^2 / 2 scores of a causal mask instead of
    s^2 / 2.
    """
    s, w = model.seq_len, model.window
    if not 0 < w < s:
        return 0.0
    scores = 2.0 * s * model.q_hidden  # QK^T and scores x V, the unmasked half
    share_of_scores = (2 * s * w - w * w) / (s * s)
    limited = model.windowed_layers / model.layers
    actual = 2.0 * model.layer_matmul_parameters + scores * (1 - limited * (1 - share_of_scores))
    return limited * scores * (1 - share_of_scores) / actual
