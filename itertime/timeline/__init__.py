"""One iteration as a graph of tasks, shown as a Chrome trace or a web page.

| name | what |
|---|---|
| `iteration_graph` | every task of one iteration of a plan, on the streams of its stages |
| `write_chrome_trace` | the graph as a trace for chrome://tracing and Perfetto |
| `write_timeline_page` | the timeline as a web page |

Why
- The task graph runs every pass one by one, so it is an independent twin of the formulas. Tests compare both.
"""

from .iteration import iteration_graph, write_chrome_trace
from .page import write_timeline_page

__all__ = ["iteration_graph", "write_chrome_trace", "write_timeline_page"]
