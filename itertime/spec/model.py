"""The model to train: the shape of a transformer, its parameters and its arithmetic.

Published shapes are data files in `itertime/models/`, one YAML file each with its source. `load_model` reads
them by name, or a user's file of the same form by path.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import read_mapping

__all__ = ["ModelSpec", "list_models", "load_model"]

_FOLDER = Path(__file__).parents[1] / "models"
_CHOICES = {
    "attention": ("core", "flash", "flash1", "triton"),
    "norm": ("layernorm", "rmsnorm"),
    "positions": ("learned", "rotary", "none"),
}
_COUNTS = (
    *("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq_len"),
    *("experts", "experts_per_token", "vocab_multiple"),
)


@dataclass(frozen=True)
class ModelSpec:
    """One transformer, as trained: a stack of equal layers between an embedding and a vocabulary projection.

    `kv_heads` defaults to `heads` (multi-head attention), `ffn_hidden` to `4 * hidden`. `seq_len` is in
    tokens. `attention` is "core" (unfused QK^T, softmax, V), "flash" (FlashAttention-2), "flash1" (the
    first FlashAttention) or "triton" (llm-foundry's form of it). `fused_loss`: cross-entropy in one kernel
    that keeps no copy of the logits. `biases`: whether the linear layers have biases. The vocabulary is
    padded to a multiple of `vocab_multiple` on every tensor-parallel rank (1: no padding).

    With `experts` > 1 the MLP of every layer is that many experts of `ffn_hidden`, of which a router picks
    `experts_per_token` (Shazeer et al. 2017); the load is assumed to be balanced. An `encoder` attends in
    both directions, and transforms the tokens that it predicts, `predicted_share` of all (BERT: 0.15), before
    the vocabulary projection. All other models are causal. Raises UserError, naming the field, for an
    impossible shape.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq_len: int
    kv_heads: int = 0
    ffn_hidden: int = 0
    gated_mlp: bool = False
    attention: str = "core"
    norm: str = "layernorm"
    positions: str = "learned"
    tied_embeddings: bool = True
    biases: bool = True
    dropout: bool = True
    encoder: bool = False
    fused_loss: bool = False
    vocab_multiple: int = 128
    experts: int = 1
    experts_per_token: int = 1
    predicted_share: float = 1.0
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "ffn_hidden", self.ffn_hidden or 4 * self.hidden)
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 10**9:
                raise UserError(f"model {self.name}: {name}={value!r}: must be a whole number from 1 to 10^9")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UserError(
                    f"model {self.name}: {name}={getattr(self, name)!r}: must be {' or '.join(choices)}"
                )
        if self.hidden % self.heads:
            raise UserError(f"model {self.name}: heads={self.heads}: must divide hidden={self.hidden}")
        if self.heads % self.kv_heads:
            raise UserError(f"model {self.name}: kv_heads={self.kv_heads}: must divide heads={self.heads}")
        if self.experts_per_token > self.experts:
            problem = f"experts_per_token={self.experts_per_token}: must be at most experts={self.experts}"
            raise UserError(f"model {self.name}: {problem}")
        if not 0 < self.predicted_share <= 1:
            problem = f"predicted_share={self.predicted_share!r}: must be above 0 and at most 1"
            raise UserError(f"model {self.name}: {problem}")

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values): `kv_heads * head_dim`."""
        return self.kv_heads * self.head_dim

    @property
    def mlp_matmul_parameters(self) -> int:
        """Weights of one MLP, or of one expert."""
        return (3 if self.gated_mlp else 2) * self.hidden * self.ffn_hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of one MLP, or of one expert, with its biases."""
        biases = self.ffn_hidden * (2 if self.gated_mlp else 1) + self.hidden
        return self.mlp_matmul_parameters + (biases if self.biases else 0)

    @property
    def router_parameters(self) -> int:
        return self.hidden * self.experts if self.experts > 1 else 0

    @property
    def layer_matmul_parameters(self) -> int:
        """Weights of one layer that are multiplied with every token."""
        attention = 2 * self.hidden * (self.hidden + self.kv_hidden)
        return attention + self.router_parameters + self.experts_per_token * self.mlp_matmul_parameters

    @property
    def layer_parameters(self) -> int:
        attention = 2 * self.hidden * (self.hidden + self.kv_hidden)
        norms = 2 * self.hidden * (2 if self.norm == "layernorm" else 1)
        biases = 2 * self.hidden + 2 * self.kv_hidden if self.biases else 0
        return attention + norms + biases + self.router_parameters + self.experts * self.expert_parameters

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and learned positions; the projection onto the vocabulary is `head_parameters`."""
        return self.vocab * self.hidden + (self.seq_len * self.hidden if self.positions == "learned" else 0)

    @property
    def head_parameters(self) -> int:
        """Final norm, an encoder's transform, and the projection unless it is tied to the token embedding."""
        norm = self.hidden * (2 if self.norm == "layernorm" else 1)
        transform = self.hidden * (self.hidden + 1) if self.encoder else 0
        return norm + transform + (0 if self.tied_embeddings else self.vocab * self.hidden)

    @property
    def parameters(self) -> int:
        """The number of all trained parameters.

        >>> round(load_model("gpt3-175b").parameters / 1e9)
        175
        """
        return self.layers * self.layer_parameters + self.embedding_parameters + self.head_parameters

    def flops_per_iteration(self, global_batch: int) -> float:
        """Model FLOPs of forward and backward over `global_batch` sequences, without recomputation.

        Narayanan et al. (SC'21), equation 3 and its appendix: 72 B s l h^2 (1 + s/6h + V/12lh) for multi-head
        attention and a 4h MLP, written here for any shape. Attention counts all s^2 scores, masked or not, as
        is usual in MFU. Of the experts, only those that a token passes count.
        """
        tokens = float(global_batch) * self.seq_len
        scores = 4.0 * self.seq_len * self.hidden
        head = self.vocab * self.hidden + (self.hidden**2 if self.encoder else 0)
        forward = self.layers * (2.0 * self.layer_matmul_parameters + scores)
        forward += 2.0 * self.predicted_share * head
        return 3.0 * tokens * forward

    def with_seq_len(self, seq_len: int | None) -> ModelSpec:
        """The same model on sequences of another length; None keeps the model's own."""
        return self if seq_len in (None, self.seq_len) else replace(self, seq_len=seq_len)


def list_models() -> list[str]:
    """Names of the shapes that ship with the package, in alphabetical order."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


@cache
def load_model(name: str) -> ModelSpec:
    """The shipped model `name`, or the model in a YAML file if `name` is a path (it ends in .yaml or .yml).

    Raises UnknownName for a name that is not shipped, UserError for a file that is not a model.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
    elif name in list_models():
        path = _FOLDER / f"{name}.yaml"
    else:
        raise UnknownName("model", name, list_models())
    return model_from_mapping({"name": path.stem, **read_mapping(path)}, where=str(path))


def model_from_mapping(content: dict[str, Any], where: str) -> ModelSpec:
    """A ModelSpec from parsed YAML. Errors start with `where` and name the key."""
    known = {field.name: field for field in fields(ModelSpec)}
    for key in content:
        if key not in known:
            raise UserError(f"{where}: {UnknownName('key', str(key), known)}")
    for key in ("layers", "hidden", "heads", "vocab", "seq_len"):
        if key not in content:
            raise UserError(f"{where}: {key} is missing; add it")
    for key, value in content.items():
        types = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}
        wanted = types[str(known[key].type)]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted != (bool,)):
            raise UserError(f"{where}: {key}={value!r}: must be {known[key].type}")
    try:
        return ModelSpec(**content)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
