"""The layers of a config.json as keys of a model: what mixes tokens, then an MLP or experts."""

from __future__ import annotations

from typing import Any, NamedTuple

from .config import HubConfig
from .order import WINDOWS, layer_count, mixer_kinds, sparse_layers

Keys = dict[str, Any]
_FULL = ("full_attention", "attention", "global", "full", "*", "indexed_attention")
_LIMITED = ("sliding_attention", "chunked_attention", "local", "sliding")
_MIXERS = {
    "mamba": "mamba2",
    "mamba2": "mamba2",
    "M": "mamba2",
    "mamba1": "mamba",
    "delta": "delta",
}
_PARTS = {"-": "mlp", "E": "moe", "mlp": "mlp", "moe": "moe"}
"""Kinds of a layer that has nothing but an MLP, or experts."""


class HubLayer(NamedTuple):
    """One layer: keys of a model, and all of its parameters, counted from its tensors."""

    keys: Keys
    parameters: int


def layers_of(config: HubConfig) -> list[HubLayer]:
    """Every layer, from the first to the last."""
    count = layer_count(config)
    kinds, sparse = mixer_kinds(config, count), sparse_layers(config, count)
    return [_layer(config, kind, index in sparse) for index, kind in enumerate(kinds)]


def _layer(config: HubConfig, kind: str, sparse: bool) -> HubLayer:
    hidden = config.count("hidden_size")
    if kind in _PARTS:  # a layer that is an MLP alone
        mixer: HubLayer = HubLayer({"mixer": "none"}, 0)
    elif kind == "lightning":
        mixer = _lightning(config, hidden)
    elif kind == "kda":
        mixer = _kimi_delta(config, hidden)
    elif kind == "short_conv":
        mixer = _short_convolution(config, hidden)
    elif kind in _MIXERS:
        mixer = _state_mixer(config, _MIXERS[kind], hidden)
    elif kind in (*_FULL, *_LIMITED):
        latent = config.has("kv_lora_rank") and config.value("use_mla", True)
        mixer = _latent(config, hidden) if latent else _attention(config, hidden)
        if kind in _LIMITED and not config.facts["encoder"]:
            mixer.keys["window"] = _window(config)
    else:
        config.refuse("layer_types", f"has a layer '{kind}', which no key of a model describes")
    alone = "hybrid_override_pattern" if config.has("hybrid_override_pattern") else ""
    has_mlp = kind in _PARTS or not (alone or config.facts["pattern"] in (["mamba"], ["mamba1"]))
    if config.model_type == "nemotron_h":
        sparse, has_mlp = _PARTS.get(kind) == "moe", kind in _PARTS
    mlp = _mlp(config, hidden, sparse) if has_mlp else HubLayer({"mlp": False}, 0)
    norms = _norms(config) if (mixer.keys.get("mixer") != "none" and has_mlp) else 1
    keys = mixer.keys | mlp.keys | {"norms_per_layer": norms}
    norm = hidden * (2 if config.is_true("norm_bias") else 1) * config.facts["norm_weights"]
    extra = config.facts["layer_extra"]
    return HubLayer(keys, mixer.parameters + mlp.parameters + norms * norm + extra)


def _norms(config: HubConfig) -> int:
    """Norms of a layer with a mixer and an MLP, those of queries and keys left out."""
    if config.model_type == "falcon":
        separate = (
            config.value("new_decoder_architecture") and config.value("num_ln_in_parallel_attn", 2) == 2
        )
        return 2 if separate or not config.value("parallel_attn") else 1
    if config.model_type == "stablelm" and config.value("use_parallel_residual", False):
        return 1
    return int(config.facts["norms"])


def _window(config: HubConfig) -> int:
    for name in WINDOWS:
        if config.has(name) and config.value(name):
            return config.count(name)
    config.refuse("layer_types", "has layers with a window, whose width no key states; add sliding_window")
    raise AssertionError


def heads_of(config: HubConfig, hidden: int) -> tuple[int, int, int]:
    """Heads of queries, heads of keys, and the width of one."""
    heads = config.count("num_attention_heads")
    groups = config.count("num_key_value_heads", heads)
    if config.value("multi_query", False):
        groups = groups if config.value("new_decoder_architecture", False) else 1
    elif config.model_type == "falcon" and not config.value("new_decoder_architecture"):
        groups = heads
    width = config.period("head_dim", hidden // heads if heads else 1)
    if heads == 0 or groups == 0 or heads % groups:
        config.refuse("num_key_value_heads", f"must divide the {heads} heads")
    return heads, groups, width


def _attention(config: HubConfig, hidden: int) -> HubLayer:
    heads, groups, width = heads_of(config, hidden)
    queries, keys = heads * width, groups * width
    gate = bool(config.facts.get("output_gate") or config.value("attn_output_gate", False))
    qkv_bias, out_bias = config.is_true("qkv_bias"), config.is_true("out_bias")
    matrices = 2 * hidden * (queries + keys) + gate * hidden * queries
    biases = qkv_bias * (queries + 2 * keys) + out_bias * hidden
    norm, fact = _qk_norm(config), config.facts["qk_norm"]
    scale = 2 if config.is_true("norm_bias") and fact == "head" else 1
    norms = {"none": 0, "free": 0, "head": 2 * width * scale, "width": queries + keys}[norm]
    sinks = heads if config.facts["sinks"] else 0
    keys_of_layer = {"heads": heads, "kv_heads": groups, "head_dim": width, "qk_norm": norm != "none"}
    if qkv_bias and not config.is_true("mlp_bias"):
        keys_of_layer["qkv_biases"] = True
    if gate:
        keys_of_layer["output_gate"] = True
    return HubLayer(keys_of_layer, matrices + biases + norms + sinks)


def _qk_norm(config: HubConfig) -> str:
    """Which norms queries and keys pass: none, head, width or free."""
    says = config.facts["qk_norm"]
    if config.value("qk_norm_type", "per_layer") != "per_layer":
        config.refuse("qk_norm_type", "is not understood; state the model in a file of its own")
    if config.model_type in ("llama4_text", "hunyuan", "hunyuan_v1_moe", "minimax_m2", "persimmon"):
        return says if config.value("qk_norm", True) else "none"
    if says == "use_qk_norm":
        of_key = "width" if config.model_type in ("cohere", "stablelm") else "head"
        return of_key if config.value("qk_norm", False) else "none"
    if says == "none" and config.value("qk_norm", False):
        config.refuse("qk_norm", "is not understood for this architecture; state the model in a file")
    return str(says)


def _latent(config: HubConfig, hidden: int) -> HubLayer:
    """Compressed keys and values (DeepSeek-V2), with the indexer of V3.2 where keys state one."""
    heads = config.count("num_attention_heads")
    config.value("num_key_value_heads"), config.value("head_dim")
    if config.is_true("qkv_bias"):
        config.refuse("attention_bias", "is not understood with kv_lora_rank; state the model in a file")
    rank, query_rank = config.count("kv_lora_rank"), config.count("q_lora_rank", 0)
    plain, turned = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    values = config.count("v_head_dim")
    reached = heads * (plain + turned)
    queries = query_rank * (hidden + reached) + query_rank if query_rank else hidden * reached
    expanded = rank * heads * (plain + values)
    keys: Keys = {"heads": heads, "kv_heads": heads, "head_dim": plain, "rope_head_dim": turned}
    keys |= {"value_head_dim": values, "latent_kv": rank, "latent_q": query_rank}
    parameters = queries + hidden * (rank + turned) + rank + expanded + heads * values * hidden
    if config.has("index_topk"):
        if any(kind != "full" for kind in config.items("indexer_types")):
            config.refuse("indexer_types", "is not understood: not every layer has an indexer of its own")
        index_heads, width = config.count("index_n_heads"), config.count("index_head_dim")
        keys |= {
            "index_heads": index_heads,
            "index_head_dim": width,
            "index_keys": config.count("index_topk"),
        }
        parameters += query_rank * index_heads * width + hidden * (width + index_heads) + 2 * width
    return HubLayer(keys, parameters)


def _state_mixer(config: HubConfig, mixer: str, hidden: int) -> HubLayer:
    if mixer == "delta":
        groups, size = config.count("linear_num_key_heads"), config.count("linear_key_head_dim")
        heads, width = config.count("linear_num_value_heads"), config.count("linear_value_head_dim")
        reach, inner = config.count("linear_conv_kernel_dim"), heads * width
        matrices = hidden * (2 * groups * size + 3 * inner + 2 * heads)
        small = 2 * heads + width
        channels = 2 * groups * size + inner
    elif mixer == "mamba2":
        heads, groups = config.count("mamba_n_heads"), config.count("mamba_n_groups", 1)
        size, reach = config.count("mamba_d_state"), config.count("mamba_d_conv")
        config.value("time_step_rank")
        width = config.value("mamba_d_head", "auto")
        inner = int(config.ratio("mamba_expand", 2) * hidden)
        width = inner // heads if width == "auto" else config.count("mamba_d_head")
        inner = heads * width
        matrices = hidden * (3 * inner + 2 * groups * size + heads)
        channels = 2 * groups * size + inner
        biased = config.flag("mamba_proj_bias", False) or config.flag("use_bias", False)
        small = 3 * heads + inner + channels * config.flag("mamba_conv_bias", True)
        small += biased * (2 * inner + 2 * groups * size + heads + hidden)
    else:
        inner = int(config.ratio("mamba_expand", 2) * hidden)
        config.value("d_inner")
        heads, width, groups, size = 1, inner, 1, config.count("mamba_d_state")
        reach, rank = config.count("mamba_d_conv"), config.value("mamba_dt_rank", "auto")
        rank = -(-hidden // 16) if rank == "auto" else config.count("mamba_dt_rank")
        matrices = hidden * 3 * inner + inner * (rank + 2 * size) + rank * inner
        channels = inner
        small = inner * (size + 2) + inner * config.flag("mamba_conv_bias", True)
        small += rank + 2 * size if config.model_type == "jamba" else 0
        small += config.flag("mamba_proj_bias", False) * (2 * inner + hidden)
    keys: Keys = {"mixer": mixer, "state_heads": heads, "state_head_dim": width, "state_groups": groups}
    keys |= {"state_size": size, "conv_width": reach}
    if mixer == "mamba":
        keys["step_rank"] = rank
    return HubLayer(keys, matrices + channels * reach + small)


def _lightning(config: HubConfig, hidden: int) -> HubLayer:
    """Linear attention of MiniMax-01: queries, keys, values, a gate, a norm of the output."""
    heads, _, width = heads_of(config, hidden)
    inner = heads * width
    keys: Keys = {"mixer": "linear", "state_heads": heads, "state_head_dim": width, "state_size": width}
    return HubLayer(keys, 5 * hidden * inner + inner)


def _kimi_delta(config: HubConfig, hidden: int) -> HubLayer:
    """Kimi Delta Attention: a gated delta net whose decay and gate have the rank of a head's width."""
    heads, width = config.count("linear_num_heads"), config.count("linear_head_dim")
    reach, inner = config.count("linear_conv_kernel_dim"), heads * width
    matrices = hidden * (3 * inner + heads + 2 * width) + 2 * width * inner + inner * hidden
    keys: Keys = {"mixer": "delta", "state_heads": heads, "state_head_dim": width, "state_groups": heads}
    keys |= {"state_size": width, "conv_width": reach, "step_rank": width}
    return HubLayer(keys, matrices + reach * 3 * inner + heads + inner + width)


def _short_convolution(config: HubConfig, hidden: int) -> HubLayer:
    """A gated short convolution of LFM2."""
    reach, biased = config.count("conv_L_cache"), config.flag("conv_bias", False)
    keys: Keys = {"mixer": "conv", "state_heads": 1, "state_head_dim": hidden, "state_size": 1}
    parameters = 4 * hidden * hidden + reach * hidden + biased * 5 * hidden
    return HubLayer(keys | {"conv_width": reach}, parameters)


def _mlp(config: HubConfig, hidden: int, sparse: bool) -> HubLayer:
    """An MLP, or experts with their router and the shared expert beside them."""
    gated, width = is_gated(config), _dense_width(config, hidden, sparse)
    keys: Keys = {"gated_mlp": gated}
    if not sparse:
        parameters = mlp_parameters(hidden, width, gated, config.is_true("mlp_bias"))
        return HubLayer(keys | {"ffn_hidden": width, "experts": 1}, parameters)
    experts, routed = config.count("num_experts"), config.count("num_experts_per_tok")
    expert_width, shared = _expert_widths(config, width)
    router = hidden * experts + experts * (config.is_true("router_bias") + config.is_true("score_bias"))
    biased = config.is_true("expert_bias")
    parameters = router + experts * mlp_parameters(hidden, expert_width, gated, biased)
    if shared:
        parameters += mlp_parameters(hidden, shared, gated, config.is_true("mlp_bias"))
        parameters += hidden * config.is_true("shared_gate")
    keys |= {"ffn_hidden": expert_width, "experts": experts, "experts_per_token": routed}
    return HubLayer(keys | {"shared_ffn_hidden": shared}, parameters)


def is_gated(config: HubConfig) -> bool:
    """Whether MLPs have a gate: the architecture says so, or T5's key."""
    projection = config.value("feed_forward_proj")
    if isinstance(projection, str):
        return projection.startswith("gated-")
    return bool(config.facts["gated"])


def _dense_width(config: HubConfig, hidden: int, sparse: bool) -> int:
    """Width of the MLP of a layer without experts."""
    if config.model_type == "mpt":
        return config.count("expansion_ratio") * hidden
    if config.model_type == "llama4_text" and not sparse:
        return config.count("intermediate_size_mlp")
    if config.model_type == "granitemoehybrid" and not sparse:
        config.value("intermediate_size")
        return config.count("shared_expert_intermediate_size")
    if config.facts["linear"] == "short_conv" and not sparse:
        return _adjusted_width(config)
    width = config.value("intermediate_size")
    for name in ("intermediate_size_mlp", "shared_expert_intermediate_size"):
        config.value(name)
    return 4 * hidden if not width and not sparse else config.count("intermediate_size", 4 * hidden)


def _adjusted_width(config: HubConfig) -> int:
    """Width of an MLP of LFM2: two thirds of what the config states, in whole multiples."""
    width, multiple = config.count("intermediate_size"), config.period("block_multiple_of", 256)
    factor = config.ratio("block_ffn_dim_multiplier", 1.0)
    if not config.flag("block_auto_adjust_ff_dim", True):
        return width
    return -(-int(factor * int(2 * width / 3)) // multiple) * multiple


def _expert_widths(config: HubConfig, width: int) -> tuple[int, int]:
    """Widths of one expert and of what every token passes beside the experts."""
    expert_width = config.count("moe_intermediate_size", width)
    shared_width = config.count("shared_expert_intermediate_size", 0)
    if config.model_type == "llama4_text":
        return width, width
    if config.model_type in ("hunyuan", "hunyuan_v1_moe"):
        number = config.count("num_shared_experts", 1)
        return expert_width, number * width
    number = config.count("num_shared_experts", 0)
    return expert_width, shared_width or number * expert_width


def mlp_parameters(hidden: int, width: int, gated: bool, biased: bool) -> int:
    """Parameters of one MLP or expert, with its biases."""
    weights = (3 if gated else 2) * hidden * width
    return weights + biased * ((2 if gated else 1) * width + hidden)
