"""The optimisation problems of policies, apart from any decision: numbers in, numbers out.

| module               | names                                             | of             |
|----------------------|---------------------------------------------------|----------------|
| `time_shares`        | `Problem`, `each`, `grouped`, `Level`,            | Gavel          |
|                      | `largest_level`, `water_filling`, `in_turn`,      |                |
|                      | `most_throughput`, `level_of_shares`,             |                |
|                      | `fullest_shares`                                  |                |
| `packed_shares`      | `Partners`, `packed_each`, `packed_grouped`       | Gavel          |
| `finish_time`        | `isolated_shares`, `least_ratio`                  | Gavel (Themis) |
| `partial_allocation` | `auction`, `Award`                                | Themis         |
| `assignment`         | `assign`, `Choice`                                | Sia            |
| `divisions`          | searches for a division of GPUs among jobs        | AFS, Arena,    |
|                      |                                                   | Unicron, Rubick|
| `lease_terms`        | `LeaseDemand`, `lease_terms`                           | Chronus        |
| `pairing`            | `best_pairs`                                      | Muri           |
| `positions`          | `positions`, `Place`, `lanes`                     | AlloX          |
| `trading`            | `TenantDemand`, `ticket_shares`, `trade`,         | Gandiva-fair   |
|                      | `Trade`, `filled`                                 |                |
| `nash_window`        | `Bid`, `falling`, `rounds_of_window`              | Shockwave      |

Why
- Jobs that are alike are one row. The linear programs of Gavel's max-min and throughput policies, and Sia's
  integer program, merge jobs with equal data. Their objectives are concave or count jobs, so nothing is lost.
  Programs have as many rows as there are kinds of jobs, and their answer cannot depend on the order of a
  trace's rows.
- Prices replace searches. Water filling fixes the rows whose constraint has a positive price. The smallest
  finish-time ratio is found by cuts, from the prices of programs that fail. Both are exact, and take few
  programs where bisection takes forty.
- Limits are gaps and nodes of the search tree, never the clock, so a run can be repeated on any machine.
- HiGHS occasionally prints a line to file descriptor 1, whatever its options. `assign` drops it, because
  stdout belongs to the document of a command, or to the notebook that runs a simulation.
"""

from __future__ import annotations

from .assignment import Choice, assign
from .finish_time import isolated_shares, least_ratio
from .lease_terms import LeaseDemand, lease_terms
from .nash_window import Bid, falling, rounds_of_window
from .packed_shares import Partners, packed_each, packed_grouped
from .pairing import best_pairs
from .partial_allocation import Award, auction
from .positions import Place, lanes, positions
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
from .trading import TenantDemand, Trade, filled, ticket_shares, trade

__all__ = [
    "Award",
    "Bid",
    "Choice",
    "LeaseDemand",
    "Level",
    "Partners",
    "Place",
    "Problem",
    "TenantDemand",
    "Trade",
    "assign",
    "auction",
    "best_pairs",
    "each",
    "falling",
    "filled",
    "fullest_shares",
    "grouped",
    "in_turn",
    "isolated_shares",
    "lanes",
    "largest_level",
    "lease_terms",
    "least_ratio",
    "level_of_shares",
    "most_throughput",
    "packed_each",
    "packed_grouped",
    "positions",
    "rounds_of_window",
    "ticket_shares",
    "trade",
    "water_filling",
]
