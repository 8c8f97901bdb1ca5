"""Errors of the simulator that a user can mend."""

from __future__ import annotations

from itertime.errors import UnknownName, UserError

__all__ = ["PolicyError", "UnknownParameter"]


class PolicyError(UserError):
    """A policy broke a rule of the Scheduler API, or failed.

    Names the policy, the simulated time and what it proposed.
    """

    exit_code = 4


class UnknownParameter(UnknownName):
    """A policy was given a parameter that it does not have."""

    exit_code = PolicyError.exit_code
