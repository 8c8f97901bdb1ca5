"""Seconds of copies between GPU and CPU, and of an optimizer that runs on the CPU.

The step (Ren et al., ZeRO-Offload, 2021, sections 4 and 5): gradients travel down, the CPU runs Adam on
32-bit states, and updated 16-bit weights travel up in pieces while Adam works on the next piece. The
gradients are charged in full, after their exchange; that they could travel during the backward pass is not
counted. The memory of a node's CPUs serves all its GPUs; each GPU has cores of its own, whose time a site
states per parameter (`Site.cpu_adam_s`), and so it does for what gradients of the whole stage take on their
way (`Site.cpu_gradient_s`). Neither is known of a system that states none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array
from itertime.spec import System

from .partition import Workload

# Of the link: copies of pinned memory reach about 25 of PCIe 4's 31.5 GB/s. Assumed of all links.
_LINK_SHARE = 0.8
# Bytes of the CPU's memory that Adam moves per parameter: reads gradient (2), master weight and moments (12),
# writes these and the 16-bit weight (14); in 32 bit as many, without a copy of the weight. Of the memory's
# peak bandwidth, half is assumed to be reached.
_ADAM_BYTES, _MEMORY_SHARE = 28.0, 0.5


def copy_s(nbytes: Array, system: System) -> Array:
    """Seconds to copy bytes of one GPU to or from its CPU."""
    return nbytes / (_LINK_SHARE * system.gpu_cpu_bytes_per_s)


def on_cpu_s(nbytes: Array, system: System) -> Array:
    """Seconds in which the CPUs of a node move so many bytes of their memory for each of its GPUs."""
    return nbytes / (_MEMORY_SHARE * system.cpu_memory_bytes_per_s / system.gpus_per_node)


@dataclass(frozen=True)
class OffloadedStep:
    """Seconds to bring gradients down, and of the CPU's step with the updated weights on their way up."""

    gradients: Array
    step: Array


def offloaded_step(workload: Workload, owned: Array, held: Array) -> OffloadedStep:
    """The step on `owned` of the `held` parameters of a GPU's stage; the GPUs of a node share the memory
    bandwidth of its CPUs.
    """
    system, plans, site = workload.system, workload.plans, workload.system.site
    gradient = np.where(plans.fp32_gradients | plans.in_32_bit, 4.0, 2.0)
    down = copy_s(gradient * owned, system) + site.cpu_gradient_s * held
    computed = on_cpu_s(_ADAM_BYTES * owned, system) + site.cpu_adam_s * owned
    step = np.maximum(computed, copy_s(2.0 * plans.width * owned, system))
    return OffloadedStep(down, step)
