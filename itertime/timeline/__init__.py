"""One iteration as a graph of tasks, a Chrome trace and a web page.

| name | what |
|---|---|
| `iteration_graph` | Every task of one iteration of `plan`, one GPU a stage |
| `write_chrome_trace` | Writes `chrome_trace(graph)` as JSON, whole or not at all |
| `write_timeline_page` | Writes `timeline_page`, whole or not at all |

Why
- The task graph is an independent twin of the closed forms: both agree to 1e-9.
"""

from .iteration import iteration_graph, write_chrome_trace
from .page import write_timeline_page

__all__ = ["iteration_graph", "write_chrome_trace", "write_timeline_page"]
