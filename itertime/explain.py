"""Where an iteration's time goes, by groups of parts, and why one plan is slower than another."""

from __future__ import annotations

from collections.abc import Mapping

from itertime.prediction import Prediction

__all__ = ["GROUPS", "difference", "in_words", "where_time_goes"]

GROUPS = {
    "compute": ("gemm", "attention", "elementwise", "embedding", "head"),
    "recompute": ("recompute",),
    "tensor-parallel communication": ("tp_comm",),
    "context-parallel communication": ("cp_comm",),
    "expert-parallel communication": ("ep_comm",),
    "pipeline communication": ("p2p", "embedding_sync"),
    "data-parallel communication, exposed": ("dp_comm", "fsdp_comm", "fsdp_last"),
    "bubble": ("bubble",),
    "optimizer": ("optimizer",),
    "waiting for launches": ("launch",),
    "overhead of the site": ("overhead", "iteration_overhead"),
}
LEAST = 0.005  # of the difference; smaller parts are left out


def where_time_goes(prediction: Prediction) -> dict[str, float]:
    """Seconds by group, in the order of `GROUPS`; they sum to the iteration. Recomputation includes its
    communication.
    """
    parts = prediction.breakdown
    return {group: sum(parts.get(name, 0.0) for name in names) for group, names in GROUPS.items()}


def difference(best: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """How much more `other` has of every part, largest differences first.

    >>> difference({"gemm": 1.0, "bubble": 0.5}, {"gemm": 1.0, "bubble": 0.25, "tp_comm": 1.0})
    {'tp_comm': 1.0, 'bubble': -0.25, 'gemm': 0.0}
    """
    names = sorted({*best, *other})
    more = {name: other.get(name, 0.0) - best.get(name, 0.0) for name in names}
    return dict(sorted(more.items(), key=lambda item: (-abs(item[1]), item[0])))


def in_words(more: Mapping[str, float], unit: str, most: int = 4) -> str:
    """The differences that matter, largest first.

    >>> in_words({"bubble": 1.5, "tp_comm": -0.25, "gemm": 0.0}, " s")
    'bubble +1.5 s, tp_comm -0.25 s'
    """
    scale = sum(abs(value) for value in more.values())
    shown = [(name, value) for name, value in more.items() if abs(value) > LEAST * scale]
    return ", ".join(f"{name} {value:+.3g}{unit}" for name, value in shown[:most])
