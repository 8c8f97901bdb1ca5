"""The selective scan of Mamba: one kernel whose states stay in registers (Gu and Dao 2023, section 3.3.2).

A token has I = `state_heads` x `state_head_dim` channels with N = `state_size` states each. The kernel reads
x, the steps and the gate, writes y and the gated y, I elements each, and reads 2 N for all channels
(mamba_ssm, `selective_scan_fwd_kernel`): 10 I + 4 N bytes. States of 2,048 tokens at a time are written for
the backward pass, 8 I N / 2048 bytes. No matrix is multiplied. A state takes one exponential, of which a
multiprocessor does 16 a clock beside 128 multiply-adds (CUDA C++ Programming Guide, throughput of arithmetic
instructions, compute capability 8.0 and 9.0): the time of 16 FLOPs on vector units, more than its other 7.
These units have 1/16 of the peak of matrices in 16 bit (A100: 19.5 and 312 TFLOP/s; H100: 67 and 989). So

    seconds = max((10 I + 4 N + 8 I N / 2048) tokens / bandwidth, 16 I N tokens / (peak / 16))

Backward the states are computed again (section 3.3.2), as those of other mixers.
"""

from __future__ import annotations

import numpy as np

from itertime.arrays import Array
from itertime.costs.partition import Workload
from itertime.spec import Elementwise

_EXPONENTIAL_FLOPS = 16.0
_VECTOR_SHARE = 1 / 16
_SAVED_EVERY = 2048  # tokens


def scan_s(workload: Workload) -> Array:
    """Seconds of the scan of one layer, forward."""
    model, tokens = workload.model, workload.tokens
    inner, states = tokens * model.state_inner / workload.plans.tp, float(model.state_size)
    moved = 10.0 * inner + 4.0 * tokens * states + 8.0 * inner * states / _SAVED_EVERY
    moved_s = workload.profile.seconds(Elementwise(moved)) / workload.system.site.hbm_fraction
    vector_flops = _VECTOR_SHARE * workload.profile.peak_flops
    return np.maximum(moved_s, _EXPONENTIAL_FLOPS * inner * states / vector_flops)
