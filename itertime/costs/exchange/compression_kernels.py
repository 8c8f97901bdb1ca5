"""Seconds of the kernels that compress gradients, sum what arrives, and unpack it.

They are memory-bound, PowerSGD's products apart. They run on the GPU that computes, so nothing hides them.
Bytes of one parameter, with a gradient of g bytes, b bytes as it is sent, P ranks, r of them in a node:

- fp16: a cast and the cast back, g + 2 each; nothing where gradients have 16 bit.
- fp8: the largest value, g; casts, g + 1 each.
- int8, int4: a kernel quantises rows and their scales at once, g + b; one sums what the node's ranks sent and
  quantises the sums, b + b/r; the sums of the nodes are unpacked and added, (b + 2g)/r (DeepSpeed 0.10.3,
  `swizzled_quantize.cu`, `quant_reduce.cu`, `all_to_all_quant_reduce`). In an all-reduce each rank quantises
  its part of the result, (g + b)/P, and unpacks all of it, b + g.
- topk: adds what was left (3g), takes absolute values (2g), selects by their digits of 8 bits, one reading
  each, and once more for the entries (g^2 + g; PyTorch, `TensorTopK.cu`, radixSelect), and fills a buffer of
  zeros (g). Every entry chosen or received is one access of 32 bytes to read and one to write, which is the
  least that memory moves.
- powersgd: adds what was left (3g), a copy (2g), the difference (3g), and `power_kernels_s`.
- onebit-adam, onebit-lamb, zeroone-adam: 164.4 + 104.1/P, the kernels of DeepSpeed 0.3.1,
  `Compressed_Allreduce`, one by one, each of which reads and writes every element of 32 bit once. A rank adds
  its error (12), takes norm (4), signs (8, 8, 5, 5, 8, 8) and error (8, 12), and packs the signs (8, 8, 5,
  1.1). It unpacks those of its chunk from all ranks (1.1, 5, 8, 8), scales (8) and sums them (4 + 4/P),
  compresses the sum as before (100.1/P), and unpacks the result (1.1, 5, 8, 8, 8).
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array, Whole, any_of
from itertime.costs.partition import Workload
from itertime.spec import ONE_BIT, Elementwise

from .compression import INDEX_BYTES, SENT_BITS
from .power_sgd import power_kernels_s

SECTOR = 32.0
"""Bytes that one access to memory moves at least (CUDA C++ Best Practices Guide, section 9.2.1)."""

COMPRESSED, SUMMED, UNPACKED = 100.125, 34.125, 30.125
"""Bytes of an element of 32 bit in 1-bit Adam: signs and error, the sum over ranks, the signs' values."""
KERNELS = 39
"""Kernels that move these bytes: 14 to compress, 6 to sum, 14 to compress the sum, 5 to unpack it."""
_WRAPPER = 42.0
STEP_BYTES = {
    "onebit-adam": (_WRAPPER + 108.0, _WRAPPER + 88.0, 0.0),
    "onebit-lamb": (_WRAPPER + 132.0, _WRAPPER + 216.0, 0.0),
    "zeroone-adam": (_WRAPPER + 108.0, _WRAPPER + 108.0, 124.0),
}
"""Bytes that a step of a 1-bit optimizer moves per parameter: in the warm-up, after it, and more with every
exchange. They are the kernels of DeepSpeed one by one, which PyTorch issues without fusing: `FP16_Optimizer`
(overflow 10, copy to 32 bit 6, flattening 8, norm 4, unscaling 8, copy to 16 bit 6) and `step` of
`OnebitAdam` (0.3.1), `OnebitLamb` (0.5.0), `ZeroOneAdam` (0.10.3) on flat tensors. LAMB's many tensors also
wait for the CPU to issue their kernels, which is not counted."""


def step_bytes(workload: Workload) -> float:
    """Bytes per parameter of the step of the plans' 1-bit optimizer, on average over the run."""
    options = workload.plans.options
    warm_up, compressed, exchanged = STEP_BYTES[options.compression]
    share = options.warmup_share
    return share * warm_up + (1 - share) * (compressed + exchanged / options.local_steps)


def compression_kernels_s(workload: Workload, parameters: Array) -> Array:
    """Seconds of the kernels of an iteration's exchange of the gradients of `parameters` parameters per GPU,
    on average over the run: the warm-up has none.

    What ZeRO-2 and ZeRO-3 scatter with every micro-batch is not part of it (`quantised_zero`).
    """
    plans, options = workload.plans, workload.plans.options
    ranks = plans.dp * plans.cp
    between = ranks // plans.gradient_shards
    owned = parameters / plans.gradient_shards
    nbytes = _combined_bytes(workload, between)
    scattered = plans.optimizer_shards == ranks
    if options.compression in ("int8", "int4") and any_of(scattered):
        local = np.minimum(between, workload.system.domain_gpus)
        nbytes = np.where(scattered, scatter_kernel_bytes(workload, local), nbytes)
    kernels = KERNELS if options.compression in ONE_BIT else 1
    seconds = kernels * workload.profile.seconds(Elementwise(nbytes * owned / kernels))
    seconds = seconds / workload.system.site.hbm_fraction
    if options.compression == "powersgd":
        seconds = seconds + power_kernels_s(workload)
    gap = options.local_steps if options.compression == "zeroone-adam" else 1
    return np.where(between > 1, (1 - options.warmup_share) / gap * seconds, 0.0)


def _combined_bytes(workload: Workload, ranks: Whole) -> Array:
    """Bytes of a parameter where all `ranks` ranks get the sum."""
    options, gradient = workload.plans.options, workload.plans.gradient_bytes
    compression = options.compression
    if compression in ONE_BIT:
        return COMPRESSED + SUMMED + UNPACKED + (4 + COMPRESSED) / ranks
    if compression == "topk":
        density = options.compression_density * (1 + ranks)
        selection = 3 * gradient + 2 * gradient + (gradient * gradient + gradient) + gradient
        return selection + density * (gradient + INDEX_BYTES + 2 * SECTOR)
    if compression == "powersgd":
        return 8 * gradient
    if compression in ("fp16", "fp8"):
        return scatter_kernel_bytes(workload, ranks)
    scattered = scatter_kernel_bytes(workload, np.minimum(ranks, workload.system.domain_gpus))
    return scattered + (gradient + SENT_BITS[compression] / 8) * (1 + 1 / ranks)


def scatter_kernel_bytes(workload: Workload, local: Whole) -> Array:
    """Bytes of a parameter in place of a reduce-scatter, with `local` of its ranks in a node."""
    compression, gradient = workload.plans.options.compression, workload.plans.gradient_bytes
    sent = SENT_BITS[compression] / 8
    if compression == "fp16":
        return np.where(gradient > 2, 2 * (gradient + 2), 0.0)
    if compression == "fp8":
        return gradient + 2 * (gradient + 1)
    return gradient + sent + sent + sent / local + (sent + 2 * gradient) / local
