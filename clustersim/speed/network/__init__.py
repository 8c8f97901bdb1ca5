"""The effect of the network on the speeds of running jobs.

| name | what |
|---|---|
| `Network` | protocol: the speeds of placed jobs, which depend on their nodes and perhaps on other jobs |
| `network_for` | the network of a run, by the model that its cluster names |
"""

from .network import Network, network_for

__all__ = ["Network", "network_for"]
