"""Sizes that a prediction asks of a profile, and that lie outside those measured.

Only single predictions are watched. Watching a search over thousands of plans would cost more than the answer
is worth; the costs of its best plans are computed once more, with a watched profile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from itertime.arrays import Array
from itertime.spec import Gemm, GroupedGemm, Profile, Query

_log = logging.getLogger("itertime")
_warned: set[tuple[str, str]] = set()


class WatchedProfile:
    """The times of a profile; the queries are noted."""

    def __init__(self, profile: Profile):
        self.profile = profile
        self.memory_bytes = profile.memory_bytes
        self.peak_flops = profile.peak_flops
        self.gemm_in_training = profile.gemm_in_training
        self.nvlink_bytes_per_s = profile.nvlink_bytes_per_s
        self._queries: list[Query] = []

    def seconds(self, query: Query) -> Array:
        self._queries.append(query)
        return self.profile.seconds(query)

    def extrapolated(self) -> tuple[str, ...]:
        """Names of the profile's parts that were asked for sizes outside those measured; size 0 is no kernel.

        Each part is also logged as a warning, once a process; by default the warning goes to stderr.
        """
        extrapolations: dict[str, str] = {}
        ranges = self.profile.ranges
        for query in self._queries:
            part = query.range_key
            measured = ranges.get(part)
            if measured and part not in extrapolations:
                size = _first_outside(query.sizes, measured)
                if size:
                    extrapolations[part] = size
        self._warn(extrapolations)
        return tuple(sorted(extrapolations))

    def unusable(self) -> tuple[str, ...]:
        """The profile's unusable parts that were asked for, each with what stood in for it."""
        stand_ins, timed = self.profile.unusable, self.profile.timed
        if not stand_ins:
            return ()
        names = {
            _part_of(query)
            for query in self._queries
            if _part_of(query) in stand_ins and _runs(query) and not (timed and timed.has(query))
        }
        return tuple(f"{name}: {stand_ins[name]}" for name in sorted(names))

    def _warn(self, extrapolations: Mapping[str, str]) -> None:
        name = self.profile.name
        new = [part for part in sorted(extrapolations) if (name, part) not in _warned]
        if new:
            _warned.update((name, part) for part in new)
            parts = "; ".join(f"{part} ({extrapolations[part]})" for part in new)
            _log.warning("warning: profile %s is extrapolated beyond what was measured: %s", name, parts)


def _part_of(query: Query) -> str:
    """The name of the profile's part that a query asks for, as in `Profile.unusable`."""
    if isinstance(query, Gemm | GroupedGemm):
        return f"{query.range_key}, {query.precision}"
    return query.range_key


def _runs(query: Query) -> bool:
    """Whether a query is of a kernel that runs: of some bytes, and if it is a collective of several ranks."""
    sizes = query.sizes
    return bool(np.max(sizes.get("ranks", 2)) > 1 and np.max(sizes.get("bytes", 1)) > 0)


def _first_outside(sizes: Mapping[str, ArrayLike], measured: Mapping[str, tuple[float, float]]) -> str:
    """The first size outside its measured range, as text; empty if there is none. A prediction asks for
    dozens of sizes, most of them single: plain Python is faster than arrays.
    """
    for name, size in sizes.items():
        if name in measured:
            low, high = measured[name]
            if isinstance(size, np.ndarray):
                values = size.tolist() if size.ndim == 1 else size.ravel().tolist()
            else:
                values = [size] if isinstance(size, (int, float)) else np.ravel(size).tolist()
            if name == "ranks" and max(values) <= 1:
                return ""  # a group of one communicates nothing
            least = 0.0 if name == "ranks" else low
            for value in values:
                if value > high or 0 < value < least:
                    return f"{name}={value:g}, measured {low:g} to {high:g}"
    return ""
