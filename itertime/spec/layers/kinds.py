"""The keys `kinds` and `stack` of a model file: which kinds of layers there are, and their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from itertime.errors import UnknownName, quoted

LAYER_KEYS = (
    *("heads", "kv_heads", "head_dim", "qkv_biases", "qk_norm", "window"),
    *("latent_kv", "latent_q", "rope_head_dim", "value_head_dim"),
    *("ffn_hidden", "gated_mlp", "experts", "experts_per_token", "shared_ffn_hidden", "load_imbalance"),
    *("biases", "norms_per_layer", "parallel_block", "output_gate", "mlp", "layer_extra_parameters"),
    *("mixer", "state_heads", "state_head_dim", "state_groups", "state_size", "conv_width", "step_rank"),
    *("index_heads", "index_head_dim", "index_keys", "shared_weights"),
    *("encoder", "cross_attention"),
)
"""The keys of a model that describe one layer: those that a kind may state."""
_WHOLE_MLP = {"experts_per_token": 1, "shared_ffn_hidden": 0, "load_imbalance": 1.0}
"""Keys of a mixture that a kind without experts does not take from the model."""


def _as_pairs(value: Any) -> Any:
    """A mapping of kinds to mappings as pairs, in their order; other values as they are, for pydantic."""
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, list | tuple):
        raise ValueError("must be a mapping of names to keys of a layer")
    pairs = []
    for item in value:
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise ValueError("must be a mapping of names to keys of a layer")
        name, keys = item
        if not isinstance(name, str) or not name or " " in name or not name.isprintable():
            raise ValueError(f"{quoted(name)}: a name must be text without spaces")
        if not isinstance(keys, Mapping):
            try:
                keys = dict(keys or ())
            except (TypeError, ValueError):
                raise ValueError(f"{name}: must be a mapping of keys of a layer") from None
        pairs.append((name, _checked_keys(name, keys)))
    return tuple(pairs)


def _checked_keys(kind: str, keys: Mapping[Any, Any]) -> tuple[tuple[str, Any], ...]:
    """The keys of a kind in their order, with those that follow from the others."""
    for key, value in keys.items():
        if key not in LAYER_KEYS:
            raise ValueError(f"{kind}: {UnknownName('key of a layer', str(key), LAYER_KEYS)}")
        if not isinstance(value, int | float | str | bool):
            raise ValueError(f"{kind}.{key}={quoted(value)}: must be a single value")
    without_experts = _WHOLE_MLP if keys.get("experts") == 1 else {}
    limits = {"full_attention_every": 0} if "window" in keys else {}
    return tuple((without_experts | dict(keys) | limits).items())


Kinds = Annotated[
    tuple[tuple[str, tuple[tuple[str, int | float | str | bool], ...]], ...], BeforeValidator(_as_pairs)
]
Stack = tuple[str, ...]
MOST_LAYERS = 10_000
"""Layers of a model whose every layer is listed."""


def kinds_in_order(layers: int, names: tuple[str, ...], stack: Stack) -> tuple[str, ...]:
    """The kind of every layer, of entries `KIND` or `N KIND` that repeat until `layers` layers have one.

    >>> kinds_in_order(8, ("mamba", "full"), ("3 mamba", "full"))
    ('mamba', 'mamba', 'mamba', 'full', 'mamba', 'mamba', 'mamba', 'full')

    Raises ValueError for a name that is none of `names`, a number that is no count, and entries that do not
    sum to a divisor of `layers`.
    """
    if layers > MOST_LAYERS:
        raise ValueError(f"layers={layers}: at most {MOST_LAYERS:,} layers can be listed by kind")
    order: list[str] = []
    for entry in stack:
        count, _, name = entry.strip().rpartition(" ")
        if name not in names:
            raise ValueError(f"{quoted(entry)}: {UnknownName('kind', name, names)}")
        if count and not (count.isdecimal() and 1 <= int(count) <= layers):
            raise ValueError(f"{quoted(entry)}: a number of layers goes from 1 to layers={layers}")
        order += [name] * int(count or 1)
        if len(order) > layers:
            break
    if not order or len(order) > layers or layers % len(order):
        total = f"more than {layers}" if len(order) > layers else str(len(order))
        raise ValueError(f"its entries sum to {total} layers, which must be layers={layers} or divide it")
    return tuple(order * (layers // len(order)))
