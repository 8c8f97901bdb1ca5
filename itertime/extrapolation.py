"""Says when a prediction asks a profile for sizes that nobody measured.

Only single predictions are watched. A search over thousands of plans is not: it would cost more than the
answer is worth, and its best plans are predicted once more.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import ArrayLike

from itertime.profile import Profile
from itertime.profiling.models import Array

__all__ = ["WatchedProfile", "watch"]

_log = logging.getLogger("itertime")
_warned: set[tuple[str, str]] = set()


class WatchedProfile(Profile):
    """A profile that notes which sizes it was asked for; `watch` makes one. Its answers are the same."""

    _calls: list[tuple[str, tuple[tuple[str, ArrayLike], ...]]]

    def gemm_s(self, m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike = 1) -> Array:
        self._calls.append(("gemm", (("m", m), ("n", n), ("k", k))))
        return self.gemm.seconds(m, n, k, batch)

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
    ) -> Array:
        self._calls.append(("attention", (("head_dim", head_dim), ("seq", seq_kv))))
        return self.attention.seconds(batch, heads, kv_heads, head_dim, seq_q, seq_kv, causal, backward)

    def elementwise_s(
        self, nbytes: ArrayLike, kind: str = "elementwise", width: float | None = None
    ) -> Array:
        row = () if width is None else (("width", width),)
        self._calls.append((kind, (("bytes", nbytes), *row)))
        return super().elementwise_s(nbytes, kind, width)

    def collective_s(self, operation: str, nbytes: ArrayLike, ranks: ArrayLike = 2) -> Array:
        self._calls.append((operation, (("ranks", ranks), ("bytes", nbytes))))
        return super().collective_s(operation, nbytes, ranks)

    def extrapolated(self) -> tuple[str, ...]:
        """The parts that were asked for sizes outside of what was measured, by name; 0 is no kernel.

        The first time in a process that a part is, a warning names it; by default that goes to stderr.
        """
        outside: dict[str, str] = {}
        ranges = self.ranges
        for part, sizes in self._calls:
            measured = ranges.get(part)
            if not measured or part in outside:
                continue
            for name, asked in sizes:
                if name not in measured:
                    continue
                least, most = measured[name]
                values = np.asarray(asked).ravel().tolist()
                if name == "ranks" and max(values) <= 1:
                    break  # a group of one communicates nothing
                for value in values:
                    if value > most or (0 < value < least and name != "ranks"):
                        outside[part] = f"{name}={value:g}, measured {least:g} to {most:g}"
                        break
        new = [part for part in sorted(outside) if (self.name, part) not in _warned]
        if new:
            _warned.update((self.name, part) for part in new)
            told = "; ".join(f"{part} ({outside[part]})" for part in new)
            _log.warning("warning: profile %s is extrapolated beyond what was measured: %s", self.name, told)
        return tuple(sorted(outside))


def watch(profile: Profile) -> WatchedProfile:
    """The same profile, watched; cheap, since nothing is copied or checked again."""
    watched = object.__new__(WatchedProfile)
    watched.__dict__.update(vars(profile), _calls=[])
    return watched
