"""The effect of the network on the speeds of running jobs.

| name | what |
|---|---|
| `Network` | protocol: the speeds of placed jobs, which depend on their nodes and perhaps on other jobs |
| `NodeSizes` | the speeds on an ideal network, where nodes of one GPU type differ in size |
| `network_for` | the network of a run, by the model that its cluster names |
"""

from .network import Network, network_for
from .node_sizes import NodeSizes

__all__ = ["Network", "NodeSizes", "network_for"]
