"""The key `towers` of a model file: stacks of layers that turn images into tokens of the model's sequence."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StrictBool, ValidationError
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, quoted
from itertime.io import CONFIG

_Count = Annotated[int, Field(strict=True, ge=1, le=10**9)]
_CountOrZero = Annotated[int, Field(strict=True, ge=0, le=10**9)]


@dataclass(frozen=True, config=CONFIG)
class TowerKeys:
    """A tower as published: patches of an image, layers that attend in both directions, a projector.

    Keys of the same names as a model's mean the same. `tokens`: patches of an image. `patch_width`: values of
    a patch, which a matrix brings to `hidden`. `window`: patches of the blocks within which a limited layer
    attends. `merged`: patches that become one token of the model; the projector reads them side by side, or
    their mean if they are `pooled`. `projector`: widths that its matrices have, one after the other, the last
    that of the model. `projectors`: how many such there are. Parameters that no other key counts stand as
    `layer_extra_parameters`, `extra_parameters` and, of projectors, `projector_extra_parameters`.
    """

    layers: _Count
    hidden: _Count
    heads: _Count
    tokens: _Count
    kv_heads: _CountOrZero = 0
    head_dim: _CountOrZero = 0
    ffn_hidden: _CountOrZero = 0
    gated_mlp: StrictBool = False
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    positions: Literal["rotary", "none"] = "none"
    biases: StrictBool = True
    qk_norm: StrictBool = False
    dropout: StrictBool = False
    norms_per_layer: _Count = 2
    window: _CountOrZero = 0
    full_attention_every: _CountOrZero = 0
    patch_width: _CountOrZero = 0
    merged: _Count = 1
    pooled: StrictBool = False
    projector: tuple[_Count, ...] = ()
    projectors: _Count = 1
    layer_extra_parameters: int = 0
    extra_parameters: int = 0
    projector_extra_parameters: int = 0

    @property
    def image_tokens(self) -> int:
        """Tokens of the model's sequence that an image becomes."""
        return self.tokens // self.merged

    @property
    def projector_shapes(self) -> tuple[tuple[int, int], ...]:
        """Widths, in and out, of the matrices of all projectors."""
        widths = (self.merged_width, *self.projector)
        return tuple(pairwise(widths)) * self.projectors

    @property
    def merged_width(self) -> int:
        """Width of the patches that become one token."""
        return self.hidden if self.pooled else self.merged * self.hidden

    @property
    def projector_weights(self) -> int:
        """Weights of these matrices."""
        return sum(narrow * wide for narrow, wide in self.projector_shapes)


def _as_pairs(value: Any) -> Any:
    """A mapping of towers, or pairs of names and keys, as pairs of names and `TowerKeys`."""
    problem = "must be a mapping of names to keys of a tower"
    if isinstance(value, Mapping):
        value = list(value.items())
    if not isinstance(value, list | tuple):
        raise ValueError(problem)
    pairs = []
    for item in value:
        if not isinstance(item, list | tuple) or len(item) != 2:
            raise ValueError(problem)
        name, keys = item
        if not isinstance(name, str) or not name:
            raise ValueError(problem)
        pairs.append((name, keys if isinstance(keys, TowerKeys) else _tower(name, keys)))
    return tuple(pairs)


def _tower(name: str, keys: Any) -> TowerKeys:
    if not isinstance(keys, Mapping):
        raise ValueError(f"{name}: must be a mapping of keys of a tower")
    fields = TowerKeys.__dataclass_fields__
    for key in keys:
        if key not in fields:
            raise ValueError(f"{name}: {UnknownName('key of a tower', str(key), tuple(fields))}")
    for key in ("layers", "hidden", "heads", "tokens"):
        if key not in keys:
            raise ValueError(f"{name}: key '{key}' is missing; add it")
    try:
        return TowerKeys(**dict(keys))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        raise ValueError(f"{name}.{field}={quoted(problem.get('input'))}: {problem['msg'].lower()}") from None


Towers = Annotated[tuple[tuple[str, TowerKeys], ...], BeforeValidator(_as_pairs)]
