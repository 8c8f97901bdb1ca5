"""What data-parallel ranks exchange once an iteration or with every micro-batch, and the optimizer's step.

| name | what |
|---|---|
| `exchange`, `Exchange` | seconds to combine gradients and to gather weights once an iteration, in buckets |
| `exposed_s` | what a pass does not hide of such buckets |
| `sharded_s`, `Sharded` | seconds of what ZeRO-2 and ZeRO-3 move with every micro-batch |
| `compression_kernels_s`, `pass_kernels_s` | seconds of kernels that compress: once an iteration, by pass |
| `error_bytes`, `secondary_bytes` | bytes per parameter of compression errors and secondary weights |
| `clipping_s`, `Clipping` | seconds of gradient clipping, and what it leaves to overlap |
| `optimizer_s` | seconds of the optimizer's step |
| `state_bytes` | bytes of the optimizer's states per parameter |
| `outer_sync_s`, `workers_exchange_s` | seconds of exchanges between workers: their mean, and one of them |
| `sent_per_iteration`, `outer_state_bytes` | entries that workers exchange, and bytes they keep for it |
| `once_s` | all parts of an iteration that occur once |
| `expert_copies` | GPUs that share an expert's ZeRO shards |
"""

from .clipping import Clipping, clipping_s
from .compression import error_bytes
from .compression_kernels import compression_kernels_s
from .gradients import Exchange, Sharded, exchange, exposed_s, sharded_s
from .groups import expert_copies
from .local_steps import outer_state_bytes, outer_sync_s, sent_per_iteration, workers_exchange_s
from .once import once_s
from .optimizer import optimizer_s, state_bytes
from .quantised_zero import pass_kernels_s, secondary_bytes

__all__ = [
    "Clipping",
    "Exchange",
    "Sharded",
    "clipping_s",
    "compression_kernels_s",
    "error_bytes",
    "exchange",
    "expert_copies",
    "exposed_s",
    "once_s",
    "optimizer_s",
    "outer_state_bytes",
    "outer_sync_s",
    "pass_kernels_s",
    "secondary_bytes",
    "sent_per_iteration",
    "sharded_s",
    "state_bytes",
    "workers_exchange_s",
]
