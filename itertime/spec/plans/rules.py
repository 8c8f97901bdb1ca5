"""Rules by which seconds of an iteration follow from costs of its layers, and the plans that they can say.

| name | rules |
|---|---|
| `itertime` | those of this package, docs/itertime.md |
| `vtrain` | those of vTrain's public artifact, which `itertime/costs/rules/vtrain.py` lists |

A plan carries the name of its rules (`Plan.rules`), so whatever predicts, keeps or shows a plan does so by
these rules. The rules of another simulator know fewer plans: all choices but those below must be as a plan
has them by default.
"""

from __future__ import annotations

from typing import Any

from itertime.spec.model import ModelSpec

RULES = ("itertime", "vtrain")
DEFAULT_RULES = RULES[0]
FREE = ("tp", "pp", "dp", "micro_batch", "global_batch", "recompute", "prefetch", "rules")
"""Fields of a plan that the rules of vTrain's artifact leave open; `prefetch` has no effect without ZeRO."""
REPEATS = ("none", "full")
"""What these rules know as recomputation."""


def refusals(plan: Any, model: ModelSpec) -> list[str]:
    """What the rules of a `Plan` cannot say of it and of its model, one sentence each."""
    if plan.rules == DEFAULT_RULES:
        return []
    end = f"is not known to rules={plan.rules}"
    features = {
        f"experts={model.experts}": model.experts > 1,
        f"lora_rank={model.lora_rank}": model.lora_rank > 0,
        "towers": bool(model.towers),
        f"frozen={','.join(model.frozen)}": bool(model.frozen),
        "layers of several kinds": len(model.forms) > 1 and model.experts == 1,
    }
    defaults = type(plan)(tp=1, pp=1, dp=1, micro_batch=1, global_batch=1)
    values = {name: getattr(plan, name) for name in vars(plan) if name not in FREE}
    return [
        *(
            f"{feature}: {end}; take rules={DEFAULT_RULES}"
            for feature, present in features.items()
            if present
        ),
        *(
            f"{_stated(name, value)}: {end}; leave it out, or take rules={DEFAULT_RULES}"
            for name, value in values.items()
            if value != getattr(defaults, name)
        ),
        *(
            [f"recompute={plan.recompute}: {end}; take {' or '.join(REPEATS)}, or rules={DEFAULT_RULES}"]
            if plan.recompute not in REPEATS
            else []
        ),
    ]


def _stated(name: str, value: object) -> str:
    return f"options={getattr(value, 'text', '')}" if name == "options" else f"{name}={value}"
