"""What the records of a run say: metrics, GPU time, allocations, the story of a job, statistics over seeds.

Everything here is computed from records alone, so an old run can be analysed again without simulating it.

| name | what |
|---|---|
| `summarise` | all metrics of a run, by name; docs/metrics.md has the formulas |
| `completion_times`, `deadlines` | those of them about times to completion, and about deadlines |
| `job_columns` | the records of jobs as columns |
| `METRICS` | the names of the metrics, in the order of a summary |
| `window_metrics` | the same metrics of the steady state: without filling and draining the cluster |
| `window_summary` | those of them that `summary.json` states of a window, with its limits |
| `with_window` | a run whose summary has the metrics of a window |
| `measured_jobs` | which jobs the window of a run covers |
| `paired_metrics` | averages of two runs over the jobs that both finished, as `PairedMetrics` |
| `OVER_FINISHED` | the metrics that are such averages |
| `check_window` | raises an error if no job is submitted in a window |
| `has_waited` | which jobs were without GPUs for more than a negligible time |
| `HARDLY_ANY` | where a smaller share of the jobs has waited, a run says little about scheduling |
| `says_little` | whether a run says little about scheduling, by waits and the distance to the best |
| `NEAR_BEST` | the distance from the best possible that leaves little to gain |
| `differs_from_stated` | whether jobs offer another load than their trace states |
| `LONG_TAIL` | the share of the makespan from which on a tail of few jobs deserves a note |
| `NEGLIGIBLE_WAIT` | the share of a job's run time alone that it may be without GPUs and not have waited |
| `Usage` | the snapshots of a run as arrays, with integrals and averages over time |
| `gpu_time` | where the GPU-seconds of a run went, as `GpuTime`: seconds in each of the `CATEGORIES` |
| `GpuTime` | GPU-seconds by category and by training plan; the categories sum to the total |
| `plan_keys` | the plan of each allocation |
| `CATEGORIES` | the categories and their display names: compute, bubble, communication, idle, ... |
| `allocations` | every `Allocation` of a run, in the order in which they began |
| `Allocation` | the GPUs that one event gave a job, and how long the job held them |
| `holdings` | the same allocations by column, as `Holdings`: for work on all of them at once |
| `gpu_blocks`, `blocks_of` | GPU numbers for each allocation, to draw it; for all allocations of a run |
| `end_of_run_s` | when a run ended |
| `by_pool`, `PoolUse` | what happened on the clusters of a fleet, by GPU type, and on spot nodes |
| `has_parts` | whether a run has such clusters or nodes |
| `explain` | the story of one job, as an `Explanation` |
| `Explanation` | the record of a job, and each `Wait` and `Spell` in order of time |
| `Wait` | a time without GPUs: how many were free, which jobs held the others, which were ahead |
| `Spell` | a time with GPUs: how it began and ended, and what it cost |
| `host_summary` | the cores and the host memory that jobs held |
| `energy_kwh` | the energy that all GPUs took |
| `service_summary` | what instances of inference services asked for and did not get |
| `service_levels` | the same by service, each a `ServiceLevel`, with the share of time with all demand met |
| `waits_by_group`, `GroupWaits` | the mean waits of groups of jobs, by the label of each job |
| `group_labels` | the labels of jobs by a field of theirs, or by size |
| `GROUPINGS`, `WHOLE` | what can group jobs; all of them together |
| `logged_waits_by_group` | the waits that a log states, by group |
| `size_label` | the group of a number of GPUs |
| `paired_difference` | compare two policies over seeds, as a `PairedDifference` |
| `PairedDifference` | mean difference of a metric with its confidence interval and p value |
| `LEAST_PAIRS` | the fewest pairs of runs that get an interval |
| `holm` | p values corrected for the number of comparisons |

GPUs are numbered for drawings alone (`gpu_blocks`). The engine counts the GPUs of a node, because no rule
depends on which of them a job holds.
"""

from .allocations import Allocation, Holdings, allocations, blocks_of, end_of_run_s, gpu_blocks, holdings
from .arrays import Usage, job_columns
from .demand import (
    HARDLY_ANY,
    LONG_TAIL,
    NEAR_BEST,
    NEGLIGIBLE_WAIT,
    differs_from_stated,
    has_waited,
    says_little,
)
from .gpu_time import CATEGORIES, GpuTime, gpu_time, plan_keys
from .groups import (
    GROUPINGS,
    WHOLE,
    GroupWaits,
    group_labels,
    logged_waits_by_group,
    size_label,
    waits_by_group,
)
from .job_story import Explanation, Spell, Wait, explain
from .metrics import METRICS, completion_times, deadlines, energy_kwh, host_summary, summarise
from .pools import PoolUse, by_pool, has_parts
from .services import ServiceLevel, service_levels, service_summary
from .statistics import LEAST_PAIRS, PairedDifference, holm, paired_difference
from .windows import (
    OVER_FINISHED,
    PairedMetrics,
    check_window,
    measured_jobs,
    paired_metrics,
    window_metrics,
    window_summary,
    with_window,
)

__all__ = [
    "CATEGORIES",
    "GROUPINGS",
    "HARDLY_ANY",
    "LEAST_PAIRS",
    "LONG_TAIL",
    "METRICS",
    "NEAR_BEST",
    "NEGLIGIBLE_WAIT",
    "OVER_FINISHED",
    "WHOLE",
    "Allocation",
    "Explanation",
    "GpuTime",
    "GroupWaits",
    "Holdings",
    "PairedDifference",
    "PairedMetrics",
    "PoolUse",
    "ServiceLevel",
    "Spell",
    "Usage",
    "Wait",
    "allocations",
    "blocks_of",
    "by_pool",
    "check_window",
    "completion_times",
    "deadlines",
    "differs_from_stated",
    "end_of_run_s",
    "energy_kwh",
    "explain",
    "gpu_blocks",
    "gpu_time",
    "group_labels",
    "has_parts",
    "has_waited",
    "holdings",
    "holm",
    "host_summary",
    "job_columns",
    "logged_waits_by_group",
    "measured_jobs",
    "paired_difference",
    "paired_metrics",
    "plan_keys",
    "says_little",
    "service_levels",
    "service_summary",
    "size_label",
    "summarise",
    "waits_by_group",
    "window_metrics",
    "window_summary",
    "with_window",
]
