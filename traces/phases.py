"""Phases of a job: how much of its work it does with another global batch, or at another speed.

The text is `share:value` for each phase, in their order: `0.3:512 0.7:1024`. The share is a part of the job's
work. The value is the global batch of a job that states its iterations. Of a job that states its run time it
is the speed of the phase relative to the others.

A batch can be a choice, `512..4096`: a policy may also train with the batch doubled, up to the second number.
After the batch may stand the gradient noise scale of the phase, in sequences: `0.3:512..4096:800`.

A phase may train a model of fewer layers, `0.2:512@6 0.2:512@12 0.6:512`. So progressive stacking doubles
the layers from phase to phase (Gong et al., Efficient Training of BERT by Progressively Stacking, ICML 2019).
With layer dropping the number is the mean of those that a step keeps (Zhang and He, Accelerating Training of
Transformer-Based Language Models with Progressive Layer Dropping, NeurIPS 2020).

A unit of work is the progress of one iteration with the job's `global_batch`, G. An iteration with batch B
makes B / G x (noise + G) / (noise + B) of it. That is the statistical efficiency of Qiao et al., "Pollux:
Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, equation 7, after McCandlish
et al., "An Empirical Model of Large-Batch Training", 2018. Without a stated noise it is infinite: all
sequences count alike, `iterations` x `global_batch` of them are all the work.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate
from math import fsum, inf
from typing import NamedTuple

__all__ = [
    "MOST_PHASES",
    "Phase",
    "ends_of",
    "parse_phases",
    "phases_text",
    "seconds_factor",
    "seconds_factors",
]

MOST_PHASES = 1000
_LEAST_SHARE = 1e-6
_ROUNDING = 1e-6  # of the sum of the shares
_LEAST_VALUE, _MOST_VALUE = 1e-3, 1e7
_MOST_NOISE = 1e12  # sequences
_MOST_LAYERS = 100_000


class Phase(NamedTuple):
    """`share`: of the job's work. `value`: sequences per iteration, or a relative speed.

    `most`: the largest batch that a policy may choose, None where the batch is no choice. `noise`: the
    gradient noise scale, in sequences. `layers`: those of the model that trains; None for all.
    """

    share: float
    value: float
    most: float | None = None
    noise: float = inf
    layers: int | None = None

    @property
    def batches(self) -> tuple[int, ...]:
        """The batches of the phase, the one that holds without a choice first. Of a phase that states a
        relative speed, which may be below 1, the only element has no meaning.

        >>> Phase(1.0, 512.0, 4096.0).batches
        (512, 1024, 2048, 4096)
        >>> Phase(1.0, 0.25).batches
        (0,)
        """
        batches = [int(self.value)]
        while self.most is not None and 2 * batches[-1] <= self.most:
            batches.append(2 * batches[-1])
        return tuple(batches)


@lru_cache(4096)
def parse_phases(text: str) -> tuple[Phase, ...]:
    """The phases that a text states. ValueError, "what is wrong; how to fix it", for any other text.

    >>> parse_phases("1:512..4096:800")
    (Phase(share=1.0, value=512.0, most=4096.0, noise=800.0, layers=None),)
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
    batch_word, with_depth, depth = word.partition("@")
    share, colon, batch_text = batch_word.partition(":")
    batch, with_noise, noise = batch_text.partition(":")
    value, is_choice, largest_text = batch.partition("..")
    try:
        largest, scale = float(largest_text) if is_choice else None, float(noise) if with_noise else inf
        layers = int(depth) if with_depth else None
        phase = Phase(float(share), float(value), largest, scale, layers)
    except ValueError:
        remedy = "write share:value, as 0.3:512, or share:batch..largest:noise, as 0.3:512..4096:800"
        raise ValueError(f"has the phase {word[:100]!r}; {remedy}") from None
    if "_" in word:
        raise ValueError(f"has the phase {word[:100]!r}; write numbers without underscores")
    if not colon or not _LEAST_SHARE <= phase.share <= 1 + _ROUNDING:
        raise ValueError(f"has the share {share[:100]}; a share of the work is from {_LEAST_SHARE:g} to 1")
    if not _LEAST_VALUE <= phase.value <= _MOST_VALUE:
        raise ValueError(f"has the value {value[:100]}; values are from {_LEAST_VALUE:g} to {_MOST_VALUE:g}")
    if phase.most is not None and phase.value < 1:
        raise ValueError(f"has the batch {value[:100]}; a batch is at least 1")
    if phase.most is not None and not phase.value <= phase.most <= _MOST_VALUE:
        raise ValueError(
            f"has the largest batch {largest_text[:100]}; it is from {value[:100]} to {_MOST_VALUE:g}"
        )
    if phase.layers is not None and not 1 <= phase.layers <= _MOST_LAYERS:
        raise ValueError(f"has {depth[:100]} layers; a phase has from 1 to {_MOST_LAYERS:,}")
    if with_noise and not 0 <= phase.noise <= _MOST_NOISE:
        raise ValueError(f"has the noise {noise[:100]}; a noise is from 0 to {_MOST_NOISE:g} sequences")
    return phase


def phases_text(phases: tuple[Phase, ...]) -> str:
    """The text of phases in its shortest form, which reads back exactly.

    >>> phases_text(parse_phases("0.30:512  0.7:1024.0..4096:8e2"))
    '0.3:512 0.7:1024..4096:800'
    >>> phases_text(parse_phases("0.25:512@6 0.75:512:800@12"))
    '0.25:512@6 0.75:512:800@12'
    """
    return " ".join(map(_word, phases))


def _word(phase: Phase) -> str:
    word = f"{_shortest(phase.share)}:{_shortest(phase.value)}"
    if phase.most is not None:
        word += f"..{_shortest(phase.most)}"
    if phase.noise != inf:
        word += f":{_shortest(phase.noise)}"
    return word if phase.layers is None else f"{word}@{phase.layers}"


def _shortest(value: float) -> str:
    return repr(value).removesuffix(".0")


def ends_of(phases: tuple[Phase, ...]) -> tuple[float, ...]:
    """The share of the work that is done at the end of each phase; exactly 1 at the end of the last.

    >>> ends_of(parse_phases("0.25:1 0.75:2"))
    (0.25, 1.0)
    """
    return (*[min(1.0, end) for end in accumulate(phase.share for phase in phases)][:-1], 1.0)


def seconds_factor(noise: float, batch: float, global_batch: float) -> float:
    """By what the seconds of an iteration with `batch` are multiplied to give those of a unit of work: the
    progress of one with the job's `global_batch`, where the gradient noise scale is `noise` sequences.

    >>> seconds_factor(inf, 1024, 512), seconds_factor(512, 1024, 512), seconds_factor(0, 1024, 512)
    (0.5, 0.75, 1.0)
    """
    equal_phases = global_batch / batch
    return equal_phases if noise == inf else equal_phases * ((noise + batch) / (noise + global_batch))


def seconds_factors(phases: tuple[Phase, ...], global_batch: int | None) -> tuple[float, ...]:
    """For each phase, by what the seconds of an iteration with its own batch are multiplied to give those of
    a unit of work (`seconds_factor`). `global_batch` None: the seconds of a unit of a job with a run time,
    which keeps that run time over all its phases.

    >>> seconds_factors(parse_phases("0.3:512 0.7:1024"), 512)
    (1.0, 0.5)
    >>> seconds_factors(parse_phases("0.5:1 0.5:3"), None)
    (1.5, 0.5)
    """
    if global_batch is not None:
        return tuple(seconds_factor(phase.noise, phase.value, global_batch) for phase in phases)
    mean = fsum(phase.share / (phase.value / phases[0].value) for phase in phases)
    return tuple(phases[0].value / phase.value / mean for phase in phases)
