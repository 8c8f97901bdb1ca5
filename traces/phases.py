"""Phases of a job: how much of its work it does with another global batch, or at another speed.

The text is `share:value` for each phase, in their order: `0.3:512 0.7:1024`. The share is a part of the job's
work. The value is the global batch of a job that states its iterations. Of a job that states its run time it
is the speed of the phase relative to the others.

Work is counted in sequences, whatever the batch: `iterations` x `global_batch` of them are all the work. So a
unit of work, an iteration of the stated batch, is G / B iterations of a phase with batch B.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import fsum
from typing import NamedTuple

__all__ = ["MOST_PHASES", "Phase", "ends_of", "parse_phases", "phases_text", "seconds_factors"]

MOST_PHASES = 1000
_LEAST_SHARE = 1e-6
_ROUNDING = 1e-6  # of the sum of the shares
_LEAST_VALUE, _MOST_VALUE = 1e-3, 1e7


class Phase(NamedTuple):
    """`share`: of the job's work. `value`: sequences per iteration, or a relative speed."""

    share: float
    value: float


@lru_cache(4096)
def parse_phases(text: str) -> tuple[Phase, ...]:
    """The phases that a text states. ValueError, "what is wrong; how to fix it", for any other text.

    >>> parse_phases("0.3:512 0.7:1024")
    (Phase(share=0.3, value=512.0), Phase(share=0.7, value=1024.0))
    """
    words = text.split()
    if not 1 <= len(words) <= MOST_PHASES:
        raise ValueError(f"has {len(words):,} phases; state from 1 to {MOST_PHASES:,}, as 0.3:512 0.7:1024")
    phases = tuple(map(_phase, words))
    total = fsum(phase.share for phase in phases)
    if abs(total - 1.0) > _ROUNDING:
        raise ValueError(
            f"has shares that add up to {total:.9g}; they are parts of the work, and add up to 1"
        )
    return phases


def _phase(word: str) -> Phase:
    share, colon, value = word.partition(":")
    try:
        phase = Phase(float(share), float(value))
    except ValueError:
        raise ValueError(f"has the phase {word[:100]!r}; write share:value, as 0.3:512") from None
    if not colon or "_" in word or not _LEAST_SHARE <= phase.share <= 1 + _ROUNDING:
        raise ValueError(f"has the share {share[:100]}; a share of the work is from {_LEAST_SHARE:g} to 1")
    if not _LEAST_VALUE <= phase.value <= _MOST_VALUE:
        raise ValueError(f"has the value {value[:100]}; values are from {_LEAST_VALUE:g} to {_MOST_VALUE:g}")
    return phase


def phases_text(phases: tuple[Phase, ...]) -> str:
    """The text of phases in its shortest form, which reads back exactly.

    >>> phases_text(parse_phases("0.30:512  0.7:1024.0"))
    '0.3:512 0.7:1024'
    """
    return " ".join(f"{_shortest(share)}:{_shortest(value)}" for share, value in phases)


def _shortest(value: float) -> str:
    return repr(value).removesuffix(".0")


def ends_of(phases: tuple[Phase, ...]) -> tuple[float, ...]:
    """The share of the work that is done at the end of each phase; exactly 1 at the end of the last.

    >>> ends_of(parse_phases("0.25:1 0.75:2"))
    (0.25, 1.0)
    """
    return (*[min(1.0, end) for end in accumulate(phase.share for phase in phases)][:-1], 1.0)


def seconds_factors(phases: tuple[Phase, ...], global_batch: int | None) -> tuple[float, ...]:
    """For each phase, by what the seconds of an iteration in it are multiplied to give those of a unit of
    work: G / B with the stated batch G and the phase's B. `global_batch` None: the seconds of a unit of a
    job with a run time, which keeps that run time over all its phases.

    >>> seconds_factors(parse_phases("0.3:512 0.7:1024"), 512)
    (1.0, 0.5)
    >>> seconds_factors(parse_phases("0.5:1 0.5:3"), None)
    (1.5, 0.5)
    """
    if global_batch is not None:
        return tuple(global_batch / phase.value for phase in phases)
    mean = fsum(share / (value / phases[0].value) for share, value in phases)
    return tuple(phases[0].value / phase.value / mean for phase in phases)
