"""The layers of a model in their order, where they are of several kinds.

| name | what |
|---|---|
| `Kinds`, `Stack` | the keys `kinds` and `stack` of a model file, as values that can be hashed |
| `LAYER_KEYS` | the keys of a model that a kind may state |
| `kinds_in_order`, `MOST_LAYERS` | the kind of every layer; layers that can be listed so |
| `MIXERS` | what can mix the tokens of a layer |
| `mixer_shapes`, `mixer_parameters` | matrices of a mixer that is no attention; its weights |
| `convolved_width`, `recurrence_flops` | channels of its convolution; FLOPs of its recurrence |

Why
- A kind is what a model would be whose every layer is of that kind. So costs, memory and parameters of a
  layer are computed for each kind by the code that computes those of a model of equal layers, and are summed
  by the number of layers.
"""

from .kinds import LAYER_KEYS, MOST_LAYERS, Kinds, Stack, kinds_in_order
from .mixers import MIXERS, convolved_width, mixer_parameters, mixer_shapes, recurrence_flops

__all__ = [
    "LAYER_KEYS",
    "MIXERS",
    "MOST_LAYERS",
    "Kinds",
    "Stack",
    "convolved_width",
    "kinds_in_order",
    "mixer_parameters",
    "mixer_shapes",
    "recurrence_flops",
]
