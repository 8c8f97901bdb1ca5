"""What a backward pass computes again: by one word, or module by module.

The names of modules are those of Megatron Core (`recompute_modules`). Beneath `core_attn`, `layernorm` and
`moe_act` no matrix is multiplied; `mlp` is the MLP of layers without experts, `moe` router, experts, their
dispatch and what every token passes beside them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from itertime.spec.model import ModelSpec

RECOMPUTE = ("none", "selective", "full", "early-stop", "elementwise")
"""The words for everything that a backward pass may repeat; `PlanBatch.recompute` has their indices."""
MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts", "op")
"""The modules that a list may name; `op` is torchtitan's selective checkpointing of operators."""


def op_shares(model: ModelSpec) -> tuple[float, ...]:
    """The share of each matrix of a layer that `op` multiplies again: queries, keys and values as one,
    projection, MLP. torchtitan keeps what products give, except every second one (`_apply_op_sac`,
    `mm_count`): of queries, keys, values, projection, gate, up and down it repeats keys, projection and up.
    """
    keys = model.kv_hidden / (model.q_hidden + 2 * model.kv_hidden)
    return (keys, 1.0, 0.0, 1.0, 0.0)


def recompute_words(text: str) -> tuple[str, ...]:
    """The names in a text like "layernorm,moe_act" or "layernorm+moe_act"."""
    return tuple(word.strip() for word in re.split("[,+]", text))


def in_order(text: str) -> str:
    """A list of modules, each once in the order of `MODULES`; any other text as it is.

    >>> in_order("moe_act + layernorm")
    'layernorm,moe_act'
    """
    if text in RECOMPUTE:
        return text
    words = recompute_words(text)
    if not set(words) <= set(MODULES):
        return text
    return ",".join(module for module in MODULES if module in words)


def recompute_code(text: str) -> int:
    """The number of a value of `Plan.recompute`: an index of `RECOMPUTE`; for modules larger ones, in which
    each has a bit.

    >>> recompute_code("full"), recompute_code("core_attn"), recompute_text(recompute_code("moe,mlp"))
    (2, 6, 'mlp,moe')
    """
    if text in RECOMPUTE:
        return RECOMPUTE.index(text)
    return len(RECOMPUTE) + sum(1 << MODULES.index(word) for word in set(recompute_words(text)))


def recompute_text(code: int) -> str:
    """The value of `Plan.recompute` that has this number."""
    return RECOMPUTE[code] if code < len(RECOMPUTE) else ",".join(modules_of(code))


def modules_of(code: int) -> tuple[str, ...]:
    """The modules of a number of `recompute_code`, none of a word's."""
    if code < len(RECOMPUTE):
        return ()
    bits = code - len(RECOMPUTE)
    return tuple(module for place, module in enumerate(MODULES) if bits >> place & 1)


def outer_modules(code: int) -> tuple[str, ...]:
    """`modules_of` without those inside another one of them.

    >>> outer_modules(recompute_code("layernorm,moe,moe_act"))
    ('layernorm', 'moe')
    """
    modules = modules_of(code)
    if "op" in modules:
        return ("op",)
    inside = ("moe_act", "shared_experts") if "moe" in modules else ()
    return tuple(module for module in modules if module not in inside)


def recompute_problem(text: object) -> str:
    """Why a value of `recompute` is none; "" if it is one."""
    if isinstance(text, str) and (text in RECOMPUTE or set(recompute_words(text)) <= set(MODULES)):
        return ""
    unknown = [word for word in recompute_words(str(text)) if word not in MODULES]
    if len(unknown) < len(recompute_words(str(text))):
        return f"{unknown[0]!r} is no module; a list has modules among {', '.join(MODULES)}"
    return f"must be {', '.join(RECOMPUTE[:-1])} or {RECOMPUTE[-1]}, or modules like layernorm,moe_act"


def absent_modules(model: ModelSpec, modules: Sequence[str]) -> list[str]:
    """Of the modules those that the model does not have, each with what it needs."""
    if not modules:
        return []
    forms = model.forms
    needs = {
        "mla_up_proj": ("a model with latent_kv", any(form.latent_kv for form in forms)),
        "mlp": ("layers without experts", any(form.experts == 1 for form in forms)),
        "moe": ("a model with experts", any(form.experts > 1 for form in forms)),
        "moe_act": ("a model with experts", any(form.experts > 1 for form in forms)),
        "shared_experts": ("a model with shared_ffn_hidden", any(form.shared_ffn_hidden for form in forms)),
        "op": ("layers of plain attention, by a flash kernel, and a gated MLP", all(map(_is_plain, forms))),
    }
    return [
        f"{module} needs {needs[module][0]}" for module in modules if module in needs and not needs[module][1]
    ]


def _is_plain(form: ModelSpec) -> bool:
    """Whether a layer has the products that `op_shares` counts."""
    plain = form.attends and form.mlp and form.gated_mlp and form.experts == 1 and form.attention != "core"
    return plain and not (form.latent_kv or form.lora_rank or form.output_gate or form.cross_attention)
