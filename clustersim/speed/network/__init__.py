"""The effect of the network on the speeds of running jobs.

| name | what |
|---|---|
| `Network` | the speeds of placed jobs, which depend on their nodes and on other jobs' traffic |
"""

from .network import Network

__all__ = ["Network"]
