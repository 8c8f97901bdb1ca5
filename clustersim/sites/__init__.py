"""Sites: the machines of an installation of Slurm and the rules by which it schedules jobs, as data.

| name | what |
|---|---|
| `SlurmSite` | nodes, partitions, QOS, associations, reservations, settings, by Slurm's names |
| `SiteNode`, `Partition`, `Qos`, `Association`, `SiteReservation`, `Settings` | its parts |

Why
- Names and values are those of slurm.conf and sacctmgr, so that an operator recognises them in site.yaml and
  changes them there: `MaxTRESPerUser`, `PriorityWeightAge`, `bf_interval`. Units are seconds and GB.
- A site is plain data without behaviour. The policy `slurm` and the commands read the same one.
"""

from .slurm import Association, Partition, Qos, Settings, SiteNode, SiteReservation, SlurmSite

__all__ = ["Association", "Partition", "Qos", "Settings", "SiteNode", "SiteReservation", "SlurmSite"]
