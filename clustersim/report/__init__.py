"""The report: one HTML page about a run, or about a comparison of runs.

| name | what |
|---|---|
| `render_report` | the page for some runs, as HTML |
| `Page` | a page that a notebook shows and `save` writes |
| `answer` | what the runs say, in a line |
| `comparison_table`, `short_table` | the headline table as text, for a terminal; its main columns |
| `load_differences` | the first sentences of all: that a trace does not offer the load that it states |
| `heads` | sentences above the numbers: the offered load, the planner |
| `notes` | sentences that a reader needs to judge the numbers: queueing, tail, identical schedules |
| `distances` | sentences on how far the runs are from the best possible |
| `sizes_given` | sentences on policies that allocate other numbers of GPUs than requested |
| `group_runs` | runs grouped by policy, in order of appearance |
| `named` | each run with its label, in the order of all tables |
| `paired` | a run beside its baseline, over the jobs that both finished |
| `same_jobs_finished` | whether all runs finished the same jobs |
| `TimeAxis` | the time axis that all charts of a page share |

Why
- The split of GPU time is decided when the run ends, not in the report. `plans.csv` keeps the parts of each
  plan, written by the planner that chose it, and only if they add up to the speed that the engine used. A
  report made later, by another version, cannot attach other numbers to an old run.
- The page is one file. Jobs and allocations are gzip in base64: 10,000 jobs under four policies take 2.4 MB
  instead of 6.1. Base64 contains no markup, so the name of a job cannot become any.
- The content security policy names the hash of the page's own script. Nothing else runs, and nothing is
  fetched.
- The timeline is a canvas, because one SVG element per allocation stops at some thousand. Rectangles smaller
  than a pixel are added up by area, so the picture is as full as the cluster was.
- The first seed is drawn and all seeds are tabulated: an average of timelines is no timeline. Intervals over
  seeds belong to grids.
"""

from .distance import distances
from .frame import Page
from .headline import comparison_table, short_table
from .page import render_report
from .runs import group_runs, named, paired, same_jobs_finished
from .sentences import answer, heads, load_differences, notes, sizes_given
from .time_axis import TimeAxis

__all__ = [
    "Page",
    "TimeAxis",
    "answer",
    "comparison_table",
    "distances",
    "group_runs",
    "heads",
    "load_differences",
    "named",
    "notes",
    "paired",
    "render_report",
    "same_jobs_finished",
    "short_table",
    "sizes_given",
]
