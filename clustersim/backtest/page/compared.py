"""What a page is about: the jobs of a backtest, and the part of them that is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from clustersim.backtest.logged import DATED_S, Floats, Rows

__all__ = ["Compared"]


@dataclass(frozen=True)
class Compared:
    """The summary of a backtest, and its jobs as columns: `texts` (job_id, part, tenant, user), `gpus`, and
    `times` in seconds, NaN where they are unknown.
    """

    summary: Mapping[str, Any]
    texts: Mapping[str, Sequence[str]]
    gpus: Rows
    times: Mapping[str, Floats]

    @property
    def part(self) -> str:
        """The part that the page is about: judged, if there was a fit, else all."""
        return "judged" if "judged" in self.summary["parts"] else "all"

    @cached_property
    def rows(self) -> Rows:
        """The jobs of that part that started on both sides."""
        in_part = np.array([part == self.part for part in self.texts["part"]])
        started = ~np.isnan(self.times["logged_start_s"]) & ~np.isnan(self.times["simulated_start_s"])
        return np.flatnonzero(in_part & started).astype(np.int64)

    @cached_property
    def waits(self) -> tuple[Floats, Floats]:
        """Logged and simulated waits of these jobs."""
        submit_s = self.times["submit_s"][self.rows]
        logged, simulated = (self.times[f"{side}_start_s"][self.rows] for side in ("logged", "simulated"))
        return logged - submit_s, simulated - submit_s

    @cached_property
    def jcts(self) -> tuple[Floats, Floats]:
        """Logged and simulated completion times of these jobs, NaN for those without an end."""
        logged, simulated = (self.times[f"{side}_jct_s"][self.rows] for side in ("logged", "simulated"))
        return logged, simulated

    @property
    def is_dated(self) -> bool:
        return self._zero_s > DATED_S

    @property
    def zone(self) -> str:
        return str(self.summary["log"]["time_zone"])

    @property
    def _zero_s(self) -> float:
        return float(self.summary["log"]["clock"]["shift_s"])

    def moment(self, time_s: float) -> str:
        """A moment as a date of the log's zone, or as seconds since the first submission."""
        if not self.is_dated:
            return f"{time_s:,.0f} s"
        when = datetime.fromtimestamp(self._zero_s + time_s, ZoneInfo(self.zone))
        return when.strftime("%Y-%m-%d %H:%M:%S")
