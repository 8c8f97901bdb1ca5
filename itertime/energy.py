"""Power of a GPU by its load, and what an iteration takes of it.

The model is linear between idle and the power limit (Fan, Weber and Barroso, Power Provisioning for a
Warehouse-sized Computer, ISCA 2007, section 3.2, of servers and their CPUs). That a GPU follows it is an
assumption, and so is the share of the limit that it takes while it waits. Whole nodes of 8 H100 were measured
at 76 % of their rated power in training (Newkirk et al., Empirically-Calibrated H100 Node Power Models,
arXiv:2506.14551, 2025); this model has no constant fitted to them.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["IDLE_SHARE", "IterationEnergy", "gpu_watts"]

IDLE_SHARE = 0.15
"""Of the power limit, what a GPU takes that computes nothing: 60 W of 400, 105 W of 700. Assumed."""


def gpu_watts(limit_w: float, load: float, idle_share: float = IDLE_SHARE) -> float:
    """Watts of a GPU whose `load` is the share of the time in which it computes.

    >>> gpu_watts(700.0, 0.0), gpu_watts(700.0, 1.0)
    (105.0, 700.0)
    """
    return limit_w * (idle_share + (1 - idle_share) * load)


class IterationEnergy(NamedTuple):
    """Energy of an iteration on all GPUs of its plan. `load`: the share of it in which the GPUs compute."""

    limit_w: float
    idle_share: float
    load: float
    gpu_w: float
    joules: float
    tokens_per_joule: float
    flops_per_joule: float

    @classmethod
    def of(
        cls, seconds: float, computing_s: float, gpus: int, tokens: float, flops: float,
        limit_w: float, idle_share: float = IDLE_SHARE,
    ) -> IterationEnergy:  # fmt: skip
        """Of an iteration of so many seconds, tokens and FLOPs, in `computing_s` of which GPUs compute."""
        load = computing_s / seconds
        gpu_w = gpu_watts(limit_w, load, idle_share)
        joules = gpus * gpu_w * seconds
        return cls(limit_w, idle_share, load, gpu_w, joules, tokens / joules, flops / joules)
