"""Placers: which nodes serve a job of a given number of GPUs.

| name | what |
|---|---|
| `Placer` |  |
| `placer` | The placer of that name |
"""

from .placers import Placer, placer

__all__ = ["Placer", "placer"]
