"""What schedulers and live clusters say of their jobs, a module per command that prints it.

| name | what |
|---|---|
| `SLURM` | Slurm's accounting, as `sacct` prints it |
"""

from .sacct import SLURM

__all__ = ["SLURM"]
