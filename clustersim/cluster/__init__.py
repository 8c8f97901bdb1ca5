"""The machines: node groups, switches, and which GPUs are free.

| name | what |
|---|---|
| `Capacity` | Free GPUs by node |
| `CapacityIfStopped` | The GPUs that would be free if the jobs at some placements stopped |
| `FreeNodes` | The free GPUs of some nodes |
| `FreeNodesByLeaf` | The free GPUs of a cluster, or of its nodes of one type |
| `Cluster` | `nodes` equal nodes of `gpus_per_node` GPUs |
| `Placement` | Where a job runs |
| `cluster_of` | The cluster that `Cluster.document` describes, as it is stored in a manifest |
| `load_cluster` | A cluster by its shape (`n128g8`, nodes of `system`) or from a file (a path |
| `NodeSet` | The nodes whose bits are set |
| `first_node` | The node with the lowest number |
| `node_range` | The set of `count` consecutive nodes |
| `node_set` | The set of the given nodes |
| `nodes_of` | The nodes of a set that is not negative, in ascending order |
| `Pool` | All nodes of one GPU type |

Why
- The engine counts free GPUs per node and does not name them: no rule depends on which GPU of a node a job
  holds. For each count, the nodes with that many free GPUs are the bits of one integer. A copy for a draft
  costs a few references, and the draft that is enacted becomes the free capacity.
- Node numbers run through all groups, so placements, logs and audits know nothing of groups. The free GPUs
  of one GPU type are the cluster's sets of bits under a mask.
"""

from .capacity import Capacity, CapacityIfStopped, FreeNodes, FreeNodesByLeaf
from .cluster import Cluster, Placement
from .clusterfile import cluster_of, load_cluster
from .node_set import NodeSet, first_node, node_range, node_set, nodes_of
from .topology import Pool

__all__ = [
    "Capacity",
    "CapacityIfStopped",
    "Cluster",
    "FreeNodes",
    "FreeNodesByLeaf",
    "NodeSet",
    "Placement",
    "Pool",
    "cluster_of",
    "first_node",
    "load_cluster",
    "node_range",
    "node_set",
    "nodes_of",
]
