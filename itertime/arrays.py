"""NumPy's arrays, by what their elements are: numbers, whole numbers, or whether something holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Whole = NDArray[np.int64]
Flags = NDArray[np.bool_]
