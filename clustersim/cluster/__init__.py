"""The machines: node groups, switches, and which GPUs are free.

| the cluster | |
|---|---|
| `Cluster` | nodes, GPUs per node, GPU types, switches; `Cluster.parse("n128g8")` is 128 nodes of 8 GPUs |
| `Pool` | all nodes of one GPU type (in a fleet: of one cluster); a job runs within one pool |
| `Stretch` | equal nodes of a pool that follow one another |
| `FleetMember` | a cluster of a fleet, by itself |
| `load_cluster` | the cluster of a shape or of a cluster file |
| `cluster_of` | the cluster that a manifest states |

| placements and free GPUs | |
|---|---|
| `Placement` | where a job runs: (node, GPUs there) pairs, by node |
| `SharedPlacement` | where a job runs that holds part of a GPU; `gpus_held` counts it as that part |
| `SharedGpus` | the GPUs that jobs share, and how much of each is held |
| `Joins` | counts how often a policy put a job on GPUs that another one held |
| `in_use` | GPUs held and stranded, parts as parts |
| `moved` | a placement with nodes of other numbers |
| `millionths_of`, `MILLION` | a fraction of a GPU in millionths; those of a whole one |
| `Capacity` | free GPUs by node: `take`, `release`, `close` and `open` a node, `copy` for a draft |
| `open_nodes` | the free GPUs that a job can have, of all or some nodes |
| `OpenNodes` | the free GPUs without those of nodes that are closed to a job |
| `NodesOfSize` | the free GPUs of nodes of one size, where a pool has several |
| `HostResources` | the cores and the host memory of a node |
| `HostDemand` | the cores and the host memory that a job needs for each of its GPUs |
| `NodeShape` | how the GPUs of a job are to lie on nodes, where it asks for a number of nodes |
| `CapacityIfStopped` | the free GPUs that there would be if some jobs stopped |
| `FreeNodes`, `FreeNodesByLeaf` | protocols: what tells whether a job fits; what a placer chooses from |

| sets of nodes | |
|---|---|
| `NodeSet` | the bits of an integer: bit i stands for node i |
| `node_set`, `node_range` | the set of some nodes; of consecutive nodes |
| `nodes_of`, `first_node` | the nodes of a set, ascending; the lowest one, -1 for an empty set |
| `lowest_nodes` | the first so many nodes of a set, ascending |

Why
- The engine counts free GPUs per node and does not name them: no rule depends on which GPU of a node a job
  holds. For each count, the nodes with that many free GPUs are the bits of one integer. A copy for a draft
  costs some ten references, and the draft that is enacted becomes the free capacity.
- Node numbers run through all groups, so placements, logs and audits know nothing of groups. The free GPUs
  of one GPU type are the cluster's sets of bits under a mask.
- A GPU that jobs share is a GPU that is not free, with a list of the parts held (`SharedGpus`). Placers and
  policies that know nothing of sharing keep counting whole GPUs.
- Cores and host memory limit how many free GPUs of a node a job can have. So a placer sees a node with fewer
  free GPUs (`open_nodes`), and knows of no further resource.
"""

from .capacity import Capacity, CapacityIfStopped, FreeNodes, FreeNodesByLeaf
from .cluster import Cluster, FleetMember, Placement
from .clusterfile import cluster_of, load_cluster
from .host import HostDemand, HostResources
from .node_set import NodeSet, first_node, lowest_nodes, node_range, node_set, nodes_of
from .shape import NodeShape
from .sharing import MILLION, Joins, SharedGpus, SharedPlacement, gpus_held, in_use, millionths_of, moved
from .topology import Pool, Stretch
from .views import NodesOfSize, OpenNodes, open_nodes

__all__ = [
    "MILLION",
    "Capacity",
    "CapacityIfStopped",
    "Cluster",
    "FleetMember",
    "FreeNodes",
    "FreeNodesByLeaf",
    "HostDemand",
    "HostResources",
    "Joins",
    "NodeSet",
    "NodeShape",
    "NodesOfSize",
    "OpenNodes",
    "Placement",
    "Pool",
    "SharedGpus",
    "SharedPlacement",
    "Stretch",
    "cluster_of",
    "first_node",
    "gpus_held",
    "in_use",
    "load_cluster",
    "lowest_nodes",
    "millionths_of",
    "moved",
    "node_range",
    "node_set",
    "nodes_of",
    "open_nodes",
]
