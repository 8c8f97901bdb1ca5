"""Sizes that a prediction asks of a profile, and that lie outside those measured.

Only single predictions are watched. Watching a search over thousands of plans would cost more than the answer
is worth; its best plans are predicted once more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from itertime.spec import FLASH, AttentionKernel, Profile

__all__ = ["WatchedProfile"]

Array = NDArray[np.float64]
Sizes = tuple[tuple[str, ArrayLike], ...]  # (argument, value) pairs

_log = logging.getLogger("itertime")
_warned: set[tuple[str, str]] = set()


class WatchedProfile:
    """The times of a profile; the sizes asked for are noted."""

    def __init__(self, profile: Profile):
        self.profile = profile
        self.memory_bytes = profile.memory_bytes
        self.peak_flops = profile.peak_flops
        self.attention_factor = profile.attention_factor
        self.peak_flops_of = profile.peak_flops_of
        self.gemm_in_training = profile.gemm_in_training
        self._calls: list[tuple[str, Sizes]] = []

    def gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1, precision: str = "bf16"
    ) -> Array:
        self._calls.append(("gemm", (("m", m), ("n", n), ("k", k))))
        return self.profile.gemm_s(m, n, k, batch, precision)

    def grouped_gemm_s(
        self, m: ArrayLike, n: ArrayLike, k: ArrayLike, groups: ArrayLike, precision: str = "bf16"
    ) -> Array:
        self._calls.append(("grouped_gemm", (("n", n), ("k", k), ("groups", groups))))
        return self.profile.grouped_gemm_s(m, n, k, groups, precision)

    def attention_s(
        self,
        batch: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        causal: ArrayLike = True,
        backward: bool = False,
        kernel: AttentionKernel = FLASH,
    ) -> Array:
        part = "attention" if kernel.name == "flash" else f"attention_{kernel.name}"
        self._calls.append((part, (("head_dim", head_dim), ("seq", seq_kv))))
        shape = (batch, heads, kv_heads, head_dim, seq_q, seq_kv, causal)
        return self.profile.attention_s(*shape, backward, kernel)

    def elementwise_s(
        self,
        nbytes: ArrayLike,
        kind: str = "elementwise",
        width: float | None = None,
        style: str | None = None,
        backward: ArrayLike = False,
    ) -> Array:
        row = () if width is None else (("width", width),)
        self._calls.append((kind, (("bytes", nbytes), *row)))
        return self.profile.elementwise_s(nbytes, kind, width, style, backward)

    def cast_s(self, elements: ArrayLike, precision: str) -> Array:
        self._calls.append((f"cast_{precision}", (("elements", elements),)))
        return self.profile.cast_s(elements, precision)

    def collective_s(self, operation: str, nbytes: ArrayLike, ranks: ArrayLike = 2) -> Array:
        self._calls.append((operation, (("ranks", ranks), ("bytes", nbytes))))
        return self.profile.collective_s(operation, nbytes, ranks)

    def extrapolated(self) -> tuple[str, ...]:
        """Names of the profile's parts that were asked for sizes outside those measured; size 0 is no kernel.

        Each part is also logged as a warning, once a process; by default the warning goes to stderr.
        """
        outside: dict[str, str] = {}
        ranges = self.profile.ranges
        for part, sizes in self._calls:
            measured = ranges.get(part)
            if measured and part not in outside:
                found = _first_outside(sizes, measured)
                if found:
                    outside[part] = found
        self._warn(outside)
        return tuple(sorted(outside))

    def _warn(self, outside: Mapping[str, str]) -> None:
        name = self.profile.name
        new = [part for part in sorted(outside) if (name, part) not in _warned]
        if new:
            _warned.update((name, part) for part in new)
            parts = "; ".join(f"{part} ({outside[part]})" for part in new)
            _log.warning("warning: profile %s is extrapolated beyond what was measured: %s", name, parts)


def _first_outside(sizes: Sizes, measured: Mapping[str, tuple[float, float]]) -> str:
    """The first size outside its measured range, as text; empty if there is none."""
    for name, asked in sizes:
        if name not in measured:
            continue
        least, most = measured[name]
        values = np.asarray(asked).ravel().tolist()
        if name == "ranks" and max(values) <= 1:
            return ""  # a group of one communicates nothing
        outside = _outside(values, 0.0 if name == "ranks" else least, most)
        if outside is not None:
            return f"{name}={outside:g}, measured {least:g} to {most:g}"
    return ""


def _outside(values: Iterable[float], least: float, most: float) -> float | None:
    for value in values:
        if value > most or 0 < value < least:
            return value
    return None
