"""The runs of a job that was started more than once: the column `attempts` of a trace."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import NamedTuple

__all__ = ["Attempt", "attempts_text", "parse_attempts"]

_MOST_ATTEMPTS = 10_000
_STATE = re.compile(r"[A-Z][A-Z_]{0,30}")


class Attempt(NamedTuple):
    """A run of a job, from `start_s` to `end_s` on the trace's clock, and how it ended, by Slurm's names:
    COMPLETED, FAILED, TIMEOUT, CANCELLED, PREEMPTED, REQUEUED, NODE_FAIL and so on.
    """

    start_s: float
    end_s: float
    state: str

    @property
    def run_s(self) -> float:
        """Seconds from the start to the end."""
        return self.end_s - self.start_s


def parse_attempts(text: str) -> tuple[Attempt, ...]:
    """The attempts that a cell states, each as `start-end:STATE`, with spaces between them.

    ValueError says what is wrong, and how to fix it.

    >>> parse_attempts("60-120:PREEMPTED 300-500.5:COMPLETED")[1].end_s
    500.5
    """
    words = text.split()
    if not words:
        raise ValueError("states no attempt; leave the cell empty for a job that ran at most once")
    if len(words) > _MOST_ATTEMPTS:
        raise ValueError(f"has more than {_MOST_ATTEMPTS:,} attempts; leave the job out")
    attempts = tuple(_attempt(word) for word in words)
    for attempt, successor in pairwise(attempts):
        if successor.start_s < attempt.end_s:
            wrong = f"has an attempt that starts at {successor.start_s:g}, before {attempt.end_s:g}"
            raise ValueError(f"{wrong}, the end of the one ahead of it; write attempts in order of time")
    return attempts


def attempts_text(attempts: tuple[Attempt, ...]) -> str:
    """The cell that states these attempts, with times to a microsecond."""
    return " ".join(f"{_time_text(a.start_s)}-{_time_text(a.end_s)}:{a.state}" for a in attempts)


def _attempt(word: str) -> Attempt:
    span, colon, state = word.partition(":")
    start, dash, end = span.partition("-")
    if not colon or not dash or not _STATE.fullmatch(state):
        raise ValueError(f"has the attempt {word[:60]!r}; write start-end:STATE, such as 60-120:PREEMPTED")
    try:
        start_s, end_s = float(start), float(end)
    except ValueError:
        raise ValueError(f"has the times {span[:60]!r}; write seconds on the trace's clock") from None
    if not (0 <= start_s <= end_s and math.isfinite(end_s)):
        raise ValueError(f"has the times {span[:60]!r}; an attempt ends after its start, both from 0 on")
    return Attempt(start_s, end_s, state)


def _time_text(time_s: float) -> str:
    return f"{time_s:.6f}".rstrip("0").rstrip(".")
