"""What records say about a run: metrics, GPU time, allocations, the story of a job.

| name | what |
|---|---|
| `Allocation` | The GPUs that one event gave a job, until `to_s` |
| `allocations` | All allocations of a run, in the order in which they began |
| `end_of_run_s` | When the run ended |
| `gpu_blocks` | The GPUs of its nodes that each allocation occupies, for drawings |
| `CATEGORIES` | The categories and their names |
| `GpuTime` | GPU-seconds by category |
| `gpu_time` | The split of one run |
| `Explanation` | The record of a job, and its waits and spells in order of time |
| `Spell` | A time with GPUs |
| `Wait` | A time without GPUs |
| `explain` | The story of `job_id` |
| `METRICS` | The names of all metrics, in the order of a summary |
| `Usage` | Snapshots as arrays |
| `summarise` | All metrics of one run, by name, in the order of `METRICS` |
| `window_metrics` | The metrics of the steady state |
| `Difference` | A metric under a variant against a baseline, over pairs of runs with one seed each |
| `LEAST_PAIRS` | Fewer pairs get no interval |
| `holm` | p values adjusted for their number, in the same order |
| `paired_difference` | Compare `variant` with `baseline` |
"""

from .allocations import Allocation, allocations, end_of_run_s, gpu_blocks
from .gpu_time import CATEGORIES, GpuTime, gpu_time
from .job_story import Explanation, Spell, Wait, explain
from .metrics import METRICS, Usage, summarise, window_metrics
from .statistics import LEAST_PAIRS, Difference, holm, paired_difference

__all__ = [
    "CATEGORIES",
    "LEAST_PAIRS",
    "METRICS",
    "Allocation",
    "Difference",
    "Explanation",
    "GpuTime",
    "Spell",
    "Usage",
    "Wait",
    "allocations",
    "end_of_run_s",
    "explain",
    "gpu_blocks",
    "gpu_time",
    "holm",
    "paired_difference",
    "summarise",
    "window_metrics",
]
