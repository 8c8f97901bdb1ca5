"""Vision towers beside a text model: their keys, and parameters counted from the tensors of Transformers'
modules.

h: width of the tower, f: of its MLP, t: of the text model, p: of a patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from itertime.errors import UserError, quoted

Keys = dict[str, Any]


class Tower(NamedTuple):
    """A tower of a config: its content, where it stands, the width of the text model, and the outer keys."""

    content: Mapping[str, Any]
    where: str
    text_width: int
    outer: Mapping[str, Any]

    def count(self, *names: str, default: int | None = None) -> int:
        """The first of these keys, a whole number. UserError, naming the first key, without any."""
        for name in names:
            value = self.content.get(name)
            if isinstance(value, list) and value:
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**9:
                return value
            if value is not None:
                raise UserError(f"{self.where}: {name}={quoted(value)}: must be a whole number from 1")
        if default is None:
            raise UserError(f"{self.where}: key '{names[0]}' is missing; add it")
        return default

    def ratio(self, name: str, default: float, outer: bool = False) -> float:
        """A number of the tower or of the `outer` config. UserError, naming the key, for anything else."""
        value = (self.outer if outer else self.content).get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10**6:
            where = self.where.rpartition(": ")[0] if outer else self.where
            raise UserError(f"{where}: {name}={quoted(value)}: must be a number above 0, to 10^6")
        return value

    def length(self, name: str, default: int = 0) -> int:
        """Entries of a list. UserError, naming the key, for anything else."""
        value = self.content.get(name)
        if value is not None and not isinstance(value, list):
            raise UserError(f"{self.where}: {name}={quoted(value)}: must be a list of layers")
        return len(value) if value else default

    @property
    def patches(self) -> int:
        """Patches of an image."""
        return (self.count("image_size") // self.count("patch_size")) ** 2

    def pixels(self, frames: int = 1) -> int:
        """Values of a patch of so many frames."""
        return (
            self.count("num_channels", "in_channels", "in_chans", default=3)
            * frames
            * self.count("patch_size") ** 2
        )

    def tower_keys(self, **keys: Any) -> dict[str, Any]:
        """Keys of a tower, with those that most configs state in the same way where `keys` do not."""
        h = keys.get("hidden") or self.count("hidden_size")
        common_keys = {
            "layers": self.count("num_hidden_layers", "depth"),
            "hidden": h,
            "heads": self.count("num_attention_heads", "num_heads", default=16),
            "ffn_hidden": self.count("intermediate_size", default=4 * h),
            "patch_width": self.pixels(keys.pop("frames", 1)),
        }
        return {key: value for key, value in (common_keys | keys).items() if (key, value) not in _USUAL}


_USUAL = (("projectors", 1), ("projector_extra_parameters", 0), ("merged", 1))
ASSUMED_PATCHES = 1024
"""Of an image in towers that take images of any size: 448 x 448 in patches of 14 x 14."""


def _block(h: int, f: int) -> int:
    """Attention, MLP and two norms, all with biases."""
    return 4 * h * h + 4 * h + 2 * h * f + f + h + 4 * h


def _siglip(tower: Tower) -> int:
    h, f = tower.count("hidden_size"), tower.count("intermediate_size")
    layers = tower.count("num_hidden_layers") * _block(h, f)
    pooled = h + _block(h, f) - 2 * h if tower.content.get("vision_use_head", True) else 0
    return tower.pixels() * h + h + tower.patches * h + layers + 2 * h + pooled


def _gemma(tower: Tower) -> int:
    h = tower.count("hidden_size")
    return _siglip(tower) + h * tower.text_width + h


def _paligemma(tower: Tower) -> int:
    h = tower.count("hidden_size")
    return _siglip(tower) + h * tower.text_width + tower.text_width


def _llava(tower: Tower) -> int:
    h, f, t = tower.count("hidden_size"), tower.count("intermediate_size"), tower.text_width
    biased = 2 * t if tower.outer.get("multimodal_projector_bias", True) else 0
    projector = h * t + t * t + biased
    embedded = tower.pixels() * h + (tower.patches + 2) * h + 4 * h
    return embedded + tower.count("num_hidden_layers") * _block(h, f) + projector


def _pixtral(tower: Tower) -> int:
    h, f, t = tower.count("hidden_size"), tower.count("intermediate_size"), tower.text_width
    inner = tower.count("num_attention_heads") * tower.count(
        "head_dim", default=h // tower.count("num_attention_heads")
    )
    layer = 4 * h * inner + 3 * h * f + 2 * h
    merged = int(tower.ratio("spatial_merge_size", 2, outer=True)) ** 2
    biased = 2 * t if tower.outer.get("multimodal_projector_bias") else 0
    projector = h + merged * h * h + h * t + t * t + biased
    return tower.pixels() * h + h + tower.count("num_hidden_layers") * layer + projector


def _merger(h: int, merged: int, out: int) -> int:
    return (merged * h) ** 2 + merged * h + merged * h * out + out


def _qwen2(tower: Tower) -> int:
    h = tower.count("embed_dim")
    f = int(h * tower.ratio("mlp_ratio", 4))
    merged = tower.count("spatial_merge_size", default=2) ** 2
    frames = tower.count("temporal_patch_size", default=2)
    layers = tower.count("depth") * _block(h, f)
    return tower.pixels(frames) * h + layers + 2 * h + _merger(h, merged, tower.count("hidden_size"))


def _qwen2_5(tower: Tower) -> int:
    h, f = tower.count("hidden_size"), tower.count("intermediate_size")
    merged = tower.count("spatial_merge_size", default=2) ** 2
    frames = tower.count("temporal_patch_size", default=2)
    layer = 4 * h * h + 4 * h + 3 * h * f + 2 * f + h + 2 * h
    return (
        tower.pixels(frames) * h
        + tower.count("depth") * layer
        + h
        + _merger(h, merged, tower.count("out_hidden_size"))
    )


def _qwen3(tower: Tower) -> int:
    h, f, out = tower.count("hidden_size"), tower.count("intermediate_size"), tower.count("out_hidden_size")
    merged = tower.count("spatial_merge_size", default=2) ** 2
    frames = tower.count("temporal_patch_size", default=2)
    embedded = tower.pixels(frames) * h + h + tower.count("num_position_embeddings") * h
    deep = tower.length("deepstack_visual_indexes")
    mergers = _merger(h, merged, out) + 2 * h + deep * (_merger(h, merged, out) + 2 * merged * h)
    return embedded + tower.count("depth") * _block(h, f) + mergers


def _llama4(tower: Tower) -> int:
    h, f = tower.count("hidden_size"), tower.count("intermediate_size")
    wide, out = tower.count("projector_input_dim"), tower.count("projector_output_dim")
    embedded = tower.pixels() * h + (tower.patches + 2) * h + 4 * h
    adapter = f * wide + wide * out + tower.count("vision_output_dim") * tower.text_width
    return embedded + tower.count("num_hidden_layers") * _block(h, f) + adapter


def _gemma_keys(tower: Tower) -> Keys:
    pooled = max(tower.patches // int(tower.ratio("mm_tokens_per_image", 256, outer=True)), 1)
    return tower.tower_keys(
        tokens=tower.patches,
        merged=pooled,
        pooled=True,
        projector=[tower.text_width],
        projector_extra_parameters=tower.count("hidden_size"),
    )


def _paligemma_keys(tower: Tower) -> Keys:
    t = tower.text_width
    return tower.tower_keys(tokens=tower.patches, projector=[t], projector_extra_parameters=t)


def _llava_keys(tower: Tower) -> Keys:
    t = tower.text_width
    biased = 2 * t if tower.outer.get("multimodal_projector_bias", True) else 0
    return tower.tower_keys(tokens=tower.patches + 1, projector=[t, t], projector_extra_parameters=biased)


def _pixtral_keys(tower: Tower) -> Keys:
    h, t = tower.count("hidden_size"), tower.text_width
    biased = 2 * t if tower.outer.get("multimodal_projector_bias") else 0
    return tower.tower_keys(
        tokens=tower.patches,
        head_dim=tower.count("head_dim", default=h // tower.count("num_attention_heads", default=16)),
        merged=int(tower.ratio("spatial_merge_size", 2, outer=True)) ** 2,
        projector=[h, t, t],
        projector_extra_parameters=h + biased,
        **_LIKE_LLAMA,
        biases=False,
    )


_LIKE_LLAMA: dict[str, Any] = {"gated_mlp": True, "norm": "rmsnorm", "positions": "rotary"}


def _qwen_keys(tower: Tower) -> Keys:
    """Of Qwen2-VL and, with what it states beyond, of Qwen2.5-VL and Qwen3-VL."""
    h, merged = tower.count("embed_dim", "hidden_size"), tower.count("spatial_merge_size", default=2) ** 2
    out = tower.text_width
    deep = tower.length("deepstack_visual_indexes")
    keys: Keys = {"hidden": h, "frames": tower.count("temporal_patch_size", default=2), "positions": "rotary"}
    if "embed_dim" in tower.content:
        keys["ffn_hidden"] = int(h * tower.ratio("mlp_ratio", 4))
    if tower.outer["model_type"] == "qwen2_5_vl":
        window = tower.count("window_size", default=112) // tower.count("patch_size")
        full = tower.length("fullatt_block_indexes", 4)
        keys |= {**_LIKE_LLAMA, "window": window**2, "full_attention_every": tower.count("depth") // full}
    biased = (1 + deep) * (merged * h + out) + (1 + deep * merged) * 2 * h * bool(deep)
    return tower.tower_keys(
        tokens=ASSUMED_PATCHES,
        merged=merged,
        projector=[merged * h, out],
        projectors=1 + deep,
        projector_extra_parameters=biased,
        **keys,
    )


def _llama4_keys(tower: Tower) -> Keys:
    wide, out = tower.count("projector_input_dim"), tower.count("projector_output_dim")
    merged = round(1 / tower.ratio("pixel_shuffle_ratio", 0.5) ** 2)
    return tower.tower_keys(tokens=tower.patches, merged=merged, projector=[wide, out, tower.text_width])


_KEYS: dict[str, Callable[[Tower], Keys]] = {
    "gemma3": _gemma_keys,
    "paligemma": _paligemma_keys,
    "llava": _llava_keys,
    "mistral3": _pixtral_keys,
    "qwen2_vl": _qwen_keys,
    "qwen2_5_vl": _qwen_keys,
    "qwen3_vl": _qwen_keys,
    "qwen3_vl_moe": _qwen_keys,
    "llama4": _llama4_keys,
}
"""By the `model_type` of the outer config."""
_TOWERS: dict[str, Callable[[Tower], int]] = {
    "gemma3": _gemma,
    "paligemma": _paligemma,
    "llava": _llava,
    "mistral3": _pixtral,
    "qwen2_vl": _qwen2,
    "qwen2_5_vl": _qwen2_5,
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "llama4": _llama4,
}
"""By the `model_type` of the outer config."""


def tower_of(content: Mapping[str, Any], key: str, text_width: int, where: str) -> tuple[Keys, int]:
    """Keys of the tower that a config has at `key`, and its parameters with those that lead from it to a text
    model of this width. UserError, naming the key, for one that is not understood.
    """
    count = _TOWERS.get(str(content.get("model_type"))) if key == "vision_config" else None
    if count is None:
        raise UserError(
            f"{where}: {key}={quoted(content[key])}: this tower beside the text model is not understood; "
            "remove it to import the text model alone"
        )
    tower = Tower(content[key], f"{where}: {key}", text_width, content)
    return _KEYS[str(content.get("model_type"))](tower), count(tower)
