"""A config.json of Hugging Face: its keys under one name each, and which of them were understood."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from itertime.errors import UserError, quoted, shown
from itertime.io import read_mapping
from itertime.spec.layers import MOST_LAYERS

_NAMES = {
    "hidden_size": "n_embd n_embed d_model",
    "num_hidden_layers": "n_layer n_layers num_layers",
    "num_attention_heads": "n_head n_heads num_heads",
    "num_key_value_heads": "num_kv_heads n_head_kv kv_n_heads num_query_groups multi_query_group_num",
    "max_position_embeddings": "n_positions max_seq_len model_max_length n_ctx seq_length",
    "intermediate_size": "n_inner ffn_dim ffn_hidden_size d_ff",
    "head_dim": "attention_head_dim d_kv",
    "num_experts": "n_routed_experts num_local_experts moe_num_experts",
    "num_experts_per_tok": "num_experts_per_token experts_per_token moe_topk moe_k moe_top_k",
    "num_shared_experts": "n_shared_experts num_shared_expert moe_num_shared_experts",
    "shared_expert_intermediate_size": "moe_shared_expert_intermediate_size shared_intermediate_size",
    "num_mtp_layers": "num_nextn_predict_layers mtp_num_layers num_mtp_modules",
    "qk_norm": "use_qk_norm qk_layernorm",
    "mamba_n_heads": "mamba_num_heads",
    "mamba_d_head": "mamba_head_dim",
    "mamba_n_groups": "n_groups mamba_ngroups",
    "mamba_d_state": "ssm_state_size",
    "mamba_d_conv": "conv_kernel mamba_conv_kernel",
    "mamba_conv_bias": "use_conv_bias",
    "mamba_expand": "expand",
    "layer_types": "layers_block_type attn_type_list",
    "sliding_window_pattern": "_sliding_window_pattern",
}
"""The keys that state a quantity, under the name that the newest configs use for it."""
_CANONICAL = {name: canonical for canonical, names in _NAMES.items() for name in names.split()}
_OF_LINEAR = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
"""Keys of Kimi-Linear's inner config that the outer one has with another meaning."""
_NEUTRAL = re.compile(
    r"""^(_.*|.*_token|.*_tokens|.*_token_ids?|.*_token_index|.*(dropout|drop|pdrop)(_prob|_rate)?(_p)?
    |.*layerdrop|.*_eps|.*_epsilon|init(ializer)?_.*|.*_init.*|rope_.*|rotary_.*|partial_rotary_factor
    |.*_(coef|coefficient|alpha|beta|multiplier|multipliers|scaling|scaling_factor|act|activation)
    |.*_loss(_.*)?|output_.*|use_cache|use_return_dict|return_dict.*|architectures|auto_map|model_type
    |torch_dtype|dtype|transformers_version|torchscript|tokenizer_.*|problem_type|prefix|pruned_heads
    |id2label|label2id|num_labels|finetuning_task|task_specific_params|name_or_path|license|summary_.*
    |classifier_.*|pooler_.*|gradient_checkpointing|pretraining_tp|scale_.*|query_pre_attn_scalar
    |norm_topk_prob|topk_method|topk_group|n_group|num_expert_group|scoring_func|score_func.*|seq_aux
    |moe_(renormalize|router_.*|norm_min|use_aux_free|group|capacity.*|gate.*|softmax.*|latent_size_unused)
    |router_(aux_.*|jitter.*|bias_.*|z_.*|dtype|scaling.*)|input_jitter_noise|use_routing_bias|ep_size
    |ignore_index|no_rope_.*|nope_.*|time_step_(min|max|floor|limit|scale|init_scheme)|dt_(min|max).*
    |.*chunk_size|use_mamba_kernels|use_mambapy|use_associative_scan|residual_in_fp32|num_logits_to_keep
    |rescale_.*|clip_qkv|logit_scale|logits_soft_cap|attn_temperature_tuning|attn_scale|floor_scale
    |swiglu_limit|.*_softcapping|softcap|max_window_layers|hidden_act|hidden_activation|act_fn|activation
    |activation_function|quantization_config|compression_config|unsloth_.*|is_(decoder|encoder_decoder)
    |embedding_multiplier|dim_model_base|attn_implementation|attention_softmax_in_fp32|reorder_and_upcast_attn
    |original_max_position_embeddings|max_length|min_length|vision_feature_.*|image_.*|video_.*|audio_.*
    |.*_soft_tokens|mm_tokens_.*|use_flash_attn|fp32_.*|qk_head_dim|num_ln_in_parallel_attn|use_mem_.*
    |apply_residual_connection_post_layernorm|slow_but_exact|is_gated_act|dense_act_fn|feed_forward_proj
    |relative_attention_max_distance|normalize_.*|static_position_embeddings|extra_pos_embeddings
    |force_bos_.*|.*no_repeat_.*|num_beams|early_stopping|position_embedding_type|sinusoidal_pos_embds
    |moe_shared_expert_overlap|attention_value_scale|alibi.*|rope|moe_layer_type_unused|attention_(type|method)
    |global_rope_theta|local_rope_theta|global_attn_every_n_layers_unused|sparse_pred.*|deterministic_flash_attn
    |repad_logits_with_grad|reference_compile|sparse_prediction|mlp_hidden_act|mamba_hidden_act|hidden_mamba_act
    |mamba_ssm_cache_dtype|aux_loss.*|use_(mem_eff_path|cuda_kernels|kernels|legacy_cache)|legacy|loss_type
    |is_causal|causal|bos|eos|pad|weight_tying|init_method|sep_token|return_.*|gated_attention_unused
    |layernorm_full_attention_.*|linear_attn_.*_factor|full_attn_.*_factor|mlp_(alpha|beta)_factor
    |layernorm_(linear_attention|mlp)_.*|postnorm|shared_moe_mode|block_size|decoder_start.*|max_batch_size
    |anyres_.*|num_media_embeds|dense_list|.*_id|xdrope.*|use_rotary_pos_emb|use_mixed_mlp_moe|vit_.*|class_num
    |add_.*|group_limited_greedy|im_.*|skip_cls_token|cla_share_factor|moe_(drop|random)_.*|layer_switch
    |sliding_window_size|fused_add_norm|pad_vocab_size_multiple|ssm_cfg|ssm_dtype|gap_size|net_structure_type
    |position_embedding_xdrope|layers_to_keep|cache_.*|use_task_id|task_type_vocab_size|initial_context_length|max_model_len|offset_alibi|verbose
    |bias_dropout_fusion|masked_softmax_fusion|skip_bias_add_qkv|learned_pos_emb|org_vocab_size|pool_type
    |order_of_interleaved_layers|attn_rotary_emb|calc_logits_.*|enable_.*softmax|enable_moe_fp32_combine
    |freq_allocation|rope_is_neox_style|weight_share_add_bias|fuse_.*|tensor_parallel_.*|use_fused_.*
    |max_source_positions|max_target_positions|share_encoder_decoder_embeddings|decoder_vocab_size
    |mtp_.*|use_mtp|attention_layers|emb_pdrop|attn_impl|attn_uses_sequence_id|qk_ln|softmax_scale|attn_pdrop|moe_normalize_.*|ffn_act_fn)$""",
    re.VERBOSE,
)
"""Keys that change neither parameters nor work, or little of it."""
_ALLOWED: dict[str, tuple[Any, ...]] = {
    "attn_type": ("multihead_attention",),
    "layer_norm_elementwise_affine": (True,),
    "mlp_type": ("default",),
    "norm_type": ("layer_norm", "low_precision_layernorm", "rms", "hf_rms", "rmsnorm"),
    "normalization_function": ("rmsnorm",),
    "embedding_fraction": (1.0,),
    "down_scale_factor": (1,),
    "norm_before_gate": (True,),
    "rms_norm": (True,),
    "normalize_embedding": (True,),
    "compression_ratio": (1.0,),
    "full_attn_mod": (1,),
    "interpolate_factor": (1,),
    "mamba_inner_layernorms": (True,),
    "skip_bias_add": (True,),
    "use_rmsnorm": (True,),
    "use_gated_activation": (True,),
    "use_parallel_block": (True,),
    "use_parallel_embedding": (True,),
    "use_embedding_sharing": (True,),
    "num_hidden_groups": (1,),
    "inner_group_num": (1,),
}
"""Keys that state what the architecture has anyway, with the values that say so."""
_LARGEST_RATIO = 1000
_HARMLESS: tuple[Any, ...] = (None, False, 0, "", [], {})
"""Values with which a key states that something is absent."""


@cache
def architectures() -> dict[str, dict[str, Any]]:
    """What no config says of an architecture, by `model_type`: `architectures.yaml`, resolved."""
    entries = read_mapping(Path(__file__).parent / "architectures.yaml")
    resolved: dict[str, dict[str, Any]] = {}
    first = next(iter(entries))
    for name, entry in entries.items():
        base = resolved[entry.get("like", first)] if resolved else {}
        resolved[name] = {**base, **{key: value for key, value in entry.items() if key != "like"}}
    return resolved


class HubConfig:
    """A config.json, or one of the configs in it, and the facts of its architecture.

    `where` names the file, and the key of an inner config, for errors.
    """

    def __init__(self, content: Mapping[str, Any], where: str):
        self.where = where
        model_type = content.get("model_type")
        if f"{model_type}_text" in architectures():
            model_type = f"{model_type}_text"  # the text model of what has towers
        if not isinstance(model_type, str) or model_type not in architectures():
            raise UserError(
                f"{where}: model_type={quoted(model_type)}: unknown architecture {quoted(shown(model_type))};"
                " state the model in a file of its own (docs/models.md lists the keys)"
            )
        self.model_type = model_type
        self.facts = architectures()[model_type]
        self._content = self._named(content)
        self._understood: set[str] = set()

    def _named(self, content: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
        """Each value with the file's own key, by the name of its quantity; inner configs of layers too."""
        named: dict[str, tuple[str, Any]] = {}
        for inner in ("attn_config", "ffn_config", "linear_attn_config"):
            if isinstance(content.get(inner), Mapping):
                names = _OF_LINEAR if inner == "linear_attn_config" else {}
                of_layers = {names.get(key, key): value for key, value in content[inner].items()}
                content = {**of_layers, **{key: value for key, value in content.items() if key != inner}}
        for key, value in content.items():
            name = self.facts["keys"].get(key) or _CANONICAL.get(key, key)
            if name not in named or named[name][1] is None or key == name:
                named[name] = key, value
        for name, value in self.facts["defaults"].items():
            if name not in named or (named[name][1] is None and value is not None):
                named[name] = name, value
        return named

    def has(self, name: str) -> bool:
        """Whether the config states a quantity, as something other than nothing."""
        return self._content.get(name, ("", None))[1] is not None

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a quantity; None counts as absent."""
        self._understood.add(name)
        _, value = self._content.get(name, ("", None))
        return default if value is None else value

    def count(self, name: str, default: int | None = None, most: int = 10**9) -> int:
        """A whole number up to `most`. A list of equal numbers, one a layer, counts as that number. Raises
        UserError, naming the key, for anything else, and for a number that the config must state.
        """
        value = self.value(name, default)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            if value is None:
                raise UserError(f"{self.where}: key '{name}' is missing; add it")
            self.refuse(name, f"must be a whole number from 0 to {most:,}")
        return int(value)

    def period(self, name: str, default: int | None = None, largest: int = 10**9) -> int:
        """A whole number from 1, as a width, or the distance from one layer of a kind to the next."""
        value = self.count(name, default, largest)
        if value < 1:
            self.refuse(name, "must be a whole number from 1")
        return value

    def ratio(self, name: str, default: float) -> float:
        """A number above 0, as a width over another one."""
        value = self.value(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LARGEST_RATIO:
            self.refuse(name, f"must be a number above 0 and at most {_LARGEST_RATIO}")
        return float(value)

    def text(self, name: str) -> str:
        """A text. UserError, naming the key, for anything else."""
        value = self.value(name, "")
        if not isinstance(value, str):
            self.refuse(name, "must be text")
        return str(value)

    def items(self, name: str) -> list[Any]:
        """A list, empty where the config states none. UserError, naming the key, for anything else."""
        value = self.value(name, [])
        if not isinstance(value, list):
            self.refuse(name, "must be a list")
        return list(value)

    def places(self, name: str, layers: int, start: int = 0) -> set[int]:
        """The layers of a list of their numbers, of which the lowest is `start`, counted from 0. UserError,
        naming the key, for anything else.
        """
        numbers = self.items(name)
        if any(type(number) is not int or not start <= number < start + layers for number in numbers):
            self.refuse(name, f"must be a list of layers' numbers, from {start} to {start + layers - 1}")
        return {number - start for number in numbers}

    def layer_count(self, default: int | None = None) -> int:
        """The number of layers, each of which is then listed."""
        count = self.count("num_hidden_layers", default, MOST_LAYERS)
        if count < 1:
            self.refuse("num_hidden_layers", "leaves no layer; state at least 1")
        return count

    def flag(self, name: str, default: bool) -> bool:
        """Whether a key says true. UserError, naming it, for text and lists, whose truth is not that of what
        they say.
        """
        value = self.value(name, default)
        if isinstance(value, str | list | Mapping):
            self.refuse(name, "must be true or false")
        return bool(value)

    def is_true(self, fact: str) -> bool:
        """A fact of the architecture that is true, false, or said by a key of the config."""
        says = self.facts[fact]
        if not isinstance(says, str):
            return bool(says)
        negated = says.startswith("not ")
        name = says.removeprefix("not ")
        return self.flag(_CANONICAL.get(name, name), False) != negated

    def refuse(self, name: str, problem: str) -> None:
        """UserError that names file, key, value and remedy."""
        key, value = self._content.get(name, (name, None))
        raise UserError(f"{self.where}: {key}={quoted(value)}: {problem}")

    def inner(self, name: str) -> Mapping[str, Any] | None:
        """The content of an inner config; None without one."""
        value = self.value(name)
        return value if isinstance(value, Mapping) else None

    def check_understood(self) -> None:
        """UserError for the first key that was not understood and may change the work."""
        for name, (key, value) in self._content.items():
            if name in self._understood or name in self.facts["defaults"] or _NEUTRAL.match(name):
                continue
            if (
                value in _ALLOWED.get(key, ())
                or _NEUTRAL.match(key)
                or any(value is item or value == item for item in _HARMLESS)
            ):
                continue
            self.refuse(
                name,
                "is not understood, and may change the work; remove it if it does not, or state the model in "
                "a file of its own (docs/models.md lists the keys)",
            )
