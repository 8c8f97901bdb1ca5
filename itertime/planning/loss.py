"""The loss that a model of N parameters reaches on D tokens, by laws that were fitted to many trainings.

| law | form |
|---|---|
| `hoffmann` | E + A / N^alpha + B / D^beta |
| `besiroglu` | the same |
| `kaplan` | ((Nc / N)^(alpha_N / alpha_D) + Dc / D)^alpha_D, N without embeddings |

- `hoffmann`: Hoffmann et al., Training Compute-Optimal Large Language Models, 2022, approach 3, equation 10;
  some 400 models of up to 16B parameters on MassiveText.
- `besiroglu`: Besiroglu, Erdil, Barnett and You, Chinchilla Scaling: A replication attempt, 2024. The points
  are those of Hoffmann et al., read off a figure. Their own fit had stopped early, and its constants were
  rounded; only this one agrees with their two other approaches, 20 tokens a parameter.
- `kaplan`: Kaplan et al., Scaling Laws for Neural Language Models, 2020, equation 1.5 and Table 2; models of
  up to 1.5B parameters on WebText2.

A loss is in nats a token of the law's own text and vocabulary. So losses by one law can be compared with each
other, and not with those by `kaplan`, nor with the loss of a training on other text. All three hold for dense
transformers, trained once over their tokens with a schedule of that length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from itertime.spec import ModelSpec


@dataclass(frozen=True)
class ParametricLaw:
    """E + A / N^alpha + B / D^beta, N the parameters of a model with its embeddings."""

    source: str
    irreducible: float  # E
    of_parameters: float  # A
    parameter_exponent: float  # alpha
    of_tokens: float  # B
    token_exponent: float  # beta

    def nats(self, model: ModelSpec, tokens: float) -> float:
        """The loss of a model after so many tokens, nats a token."""
        size_loss = self.of_parameters / model.parameters**self.parameter_exponent
        return self.irreducible + size_loss + self.of_tokens / tokens**self.token_exponent

    def optimal_tokens_per_parameter(self, flops: float) -> float:
        """D / N of the least loss for so many FLOPs, 6 N D (Hoffmann et al. 2022, equation 4):
        N = G (C/6)^(beta / (alpha + beta)), D = (C/6)^(alpha / (alpha + beta)) / G, with
        G = (alpha A / (beta B))^(1 / (alpha + beta)).

        >>> [round(law.optimal_tokens_per_parameter(5.76e23)) for law in (HOFFMANN, BESIROGLU)]
        [93, 18]
        """
        alpha, beta = self.parameter_exponent, self.token_exponent
        ratio = alpha * self.of_parameters / (beta * self.of_tokens)
        scale = ratio ** (1 / (alpha + beta))
        return (flops / 6) ** ((alpha - beta) / (alpha + beta)) / scale**2


@dataclass(frozen=True)
class PowerLaw:
    """((Nc / N)^(alpha_N / alpha_D) + Dc / D)^alpha_D, N the parameters of a model without its embeddings."""

    source: str
    parameter_scale: float  # Nc
    parameter_exponent: float  # alpha_N
    token_scale: float  # Dc
    token_exponent: float  # alpha_D

    def nats(self, model: ModelSpec, tokens: float) -> float:
        """The loss of a model after so many tokens, nats a token."""
        tables = model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
        exponent = self.parameter_exponent / self.token_exponent
        of_size = (self.parameter_scale / (model.parameters - tables)) ** exponent
        return (of_size + self.token_scale / tokens) ** self.token_exponent


HOFFMANN = ParametricLaw("Hoffmann et al. 2022", 1.69, 406.4, 0.34, 410.7, 0.28)
BESIROGLU = ParametricLaw("Besiroglu et al. 2024", 1.8172, 482.01, 0.3478, 2085.43, 0.3658)
KAPLAN = PowerLaw("Kaplan et al. 2020", 6.4e13, 0.076, 1.8e13, 0.103)
PARAMETRIC_LAWS: Mapping[str, ParametricLaw] = {"hoffmann": HOFFMANN, "besiroglu": BESIROGLU}
"""The laws of the parametric form by name."""
LAWS: Mapping[str, ParametricLaw | PowerLaw] = {**PARAMETRIC_LAWS, "kaplan": KAPLAN}
"""All laws by name."""
