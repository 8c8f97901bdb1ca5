"""How many examples property tests draw: a quarter by default, all with CLUSTERSIM_EXAMPLES=all."""

from __future__ import annotations

import os

__all__ = ["examples"]


def examples(number: int) -> int:
    """`number` in a long campaign, a quarter of it otherwise, at least 5 if `number` is."""
    if os.environ.get("CLUSTERSIM_EXAMPLES") == "all":
        return number
    return max(min(number, 5), number // 4)
