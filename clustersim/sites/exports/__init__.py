"""Reads what Slurm's commands print of a site: its configuration, nodes, partitions, QOS, accounts,
reservations.

| name | what |
|---|---|
| `read_slurm` | a site from these files, and sentences on how they were read |
| `SlurmFiles` | where the files lie |
"""

from .reading import SlurmFiles, read_slurm

__all__ = ["SlurmFiles", "read_slurm"]
