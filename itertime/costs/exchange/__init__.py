"""What data-parallel ranks exchange once an iteration or with every micro-batch, and the optimizer's step.

| name | what |
|---|---|
| `Exchange` | seconds to combine gradients and to gather weights once an iteration, in buckets |
| `sharded_s`, `Sharded` | seconds of what ZeRO-2 and ZeRO-3 move with every micro-batch |
| `pass_kernels_s` | seconds of kernels that compress: once an iteration, by pass |
| `error_bytes`, `secondary_bytes` | bytes per parameter of compression errors and secondary weights |
| `state_bytes` | bytes of the optimizer's states per parameter |
| `adam_states_bytes` | bytes of states of what Muon leaves to Adam, beyond those |
| `outer_state_bytes` | entries that workers exchange, and bytes they keep for it |
| `optimizer_s` | seconds of the optimizer's step |
| `once_s` | all parts of an iteration that occur once |
| `moved_s`, `Moved`, `Shards` | seconds of these of any weights; ranks that share one copy |
| `expert_copies` | GPUs that share an expert's ZeRO shards |
| `copies_of_states` | copies of a stage that share the optimizer's states |
"""

from .compression import error_bytes
from .gradients import Exchange, Sharded, sharded_s
from .groups import Shards, copies_of_states, expert_copies
from .local_steps import outer_state_bytes
from .once import once_s
from .optimizer import adam_states_bytes, optimizer_s, state_bytes
from .quantised_zero import Moved, moved_s, pass_kernels_s, secondary_bytes

__all__ = [
    "Exchange",
    "Moved",
    "Sharded",
    "Shards",
    "adam_states_bytes",
    "copies_of_states",
    "error_bytes",
    "expert_copies",
    "moved_s",
    "once_s",
    "optimizer_s",
    "outer_state_bytes",
    "pass_kernels_s",
    "secondary_bytes",
    "sharded_s",
    "state_bytes",
]
