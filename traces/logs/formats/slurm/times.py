"""The times of a row of Slurm: dates without an offset, some of them in the hour that a clock shows twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from itertime.io import shown
from traces.logs.cells import MixedColumnError, Moments

__all__ = ["RowTimes", "row_times"]

_NO_TIME = frozenset(("", "Unknown", "None", "N/A", "(null)", "0", "NONE"))


class RowTimes(NamedTuple):
    """Seconds on the log's clock, None where a row states none."""

    submit_s: float
    eligible_s: float | None
    start_s: float | None
    end_s: float | None


def row_times(
    moment: Moments,
    leave_out: Callable[[str], None],
    submit: str,
    eligible: str,
    start: str,
    end: str,
    span_s: float | None = None,
) -> RowTimes:
    """The times of a row by its cells. `span_s`: from the start to the end, where the row says so; it tells
    which of two moments the clock meant when it was set back. `leave_out` is told what is wrong with a time
    beside the submission. ValueError (reason, kind of reason) for a row without a submission.
    """
    if submit in _NO_TIME:
        raise ValueError("states no time of submission")
    try:
        submit_s = moment(submit)
    except ValueError as error:
        raise ValueError(f"Submit={shown(submit)}: {error}", f"Submit: {error}") from None
    except MixedColumnError as error:
        raise MixedColumnError(f"Submit={shown(submit)}: {error}") from None
    eligible_s = submit_s if eligible == submit else _time(moment, leave_out, "Eligible", eligible)
    start_s, end_s = _time(moment, leave_out, "Start", start), _time(moment, leave_out, "End", end)
    times = RowTimes(submit_s, eligible_s, start_s, end_s)
    if moment.is_utc:
        return times
    later = [
        None if time_s is None else moment.later(text)
        for time_s, text in zip(times, (submit, eligible, start, end), strict=True)
    ]
    return times if not any(later) else _settled(times, later, span_s)


def _settled(times: RowTimes, later: list[float | None], span_s: float | None) -> RowTimes:
    """The times in their order, with the run time that the row states; of several the earliest."""
    pairs = [(earlier_s, later_s) for earlier_s, later_s in zip(times, later, strict=True)]
    submits, eligibles, starts, ends = (
        (earlier_s,) if later_s is None else (earlier_s, later_s) for earlier_s, later_s in pairs
    )
    spans = [
        (
            0.0 if span_s is None or start_s is None or end_s is None else abs(end_s - start_s - span_s),
            start_s,
            end_s,
        )
        for start_s in starts
        for end_s in ends
        if start_s is None or end_s is None or end_s >= start_s
    ]
    _, start_s, end_s = min(spans, key=lambda span: span[0], default=(0.0, times.start_s, times.end_s))
    last_s = float("inf") if start_s is None else start_s
    submit_s = next((s for s in submits if s is not None and s <= last_s), times.submit_s)
    eligible_s = next((s for s in eligibles if s is not None and submit_s <= s <= last_s), times.eligible_s)
    return RowTimes(submit_s, eligible_s, start_s, end_s)


def _time(moment: Moments, leave_out: Callable[[str], None], name: str, text: str) -> float | None:
    if text in _NO_TIME:
        return None
    try:
        return moment(text)
    except ValueError as error:
        leave_out(f"{name}: {error}")
        return None
