"""A model of a Hugging Face config.json: its keys, exact parameters, and what no key describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from itertime.errors import UserError, printable, quoted
from itertime.spec.model import ModelSpec

from .config import HubConfig
from .encoder_decoder import decoder_of, is_encoder_decoder
from .ends import ends_of
from .layers import HubLayer, layers_of
from .towers import tower_of

_DEFAULTS = {
    name: getattr(field.default, "default", field.default)
    for name, field in ModelSpec.__dataclass_fields__.items()
}
_NO_TOWERS = (
    "quantization_config",
    "compression_config",
    "init_config",
    "attn_config",
    "ffn_config",
    "linear_attn_config",
    "generation_config",
)
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True)
class ImportedModel:
    """The keys of a model file, and the parameters that the tensors of the architecture have."""

    keys: dict[str, Any]
    parameters: int

    @property
    def text(self) -> str:
        """The model file, YAML."""
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in self.keys.items()}
        return yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=96)


def is_hub_config(content: Mapping[str, Any]) -> bool:
    """Whether a mapping is a config.json of Hugging Face, rather than a file of this program."""
    return "model_type" in content or "architectures" in content


def imported_model(content: Mapping[str, Any], path: str | Path) -> ImportedModel:
    """The model of a config.json, with the name of its folder. Raises UserError, naming file, key and value,
    for an architecture that is not known, and for a key that may change the work and is not understood.
    """
    path = Path(path)
    name = path.resolve().parent.name if path.stem == "config" else path.stem
    model = _model_with_towers(content, name or "config", str(path))
    classes = content.get("architectures") or []
    if not isinstance(classes, list):
        raise UserError(f"{path}: architectures={quoted(classes)}: must be a list of names, or be left out")
    about = content.get("_name_or_path") or ", ".join(map(str, classes))
    assumed = "seq_len and images are" if "towers" in model.keys else "seq_len is"
    source = f"config.json of {about or content.get('model_type')}, imported; {assumed} assumed"
    return replace(model, keys={"name": name or "config", **model.keys, "source": printable(source)})


def _model_with_towers(content: Mapping[str, Any], name: str, where: str) -> ImportedModel:
    """The text model of a config, with the towers beside it."""
    towers = [
        key
        for key, value in content.items()
        if key.endswith("_config") and key not in _NO_TOWERS and isinstance(value, Mapping) and value
    ]
    text_key = next((key for key in _TEXT if key in towers), None)
    if text_key is None and not towers:
        return _text_model(content, name, where)
    if text_key is None:  # the keys of the text model stand beside the tower
        inner = {key: value for key, value in content.items() if key not in towers}
    else:
        inner = dict(content[text_key])
        where = f"{where}: {text_key}"
        if "tie_word_embeddings" in content:
            inner["tie_word_embeddings"] = content["tie_word_embeddings"]
    model = _text_model(inner, name, where)
    towers = [key for key in towers if key != text_key]
    if not towers:
        return model
    (key,) = towers[:1] if len(towers) == 1 else [_single_tower(content, towers, where)]
    outer = where.removesuffix(f": {text_key}")
    tower, total = tower_of(content, key, model.keys["hidden"], outer)
    keys = {**model.keys, "towers": {key.removesuffix("_config"): tower}}
    lacking = total - _spec(keys, name, where).tower_parameters()
    if lacking:
        tower["extra_parameters"] = lacking
    return ImportedModel({key: keys[key] for key in _ordered(keys)}, model.parameters + total)


def _single_tower(content: Mapping[str, Any], towers: list[str], where: str) -> str:
    """UserError for the first of several towers that is none for images."""
    tower_of(content, next(key for key in towers if key != "vision_config"), 1, where)
    raise AssertionError("a tower that is none for images was read")


def _text_model(content: Mapping[str, Any], name: str, where: str) -> ImportedModel:
    config = HubConfig(content, where)
    if is_encoder_decoder(config):
        keys, layers, ends = decoder_of(config)
    else:
        layers = layers_of(config)
        keys, ends = ends_of(config)
    left_out = _left_out(config)
    config.check_understood()
    keys = {"layers": len(layers), **keys, **_stacked(layers)}
    keys |= {"attention": "flash", "dropout": _has_dropout(content)}
    if config.model_type == "albert":
        keys["shared_weights"] = True
    if left_out:
        keys["approximations"] = left_out
    return _counted(keys, layers, ends, name, where)


_DROPOUTS = (
    "resid_pdrop",
    "hidden_dropout",
    "hidden_dropout_prob",
    "dropout",
    "dropout_rate",
    "resid_dropout",
)


def _has_dropout(content: Mapping[str, Any]) -> bool:
    """Whether the model was trained with dropout of what goes to the residual stream."""
    return any(isinstance(content.get(key), int | float) and content[key] > 0 for key in _DROPOUTS)


def _left_out(config: HubConfig) -> tuple[str, ...]:
    """Sentences on what of a config no prediction charges, each naming its key."""
    sentences = []
    if config.has("num_mtp_layers") and config.count("num_mtp_layers"):
        sentences.append(
            f"Heads that predict further tokens (num_nextn_predict_layers={config.count('num_mtp_layers')}) "
            "are left out; the key mtp_layers states them."
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.value(key):
            sentences.append(f"The cap {key} is not charged.")
    if config.facts["encoder"] and config.has("local_attention"):
        sentences.append(
            f"Windows of {config.count('local_attention')} tokens are charged as full attention."
        )
    if config.has("relative_attention_num_buckets"):
        sentences.append("The relative positions that attention adds to its scores are not charged.")
    if config.facts["sinks"]:
        sentences.append("The learned sinks of the attention are not charged.")
    return tuple(sentences)


def _stacked(layers: list[HubLayer]) -> dict[str, Any]:
    """The layers as keys of a model: one kind, windows at an interval, first dense layers, or a list."""
    keys = [_without_window(layer.keys) for layer in layers]
    windows = [layer.keys.get("window", 0) for layer in layers]
    limited = [window for window in windows if window]
    even = _windows(windows) if limited else {}
    if even is None:
        keys, even = [layer.keys for layer in layers], {}
    distinct = [layer for index, layer in enumerate(keys) if layer not in keys[:index]]
    if len(distinct) == 1:
        return {"heads": 1, **distinct[0], **even}
    dense = next((index for index, layer in enumerate(keys) if layer != keys[0]), 0)
    if len(distinct) == 2 and _is_dense_form(*distinct) and all(layer == keys[-1] for layer in keys[dense:]):
        widths = {"dense_layers": dense, "dense_ffn_hidden": keys[0]["ffn_hidden"]}
        return {**keys[-1], **even, **widths}
    return {**_listed(keys, distinct), **even}


def _without_window(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if key != "window"}


def _windows(windows: list[int]) -> dict[str, int] | None:
    """`window` and `full_attention_every` of layers of which so many are limited; None if no interval gives
    that number.
    """
    limited, count = [window for window in windows if window], len(windows)
    if len(set(limited)) != 1:
        return None
    if len(limited) == count:
        return {"window": limited[0]}
    for every in range(2, count + 1):
        if count - count // every == len(limited):
            return {"window": limited[0], "full_attention_every": every}
    return None


def _is_dense_form(first: Mapping[str, Any], later: Mapping[str, Any]) -> bool:
    """Whether the first of two kinds of layers is the second with one MLP in place of its experts."""
    of_mlp = ("experts", "experts_per_token", "ffn_hidden", "shared_ffn_hidden")
    same = {**first, **{key: later.get(key) for key in of_mlp}} == {
        **later,
        **{key: later.get(key) for key in of_mlp},
    }
    return same and first.get("experts") == 1 and later.get("experts", 1) > 1


def _listed(keys: list[dict[str, Any]], distinct: list[dict[str, Any]]) -> dict[str, Any]:
    """`kinds` and `stack`, and as keys of the model what most kinds state."""
    common = {
        key: value for key, value in distinct[0].items() if all(kind.get(key) == value for kind in distinct)
    }
    base = {**common}
    for kind in distinct:
        for key in ("heads", "kv_heads", "head_dim"):
            if key in kind:
                base.setdefault(key, kind[key])
    base.setdefault("heads", 1)
    names = [_name(kind, distinct) for kind in distinct]
    kinds = {
        name: {key: value for key, value in kind.items() if base.get(key, _DEFAULTS[key]) != value}
        for name, kind in zip(names, distinct, strict=True)
    }
    order = [names[distinct.index(layer)] for layer in keys]
    return {**base, "kinds": kinds, "stack": _runs(order)}


def _name(kind: Mapping[str, Any], distinct: list[dict[str, Any]]) -> str:
    """A name for a kind that tells it from the others."""
    sides = [name for name, key in (("encoder", "encoder"), ("decoder", "cross_attention")) if kind.get(key)]
    if sides:
        return sides[0]
    mixer = kind.get("mixer", "attention")
    words = [mixer] if mixer != "none" else []
    if kind.get("experts", 1) > 1:
        words.append("experts")
    elif kind.get("mlp", True):
        words.append("mlp")
    if kind.get("window"):
        words.append("window")
    name = "-".join(words)
    same = [other for other in distinct if other is not kind and _words(other) == _words(kind)]
    return f"{name}-{distinct.index(dict(kind)) + 1}" if same else name


def _words(kind: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        kind.get("mixer", "attention"),
        kind.get("experts", 1) > 1,
        kind.get("mlp", True),
        bool(kind.get("window")),
    )


def _runs(order: list[str]) -> list[str]:
    """The order as entries of `stack`: the shortest period, equal neighbours together."""
    for period in range(1, len(order) + 1):
        if len(order) % period == 0 and order == order[:period] * (len(order) // period):
            break
    runs: list[list[Any]] = []
    for name in order[:period]:
        if runs and runs[-1][1] == name:
            runs[-1][0] += 1
        else:
            runs.append([1, name])
    return [name if count == 1 else f"{count} {name}" for count, name in runs]


def _counted(keys: dict[str, Any], layers: list[HubLayer], ends: int, name: str, where: str) -> ImportedModel:
    """The keys with those that make a model of them have exactly the parameters of the tensors."""
    spec = _spec(keys, name, where)
    by_form: dict[int, int] = {}
    for form, layer in zip(spec.form_order, layers, strict=True):
        if by_form.setdefault(form, layer.parameters) != layer.parameters:
            raise AssertionError("layers of one kind have different parameters")
    missing = {form: count - spec.forms[form].layer_parameters for form, count in by_form.items()}
    if spec.stack:
        kinds = {
            kind: {**values, "layer_extra_parameters": missing[form]} if missing[form] else dict(values)
            for form, (kind, values) in enumerate(keys["kinds"].items())
        }
        keys = {**keys, "kinds": kinds}
    elif any(missing.values()):
        keys = {**keys, "layer_extra_parameters": missing[0]}
    counted = layers[:1] if spec.shared_weights else layers
    total = ends + sum(layer.parameters for layer in counted)
    spec = _spec(keys, name, where)
    if total != spec.parameters:
        keys = {**keys, "extra_parameters": total - spec.parameters}
    return ImportedModel({key: keys[key] for key in _ordered(keys)}, total)


def _ordered(keys: Mapping[str, Any]) -> list[str]:
    """The keys in the order of a model's fields, without those that state the default."""
    fields = ModelSpec.__dataclass_fields__
    required = ("layers", "hidden", "heads", "vocab", "seq_len")
    return [key for key in fields if key in keys and (key in required or keys[key] != _DEFAULTS[key])]


def _spec(keys: Mapping[str, Any], name: str, where: str) -> ModelSpec:
    try:
        return ModelSpec(name=name, **keys)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
