"""Models with an encoder beside the decoder (T5, BART): a list of the layers of both."""

from __future__ import annotations

from typing import Any

from itertime.spec.layers import MOST_LAYERS

from .config import HubConfig
from .layers import HubLayer, is_gated, mlp_parameters


def is_encoder_decoder(config: HubConfig) -> bool:
    """Whether the architecture has both."""
    return bool(config.facts["encoder_decoder"])


def decoder_of(config: HubConfig) -> tuple[dict[str, Any], list[HubLayer], int]:
    """Keys of a model, layers of the encoder and of the decoder, and the parameters of everything else."""
    relative = config.has("relative_attention_num_buckets")  # of T5, whose layers have no biases
    hidden, vocab = config.count("hidden_size"), config.count("vocab_size")
    encoder, decoder = (_side(config, side, hidden, relative) for side in ("encoder", "decoder"))
    layer_norm = hidden * (1 if relative else 2)
    tables = vocab * hidden * (1 if config.value("tie_word_embeddings", True) else 2)
    if config.facts["positions"] == "learned":
        positions = config.count("max_position_embeddings") + config.facts["position_offset"]
        tables += 2 * positions * hidden
    norms = 2 * layer_norm * (config.facts["embedding_norm"] + config.facts["final_norm"])
    if relative:
        buckets = config.count("relative_attention_num_buckets")
        layers = encoder.count + decoder.count if config.model_type == "umt5" else 2
        tables += layers * buckets * decoder.heads
    ends = tables + norms
    keys = {
        "hidden": hidden,
        "vocab": vocab,
        "seq_len": min(config.count("max_position_embeddings", 512), 4096),
        "norm": config.facts["norm"],
        "positions": "none" if relative else config.facts["positions"],
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        "biases": not relative,
    }
    # A decoder's layer attends twice, and has a norm more.
    layer = decoder.keys | {"norms_per_layer": 3, "cross_attention": True}
    parameters = decoder.parameters + decoder.attention + 3 * layer_norm
    encoding = HubLayer(encoder.keys | {"encoder": True}, encoder.parameters + 2 * layer_norm)
    return keys, [encoding] * encoder.count + [HubLayer(layer, parameters)] * decoder.count, ends


class _Side:
    """Encoder or decoder: its layers, heads, parameters of a layer without norms, and of its attention."""

    def __init__(self, count: int, heads: int, attention: int, mlp: int, keys: dict[str, Any]):
        self.count, self.heads, self.attention, self.keys = count, heads, attention, keys
        self.parameters = attention + mlp


def _side(config: HubConfig, side: str, hidden: int, relative: bool) -> _Side:
    if relative:
        layers = config.layer_count()
        if side == "decoder":
            layers = config.period("num_decoder_layers", layers, MOST_LAYERS)
        heads, width = config.period("num_attention_heads"), config.period("head_dim")
        inner = config.count("intermediate_size")
    else:
        for name in ("num_hidden_layers", "num_attention_heads"):
            config.value(name)
        layers = config.period(f"{side}_layers", largest=MOST_LAYERS)
        heads = config.period(f"{side}_attention_heads")
        width, inner = hidden // heads, config.count(f"{side}_ffn_dim")
    gated = is_gated(config)
    attention = 4 * hidden * heads * width + (0 if relative else 3 * heads * width + hidden)
    keys = {"heads": heads, "head_dim": width, "ffn_hidden": inner, "gated_mlp": gated}
    return _Side(layers, heads, attention, mlp_parameters(hidden, inner, gated, not relative), keys)
