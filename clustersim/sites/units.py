"""Slurm's units: times, memory, trackable resources (TRES).

Sources: slurm.conf(5) and sacctmgr(1): `1-00:00:00`, `UNLIMITED`, `16000M`, `cpu=1.0,gres/gpu=16`. Memory
without a unit is in units of 2**20 bytes; K, M, G, T and P are powers of 1024. Memory in GB is in 1e9 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite

__all__ = [
    "UNLIMITED",
    "memory_gb_of",
    "seconds_of",
    "time_text",
    "tres_of",
    "tres_text",
    "weights_of",
]

UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "-1")
"""How Slurm writes that there is no limit."""

_DAYS = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_CLOCK = re.compile(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:\.\d+)?", re.ASCII)
_NUMBER_WITH_UNIT = re.compile(r"(\d{1,12}(?:\.\d+)?)\s*(sec|secs|seconds|min|mins|minutes|hours|days)?")
_SECONDS = {"sec": 1.0, "min": 60.0, "hou": 3600.0, "day": 86400.0}
_MEMORY = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([KMGTP]?)B?", re.ASCII | re.IGNORECASE)
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}
_COUNT = re.compile(r"(-?\d{1,18}(?:\.\d+)?)([KMGTP]?)", re.ASCII | re.IGNORECASE)
_THOUSANDS = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def seconds_of(text: str, number_s: float = 60.0) -> float | None:
    """The seconds of a time as Slurm writes it; None where there is no limit. `number_s`: the seconds of 1 in
    a text that is a number alone. ValueError for anything else.

    >>> seconds_of("1-00:00:00"), seconds_of("5:00"), seconds_of("90"), seconds_of("UNLIMITED")
    (86400.0, 300.0, 5400.0, None)
    >>> seconds_of("2-12"), seconds_of("30 sec")
    (216000.0, 30.0)
    """
    text = text.strip()
    if text.upper() in UNLIMITED:
        return None
    if match := _DAYS.fullmatch(text):
        days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return days * 86400 + hours * 3600 + minutes * 60 + seconds
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return hours * 3600 + minutes * 60 + seconds
    if match := _NUMBER_WITH_UNIT.fullmatch(text):
        return float(match[1]) * (_SECONDS[match[2][:3]] if match[2] else number_s)
    raise ValueError("is no time; write seconds as a number, or 1-00:00:00, 01:30:00 or UNLIMITED")


def time_text(seconds: float) -> str:
    """Seconds as Slurm writes them.

    >>> time_text(86400), time_text(3661.0)
    ('1-00:00:00', '01:01:01')
    """
    days, rest_s = divmod(int(seconds), 86400)
    clock = f"{rest_s // 3600:02}:{rest_s // 60 % 60:02}:{rest_s % 60:02}"
    return f"{days}-{clock}" if days else clock


def memory_gb_of(text: str) -> float:
    """The memory in a text, in GB of 1e9 bytes. ValueError if it is none.

    >>> memory_gb_of("1000M") == memory_gb_of("1000") == 1.048576
    True
    """
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise ValueError("is no amount of memory; write 16000M or 512G")
    return float(match[1]) * _BINARY[match[2].upper() or "M"] / 1e9


def tres_of(text: str, unit: float = 1.0) -> dict[str, float]:
    """Amounts of trackable resources by name, multiplied by `unit`; memory in GB. What is -1 has no limit,
    and is left out. ValueError for anything else.

    >>> tres_of("cpu=4,GRES/gpu:a100=16,mem=1000M")
    {'cpu': 4.0, 'gres/gpu:a100': 16.0, 'mem': 1.048576}
    """
    amounts = {}
    for name, value in _pairs(text):
        if value != "-1":
            amounts[name] = (memory_gb_of(value) if name == "mem" else _count(name, value)) * unit
    return amounts


def weights_of(text: str) -> dict[str, float]:
    """Weights of trackable resources by name: of one unit each, and of a GB of 1e9 bytes of memory. A letter
    behind the weight of memory names its unit: `mem=0.25G` is 0.25 for each 2**30 bytes.

    >>> {name: round(weight, 6) for name, weight in weights_of("CPU=1.0,Mem=0.25G,GRES/gpu=2").items()}
    {'cpu': 1.0, 'mem': 0.232831, 'gres/gpu': 2.0}
    """
    weights = {}
    for name, value in _pairs(text):
        match = _COUNT.fullmatch(value)
        if not match:
            raise ValueError(f"{name}={value} is no weight; write cpu=1.0,mem=0.25G,gres/gpu=2.0")
        unit_gb = _BINARY[match[2].upper() or "M"] / 1e9
        weights[name] = float(match[1]) / unit_gb if name == "mem" else float(match[1])
    return weights


def _pairs(text: str) -> list[tuple[str, str]]:
    """Names and values in `a=1,b=2`. The type behind a colon keeps its letters, all else is lower case."""
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        kind, colon, subtype = name.strip().partition(":")
        if not equals or not kind:
            raise ValueError(f"{part} states no amount; write cpu=4,gres/gpu=16,mem=16000M")
        kind = kind.lower().replace("gres:", "gres/")
        pairs.append((f"{kind}{colon}{subtype}", value.strip()))
    return pairs


def _count(name: str, value: str) -> float:
    match = _COUNT.fullmatch(value)
    if not match or not isfinite(float(match[1])):
        raise ValueError(f"{name}={value} is no amount; write cpu=4,gres/gpu=16,mem=16000M")
    return float(match[1]) * _THOUSANDS[match[2].upper()]


def tres_text(amounts: Mapping[str, float], unit: float = 1.0) -> str | None:
    """Amounts as Slurm writes them, divided by `unit`; None where that would not give back the amounts."""
    words = []
    for name, amount in amounts.items():
        count = amount / unit / (_BINARY["M"] / 1e9 if name == "mem" else 1.0)
        if count != round(count) or count > 1e15:
            count = round(count, 6)
        words.append(f"{name}={count:.15g}M" if name == "mem" else f"{name}={count:.15g}")
    text = ",".join(words)
    return text if text and tres_of(text, unit) == amounts else None
