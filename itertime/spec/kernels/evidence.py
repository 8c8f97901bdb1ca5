"""The evidence for one part of a profile."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from itertime.io import CONFIG, NonNegative, Whole

__all__ = ["Evidence"]


@dataclass(frozen=True, config=CONFIG)
class Evidence:
    """The evidence for one part of a profile: one row of `itertime profile show`.

    Errors are mean absolute percentage errors over `rows` rows, None without a measurement to compare with.
    `error_held_out_pct` is on rows that the coefficients were not fitted to; `note` says which. `measured`
    gives the range of each argument (m, n, k; bytes; head_dim, seq; width; ranks) over these rows.
    """

    part: str
    kind: Literal["measured", "fitted", "assumed"]
    source: str
    rows: Whole
    error_in_sample_pct: NonNegative | None = None
    error_held_out_pct: NonNegative | None = None
    note: str = ""
    measured: dict[str, tuple[NonNegative, NonNegative]] = dataclasses.field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Evidence:
        for argument, (low, high) in self.measured.items():
            if low > high:
                raise ValueError(f"measured.{argument}: {low:g} is above {high:g}")
        return self
