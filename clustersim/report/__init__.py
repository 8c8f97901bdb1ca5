"""The report: one HTML page about a run, or a comparison of runs.

| name | what |
|---|---|
| `comparison_table` | The headline for a terminal |
| `render_report` | Return the page for `runs` as HTML, with differences to policy `baseline` (default |
| `group_runs` | The runs by policy, in order of appearance |
| `named` | The runs by policy, labelled, in the order of all tables |
| `Clock` | From the first submission of any run to the last event of any run |
| `sizes_given` | Where policies allocate other numbers of GPUs than requested |

Why
- The split of GPU time is decided when the run ends, not in the report. `plans.csv` keeps the parts of each
  plan, and only if they add up to the speed that the engine used. A report made later, by another version,
  cannot attach other numbers to an old run.
- Jobs, allocations and plotly are gzip in base64: 10,000 jobs under four policies take 4 MB instead of 12.
  Letters and digits are no markup, so no name in them can be. Plotly comes from its package.
- The content security policy names the hashes of the page's scripts. Nothing else may run or be fetched.
- The timeline is a canvas: one SVG element per allocation stops at some thousand.
- The first seed is drawn, all seeds are tabulated: an average of timelines is no timeline.
"""

from .headline import comparison_table
from .page import render_report
from .runs import group_runs, named
from .time_axis import Clock
from .verdict import sizes_given

__all__ = ["Clock", "comparison_table", "group_runs", "named", "render_report", "sizes_given"]
