"""Samples of different lengths, dealt to the ranks of an iteration, which takes as long as its slowest rank.

| name | what |
|---|---|
| `drawn_work`, `DrawnWork` | seeded draws of every rank's tokens and squared lengths, as convex hulls |
| `SlowestRank` | the slowest rank of an iteration: mean, percentiles, standard error; and the mean rank |
| `check_balance` | why samples cannot be dealt so |
| `BATCHINGS`, `BALANCES` | how samples become micro-batches; how they are dealt to ranks |
| `rows_of` | rows that the samples of a rank take |
| `stratified_counts`, `bin_edges` | how many samples of each bin of lengths a rank takes; the bins |
| `packs_of`, `Packs` | samples packed into rows: packing factor, efficiency, squares |
| `exchange_bytes`, `SampleExchange` | the all-gather that dealing anew takes |

Why
- A draw is made once for given sizes. Plans that differ in kernels ask its hull, which takes microseconds.
- Strategies are compared on the same draws, as the seed is the same.
"""

from .drawn_work import BALANCES, BATCHINGS, DrawnWork, SlowestRank, check_balance, drawn_work, rows_of
from .exchange import SampleExchange, exchange_bytes
from .packing import Packs, packs_of
from .strata import bin_edges, stratified_counts

__all__ = [
    "BALANCES",
    "BATCHINGS",
    "DrawnWork",
    "Packs",
    "SampleExchange",
    "SlowestRank",
    "bin_edges",
    "check_balance",
    "drawn_work",
    "exchange_bytes",
    "packs_of",
    "rows_of",
    "stratified_counts",
]
