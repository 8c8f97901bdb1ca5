"""Vision towers beside a text model: parameters, counted from the tensors of Transformers' modules.

They are counted and not predicted. h: width of the tower, f: of its MLP, t: of the text model, p: of a patch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from itertime.errors import UserError, quoted


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
    merged = (tower.outer.get("spatial_merge_size") or 2) ** 2
    biased = 2 * t if tower.outer.get("multimodal_projector_bias") else 0
    projector = h + merged * h * h + h * t + t * t + biased
    return tower.pixels() * h + h + tower.count("num_hidden_layers") * layer + projector


def _merger(h: int, merged: int, out: int) -> int:
    return (merged * h) ** 2 + merged * h + merged * h * out + out


def _qwen2(tower: Tower) -> int:
    h = tower.count("embed_dim")
    f = int(h * tower.content.get("mlp_ratio", 4))
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
    deep = len(tower.content.get("deepstack_visual_indexes") or ())
    mergers = _merger(h, merged, out) + 2 * h + deep * (_merger(h, merged, out) + 2 * merged * h)
    return embedded + tower.count("depth") * _block(h, f) + mergers


def _llama4(tower: Tower) -> int:
    h, f = tower.count("hidden_size"), tower.count("intermediate_size")
    wide, out = tower.count("projector_input_dim"), tower.count("projector_output_dim")
    embedded = tower.pixels() * h + (tower.patches + 2) * h + 4 * h
    adapter = f * wide + wide * out + tower.count("vision_output_dim") * tower.text_width
    return embedded + tower.count("num_hidden_layers") * _block(h, f) + adapter


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


def tower_parameters(content: Mapping[str, Any], key: str, text_width: int, where: str) -> int:
    """Parameters of the tower that a config has at `key`, with what leads from it to a text model of this
    width. UserError, naming the key, for one that is not understood.
    """
    count = _TOWERS.get(str(content.get("model_type"))) if key == "vision_config" else None
    if count is None:
        raise UserError(
            f"{where}: {key}={quoted(content[key])}: this tower beside the text model is not understood; "
            "remove it to import the text model alone"
        )
    return count(Tower(content[key], f"{where}: {key}", text_width, content))
