"""Widths and parameters of one layer, as its keys state it."""

from __future__ import annotations

from functools import cached_property

from itertime.spec.layers import MIXERS, mixer_parameters, mixer_shapes

from .keys import ModelKeys

_CROSSED_KEYS = 3
"""Of `lora_shapes` of a layer that attends to an encoder's output: keys and values of that output."""


class LayerShape(ModelKeys):
    """A model's keys with what follows from them for one layer: of a mixture, one with experts."""

    @cached_property
    def head_width(self) -> int:
        """`head_dim`, or what `hidden` gives to each head."""
        return self.head_dim or self.hidden // self.heads

    @cached_property
    def q_hidden(self) -> int:
        """Width of the queries, all heads together."""
        return self.heads * self.head_width

    @cached_property
    def kv_hidden(self) -> int:
        """Width of the keys (and of the values), all heads together."""
        return self.kv_heads * self.head_width

    @cached_property
    def v_hidden(self) -> int:
        """Width of the attention's output, all heads together."""
        return self.heads * (self.value_head_dim or self.head_width)

    @cached_property
    def query_width(self) -> int:
        """Width of the queries, all heads together, with what rotary positions add (MLA)."""
        return self.q_hidden + self.heads * self.rope_head_dim

    @cached_property
    def key_width(self) -> int:
        """Width of the keys, all heads together, with what rotary positions add (MLA)."""
        return self.kv_hidden + self.kv_heads * self.rope_head_dim

    @property
    def attention_shape(self) -> tuple[int, ...]:
        """What the time of a layer's attention kernel depends on, beside what all layers share."""
        widths = self.head_width, self.rope_head_dim, self.value_head_dim, self.latent_kv
        states = self.state_heads, self.state_head_dim, self.state_groups, self.state_size, self.conv_width
        mixer = () if self.attends else (MIXERS.index(self.mixer), *states)
        indexer = (self.index_heads, self.index_head_dim, self.index_keys) if self.is_sparse else ()
        sides = self.window, self.windowed_layers, self.seq_len, self.encoder, self.cross_len
        return (self.heads, self.kv_heads, *widths, *sides, *mixer, *indexer)

    @property
    def latent_parameters(self) -> int:
        """Weights of one layer that compress queries, keys and values (MLA)."""
        if not self.latent_kv:
            return 0
        return self.hidden * (self.latent_q + self.latent_kv + self.rope_head_dim)

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention a window shorter than the sequence limits."""
        if not 0 < self.window < self.seq_len:
            return 0
        period = self.full_attention_every
        return self.layers - (self.layers // period if period else 0)

    @property
    def state_inner(self) -> int:
        """Width of a state's values, all heads together."""
        return self.state_heads * self.state_head_dim

    @property
    def state_keys(self) -> int:
        """Width of a state's keys, all groups together."""
        return self.state_groups * self.state_size

    @cached_property
    def is_sparse(self) -> bool:
        """Whether an indexer picks fewer keys than a sequence has; otherwise attention is full."""
        return 0 < self.index_keys < self.seq_len

    @property
    def state_shards(self) -> int:
        """Pieces of a mixer's state that tensor parallelism can divide: heads, or channels."""
        return self.state_inner if self.mixer in ("mamba", "conv") else self.state_heads

    @cached_property
    def attends(self) -> bool:
        """Whether a layer has attention."""
        return self.mixer == "attention"

    @cached_property
    def common_width(self) -> int:
        """Width of the MLP that every token passes; 0 for none."""
        if not self.mlp:
            return 0
        return self.shared_ffn_hidden if self.experts > 1 else self.ffn_hidden

    @cached_property
    def additions(self) -> int:
        """Additions to the residual stream in a layer: of what mixes tokens, and of the MLP."""
        return int(self.mixer != "none") + int(self.mlp) + int(self.cross_attention)

    @cached_property
    def cross_len(self) -> int:
        """Tokens of the encoder's output that a layer attends to; 0 for none."""
        return (self.encoder_seq_len or self.seq_len) if self.cross_attention else 0

    @property
    def _cross_parameters(self) -> int:
        """Weights of attention to the encoder's output: queries, keys, values, projection."""
        return self.cross_attention * 2 * self.hidden * (self.q_hidden + self.kv_hidden)

    @property
    def attention_matmul_parameters(self) -> int:
        """Weights of one layer's attention, or of the matrices of what mixes tokens in its place."""
        if not self.attends:
            return sum(narrow * wide for narrow, wide in mixer_shapes(self))
        beside = self.output_gate * self.hidden * self.v_hidden + self.is_sparse * self.index_parameters
        beside += self._cross_parameters
        if not self.latent_kv:
            return 2 * self.hidden * (self.q_hidden + self.kv_hidden) + beside
        reached = self.heads * (self.head_width + self.rope_head_dim)
        queries = self.latent_q * (self.hidden + reached) if self.latent_q else self.hidden * reached
        expanded = self.latent_kv * (self.q_hidden + self.v_hidden)
        keys_values = self.hidden * (self.latent_kv + self.rope_head_dim) + expanded
        return queries + keys_values + self.v_hidden * self.hidden + beside

    @property
    def index_width(self) -> int:
        """Width of an indexer's queries, all heads together; 0 where none runs."""
        return self.index_heads * self.index_head_dim if self.is_sparse else 0

    @property
    def index_parameters(self) -> int:
        """Weights of an indexer: queries from the compressed ones, one key, a weight of every head
        (DeepSeek-V3.2, 2025, section 2.1).
        """
        queries = (self.latent_q or self.hidden) * self.index_heads * self.index_head_dim
        return queries + self.hidden * (self.index_head_dim + self.index_heads)

    @property
    def mlp_matmul_parameters(self) -> int:
        """Weights of one MLP, or of one expert."""
        return self.mlp_weights(self.ffn_hidden) if self.mlp else 0

    @property
    def shared_matmul_parameters(self) -> int:
        """Weights of the MLP that every token passes beside its experts."""
        return self.mlp_weights(self.shared_ffn_hidden)

    @property
    def expert_parameters(self) -> int:
        """Parameters of one MLP, or of one expert, with its biases."""
        return self._mlp_parameters(self.ffn_hidden) if self.mlp else 0

    @property
    def router_parameters(self) -> int:
        return self.hidden * self.experts if self.experts > 1 else 0

    @property
    def layer_matmul_parameters(self) -> int:
        """Weights of one layer that are multiplied with every token."""
        mlps = self.experts_per_token * self.mlp_matmul_parameters + self.mlp_weights(self.shared_ffn_hidden)
        return self.attention_matmul_parameters + self.router_parameters + mlps

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer; in a mixture, of one with experts."""
        shared = self._mlp_parameters(self.shared_ffn_hidden) if self.shared_ffn_hidden else 0
        experts = self.router_parameters + self.experts * self.expert_parameters
        mixer = self._attention_parameters if self.attends else mixer_parameters(self)
        return mixer + self._norm_parameters + experts + shared + self.layer_extra_parameters

    @property
    def dense_layer_parameters(self) -> int:
        """Parameters of one of a mixture's `dense_layers`."""
        return (
            self._attention_parameters + self._norm_parameters + self._mlp_parameters(self.dense_ffn_hidden)
        )

    @property
    def _attention_parameters(self) -> int:
        biases = self.q_hidden + 2 * self.kv_hidden if self.biases or self.qkv_biases else 0
        biases += self.hidden if self.biases else 0
        biases *= 1 + self.cross_attention
        norms = 2 * self.head_width if self.qk_norm else self.latent_q + self.latent_kv
        idle = 0 if self.is_sparse else self.index_parameters
        return self.attention_matmul_parameters + idle + biases + norms

    @property
    def _norm_parameters(self) -> int:
        return self.norms_per_layer * self.hidden * (2 if self.norm == "layernorm" else 1)

    def mlp_weights(self, width: int) -> int:
        return (3 if self.gated_mlp else 2) * self.hidden * width

    def _mlp_parameters(self, width: int) -> int:
        biases = width * (2 if self.gated_mlp else 1) + self.hidden
        return self.mlp_weights(width) + (biases if self.biases else 0)

    @property
    def ends_in_product(self) -> bool:
        """Whether the MLP's output goes to the residual stream as its last product leaves it."""
        return self.mlp and self.experts == 1 and self.norms_per_layer <= 2

    @cached_property
    def weights_frozen(self) -> bool:
        """Whether the weights of a layer have no gradients: low-rank ones beside them have, or none."""
        return self.lora_rank > 0 or "layers" in self.frozen

    @cached_property
    def passes_back(self) -> bool:
        """Whether a backward pass goes through a layer: it is trained, or something before it is."""
        return self.lora_rank > 0 or not {"layers", "embedding"} <= set(self.frozen)

    @cached_property
    def lora_shapes(self) -> tuple[tuple[int, int], ...]:
        """Widths, in and out, of every matrix of a layer that has low-rank ones beside it, those of experts
        left out; queries, keys and values are one matrix, and so are an MLP's gate and first.
        """
        if not self.lora_rank:
            return ()
        shapes = self._adapted_mixer
        if self.lora_targets == "attention" or not self.common_width:
            return shapes
        return (*shapes, *self._adapted_mlp(self.common_width))

    @property
    def _adapted_mixer(self) -> tuple[tuple[int, int], ...]:
        """The matrices of what mixes tokens that have low-rank ones; compressed keys and values, all."""
        h = self.hidden
        if not self.attends:
            return mixer_shapes(self) if self.lora_targets == "linear" else ()
        projection = (self.v_hidden, h)
        if not self.latent_kv:
            crossed = (h, self.q_hidden), (h, 2 * self.kv_hidden), projection
            own_matrices = (h, self.q_hidden + 2 * self.kv_hidden), projection
            return (*own_matrices, *crossed) if self.cross_attention else own_matrices
        queries = ((h, self.latent_q), (self.latent_q, self.query_width))
        keys = (h, self.latent_kv + self.rope_head_dim), (self.latent_kv, self.q_hidden + self.v_hidden)
        return *(queries if self.latent_q else ((h, self.query_width),)), *keys, projection

    def _adapted_mlp(self, width: int) -> tuple[tuple[int, int], ...]:
        return (self.hidden, (2 if self.gated_mlp else 1) * width), (width, self.hidden)

    @property
    def adapted_token_shares(self) -> tuple[float, ...]:
        """For each of `lora_shapes` its tokens over those of the sequence: the encoder's, of which keys and
        values are computed.
        """
        shares = [1.0] * len(self.lora_shapes)
        if self.cross_attention and shares:
            shares[_CROSSED_KEYS] = self.cross_len / self.seq_len
        return tuple(shares)

    @cached_property
    def expert_lora_shapes(self) -> tuple[tuple[int, int], ...]:
        """The same of one expert, each of which has low-rank matrices of its own (PEFT's, beside every linear
        layer); none where attention alone has any.
        """
        adapted = self.lora_rank > 0 and self.lora_targets == "linear" and self.experts > 1
        return self._adapted_mlp(self.ffn_hidden) if adapted else ()

    @property
    def lora_parameters(self) -> int:
        """Trained parameters of one layer beside frozen weights (LoRA, Hu et al. 2021): A of r rows, B of r
        columns.

        >>> from itertime import load_model
        >>> 80 * load_model("llama2-70b-lora").lora_parameters
        44564480
        """
        return sum(self.lora_rank * (narrow + wide) for narrow, wide in self.lora_shapes)

    @property
    def expert_lora_parameters(self) -> int:
        """Those of one expert."""
        return sum(self.lora_rank * (narrow + wide) for narrow, wide in self.expert_lora_shapes)

    @property
    def frozen_bytes(self) -> float:
        """Bytes of one weight of a layer as it is kept: 2; in 4 bit with 0.127 bits of scales, of 8 bits for
        each 64 weights and of 32 for each 256 of these (QLoRA, Dettmers et al. 2023, section 3).
        """
        return 2.0 if self.frozen_bits == 16 else (4 + 8 / 64 + 32 / (64 * 256)) / 8
