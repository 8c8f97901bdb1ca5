"""Samples of different lengths, dealt to the ranks of an iteration, which takes as long as its slowest rank.

| name | what |
|---|---|
| `drawn_work`, `DrawnWork` | the tokens and squared lengths of every rank of an iteration |
| `sampled_work`, `Dealt` | the same by seeded draws alone; its arguments |
| `SlowestRank` | the slowest rank of an iteration: mean, percentiles, standard error; and the mean rank |
| `check_balance` | why samples cannot be dealt so |
| `rows_of` | rows that the samples of a rank take |
| `stratified_counts`, `bin_edges` | how many samples of each bin of lengths a rank takes; the bins |
| `packs_of`, `Packs` | samples packed into rows: packing factor, efficiency, squares |
| `exchange_bytes`, `SampleExchange` | the all-gather that dealing anew takes |
| `MicroBatch`, `micro_batch_of` | what the mean micro-batch computes: tokens, sequences of attention |
| `fullest` | how much fuller the fullest micro-batch is, which memory must hold |
| `draws_of`, `node_ranks` | the draws of plans; their data-parallel ranks in a node |

`balance.imbalance` has what the slowest rank and the exchange of samples add to an iteration. It stands
apart, because it needs the partition, which needs the above.

Why
- The slowest of ranks that draw on their own is an order statistic, and computed. Ranks that exchange samples
  depend on each other, and are sampled, but for cases so small that all outcomes can be tried.
- Work is drawn once for given sizes. Plans that differ in kernels ask it again, which takes microseconds.
"""

from .drawn_work import Dealt, check_balance, drawn_work, rows_of, sampled_work
from .exchange import SampleExchange, exchange_bytes
from .micro_batch import MicroBatch, draws_of, fullest, micro_batch_of, node_ranks
from .packing import Packs, packs_of
from .slowest import DrawnWork, SlowestRank
from .strata import bin_edges, stratified_counts

__all__ = [
    "Dealt",
    "DrawnWork",
    "MicroBatch",
    "Packs",
    "SampleExchange",
    "SlowestRank",
    "bin_edges",
    "check_balance",
    "drawn_work",
    "draws_of",
    "exchange_bytes",
    "fullest",
    "micro_batch_of",
    "node_ranks",
    "packs_of",
    "rows_of",
    "sampled_work",
    "stratified_counts",
]
