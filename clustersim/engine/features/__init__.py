"""What a simulation may have beside jobs, nodes and a policy, one module for each feature.

| name | what |
|---|---|
| `Feature` | protocol: what a feature is, and at which moments of a run it takes part |
| `features_of` | the features of a run: the only place that names all of them |
| `Disruptions` | nodes that fail or are closed, jobs that fail, checkpoints, shared storage |
| `NodeEvents` | the nodes of a cluster, or of a fleet, that go out of service and come back |

| feature | module |
|---|---|
| jobs in phases | `phases` |
| cores and memory of nodes | `host_demands` |
| jobs on a number of nodes | `node_shapes` |
| instances of services, ahead of all other jobs | `services` |
| failures, maintenance, reclaims, reservations, periodic checkpoints | `disruptions` |
| predicted run times | `predictions` |
| jobs that are held, cancelled, stopped or run more than once, as their trace says | `eligibility` |

`node_events`, `closures` and `checkpoint_loading` do the work of `disruptions`.

Why
- An instance of a service is a job whose time runs whether it has GPUs or not. A service whose need for GPUs
  follows a time series is a number of such instances (`traces.synthetic.services`), which come and go.
- The site serves instances before the policy decides, on GPUs that are then out of service for the policy. So
  every policy works beside services, as it does beside nodes under maintenance, and none has to know them.
"""

from .all_features import features_of
from .disruptions import Disruptions
from .feature import Feature
from .node_events import NodeEvents

__all__ = ["Disruptions", "Feature", "NodeEvents", "features_of"]
