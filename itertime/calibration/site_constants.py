"""The constants of a site that can be fitted: their bounds, their scales, and the variable of the fit.

Every constant is fitted as z = (u - neutral u) / scale, where u is the constant, or its inverse if time is
proportional to the inverse. So the predicted time is close to linear in z, z = 0 is neutral, and one unit of
z is a typical difference between sites. Bounds are physical limits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from itertime.errors import UnknownName, UserError
from itertime.spec import NETWORK_EFFICIENCY, Site

__all__ = ["MEMORY_CONSTANTS", "TIME_CONSTANTS", "Constant", "constants_named", "site_of"]


@dataclass(frozen=True)
class Constant:
    """A field of `Site`: its bounds, and the scale by which sites differ (of its inverse, if `inverse`).

    `starts`: values of z from which a fit starts, in addition to 0, for a constant that has no effect on the
    time near neutral.
    """

    name: str
    low: float
    high: float
    scale: float
    inverse: bool = False
    starts: tuple[float, ...] = ()

    @property
    def neutral(self) -> float:
        value = getattr(Site(), self.name)
        return NETWORK_EFFICIENCY if value is None else float(value)

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of z, lowest first."""
        low, high = sorted((self._z(self.low), self._z(self.high)))
        return low, high

    def value(self, z: float) -> float:
        """The constant at z, clamped to its bounds."""
        if self.inverse:
            return min(max(self.neutral / (1 + z * self.scale), self.low), self.high)
        return min(max(self.neutral + z * self.scale, self.low), self.high)

    def _z(self, value: float) -> float:
        return (self.neutral / value - 1 if self.inverse else value - self.neutral) / self.scale


# Scales: kernels of one GPU type differ little between sites, collectives by up to 2.6 times (the tables of
# vTrain, aiconfigurator and vidur near 1 MB, by NCCL version); overheads are milliseconds a layer
# (Megatron-DeepSpeed on Jean Zay, llm-foundry) and half a second an iteration (InternEvo).
TIME_CONSTANTS = {
    constant.name: constant
    for constant in (
        Constant("gemm_multiplier", 0.7, 2.0, 0.15),
        Constant("attention_multiplier", 0.4, 4.0, 0.3),
        Constant("hbm_fraction", 0.4, 1.3, 0.15, inverse=True),
        Constant("network_efficiency", 0.1, 1.0, 0.3, inverse=True),
        Constant("all_reduce_multiplier", 0.3, 4.0, 0.5),
        Constant("launch_s", 0.0, 300e-6, 50e-6, starts=(1.0, 2.0, 4.0)),
        Constant("layer_overhead_s", 0.0, 0.1, 0.01),
        Constant("iteration_overhead_s", 0.0, 20.0, 0.5),
        Constant("p2p_exposure", 0.0, 1.0, 0.3),
        Constant("zero_broadcast_s", 0.0, 0.1, 0.004),
    )
}
MEMORY_CONSTANTS = {
    constant.name: constant
    for constant in (
        Constant("memory_multiplier", 0.7, 1.5, 0.1),
        Constant("memory_overhead_bytes", 0.0, 40e9, 5e9),
    )
}


def constants_named(names: Iterable[str]) -> tuple[Constant, ...]:
    """The time constants of these names. Raises UnknownName for another, UserError for a repeated one."""
    constants: list[Constant] = []
    for name in names:
        if name not in TIME_CONSTANTS:
            raise UnknownName("site constant", name, TIME_CONSTANTS)
        if TIME_CONSTANTS[name] in constants:
            raise UserError(f"site constant {name} is given twice; name each once")
        constants.append(TIME_CONSTANTS[name])
    return tuple(constants)


def site_of(values: Mapping[str, float]) -> Site:
    """The neutral site with these constants."""
    return dataclasses.replace(Site(), **dict(values))  # type: ignore[arg-type]
