"""How GPUs in use, running and waiting jobs went over the time of a run, for the charts of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clustersim.report import TimeAxis
from clustersim.report.frame import Axis, Chart, Panel, Series, short

from .picture import RunPicture

__all__ = ["Curves"]

_MOST = 1000  # instants
_HEIGHT_PX = 330


class Curves:
    """The numbers at instants of a log, in order of time. At most `limit` of them are kept, evenly thinned,
    and the newest.
    """

    def __init__(self, limit: int = _MOST):
        self._limit, self._stride, self._instants = limit, 1, 0
        self._rows: list[tuple[float, float, int, int]] = []

    def note(self, picture: RunPicture) -> None:
        """Keep the numbers of a picture, which follows the one before."""
        assert picture.time_s is not None
        row = (picture.time_s, picture.used, picture.running, picture.queue)
        if self._rows and self._rows[-1][0] == picture.time_s:
            self._rows[-1] = row
            return
        if self._instants and (self._instants - 1) % self._stride:
            self._rows.pop()  # the newest until now, and between two that are kept
        self._rows.append(row)
        self._instants += 1
        if len(self._rows) > self._limit:
            self._rows = self._rows[::2]
            self._stride *= 2

    def document(self, gpus: int, look: int, zero_s: float | None) -> dict[str, Any]:
        """A chart of three panels, and the time of its zero with the seconds of its unit.

        `gpus`: of the cluster, 0 if unknown; `look`: of the policy; `zero_s`: see
        `Watched.cluster_document`.
        """
        columns = np.array(self._rows or [(0.0, 0.0, 0, 0)]).T
        clock = TimeAxis.over(float(columns[0][0]), float(columns[0][-1]), 0)
        times = short((columns[0] - clock.from_s) / clock.unit_s)
        used, running, waiting = map(short, columns[1:])
        panels = [
            Panel(Axis(high=gpus or None, zero=True), [Series("", times, used, "area", look)], "GPUs in use"),
            Panel(Axis(zero=True), [Series("", times, running, look=look, hover="{y}")], "running jobs"),
            Panel(Axis(zero=True), [Series("", times, waiting, look=look, hover="{y}")], "waiting jobs"),
        ]
        axis = replace(clock, zero_s=zero_s or 0.0).axis
        chart = Chart("curves", "The run over time", "", _HEIGHT_PX, axis, panels)
        return {"chart": chart.document(), "from_s": clock.from_s, "unit_s": clock.unit_s}
