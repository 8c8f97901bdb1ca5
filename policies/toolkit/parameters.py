"""Checks of policies' parameters. Users see the ValueError as a `UserError` that names the policy.

A message shows the beginning of a long value (`brief`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from reprlib import repr as brief

__all__ = ["by_tenant", "increasing", "number", "positive", "switch", "whole"]


def number(name: str, value: object, minimum: float, maximum: float = inf) -> float:
    """`value`, a finite number from `minimum` to `maximum`. Otherwise a ValueError names parameter, value and
    range.
    """
    if _is_number(value) and minimum <= value <= maximum:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    span = f"at least {minimum:g}" if maximum == inf else f"between {minimum:g} and {maximum:g}"
    raise ValueError(f"{name}={brief(value)}: must be a finite number, {span}")


def whole(name: str, value: object, minimum: int, maximum: int) -> int:
    """`value`, a whole number from `minimum` to `maximum`. Otherwise a ValueError names parameter, value and
    range.
    """
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum:
        return value
    raise ValueError(f"{name}={brief(value)}: must be a whole number between {minimum} and {maximum:,}")


def switch(name: str, value: object) -> bool:
    """`value`, true or false. Otherwise a ValueError names parameter and value."""
    if isinstance(value, bool):
        return value
    raise ValueError(f"{name}={brief(value)}: must be true or false")


def positive(name: str, values: object) -> tuple[float, ...]:
    """`values`, a list of one or more positive finite numbers. Otherwise a ValueError names parameter and
    value.
    """
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise ValueError(f"{name}={brief(values)}: must be a list of positive numbers, as in [1000, 2000]")
    for value in values:
        if not _is_number(value) or value <= 0:
            raise ValueError(f"{name}: {brief(value)} in it: must be a positive finite number")
    return tuple(float(value) for value in values)


def increasing(name: str, values: object) -> tuple[float, ...]:
    """As `positive`, and each number must be larger than the previous one."""
    checked = positive(name, values)
    if any(a >= b for a, b in pairwise(checked)):
        raise ValueError(f"{name}={brief(values)}: each must be larger than the previous one")
    return checked


def by_tenant(name: str, values: object, minimum: float = 0.0) -> dict[str, float]:
    """`values`, a mapping from tenants to finite numbers of at least `minimum`; None means an empty mapping.
    Otherwise a ValueError names parameter, tenant and value.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ValueError(
            f"{name}={brief(values)}: must be a number by tenant, as in {{research: 2, product: 1}}"
        )
    for tenant, value in values.items():
        if not _is_number(value) or value < minimum:
            raise ValueError(
                f"{name}: {tenant!s:.60}={brief(value)}: must be a finite number, at least {minimum:g}"
            )
    return {str(tenant): float(value) for tenant, value in values.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < inf
