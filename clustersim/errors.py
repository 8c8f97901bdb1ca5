"""Errors of the simulator that a user can mend."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from itertime.errors import UnknownName, UserError

__all__ = ["Interrupted", "PolicyError", "UnknownParameter", "blame", "place_of"]

_ENGINE = Path(__file__).parent


class PolicyError(UserError):
    """A policy broke a rule of the Scheduler API, or failed.

    Names the policy, the simulated time and what it proposed.
    """

    exit_code = 4


class Interrupted(UserError):
    """A user ended a command; `out` is the folder that it was writing, if any."""

    exit_code = 130

    def __init__(self, out: Path | None):
        kept = f"; what had happened by then is in {out}, marked as interrupted" if out is not None else ""
        super().__init__(f"interrupted{kept}")


class UnknownParameter(UnknownName):
    """A policy was given a parameter that it does not have."""

    exit_code = PolicyError.exit_code


def blame(error: BaseException, call: str) -> str:
    """What a policy's `call` raised, with the file and line of the policy that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent != _ENGINE]
    frame = (own or frames)[-1]
    where = f"{frame.filename}:{frame.lineno}"
    if isinstance(error, PolicyError):
        return f"{error} ({where})"
    return f"{call} raised {type(error).__name__} at {where}: {error}"


def place_of(function: Callable[..., object]) -> str:
    """File and line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
