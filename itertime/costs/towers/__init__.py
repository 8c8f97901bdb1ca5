"""Towers for images, ahead of the layers of a model's first stage.

| name | what |
|---|---|
| `tower_passes`, `TowerPass` | both passes of the towers on one micro-batch |
| `towers_s` | seconds of a pass with what ZeRO-2 and ZeRO-3 move |
"""

from .seconds import TowerPass, tower_passes, towers_s

__all__ = ["TowerPass", "tower_passes", "towers_s"]
