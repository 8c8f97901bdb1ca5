"""NumPy's arrays, by what their elements are: numbers, whole numbers, or whether something holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]


def any_of(values: Flags | Whole | Array) -> bool:
    """Whether any of the values is not 0: `values.any()`, which for one value is mostly a call in Python."""
    return bool(values.item() if values.size == 1 else values.any())
