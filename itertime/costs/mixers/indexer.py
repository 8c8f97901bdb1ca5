"""The indexer of sparse attention, which picks the keys of every query (DeepSeek-V3.2, 2025, section 2.1).

With H = `index_heads` of width d = `index_head_dim`, it scores every earlier key s of a query t:

    I_ts = sum_j w_tj ReLU(q_tj . k_s)

so H products of d columns with all keys that a causal mask leaves, then takes the `index_keys` largest. Every
tensor-parallel rank has the whole indexer. Scores go to memory and back in 32 bit (DeepGEMM,
`fp8_mqa_logits`). The report computes them in 8 bit; here they take the time of 16 bit.

Its loss is the distance to the attention's probabilities, summed over heads, of the picked keys alone
(section 2.1.1, the sparse stage). So the backward pass has two products with these keys, and multiplies the
attention's queries with them once more, since its kernel writes no probabilities: half of its forward pass.
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array
from itertime.costs.partition import Workload
from itertime.spec import Elementwise

_SCORE_BYTES = 4.0


def indexer_s(workload: Workload, attention: Array) -> tuple[Array, Array]:
    """Seconds of a layer's indexer without its matrices, forward and backward; `attention` are those of the
    sparse attention's forward pass.
    """
    model, tokens, length = workload.model, workload.tokens, workload.micro_batch.length
    width = np.full(len(workload), float(model.index_head_dim))
    keys = (length + 1) / 2
    picked = np.minimum(float(model.index_keys), keys)
    scores = workload.gemm_factor * workload.gemm_s(tokens, keys, width, model.index_heads)
    moved = 2 * _SCORE_BYTES * tokens * keys
    moved_s = workload.profile.seconds(Elementwise(moved)) / workload.system.site.hbm_fraction
    forward = scores + workload.framework.elementwise_multiplier * moved_s
    of_picked = workload.gemm_factor * workload.gemm_s(tokens, picked, width, model.index_heads)
    return forward, 2 * of_picked + attention / 2
