"""The layers of a model in their order, where they are of several kinds.

| name | what |
|---|---|
| `Kinds`, `Stack` | the keys `kinds` and `stack` of a model file, as values that can be hashed |
| `LAYER_KEYS` | the keys of a model that a kind may state |
| `kinds_in_order` | the kind of every layer |

Why
- A kind is what a model would be whose every layer is of that kind. So costs, memory and parameters of a
  layer are computed for each kind by the code that computes those of a model of equal layers, and are summed
  by the number of layers.
"""

from .kinds import LAYER_KEYS, Kinds, Stack, kinds_in_order

__all__ = ["LAYER_KEYS", "Kinds", "Stack", "kinds_in_order"]
