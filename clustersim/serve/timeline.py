"""Pictures along an event log, so that the one of any time is found without reading the whole log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from math import inf

from clustersim.records import EventRecord

from .curves import Curves
from .picture import RunPicture

__all__ = ["Timeline"]

_MOST = 256  # pictures that are kept

Block = Callable[[int], tuple[list[EventRecord], int]]
"""The events from an offset of the log, and the offset behind them: `rundir.Following.block`."""


class Timeline:
    """What is known of a log that grows: the picture at its end, earlier ones to begin from, and curves.

    At most `most` pictures are kept. When there are more, every second one goes, and from then on they are
    twice as far apart.
    """

    def __init__(self, block: Block, limit: int = _MOST):
        self.last = RunPicture()
        self.curves = Curves()
        self.begin_s: float | None = None
        self.offset = 0
        self._block, self._most, self._stride, self._blocks = block, limit, 1, 0
        self._kept: list[tuple[float, int, RunPicture]] = [(-inf, 0, RunPicture())]

    def grow(self) -> list[EventRecord]:
        """Read the next block of the log; its events."""
        events, offset = self._block(self.offset)
        if not events:
            return events
        if self.begin_s is None:
            self.begin_s = events[0].time_s
        for event in events:
            self.last.apply((event,))
            self.curves.note(self.last)
        self.offset = offset
        self._blocks += 1
        if self._blocks % self._stride == 0:
            time_s = self.last.time_s
            assert time_s is not None
            self._kept.append((time_s, offset, self.last.copy()))
            if len(self._kept) > self._most:
                self._stride *= 2
                self._kept = self._kept[::2]
        return events

    def at(self, time_s: float) -> tuple[RunPicture, float | None]:
        """The picture after all events up to a time, and the time of the next event, None if none follows in
        what has been read.
        """
        place = bisect_right(self._kept, time_s, key=lambda entry: entry[0]) - 1
        _, offset, entry = self._kept[max(place, 0)]
        picture = entry.copy()
        while offset < self.offset:
            events, offset = self._block(offset)
            upto = bisect_right(events, time_s, key=lambda event: event.time_s)
            picture.apply(events[:upto])
            if upto < len(events):
                return picture, events[upto].time_s
            if not events:
                break
        return picture, None
