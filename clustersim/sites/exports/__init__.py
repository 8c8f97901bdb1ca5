"""Reads what Slurm's commands print of a site: its configuration, nodes, partitions, QOS, accounts,
reservations.

| name | what |
|---|---|
| `read_slurm` | a site from these files, and sentences on how they were read |
| `SlurmFiles` | where the files lie |
| `FOLLOWED`, `FOLLOWED_OPTIONS` | parameters that are followed, and names in SchedulerParameters; defaults |
| `UNMODELLED`, `UNMODELLED_OPTIONS` | those that decide schedules, and that no simulation follows |
"""

from clustersim.sites.vocabulary import FOLLOWED_OPTIONS, UNMODELLED_OPTIONS

from .parameters import FOLLOWED, UNMODELLED
from .reading import SlurmFiles, read_slurm

__all__ = [
    "FOLLOWED",
    "FOLLOWED_OPTIONS",
    "UNMODELLED",
    "UNMODELLED_OPTIONS",
    "SlurmFiles",
    "read_slurm",
]
