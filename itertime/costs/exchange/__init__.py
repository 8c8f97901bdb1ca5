"""What data-parallel ranks exchange once an iteration or with every micro-batch, and the optimizer's step.

| name | what |
|---|---|
| `exchange`, `Exchange` | seconds to combine gradients and to gather weights once an iteration, in buckets |
| `exposed_s` | what a pass does not hide of such buckets |
| `sharded_s`, `Sharded` | seconds of what ZeRO-2 and ZeRO-3 move with every micro-batch |
| `optimizer_s`, `OPTIMIZER_BYTES` | seconds of the optimizer's step; bytes that Adam moves |
| `outer_sync_s`, `workers_exchange_s` | seconds of exchanges between workers: their mean, and one of them |
| `sent_per_iteration`, `outer_state_bytes` | what workers exchange, and what memory that takes |
| `expert_copies` | GPUs that share an expert's ZeRO shards |
"""

from .gradients import Exchange, Sharded, exchange, exposed_s, sharded_s
from .groups import expert_copies
from .local_steps import outer_state_bytes, outer_sync_s, sent_per_iteration, workers_exchange_s
from .optimizer import OPTIMIZER_BYTES, optimizer_s

__all__ = [
    "OPTIMIZER_BYTES",
    "Exchange",
    "Sharded",
    "exchange",
    "expert_copies",
    "exposed_s",
    "optimizer_s",
    "outer_state_bytes",
    "outer_sync_s",
    "sent_per_iteration",
    "sharded_s",
    "workers_exchange_s",
]
