"""Time of a pipeline of stages over micro-batches.

| name | what |
|---|---|
| `InterleavedPasses` | Seconds of one micro-batch under the interleaved schedule of equal chunks |
| `last_stage_decides` | Where 1F1B takes exactly m max S + sum S - max S, S = forward + backward |
| `gpipe_s` | Seconds of a GPipe schedule (Huang et al |
| `interleaved_s` | Seconds of the interleaved 1F1B schedule (Narayanan et al., SC'21, section 2.2.2) |
| `one_f_one_b_s` | Seconds from the first forward to the last backward of a 1F1B (PipeDream-flush) pipeline |

Why
- Closed forms are used only where they are proved. m max(S) + sum(S) - max(S) is not exact for 1F1B in
  general: random search finds counterexamples even with the slowest stage last.
- They make the whole space searchable: stepping through the 20,000 interleaved plans of a 39B model took
  8 s, the closed form takes milliseconds.
"""

from .closed_forms import InterleavedPasses, last_stage_decides
from .pipeline import gpipe_s, interleaved_s, one_f_one_b_s

__all__ = ["InterleavedPasses", "gpipe_s", "interleaved_s", "last_stage_decides", "one_f_one_b_s"]
