"""Which layers of a config.json have which mixer, and which have experts."""

from __future__ import annotations

from .config import HubConfig

WINDOWS = ("sliding_window", "attention_chunk_size", "window_size", "local_attention")
_LISTS = ("hybrid_override_pattern", "layer_types", "attention_types")
_SPARSE, _DENSE = ("sparse", "moe"), ("dense", "mlp")


def layer_count(config: HubConfig) -> int:
    """The number of layers, which a list of them states too."""
    pattern = config.value("hybrid_override_pattern")
    listed = config.value("layer_types")
    default = len(pattern) if isinstance(pattern, str) else len(listed) if isinstance(listed, list) else None
    return config.layer_count(default)


def mixer_kinds(config: HubConfig, count: int) -> list[str]:
    """The word for what mixes tokens in every layer, from whichever key says so."""
    if config.has("hybrid_override_pattern"):
        kinds = list(config.text("hybrid_override_pattern"))
    elif config.has("layer_types"):
        listed = config.items("layer_types")
        kinds = ["linear" if kind == 0 else "full" if kind == 1 else str(kind) for kind in listed]
    elif config.has("attention_types"):
        kinds = _repeated(config, count)
    elif config.has("attn_layer_period"):  # Jamba: attention among Mamba layers
        period, offset = config.period("attn_layer_period"), config.count("attn_layer_offset", 0)
        kinds = ["full" if index % period == offset else "mamba1" for index in range(count)]
    elif config.has("full_attn_layers"):  # Kimi-Linear, from 1
        attention = config.places("full_attn_layers", count, start=1)
        config.places("kda_layers", count, start=1)
        kinds = ["full" if index in attention else "linear" for index in range(count)]
    elif config.has("full_attn_idxs"):
        attention = config.places("full_attn_idxs", count)
        kinds = ["full" if index in attention else "conv" for index in range(count)]
    elif config.model_type == "bamba":
        attention = config.places("attn_layer_indices", count)
        kinds = ["full" if index in attention else "mamba" for index in range(count)]
    else:
        kinds = _by_interval(config, count)
    for name in ("use_sliding_window", "sliding_window_pattern", "max_window_layers", *WINDOWS):
        config.value(name)
    config.value("full_attn_idxs")
    for name in ("num_attention_heads", "num_key_value_heads", "head_dim"):  # which Mamba alone does not use
        config.value(name)
    linear = config.facts["linear"]
    kinds = [linear if kind in ("linear", "linear_attention") else kind for kind in kinds]
    if linear == "short_conv":
        kinds = ["short_conv" if kind == "conv" else kind for kind in kinds]
    if linear == "mamba1":
        kinds = ["mamba1" if kind == "mamba" else kind for kind in kinds]
    if len(kinds) != count:
        key = next((name for name in _LISTS if config.has(name)), "no_rope_layers")
        config.refuse(key, f"has {len(kinds)} entries for {count} layers")
    return kinds


def _repeated(config: HubConfig, count: int) -> list[str]:
    """Kinds of GPT-Neo's `attention_types`: of each entry a list of them and how often it stands there."""
    kinds: list[str] = []
    for entry in config.items("attention_types"):
        pattern, times = entry if isinstance(entry, list) and len(entry) == 2 else ([], -1)
        if not isinstance(pattern, list) or type(times) is not int or not 0 <= times <= count:
            config.refuse("attention_types", "must be pairs of kinds and a number, as [[global, local], 12]")
        kinds += [str(kind) for kind in pattern * times]
    return kinds


def _by_interval(config: HubConfig, count: int) -> list[str]:
    """Kinds that follow from numbers, or that the architecture itself has."""
    pattern, layers = config.facts["pattern"], range(count)
    window_period = config.value("sliding_window_pattern")
    if isinstance(window_period, str) and window_period:  # "LLLG"
        pattern = ["full" if letter == "G" else "sliding" for letter in window_period]
    elif window_period:
        period = config.period("sliding_window_pattern")
        return ["sliding" if (index + 1) % period else "full" for index in layers]
    elif config.value("full_attention_interval"):
        period = config.period("full_attention_interval")
        return ["linear_attention" if (index + 1) % period else "full" for index in layers]
    elif config.has("attention_chunk_size"):  # Llama 4: full where positions are not rotary
        step = config.period("no_rope_layer_interval", 4)
        rotary = config.items("no_rope_layers") or [(index + 1) % step for index in layers]
        return ["sliding" if turns else "full" for turns in rotary]
    elif not pattern:
        limited = config.has("sliding_window") and config.value("use_sliding_window", True)
        start = config.count("max_window_layers", 0) if config.value("use_sliding_window", False) else 0
        return ["sliding" if limited and index >= start else "full" for index in layers]
    return [pattern[index % len(pattern)] for index in layers]


def sparse_layers(config: HubConfig, count: int) -> set[int]:
    """The layers that have experts, from whichever key says so."""
    experts, layers = config.count("num_experts", 0), set(range(count))
    if experts <= (0 if config.has("num_experts_per_tok") else 1) or experts == 1:
        return set()
    if config.has("mlp_layer_types"):
        return _of_words(config, count)
    if isinstance(config.value("moe_layer_freq"), list):
        flags = config.items("moe_layer_freq")
        if len(flags) != count:
            config.refuse("moe_layer_freq", f"has {len(flags)} entries for {count} layers")
        return {index for index, has_experts in enumerate(flags) if has_experts}
    if config.value("moe_layers"):
        return config.places("moe_layers", count)
    if config.has("interleave_moe_layer_step"):
        step = config.count("interleave_moe_layer_step")
        return set(range(step - 1, count, step)) if step else set()
    if config.has("expert_layer_period"):
        period, offset = config.period("expert_layer_period"), config.count("expert_layer_offset", 0)
        return {index for index in layers if index % period == offset}
    if config.has("moe_layer_start_index"):
        start, step = config.count("moe_layer_start_index"), config.period("moe_layer_interval", 1)
        is_open = config.value("moe_layer_end_index", -1) == -1
        end = count - 1 if is_open else config.count("moe_layer_end_index")
        return {index for index in layers if start <= index <= end and (index + 1) % step == 0}
    dense = set(range(min(config.count("first_k_dense_replace", 0), count)))
    dense |= config.places("mlp_only_layers", count)
    step, frequency = config.period("decoder_sparse_step", 1), config.period("moe_layer_freq", 1)
    return {index for index in layers - dense if (index + 1) % step == 0 and index % frequency == 0}


def _of_words(config: HubConfig, count: int) -> set[int]:
    """The layers with experts of `mlp_layer_types`."""
    words = config.items("mlp_layer_types")
    if len(words) != count or any(word not in (*_SPARSE, *_DENSE) for word in words):
        config.refuse("mlp_layer_types", f"must be {count} words, one a layer: dense or sparse")
    return {index for index, word in enumerate(words) if word in _SPARSE}
