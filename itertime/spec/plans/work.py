"""The work of an iteration: tokens, and floating-point operations with and without what is done again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, any_of
from itertime.cached import cached_property
from itertime.spec.flops import ForwardFlops
from itertime.spec.lengths import Lengths
from itertime.spec.model import ModelSpec

from .plan_batch import PlanBatch
from .recompute import RECOMPUTE, op_shares, outer_modules


@dataclass(frozen=True, repr=False)
class Work:
    """What one iteration of each plan does, (plans,) each. Padding counts in none of it.

    `lengths`: of the samples; None where each has the model's `seq_len` tokens.
    """

    model: ModelSpec
    plans: PlanBatch
    lengths: Lengths | None

    @cached_property
    def tokens(self) -> Array:
        """Tokens of all samples."""
        return np.asarray(self.plans.global_batch * self._sample_tokens)

    @cached_property
    def model_flops(self) -> Array:
        """FLOPs of a forward and a backward pass (`ModelSpec.flops_per_iteration`): those of MFU."""
        return np.asarray(self.plans.global_batch * self.model.flops_of(self._sample_tokens, self.lengths))

    @cached_property
    def hardware_flops(self) -> Array:
        """`model_flops` and those of the forward pass that a plan repeats: those of HFU (PaLM, Chowdhery et
        al. 2022, appendix B). What a flash kernel repeats within itself is not counted.
        """
        return self.model_flops + self._repeated(self._passed.counted_scores)

    @cached_property
    def least_flops(self) -> Array:
        """FLOPs that no kernel leaves out: as `hardware_flops`, without scores that a mask drops."""
        scores = self._passed.scores
        dropped = 3.0 * self.tokens * (self._passed.counted_scores - scores)
        return self.model_flops - dropped + self._repeated(scores)

    @property
    def _sample_tokens(self) -> float:
        """Tokens of a sample, on average."""
        return float(self.model.seq_len) if self.lengths is None else self.lengths.mean

    @cached_property
    def _passed(self) -> ForwardFlops:
        return self.model.forward_flops(self.lengths)

    def _repeated(self, scores: float) -> Array | float:
        """FLOPs that the backward pass repeats of a forward pass with `scores` FLOPs of attention a token."""
        model, plans = self.model, self.plans
        if not any_of(plans.recompute):
            return 0.0
        of_layers, scores = self._passed_back(scores)
        layers = of_layers + model.adapter_flops + scores
        by_choice = {"full": layers, "early-stop": layers}
        for count, form in zip(model.form_layers, model.layer_kinds, strict=False):
            if form.ends_in_product and form.passes_back and not model.dropout:  # whose mask is drawn last
                layers = count if model.stack else model.layers
                by_choice["early-stop"] -= 2.0 * layers * model.hidden * form.ffn_hidden
        if model.attention == "core":
            by_choice["selective"] = scores
        of_modules = {
            code: self._of_modules(outer_modules(code), scores) for code in plans.recomputed_modules
        }
        words = [np.asarray(by_choice.get(choice, 0.0)) for choice in RECOMPUTE]
        repeated = plans.by_recompute(words, {code: np.asarray(flops) for code, flops in of_modules.items()})
        if model.towers:
            repeated = repeated + plans.by_recompute(
                [np.asarray(self._of_towers(choice)) for choice in RECOMPUTE],
                {code: np.asarray(0.0) for code in plans.recomputed_modules},
            )
        return np.asarray(self.tokens * repeated * plans.repeated_share)

    def _of_towers(self, choice: str) -> float:
        """FLOPs for each token of the model in the layers of towers that a backward pass repeats."""
        if choice not in ("full", "early-stop"):
            return 0.0
        stacks = [stack for stack in self.model.tower_stacks if stack.model.passes_back]
        return sum(stack.forward_flops for stack in stacks) / self.model.seq_len

    def _passed_back(self, scores: float) -> tuple[float, float]:
        """FLOPs of a token's forward pass in the layers that a backward pass goes through, and of `scores` of
        attention those of these layers.
        """
        model, passed = self.model, self._passed
        if not model.frozen:
            return passed.layers, scores
        passed_forms = [
            (share, flops) for share, flops, form in model.flops_of_forms(self.lengths) if form.passes_back
        ]
        counted = scores / passed.scores if passed.scores else 0.0
        layers = sum(share * flops.layers for share, flops in passed_forms)
        return layers, counted * sum(share * flops.scores for share, flops in passed_forms)

    def _of_modules(self, modules: tuple[str, ...], scores: float) -> float:
        """FLOPs of a token in these modules of all layers; `scores` are those of core attention."""
        model = self.model
        repeated = scores if "core_attn" in modules and model.attention == "core" else 0.0
        for count, form in zip(model.form_layers, model.forms, strict=True):
            if not form.passes_back:
                continue
            repeated += 2.0 * count * sum(_weights(form, module) for module in modules)
        return repeated


def _weights(form: ModelSpec, module: str) -> int:
    """Weights of one layer's matrices in a module that a token passes."""
    if module == "mla_up_proj" and form.latent_kv:
        beside = form.latent_parameters + form.is_sparse * form.index_parameters
        return form.attention_matmul_parameters - beside - form.v_hidden * form.hidden
    if module == "op":
        widths = form.q_hidden + 2 * form.kv_hidden, form.v_hidden, *[form.ffn_hidden] * 3
        shares = zip(widths, op_shares(form), strict=True)
        return form.hidden * round(sum(width * share for width, share in shares))
    if module == "mlp" and form.experts == 1:
        return form.mlp_matmul_parameters
    if module == "shared_experts":
        return form.shared_matmul_parameters
    if module == "moe" and form.experts > 1:
        return form.layer_matmul_parameters - form.attention_matmul_parameters
    return 0
