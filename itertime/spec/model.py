"""The model to train: the shape of a transformer, its parameters and its arithmetic.

`user_models.py` reads published shapes from the files that state them. `shape/` has the keys, and what
follows from them for one layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from pydantic import ValidationError, model_validator
from pydantic.dataclasses import dataclass

from itertime.errors import UnknownName, UserError, quoted
from itertime.io import CONFIG

from .flops import ForwardFlops, Reach
from .layers import kinds_in_order, recurrence_flops
from .lengths import Lengths, load_lengths
from .shape import LayerShape, TowerKeys


class TowerStack(NamedTuple):
    """Layers of a tower that attend to the same number of patches: a model of them, and the sequences of that
    length in one sequence of the model.
    """

    name: str
    model: ModelSpec
    sequences: float

    @property
    def forward_flops(self) -> float:
        """FLOPs of a forward pass of all of them in one sequence of the model."""
        passed = self.model.forward_flops()
        return self.sequences * self.model.seq_len * (passed.layers + passed.scores)


OF_KIND = "(kind)"
"""In `frozen` of a form: the other words say whether its layers are frozen, and all before them."""


@dataclass(frozen=True, config=CONFIG)
class ModelSpec(LayerShape):
    """One transformer, as trained: a stack of layers between an embedding and a vocabulary projection.

    The fields state the architecture as published. `spec/fidelity.py` says which of it a prediction leaves
    out. Mixtures: Shazeer et al. 2017, with balanced load. Compressed keys and values: DeepSeek-V2 (2024),
    section 2.1. Raises UserError, naming the field, for an impossible shape.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _in_our_words(cls, value: Any, handler: Any) -> Any:
        """An error of the constructor is a UserError; `construct` words those of a file."""
        try:
            return handler(value)
        except ValidationError as error:
            if isinstance(value, dict):
                raise
            problem, names = error.errors(include_url=False)[0], list(cls.__dataclass_fields__)
            place = problem["loc"][0] if problem["loc"] else ""
            field = names[place] if isinstance(place, int) else place
            raise UserError(
                f"model: {field}={quoted(problem.get('input'))}: {problem['msg'].lower()}"
            ) from None

    def __post_init__(self) -> None:
        if self.hidden % self.heads and not self.head_dim:
            self._refuse("heads", f"must divide hidden={self.hidden}, unless head_dim is given")
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        object.__setattr__(self, "ffn_hidden", self.ffn_hidden or 4 * self.hidden)
        if self.heads % self.kv_heads:
            self._refuse("kv_heads", f"must divide heads={self.heads}")
        if self.experts_per_token > self.experts:
            self._refuse("experts_per_token", f"must be at most experts={self.experts}")
        self._check_layers()
        self._check_stack()
        self._check_towers()
        self._check_frozen()
        if any(form.layer_parameters < 1 for form in self.forms):
            self._refuse("layer_extra_parameters", "leaves a layer without parameters; take off fewer")
        if self.embedding_parameters + self.head_parameters + self.extra_parameters < 1:
            self._refuse("extra_parameters", "leaves nothing beside the layers; take off fewer")

    def _check_layers(self) -> None:
        """Keys that mean something only beside others."""
        for name in ("latent_q", "rope_head_dim", "value_head_dim"):
            if getattr(self, name) and not self.latent_kv:
                self._refuse(name, "needs latent_kv; leave it out of a model without compressed keys")
        for name in ("shared_ffn_hidden", "dense_layers"):
            if getattr(self, name) and self.experts == 1:
                self._refuse(name, "needs experts; leave it out of a model that is no mixture")
        if self.load_imbalance != 1 and self.experts == 1:
            self._refuse("load_imbalance", "needs experts; leave it out of a model that is no mixture")
        if self.dense_layers >= self.layers:
            self._refuse("dense_layers", f"must be below layers={self.layers}")
        if bool(self.dense_layers) != bool(self.dense_ffn_hidden):
            self._refuse("dense_ffn_hidden", "goes with dense_layers; give both or none")
        states = ("state_heads", "state_head_dim", "state_groups", "state_size", "conv_width", "step_rank")
        for name in states:
            if getattr(self, name) and self.attends and not self.kinds:
                self._refuse(name, "needs a mixer with a state; leave it out of a model of attention alone")
        if self.mixer in ("mamba2", "delta", "mamba", "linear", "conv"):
            for name in states[:2] + states[3:4]:
                if not getattr(self, name):
                    self._refuse(name, f"must be stated for mixer={self.mixer}")
        if not self.attends and self.attention == "core":
            self._refuse("mixer", "needs a flash kernel for the layers with attention; set attention=flash")
        if not self.mlp and self.experts > 1:
            self._refuse("mlp", "must be true in a layer with experts")
        if not self.mlp and self.mixer == "none" and not self.kinds:
            self._refuse("mlp", "must be true beside mixer=none, or a layer has no work")
        if self.state_groups and self.state_heads % self.state_groups:
            self._refuse("state_groups", f"must divide state_heads={self.state_heads}")
        if bool(self.index_heads) != bool(self.index_keys) or bool(self.index_heads) != bool(
            self.index_head_dim
        ):
            self._refuse("index_heads", "goes with index_head_dim and index_keys; give all or none")
        if self.index_heads and (not self.latent_kv or self.window or self.encoder):
            self._refuse("index_heads", "is modelled with latent_kv alone; leave out window and encoder")
        if self.window and self.encoder:
            self._refuse("window", "is modelled for attention that reaches back alone, not for an encoder's")
        if self.full_attention_every and not self.window:
            self._refuse("full_attention_every", "needs window, the reach of the other layers")
        if self.full_attention_every == 1:
            self._refuse("full_attention_every", "leaves no layer with the window; leave out both")
        if self.mtp_layers and (self.lora_rank or self.frozen or self.encoder or self.shares_weights):
            self._refuse("mtp_layers", "is modelled for decoders whose weights are all trained; leave it out")
        if self.cross_attention and not self.attends:
            self._refuse("cross_attention", "needs mixer=attention; leave it out")
        if self.cross_attention and (self.attention == "core" or self.latent_kv):
            self._refuse("cross_attention", "is modelled with attention=flash, without latent_kv alone")
        if self.lora_rank and set(self.frozen) - {OF_KIND}:
            self._refuse("frozen", "goes without lora_rank, which freezes all weights; leave one of them out")
        if self.frozen_bits != 16 and not self.lora_rank:
            self._refuse(
                "frozen_bits", "needs lora_rank, beside whose matrices weights are frozen; leave it out"
            )
        if self.biases and self.qkv_biases:
            self._refuse("qkv_biases", "needs biases=false, which says that the other layers have none")

    def _check_stack(self) -> None:
        """A list of layers: every kind makes a model, and the list has as many entries as layers."""
        if bool(self.kinds) != bool(self.stack):
            self._refuse("stack", "goes with kinds; give both or none")
        has_sides = self.encoder_seq_len or any(dict(keys).get("cross_attention") for _, keys in self.kinds)
        has_sides = has_sides or self.cross_attention
        if has_sides and not (self.has_encoder or OF_KIND in self.frozen):
            field = "encoder_seq_len" if self.encoder_seq_len else "cross_attention"
            problem = "needs kinds of layers, one of them with encoder=true, in a model without"
            self._refuse(field, f"{problem}; leave it out")
        if has_sides and (self.lengths or self.mtp_layers):
            self._refuse("lengths" if self.lengths else "mtp_layers", "is not modelled beside an encoder")
        if not self.stack:
            return
        if self.dense_layers:
            self._refuse("dense_layers", "is for a model without stack; leave it out")
        names = tuple(name for name, _ in self.kinds)
        try:
            order = kinds_in_order(self.layers, names, self.stack)
        except ValueError as error:
            raise UserError(f"model {self.name}: stack: {error}") from None
        encoders = [name for name, keys in self.kinds if dict(keys).get("encoder")]
        of_encoder = [name in encoders for name in order]
        if self.has_encoder and of_encoder != sorted(of_encoder, reverse=True):
            self._refuse("stack", "has a layer of the encoder after one of the decoder; put it before all")
        for name in names:
            if name not in order:
                raise UserError(f"model {self.name}: kinds: {name} is in no entry of stack; leave it out")
        self.forms  # noqa: B018  - raises for a kind that makes no model

    def _check_towers(self) -> None:
        """Towers make models, their tokens fit into the sequence, projectors lead to the model's width."""
        if self.images != 1 and not self.towers:
            self._refuse("images", "needs towers; leave it out")
        for name, tower in self.towers:
            where = f"model {self.name}: towers.{name}"
            if name in ("layers", "embedding", "head", "projector", *dict(self.kinds)):
                raise UserError(f"{where}: is the name of another part, which `frozen` names; choose another")
            if (tower.merged_width, *tower.projector)[-1] != self.hidden:
                problem = f"must end with hidden={self.hidden}"
                raise UserError(f"{where}: projector={list(tower.projector)}: {problem}")
            if tower.patch_width * tower.hidden + tower.extra_parameters < 0:
                problem = "leaves nothing beside the layers; take off fewer"
                raise UserError(f"{where}: extra_parameters={tower.extra_parameters}: {problem}")
            if tower.projector_weights + tower.projector_extra_parameters < 0:
                problem = "leaves a projector without parameters; take off fewer"
                key = "projector_extra_parameters"
                raise UserError(f"{where}: {key}={tower.projector_extra_parameters}: {problem}")
            if tower.full_attention_every and not tower.window:
                problem = "needs window, the blocks of the other layers"
                raise UserError(f"{where}: full_attention_every={tower.full_attention_every}: {problem}")
            if tower.tokens % tower.merged or (tower.window and tower.tokens % tower.window):
                key = "merged" if tower.tokens % tower.merged else "window"
                problem = f"must divide tokens={tower.tokens}"
                raise UserError(f"{where}: {key}={getattr(tower, key)}: {problem}")
        image_tokens = self.images * sum(tower.image_tokens for _, tower in self.towers)
        if image_tokens > self.seq_len:
            problem = (
                f"become {image_tokens} tokens, more than seq_len={self.seq_len}; take fewer, or a longer one"
            )
            self._refuse("images", problem)
        if self.towers and self.lengths:
            self._refuse("lengths", "is not modelled with towers; leave it out")
        self.tower_stacks  # noqa: B018  - raises for a tower that makes no model

    def _check_frozen(self) -> None:
        """What is frozen has a name, and something is trained."""
        if OF_KIND in self.frozen:
            return
        of_towers = (*(name for name, _ in self.towers), "projector") if self.towers else ()
        names = ("layers", *(name for name, _ in self.kinds), "embedding", "head", *of_towers)
        for name in self.frozen:
            if name not in names:
                problem = UnknownName("part of the model", name, names)
                raise UserError(f"model {self.name}: frozen: {problem}")
        if self.frozen and self.tied_embeddings and self.trains_embedding != self.trains_head:
            self._refuse("frozen", "embedding and head have the same table; name both or none, or untie them")
        if self.frozen and not self.trained_parameters:
            self._refuse("frozen", "leaves nothing to train; name fewer")

    def _refuse(self, field: str, problem: str) -> None:
        raise UserError(f"model {self.name}: {field}={quoted(getattr(self, field))}: {problem}")

    @property
    def forms(self) -> tuple[ModelSpec, ...]:
        """Models whose every layer is one of this model's, for each form that its layers have: one for each
        of the `kinds`, or the model itself and, of a mixture with `dense_layers`, the form of these.
        """
        if self.stack:
            return _forms_of_kinds(self)
        return (self, self.dense_form()) if self.dense_layers else (self,)

    @cached_property
    def tower_stacks(self) -> tuple[TowerStack, ...]:
        """The layers of all towers: of one with windows those that they limit, then the others."""
        return tuple(stack for name, tower in self.towers for stack in _stacks_of_tower(self, name, tower))

    @cached_property
    def passes_back(self) -> bool:
        """Whether a backward pass goes through a layer: it is trained, or something before it is."""
        return self.trains_towers or super().passes_back

    def trains_tower(self, name: str) -> bool:
        """Whether a tower has gradients."""
        return not (self.lora_rank or name in self.frozen)

    @cached_property
    def trains_projector(self) -> bool:
        """Whether projectors of towers have gradients."""
        return any(tower.projector for _, tower in self.towers) and self.trains_tower("projector")

    @cached_property
    def trains_towers(self) -> bool:
        """Whether a tower or its projector has gradients."""
        return self.trains_projector or any(self.trains_tower(name) for name, _ in self.towers)

    def tower_parameters(self, trained: bool = False) -> int:
        """Parameters of all towers with their projectors; of those that are trained alone."""
        total = 0
        for name, tower in self.towers:
            if not trained or self.trains_tower(name):
                layer = next(stack.model for stack in self.tower_stacks if stack.name == name)
                patches = tower.patch_width * tower.hidden + tower.extra_parameters
                total += tower.layers * layer.layer_parameters + patches
            if tower.projector and (not trained or self.trains_projector):
                total += tower.projector_weights + tower.projector_extra_parameters
        return total

    @cached_property
    def has_encoder(self) -> bool:
        """Whether layers of an encoder stand before those of a decoder."""
        return not self.encoder and any(dict(keys).get("encoder") for _, keys in self.kinds)

    @cached_property
    def encoder_share(self) -> float:
        """Tokens of the encoder's sequence over those of the decoder's."""
        return (self.encoder_seq_len or self.seq_len) / self.seq_len

    @property
    def form_order(self) -> Sequence[int]:
        """Which of `forms` every layer has, from the first to the last."""
        if self.stack:
            return _form_order(self)
        return [1] * self.dense_layers + [0] * (self.layers - self.dense_layers)

    @property
    def first_form(self) -> int:
        """Which of `forms` the first layer has."""
        return self.form_order[0] if self.stack else int(self.dense_layers > 0)

    def has_equal_stages(self, pp: int, interleave: int) -> bool:
        """Whether stages of equally many layers between the first and the last have equally many of each
        form; where stages have several chunks, all chunks.
        """
        chunks = pp * interleave
        if self.layers % chunks:
            return False
        order, size = self.form_order, self.layers // chunks
        counts = [sorted(order[start : start + size]) for start in range(0, self.layers, size)]
        alike = counts if interleave > 1 else counts[1:-1]
        return all(count == alike[0] for count in alike)

    @property
    def form_layers(self) -> tuple[int, ...]:
        """Layers of each of `forms`."""
        if self.stack:
            return tuple(_form_order(self).count(form) for form in range(len(self.kinds)))
        later_layers = self.layers - self.dense_layers
        return (later_layers, self.dense_layers) if self.dense_layers else (later_layers,)

    @property
    def layer_kinds(self) -> tuple[ModelSpec, ...]:
        """The model itself, or its `forms` if it has a `stack`: what rules on a layer are asked of."""
        return self.forms if self.stack else (self,)

    @cached_property
    def shares_weights(self) -> bool:
        """Whether the layers of any form share one set of weights."""
        return self.shared_weights or any(form.shared_weights for form in self.layer_kinds)

    @cached_property
    def shares_all_weights(self) -> bool:
        """Whether the layers of each form share one set of weights."""
        return self.shared_weights and all(form.shared_weights for form in self.layer_kinds)

    @cached_property
    def is_mixture(self) -> bool:
        """Whether any layer has experts."""
        return self.divisible_experts > 1

    @cached_property
    def divisible_experts(self) -> int:
        """The largest number of ranks that can divide the experts of every layer that has any; 1 for none."""
        if not self.stack:
            return self.experts
        counts = {form.experts for form in self.forms} - {1}
        return math.gcd(*counts) if counts else 1

    def dense_form(self) -> ModelSpec:
        """A model whose every layer is one of this mixture's `dense_layers`: their MLP, no experts.

        Raises UserError for a model that has no such layers.
        """
        if not self.dense_layers:
            self._refuse("dense_layers", "must be at least 1 for a form of these layers")
        return _dense_form(self)

    @property
    def embedding_parameters(self) -> int:
        """Token embedding and learned positions; the projection onto the vocabulary is `head_parameters`."""
        entries = self.vocab + (self.seq_len if self.positions == "learned" else 0)
        widened = self.table_width * self.hidden if self.narrow_embedding else 0
        return entries * self.table_width + widened

    @property
    def head_parameters(self) -> int:
        """Final norm, an encoder's transform, and the projection unless it is tied to the token embedding."""
        norm = self.hidden * (2 if self.norm == "layernorm" else 1)
        width = self.table_width
        transform = self.head_transform + width * self.encoder
        return norm + transform + (0 if self.tied_embeddings else self.vocab * width)

    @cached_property
    def narrow_embedding(self) -> bool:
        """Whether tables have a width of their own."""
        return self.embedding_width not in (0, self.hidden)

    @cached_property
    def table_width(self) -> int:
        """Width of the token embedding and of the projection onto the vocabulary."""
        return self.embedding_width or self.hidden

    @property
    def head_transform(self) -> int:
        """Weights of the matrix ahead of the projection: an encoder's, or back to `embedding_width`."""
        return self.hidden * self.table_width if self.encoder or self.narrow_embedding else 0

    @property
    def parameters(self) -> int:
        """The number of all parameters, without low-rank ones.

        >>> from itertime import load_model
        >>> round(load_model("gpt3-175b").parameters / 1e9)
        175
        """
        layers = zip(self.form_layers, self.forms, strict=True)
        stack = sum((1 if form.shared_weights else count) * form.layer_parameters for count, form in layers)
        ends = self.embedding_parameters + self.head_parameters + self.extra_parameters
        return stack + ends + self.tower_parameters()

    @property
    def mtp_projection(self) -> int:
        """Weights of the projections of MTP heads, of the state and the next token's embedding to one width
        (DeepSeek-V3, 2024, section 2.2, equation 21).
        """
        return self.mtp_layers * 2 * self.hidden**2

    @property
    def mtp_parameters(self) -> int:
        """Parameters of MTP heads, which `parameters` leaves out: layers, projections, three norms each."""
        norms = 3 * self.hidden * (2 if self.norm == "layernorm" else 1)
        layer = self.forms[self.form_order[-1]].layer_parameters
        return self.mtp_layers * (layer + norms) + self.mtp_projection

    @property
    def trained_parameters(self) -> int:
        """The number of parameters that an iteration updates: all but those that are frozen, or the low-rank
        ones.
        """
        if not self.trains_part:
            return self.parameters
        layers = zip(self.form_layers, self.forms, strict=True)
        in_layers = sum((1 if form.shared_weights else count) * form.trained_layer for count, form in layers)
        embedding = self.embedding_parameters + self.extra_parameters
        of_embedding, of_head = self.trains_embedding * embedding, self.trains_head * self.head_parameters
        return in_layers + of_embedding + of_head + self.tower_parameters(trained=True)

    @property
    def trained_layer(self) -> int:
        """Parameters of one layer that are updated, low-rank ones or its own."""
        if self.lora_rank:
            return self.lora_parameters + self.experts * self.expert_lora_parameters
        return 0 if self.weights_frozen else self.layer_parameters

    @cached_property
    def trains_part(self) -> bool:
        """Whether some weights are frozen."""
        return self.lora_rank > 0 or bool(self.frozen)

    @cached_property
    def trains_embedding(self) -> bool:
        """Whether the token embedding has gradients, and with it what no key counts beside the layers."""
        return not (self.lora_rank or "embedding" in self.frozen)

    @cached_property
    def trains_head(self) -> bool:
        """Whether the final norm and the projection have gradients."""
        return not (self.lora_rank or "head" in self.frozen)

    @property
    def active_parameters(self) -> int:
        """The number of parameters that one token passes: all but the experts that the router leaves out.

        >>> from itertime import load_model
        >>> round(load_model("mixtral-8x7b").active_parameters / 1e9, 1)
        12.9
        """
        layers = zip(self.form_layers, self.forms, strict=True)
        idle = (
            count * (form.experts - form.experts_per_token) * form.expert_parameters for count, form in layers
        )
        return self.parameters - sum(idle)

    def sample_lengths(self) -> Lengths | None:
        """The lengths of the samples, of a file as it is now; None where each has `seq_len` tokens. Raises as
        `load_lengths` does.
        """
        return load_lengths(self.lengths, self.seq_len) if self.lengths else None

    def forward_flops(self, lengths: Lengths | None = None) -> ForwardFlops:
        """FLOPs of a token's forward pass, on average over samples of these lengths; by default each sample
        has `seq_len` tokens.
        """
        return self._full_sample_flops if lengths is None else self._forward_flops(lengths)

    @cached_property
    def _full_sample_flops(self) -> ForwardFlops:
        return self._forward_flops(None)

    def _forward_flops(self, lengths: Lengths | None) -> ForwardFlops:
        if self.mtp_layers:
            return self._flops_with_mtp(lengths)
        if self.stack:
            of_forms = [form.forward_flops(lengths) for form in self.forms]
            shares = [share for share, _, _ in self.flops_of_forms(lengths)]
            layers, _, scores, masked = (
                sum(share * flops for share, flops in zip(shares, column, strict=True))
                for column in zip(*of_forms, strict=True)
            )
            return ForwardFlops(layers, of_forms[self.form_order[-1]].head, scores, masked)
        reach = Reach.of(self.index_keys if self.is_sparse else self.window, self.seq_len, lengths)
        windowed_layers = self.layers if self.is_sparse else self.windowed_layers
        full_layers = self.layers - windowed_layers
        keys = full_layers * reach.sample + windowed_layers * reach.window
        if not self.encoder:
            kept_keys = full_layers * reach.causal + windowed_layers * reach.causal_window
        else:
            kept_keys = keys
        per_key = 2.0 * (self.query_width + self.v_hidden) * self.attends
        if self.cross_attention:
            return self._flops_with_cross_attention(lengths)
        head = self.vocab * self.table_width + self.head_transform
        dense = self.attention_matmul_parameters + self.mlp_weights(self.dense_ffn_hidden)
        layers = (self.layers - self.dense_layers) * self.layer_matmul_parameters + self.dense_layers * dense
        return ForwardFlops(
            layers=2.0 * (layers + self.narrow_embedding * self.hidden * self.table_width)
            + (0.0 if self.attends else self.layers * recurrence_flops(self)),
            head=2.0 * self.predicted_share * head,
            scores=per_key * kept_keys + self.layers * self.index_width * 2.0 * reach.causal,
            masked=per_key * (keys - kept_keys),
        )

    def _flops_with_cross_attention(self, lengths: Lengths | None) -> ForwardFlops:
        """`forward_flops` of layers that also attend to the encoder's output: every token to all of its
        tokens, of which each has keys and values.
        """
        self_attention = replace(self, cross_attention=False, encoder_seq_len=0).forward_flops(lengths)
        length, share = self.cross_len, self.cross_len / self.seq_len
        crossed = 2.0 * self.hidden * (self.q_hidden + self.v_hidden + 2 * self.kv_hidden * share)
        scores = 2.0 * (self.q_hidden + self.v_hidden) * length
        return self_attention._replace(
            layers=self_attention.layers + self.layers * crossed,
            scores=self_attention.scores + self.layers * scores,
        )

    def _flops_with_mtp(self, lengths: Lengths | None) -> ForwardFlops:
        """`forward_flops` with MTP heads: of each a layer as the last one, a projection, and the loss."""
        plain = replace(self, mtp_layers=0).forward_flops(lengths)
        last = replace(self.forms[self.form_order[-1]], mtp_layers=0, dense_layers=0, dense_ffn_hidden=0)
        of_layer, share = last.forward_flops(lengths), self.mtp_layers / self.layers
        return ForwardFlops(
            layers=plain.layers + share * of_layer.layers + 2.0 * self.mtp_projection,
            head=(1 + self.mtp_layers) * plain.head,
            scores=plain.scores + share * of_layer.scores,
            masked=plain.masked + share * of_layer.masked,
        )

    def flops_per_iteration(self, global_batch: int) -> float:
        """Model FLOPs of forward and backward over `global_batch` sequences, without recomputation.

        `spec/flops.py` says what counts. For multi-head attention, a 4h MLP and sequences that are not long
        this is 72 B s l h^2 (1 + s/6h + V/12lh) (Narayanan et al., SC'21, equation 3 and its appendix).
        Frozen weights count twice, not three times: they have no gradients.
        """
        return self.flops_of(float(global_batch) * self.seq_len)

    def flops_of(self, tokens: float, lengths: Lengths | None = None) -> float:
        """`flops_per_iteration` of so many tokens in samples of these lengths."""
        passed = self.forward_flops(lengths)
        scores = passed.counted_scores
        forward = passed.layers + scores + passed.head
        if self.towers:
            alone = replace(self, towers=(), images=1, frozen=self._frozen_without_towers)
            return alone.flops_of(tokens, lengths) + tokens * self.tower_flops
        if not self.trains_part:
            return 3.0 * tokens * forward
        if self.lora_rank:
            return tokens * (2.0 * forward + scores + 3.0 * self.adapter_flops)
        counted_share = scores / passed.scores if passed.scores else 0.0
        flops = (3.0 if self.trains_head else 2.0) * passed.head
        for share, of_form, form in self.flops_of_forms(lengths):
            back = int(form.passes_back)
            flops += share * of_form.layers * (1 + back + (not form.weights_frozen))
            flops += share * of_form.scores * counted_share * (1 + 2 * back)
        return tokens * flops

    def flops_of_forms(self, lengths: Lengths | None) -> list[tuple[float, ForwardFlops, ModelSpec]]:
        """The FLOPs of models of each kind of layer alone, with the share of the layers that are of the kind;
        without a list of kinds those of the model.
        """
        if not self.stack:
            return [(1.0, self.forward_flops(lengths), self)]
        layers = zip(self.form_layers, self.forms, strict=True)
        return [
            (count / self.layers * (form.seq_len / self.seq_len), form.forward_flops(lengths), form)
            for count, form in layers
        ]

    @property
    def _frozen_without_towers(self) -> tuple[str, ...]:
        """`frozen` of the same model without towers, whose layers pass back what they do beside them."""
        names = [name for name in self.frozen if name not in (*dict(self.towers), "projector")]
        if self.trains_towers:  # which the layers' gradients of inputs lead to
            names = [name for name in names if name != "embedding"]
        return (OF_KIND, *names) if names else ()

    @cached_property
    def tower_flops(self) -> float:
        """FLOPs of all passes of the towers, for each token of the model's sequence: of a frozen one those of
        its forward pass. The gradients of pixels are not computed.
        """
        flops = 0.0
        for name, tower in self.towers:
            trained, images = self.trains_tower(name), self.images
            passes = 3 if trained else 1
            stacks = [stack for stack in self.tower_stacks if stack.name == name]
            flops += passes * sum(stack.forward_flops for stack in stacks)
            flops += (1 + trained) * 2.0 * images * tower.tokens * tower.patch_width * tower.hidden
            passes = 1 + trained + self.trains_projector
            flops += passes * 2.0 * images * tower.image_tokens * tower.projector_weights
        return flops / self.seq_len

    @property
    def adapter_flops(self) -> float:
        """FLOPs of a token's forward pass in the low-rank matrices of all layers."""
        flops = 0.0
        for count, form in zip(self.form_layers, self.forms, strict=True):
            shapes = zip(form.lora_shapes, form.adapted_token_shares, strict=True)
            weights = self.lora_rank * sum(share * sum(shape) for shape, share in shapes)
            weights += form.experts_per_token * form.expert_lora_parameters
            flops += 2.0 * count * form.seq_len / self.seq_len * weights
        return flops

    def with_seq_len(self, seq_len: int | None) -> ModelSpec:
        """The same model on sequences of another length; None keeps the model's own."""
        return self if seq_len in (None, self.seq_len) else replace(self, seq_len=seq_len)


@lru_cache(maxsize=256)
def _forms_of_kinds(model: ModelSpec) -> tuple[ModelSpec, ...]:
    """A model for each of `kinds`. Raises UserError, naming the kind, if one makes no model."""
    forms = []
    for name, keys in model.kinds:
        try:
            frozen = _frozen_kind(model, name) if model.frozen or model.has_encoder else ()
            of_kind = {"frozen": frozen, "towers": (), "images": 1, **dict[str, Any](keys)}
            if of_kind.get("encoder") and not model.encoder:
                of_kind |= {"seq_len": model.encoder_seq_len or model.seq_len, "encoder_seq_len": 0}
            form = replace(
                model, name=f"{model.name}: kinds.{name}", kinds=(), stack=(), lengths="", **of_kind
            )
        except UserError as error:
            text = str(error).removeprefix("model: ")
            raise UserError(f"model {model.name}: kinds.{name}: {text}") from None
        forms.append(form)
    return tuple(forms)


@lru_cache(maxsize=256)
def _stacks_of_tower(model: ModelSpec, name: str, tower: TowerKeys) -> tuple[TowerStack, ...]:
    """The layers of one tower. Raises UserError, naming the tower, if they make no model."""
    keys = {field: getattr(tower, field) for field in _TOWER_FIELDS}
    frozen = (OF_KIND,) if model.trains_tower(name) else (OF_KIND, "layers", "embedding")
    full = tower.layers // tower.full_attention_every if tower.full_attention_every else 0
    lengths = {tower.window: tower.layers - full, tower.tokens: full} if tower.window else {}
    stacks = []
    for tokens, layers in (lengths or {tower.tokens: tower.layers}).items():
        if not layers:
            continue
        try:
            of_layers = ModelSpec(
                name=f"{model.name}: towers.{name}",
                layers=layers,
                seq_len=tokens,
                vocab=1,
                attention="flash",
                encoder=True,
                frozen=frozen,
                **keys,
            )
        except UserError as error:
            where = f"model {model.name}: towers.{name}: "
            text = str(error).removeprefix("model: ").removeprefix(where)
            raise UserError(f"{where}{text}") from None
        stacks.append(TowerStack(name, of_layers, model.images * tower.tokens / tokens))
    return tuple(stacks)


_TOWER_FIELDS = (
    *("hidden", "heads", "kv_heads", "head_dim", "ffn_hidden", "gated_mlp", "norm", "positions", "biases"),
    *("qk_norm", "dropout", "norms_per_layer", "layer_extra_parameters"),
)


def _frozen_kind(model: ModelSpec, name: str) -> tuple[str, ...]:
    """`frozen` of the form of a kind."""
    if not {"layers", name} & set(model.frozen):
        return (OF_KIND,)
    names = [kind for kind, _ in model.kinds]
    order = [names[form] for form in _form_order(model)]
    last_layer = len(order) - 1 - order[::-1].index(name)
    nothing_trained = "layers" in model.frozen or set(order[:last_layer]) <= set(model.frozen)
    nothing_trained = nothing_trained and not model.trains_embedding and not model.trains_towers
    return (OF_KIND, "layers", "embedding") if nothing_trained else (OF_KIND, "layers")


@lru_cache(maxsize=256)
def _form_order(model: ModelSpec) -> tuple[int, ...]:
    names = tuple(name for name, _ in model.kinds)
    return tuple(names.index(name) for name in kinds_in_order(model.layers, names, model.stack))


@lru_cache(maxsize=256)
def _dense_form(model: ModelSpec) -> ModelSpec:
    return replace(
        model,
        ffn_hidden=model.dense_ffn_hidden,
        dense_layers=0,
        dense_ffn_hidden=0,
        experts=1,
        experts_per_token=1,
        shared_ffn_hidden=0,
        load_imbalance=1.0,
    )
