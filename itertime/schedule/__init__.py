"""Time of a pipeline of stages over micro-batches.

| name | what |
|---|---|
| `pipeline_s`, `PipelineTime` | the time of a pipeline under any schedule: read this first |
| `least_pipeline_s` | what 1F1B takes at least |
| `StageTimes` | what it depends on: seconds of every kind of stage, of every chunk of a stage |
| `FIRST`, `HEAVY`, `LIGHT`, `LAST` | the kinds of stages, rows of what has one number per kind |
| `stage_kinds` | the kind of each stage of a plan, from the first to the last |
| `SPLIT_SCHEDULES`, `MOST_PASSES` | schedules that split backward passes; passes at most |
| `units_of`, `place_of`, `input_of` | of these: what a device runs, where, and after what |
| `kind_column` | the numbers of kinds as a column |
| `divided_s` | seconds of a pass that the chunks of a stage share |
| `before_layers_s` | seconds of a pass ahead of the layers of the first chunk |

Why
- Closed forms are used only where a proof covers them. m max(S) + sum(S) - max(S) is not exact for 1F1B in
  general: random search finds counterexamples even with the slowest stage last.
- Closed forms make the whole space searchable. Stepping through the 20,000 interleaved plans of a 39B model
  took 8 s; the proved form takes milliseconds, and few plans lie outside its conditions.
- Arrays are slow for a single pipeline, so it has a twin in plain Python. A test holds both together.
"""

from .pipeline import PipelineTime, least_pipeline_s, pipeline_s
from .stage_times import (
    FIRST,
    HEAVY,
    LAST,
    LIGHT,
    StageTimes,
    before_layers_s,
    divided_s,
    kind_column,
    stage_kinds,
)
from .zero_bubble import MOST_PASSES, SPLIT_SCHEDULES, input_of, place_of, units_of

__all__ = [
    "FIRST",
    "HEAVY",
    "LAST",
    "LIGHT",
    "MOST_PASSES",
    "SPLIT_SCHEDULES",
    "PipelineTime",
    "StageTimes",
    "before_layers_s",
    "divided_s",
    "input_of",
    "kind_column",
    "least_pipeline_s",
    "pipeline_s",
    "place_of",
    "stage_kinds",
    "units_of",
]
