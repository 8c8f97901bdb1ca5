"""Bytes of GPU memory beyond the tensors: what CUDA and NCCL keep, and what lies idle between blocks.

No constant is fitted to the memory that measured iterations state. Each comes from figures that others
published of the thing itself.

- *Context*: what a process holds beyond PyTorch's allocator. Six messages of `torch.OutOfMemoryError` of
  single processes on GPUs of 80 GB leave 0.48 to 0.75 GiB.
- *Communicators*: each one keeps the buffers of its channels. On four A100 a process group of two takes
  544 MB more, one of three or four 688 MB (issue 964 of NVIDIA/nccl).
- *Fragmentation*: PyTorch reserves more than it allocates at its peak. In public logs of 16 trainings by
  Megatron, DeepSpeed and Megatron-Bridge that state all three figures, the surplus is 2 to 74 % of the bytes
  that come and go in an iteration (the peak less what stays): 11 % in the median, the quartiles 5 and 31 %.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from itertime.arrays import Array
from itertime.costs.partition import Workload

CONTEXT_BYTES = 0.6e9
COMMUNICATOR_BYTES = 0.7e9
FRAGMENTED_SHARE = 0.11
OVERHEADS = ("buffers", "fragmentation")
"""The parts of memory that `torch.cuda.max_memory_allocated` lacks."""


def buffers_bytes(workload: Workload) -> Array:
    """Bytes of CUDA's context, of NCCL's communicators, and of a framework's own buckets, (plans,).

    Each kind of parallelism has a communicator, and all ranks together have one.
    """
    plans, framework = workload.plans, workload.framework
    kinds = np.count_nonzero([plans.tp > 1, plans.cp > 1, plans.pp > 1, plans.dp > 1, plans.ep > 1], axis=0)
    nbytes = np.asarray(CONTEXT_BYTES + COMMUNICATOR_BYTES * (kinds + (kinds > 0)))
    if framework.bucket_buffer_bytes:
        nbytes = nbytes + np.where(plans.dp > 1, framework.bucket_buffer_bytes, 0.0)
    return nbytes


def fragmented_bytes(parts: Mapping[str, Array]) -> Array:
    """Bytes that PyTorch's allocator holds idle between blocks, (plans,), of those that come and go."""
    return FRAGMENTED_SHARE * (parts["activations"] + parts["logits"] + parts["optimizer_step"])
