"""What a config.json has beside its layers: embeddings, final norm, projection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .config import HubConfig


def ends_of(config: HubConfig) -> tuple[dict[str, Any], int]:
    """Keys of a model, and the parameters of everything beside its layers, counted from the tensors."""
    facts = config.facts
    hidden, vocab = config.count("hidden_size"), config.count("vocab_size")
    width = config.period("embedding_size", hidden)
    tied = config.flag("tie_word_embeddings", True)
    learned = facts["positions"] == "learned"
    norm = (2 if config.is_true("norm_bias") else 1) * facts["norm_weights"]
    parameters = vocab * width
    if width != hidden:
        parameters += width * hidden + hidden
    if learned:
        parameters += (config.count("max_position_embeddings") + facts["position_offset"]) * width
    if facts["types"]:
        parameters += config.count("type_vocab_size", 2) * width
    parameters += norm * width * facts["embedding_norm"]
    parameters += norm * hidden * _has_final_norm(config)
    if facts["head_transform"]:
        parameters += hidden * width + width * config.is_true("head_transform_bias") + norm * width
    if config.model_type == "modernbert":
        parameters -= hidden  # the first layer's attention has no norm
        config.value("global_attn_every_n_layers")
    parameters += (0 if tied else vocab * width) + vocab * config.is_true("head_bias")
    positions = config.value("max_position_embeddings", 4096)
    if isinstance(positions, str | list | Mapping):
        config.refuse("max_position_embeddings", "must be a whole number")
    longest = positions if isinstance(positions, int) and positions > 0 else 4096
    keys = {
        "hidden": hidden,
        "vocab": vocab,
        "seq_len": longest if learned else min(longest, 4096),
        "norm": facts["norm"],
        "positions": facts["positions"],
        "tied_embeddings": tied,
        "biases": config.is_true("qkv_bias") and config.is_true("out_bias") and config.is_true("mlp_bias"),
        "parallel_block": _is_parallel(config),
        "encoder": bool(facts["encoder"]),
        "embedding_width": 0 if width == hidden else width,
    }
    return keys, parameters


def _is_parallel(config: HubConfig) -> bool:
    if config.model_type == "falcon":
        return bool(config.value("parallel_attn") or config.value("new_decoder_architecture"))
    if config.model_type == "stablelm":
        return config.flag("use_parallel_residual", False)
    return config.is_true("parallel")


def _has_final_norm(config: HubConfig) -> bool:
    if config.model_type == "opt":
        removed = config.value("_remove_final_layer_norm", False)
        if config.count("word_embed_proj_dim", config.count("hidden_size")) != config.count("hidden_size"):
            config.refuse("word_embed_proj_dim", "must be hidden_size: projected embeddings are not modelled")
        return bool(config.value("do_layer_norm_before")) and not removed
    return bool(config.facts["final_norm"])
