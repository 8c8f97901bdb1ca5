"""Errors of the simulator that a user can mend."""

from __future__ import annotations

from itertime.errors import UserError

__all__ = ["PolicyError"]


class PolicyError(UserError):
    """A policy broke a rule of the Scheduler API, or failed.

    Names the policy, the simulated time and what it proposed.
    """

    exit_code = 4
