"""One iteration as a graph of tasks, shown as a Chrome trace or a web page; one layer as a list of kernels.

| name | what |
|---|---|
| `iteration_graph` | every task of one iteration of a plan, on the streams of its stages |
| `write_chrome_trace` | the graph as a trace for chrome://tracing and Perfetto |
| `write_timeline_page` | the timeline as a web page |
| `layer_kernels`, `LayerKernel` | the kernels of one layer: shape, seconds, rate, the limit that binds |

Why
- The task graph runs every pass one by one, so it is an independent twin of the formulas. Tests compare both.
"""

from .iteration import iteration_graph, write_chrome_trace
from .layer_kernels import LayerKernel, layer_kernels
from .page import write_timeline_page

__all__ = ["LayerKernel", "iteration_graph", "layer_kernels", "write_chrome_trace", "write_timeline_page"]
