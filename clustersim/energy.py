"""Energy of the GPUs of a run, by the linear model of Fan, Weber and Barroso (Power Provisioning for a
Warehouse-sized Computer, ISCA 2007, section 3.2), applied to GPUs as `itertime.energy` does:

    watts of a GPU = idle + (limit - idle) x load

The limit is that of the GPU's data sheet. A GPU that trains has the load of the setting, any other none: one
without a job, and one whose job launches, saves or loads. CPUs, switches and cooling are left out, but for
`pue`, the power of the whole site over that of these GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from clustersim.cluster import Cluster
from itertime.energy import IDLE_SHARE, gpu_watts
from itertime.errors import UnknownName, UserError, quoted
from itertime.spec import load_system, profile_of

__all__ = ["Energy"]

_RANGES = {"limit_w": (1.0, 100_000.0), "idle_share": (0.0, 1.0), "load": (0.0, 1.0), "pue": (1.0, 10.0)}


@dataclass(frozen=True)
class Energy:
    """How much power GPUs take; see the module. UserError for a value out of range.

    `limit_w`: W, None for that of the GPU type. `idle_share`: of the limit. `load`: of a GPU that trains.

    >>> Energy(limit_w=400.0).kwh(gpu_s=7200.0, training_gpu_s=3600.0)
    0.46
    """

    limit_w: float | None = None
    idle_share: float = IDLE_SHARE
    load: float = 1.0
    pue: float = 1.0

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if name == "limit_w" and value is None:
                continue
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not low <= value <= high:
                raise UserError(f"energy.{name}={quoted(value)}: must be a number from {low:g} to {high:g}")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Energy:
        """From settings by name. UnknownName for a name that does not exist."""
        field_names = [field.name for field in fields(cls)]
        for name in settings:
            if name not in field_names:
                raise UnknownName("energy setting", name, field_names)
        return cls(**settings)

    @classmethod
    def on(cls, settings: Mapping[str, Any], cluster: Cluster) -> Energy:
        """The same with the limit of the cluster's GPUs, if none is stated. UserError where they have several
        limits, or none that is known.
        """
        energy = cls.of(settings)
        if energy.limit_w is not None:
            return energy
        systems = {pool.system for pool in cluster.pools}
        limits = {None if name is None else profile_of(load_system(name)).power_w for name in systems}
        limit_w = limits.pop()
        if limits or limit_w is None:
            problem = "have several power limits" if limits else "have no known power limit"
            raise UserError(f"energy: the GPUs of the cluster {problem}; state it: --set energy.limit_w=W")
        return replace(energy, limit_w=limit_w)

    def stated(self) -> dict[str, Any]:
        """Every constant, for the manifest."""
        return asdict(self)

    def kwh(self, gpu_s: float, training_gpu_s: float) -> float:
        """Kilowatt-hours of `gpu_s` GPU-seconds, in `training_gpu_s` of which a job made progress."""
        assert self.limit_w is not None
        idle_w, busy_w = (gpu_watts(self.limit_w, load, self.idle_share) for load in (0.0, self.load))
        return self.pue * (idle_w * (gpu_s - training_gpu_s) + busy_w * training_gpu_s) / 3.6e6
