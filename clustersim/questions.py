"""Asking a policy: what it raises, and what is no answer, becomes a PolicyError that names the place."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from time import perf_counter

from .errors import PolicyError, blame, place_of
from .job_view import JobView
from .scheduler import Proposal, Scheduler, State

__all__ = ["Questions"]


class Questions:
    """The questions of one run, or of one scene, to its policy.

    `wall_s`: seconds of wall-clock time that the answers took. `when`: says in an error when that was, such
    as " at t=60 s".
    """

    def __init__(self, scheduler: Scheduler, state: State, when: Callable[[], str] = str):
        self._scheduler, self._state, self._when = scheduler, state, when
        self._admits_all = type(scheduler).admit is Scheduler.admit
        self.wall_s = 0.0

    def schedule(self) -> Proposal:
        """What should run from now on."""
        schedule = self._scheduler.schedule
        answer = self._ask("schedule", schedule, self._state)
        if isinstance(answer, Proposal) and answer._state is self._state:
            if answer._decision == self._state._decision:
                return answer
            fault = "a proposal of an earlier decision; begin each with state.proposal()"
        else:
            fault = f"{reprlib.repr(answer)}, not a proposal made by state.proposal()"
        raise self.error(f"schedule returned {fault} ({place_of(schedule)})")

    def admit(self, job: JobView) -> bool:
        """Whether to accept a job that was just submitted."""
        if self._admits_all:
            return True
        answer = self._ask("admit", self._scheduler.admit, job, self._state)
        if not isinstance(answer, bool):
            raise self.error(f"admit(job {job.id}) returned {answer!r}; return True or False")
        return answer

    def add_pending(self, job: JobView) -> None:
        """Let `job` wait; where the state keeps waiting jobs sorted, their keys are the policy's."""
        if self._state._rankings:
            self._ask("the key of pending_by", self._state._add_pending, job)
        else:
            self._state._add_pending(job)

    def error(self, text: str) -> PolicyError:
        """That the policy broke a rule."""
        return PolicyError(f"policy {type(self._scheduler).__name__}{self._when()}: {text}")

    def _ask(self, call: str, question: Callable[..., object], *arguments: object) -> object:
        began = perf_counter()
        try:
            return question(*arguments)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise self.error(blame(error, call)) from error
        finally:
            self.wall_s += perf_counter() - began
