"""The text of a profile's file."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from itertime.spec import Profile


def render(profile: dict[str, Any]) -> str:
    """The profile as JSON, each list of numbers on one line, numbers to 6 significant digits."""

    def on_one_line(numbers: re.Match[str]) -> str:
        return "[" + ", ".join(numbers[0].strip("[]").replace(",", " ").split()) + "]"

    return re.sub(r"\[[\s\d.,e+-]+\]", on_one_line, json.dumps(_tidy(profile), indent=1)) + "\n"


def _tidy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tidy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def plain_values(profile: Profile) -> dict[str, Any]:
    """A profile as plain values, as its file has them."""
    values = dataclasses.asdict(profile)
    for table in values["collectives"].values():
        table.pop("_dense")
    for name in ("timed", "is_core"):
        if not values[name]:
            values.pop(name)
    return values
