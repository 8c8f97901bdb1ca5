"""Time of a pipeline of stages over micro-batches.

| name | what |
|---|---|
| `one_f_one_b_s` | 1F1B, step by step |
| `interleaved_s` | interleaved 1F1B, slot by slot |
| `gpipe_s` | GPipe, in closed form |
| `last_stage_decides` | whether the closed form of 1F1B is exact |
| `middle_stages_decide`, `middle_stages_s` | another one, of equal stages between shorter ends |
| `InterleavedPasses` | the closed form of interleaved 1F1B, and whether it is exact |

Why
- Closed forms are used only where a proof covers them. m max(S) + sum(S) - max(S) is not exact for 1F1B in
  general: random search finds counterexamples even with the slowest stage last.
- Closed forms make the whole space searchable. Stepping through the 20,000 interleaved plans of a 39B model
  took 8 s; the proved form takes milliseconds, and few plans lie outside its conditions.
- Arrays are slow for a single pipeline, so it has a twin in plain Python. A test holds both together.
"""

from .closed_forms import InterleavedPasses, last_stage_decides, middle_stages_decide, middle_stages_s
from .pipeline import gpipe_s, interleaved_s, one_f_one_b_s

__all__ = [
    "InterleavedPasses",
    "gpipe_s",
    "interleaved_s",
    "last_stage_decides",
    "middle_stages_decide",
    "middle_stages_s",
    "one_f_one_b_s",
]
