"""Sites: the machines of an installation of Slurm and the rules by which it schedules jobs, as data.

| name | what |
|---|---|
| `SlurmSite` | nodes, partitions, QOS, associations, reservations, settings, by Slurm's names |
| `SiteNode`, `Partition`, `Qos`, `Association`, `SiteReservation`, `Settings` | its parts |
| `load_site`, `write_site` | a site from `site.yaml`, and into it |
| `site_of`, `document_of` | a site from plain data, as manifests hold it, and into it |
| `changed_document` | such data with one value changed, by its path |
| `cluster_of_site` | its nodes with GPUs as a cluster |
| `node_numbers` | the number in the cluster of each node, by name |
| `closed_numbers` | the numbers of nodes that are down |
| `gpu_type_of` | the name of a node's GPUs in the cluster |
| `summary_of` | what a site is, in sentences |
| `refuse_exceeded_limits`, `HeldGpus` | an error if running jobs exceed limits; the GPUs of one |
| `missing_names` | a sentence on partitions, QOS and accounts of jobs that it does not have |
| `unknown_names`, `NamesOfJob` | those of one job; what a job names |
| `accounts_above` | an account and those above it |
| `LIMITS` | the limits of associations and QOS, and what each counts |
| `FOLLOWED_OPTIONS` | the names in SchedulerParameters that the policy `slurm` follows, with their defaults |
| `exports` | a sub-package: sites from what Slurm's commands print |
| `hosts_of`, `hostlist_of` | the names in a list of hosts, as `n[01-16]`, and such a list |

Why
- Names and values are those of slurm.conf and sacctmgr, so that an operator recognises them in site.yaml and
  changes them there: `MaxTRESPerUser`, `PriorityWeightAge`, `bf_interval`. Units are seconds and GB.
- A site is plain data without behaviour. The policy `slurm` and the commands read the same one.
"""

from traces.host_lists import hostlist_of, hosts_of

from .changes import changed_document
from .document import document_of, load_site, site_of, write_site
from .held import HeldGpus, refuse_exceeded_limits
from .limits import LIMITS
from .machines import closed_numbers, cluster_of_site, gpu_type_of, node_numbers
from .names import NamesOfJob, missing_names, unknown_names
from .slurm import (
    Association,
    Partition,
    Qos,
    Settings,
    SiteNode,
    SiteReservation,
    SlurmSite,
    accounts_above,
)
from .summary import summary_of
from .vocabulary import FOLLOWED_OPTIONS

__all__ = [
    "FOLLOWED_OPTIONS",
    "LIMITS",
    "Association",
    "HeldGpus",
    "NamesOfJob",
    "Partition",
    "Qos",
    "Settings",
    "SiteNode",
    "SiteReservation",
    "SlurmSite",
    "accounts_above",
    "changed_document",
    "closed_numbers",
    "cluster_of_site",
    "document_of",
    "gpu_type_of",
    "hostlist_of",
    "hosts_of",
    "load_site",
    "missing_names",
    "node_numbers",
    "refuse_exceeded_limits",
    "site_of",
    "summary_of",
    "unknown_names",
    "write_site",
]
