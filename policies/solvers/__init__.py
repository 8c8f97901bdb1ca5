"""The optimisation problems of policies, apart from any decision: numbers in, numbers out.

| module               | names                                             | of             |
|----------------------|---------------------------------------------------|----------------|
| `time_shares`        | `Problem`, `each`, `grouped`, `Level`,            | Gavel          |
|                      | `largest_level`, `water_filling`, `in_turn`,      |                |
|                      | `most_throughput`, `level_of_shares`,             |                |
|                      | `fullest_shares`                                  |                |
| `finish_time`        | `isolated_shares`, `least_ratio`                  | Gavel (Themis) |
| `partial_allocation` | `auction`, `Award`                                | Themis         |
| `assignment`         | `assign`, `Choice`                                | Sia            |
| `afs_scan`           | `Scan`, `Gain`, `gains`                           | AFS            |
"""

from __future__ import annotations

from .afs_scan import Gain, Scan, gains
from .assignment import Choice, assign
from .finish_time import isolated_shares, least_ratio
from .partial_allocation import Award, auction
from .time_shares import (
    Level,
    Problem,
    each,
    fullest_shares,
    grouped,
    in_turn,
    largest_level,
    level_of_shares,
    most_throughput,
    water_filling,
)

__all__ = [
    "Award",
    "Choice",
    "Gain",
    "Level",
    "Problem",
    "Scan",
    "assign",
    "auction",
    "each",
    "fullest_shares",
    "gains",
    "grouped",
    "in_turn",
    "isolated_shares",
    "largest_level",
    "least_ratio",
    "level_of_shares",
    "most_throughput",
    "water_filling",
]
