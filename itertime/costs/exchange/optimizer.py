"""The optimizer's step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from itertime.costs.offload import offloaded_step
from itertime.costs.partition import Workload
from itertime.spec import ONE_BIT

from .compression_kernels import step_bytes
from .groups import expert_copies

__all__ = ["OPTIMIZER_BYTES", "optimizer_s"]

Array = NDArray[np.float64]
Parts = dict[str, Array]
OPTIMIZER_BYTES = 50.0
"""Bytes that the optimizer moves per parameter: unscaling, gradient norm, Adam on 32-bit master weights, copy
to 16 bit."""


def optimizer_s(workload: Workload, shared: Array, experts: Array) -> Parts:
    """Seconds of the optimizer on the parameters a GPU owns: "optimizer", memory traffic only, and for a plan
    that offloads it "optimizer_copies".
    """
    plans = workload.plans
    owned = shared / plans.optimizer_shards + experts / expert_copies(plans, plans.optimizer_shards)
    each = step_bytes(workload) if plans.options.compression in ONE_BIT else OPTIMIZER_BYTES
    seconds = workload.profile.elementwise_s(each * owned, "adam")
    seconds = seconds / workload.system.site.hbm_fraction
    if not plans.offload_optimizer.any():
        return {"optimizer": seconds}
    offloaded = offloaded_step(workload, owned)
    return {
        "optimizer": np.where(plans.offload_optimizer, offloaded.step, seconds),
        "optimizer_copies": np.where(plans.offload_optimizer, offloaded.gradients, 0.0),
    }
