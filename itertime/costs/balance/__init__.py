"""Samples of different lengths, dealt to the ranks of an iteration, which takes as long as its slowest rank.

| name | what |
|---|---|
| `drawn_work`, `DrawnWork` | the tokens and squared lengths of every rank of an iteration |
| `SlowestRank` | the slowest rank of an iteration: mean, percentiles, standard error; and the mean rank |
| `check_balance` | refuses lengths and batches that a balance cannot deal |
| `rows_of` | rows that the samples of a rank take |
| `stratified_counts`, `bin_edges` | how many samples of each bin of lengths a rank takes; the bins |
| `packs_of`, `Packs` | samples packed into rows: packing factor, efficiency, squares |
| `MicroBatch`, `micro_batch_of` | what the mean micro-batch computes: tokens, sequences of attention |
| `fullest` | tokens of the fullest micro-batch over those of the mean one, for memory |
| `draws_of`, `node_ranks` | the draws of plans; their data-parallel ranks in a node |

`balance.imbalance` has what the slowest rank and the exchange of samples add to an iteration. It is not
imported here: it needs `costs.partition`, which imports this package.

Why
- The slowest of independent ranks is an order statistic, which is computed. Ranks that exchange samples
  depend on each other. They are sampled, or enumerated where the outcomes are few.
- Work is drawn once for given sizes. Plans that differ in kernels share the draws; asking them takes
  microseconds.
"""

from .drawn_work import check_balance, drawn_work, rows_of
from .micro_batch import MicroBatch, draws_of, fullest, micro_batch_of, node_ranks
from .packing import Packs, packs_of
from .slowest import DrawnWork, SlowestRank
from .strata import bin_edges, stratified_counts

__all__ = [
    "DrawnWork",
    "MicroBatch",
    "Packs",
    "SlowestRank",
    "bin_edges",
    "check_balance",
    "drawn_work",
    "draws_of",
    "fullest",
    "micro_batch_of",
    "node_ranks",
    "packs_of",
    "rows_of",
    "stratified_counts",
]
