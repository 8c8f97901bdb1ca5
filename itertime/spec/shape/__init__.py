"""The shape of a model: its keys, and the widths and parameters of one layer.

| name | what |
|---|---|
| `ModelKeys` | the keys of a model file |
| `TowerKeys` | those of a tower |
| `LayerShape` | these keys, with widths and parameters of one layer |
"""

from .keys import ModelKeys
from .layer import LayerShape
from .towers import TowerKeys

__all__ = ["LayerShape", "ModelKeys", "TowerKeys"]
