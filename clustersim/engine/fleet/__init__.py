"""Fleets whose clusters are scheduled each by itself: jobs are sent to one of them when they arrive.

| name | what |
|---|---|
| `FleetSimulation` | one run over all clusters of a fleet, each with a policy of its own |
| `Routing` | by which rule jobs are sent to clusters, and which policies run there |
| `ROUTES` | the rules by name |

Why
- Each cluster is simulated as it would be alone: by a `Simulation` with its own nodes, jobs, policy and
  network. The clusters share the clock, the arrivals and the recorder. So every policy works on a fleet
  unchanged, and jobs bound to clusters run as in runs apart.
- The records are those of one cluster with all nodes. Metrics, reports and audits read them as ever.
- Outages are drawn once, for all nodes of the fleet, and handed to the cluster of each node.
"""

from .fleet_simulation import FleetSimulation
from .routing import ROUTES, Routing

__all__ = ["ROUTES", "FleetSimulation", "Routing"]
