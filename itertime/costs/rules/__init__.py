"""The rules by which an iteration is composed of the costs of its layers.

| name | what |
|---|---|
| `stage_costs` | seconds by part of every kind of stage, and of what happens once, by the plans' rules |

Why
- Rules differ in what they do with the same kernels: what repeats, what waits, what is sent and when. All of
  that is in a `StageCosts`, so schedules, task graph, search and memory need not know the rules.
- The rules of this package are `itertime/costs/stage.py`.
"""

from .composition import stage_costs

__all__ = ["stage_costs"]
