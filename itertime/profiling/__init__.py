"""Programs that measure operators and fit profiles to them.

| name | what |
|---|---|
| `collect` | Time every case of a grid and write the table |
"""

from .collect import collect

__all__ = ["collect"]
