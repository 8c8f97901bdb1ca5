"""Samples of different lengths, dealt to the ranks of an iteration, which takes as long as its slowest rank.

| name | what |
|---|---|
| `MicroBatch`, `micro_batch_of` | what the mean micro-batch computes: tokens, sequences of attention |
| `fullest` | tokens of the fullest micro-batch over those of the mean one, for memory |

`balance.imbalance` has what the slowest rank and the exchange of samples add to an iteration. It is not
imported here: it needs `costs.partition`, which imports this package.

Why
- The slowest of independent ranks is an order statistic, which is computed. Ranks that exchange samples
  depend on each other. They are sampled, or enumerated where the outcomes are few.
- Work is drawn once for given sizes. Plans that differ in kernels share the draws; asking them takes
  microseconds.
"""

from .micro_batch import MicroBatch, fullest, micro_batch_of

__all__ = ["MicroBatch", "fullest", "micro_batch_of"]
