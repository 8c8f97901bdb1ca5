"""Errors of the simulator that a user can correct."""

from __future__ import annotations

from pathlib import Path

from itertime.errors import UserError

__all__ = ["Interrupted", "PolicyError", "UnsuitedPolicy"]


class PolicyError(UserError):
    """A policy broke a rule of the Scheduler API, or failed.

    Names the policy, the simulated time and what it proposed.
    """

    exit_code = 4


class UnsuitedPolicy(UserError):
    """A policy cannot run with the cluster and the settings of a run, and other policies can: it plans with
    one GPU type, with nodes of one size, or by a planner that does not exist.
    """


class Interrupted(UserError):
    """A user ended a command; `out` is the folder that it was writing, if any."""

    exit_code = 130

    def __init__(self, out: Path | None):
        kept = f"; the records up to then are in {out}, marked as interrupted" if out is not None else ""
        super().__init__(f"interrupted{kept}")
