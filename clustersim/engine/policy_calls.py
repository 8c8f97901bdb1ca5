"""Calling a policy. An exception or an invalid answer becomes a PolicyError that names the place."""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Callable
from itertools import chain
from time import perf_counter

from clustersim.errors import PolicyError
from clustersim.records import DECLINED
from clustersim.scheduler import JobView, Proposal, Scheduler, State
from clustersim.scheduler.cluster_state import ClusterState
from clustersim.scheduler.internal import facts_of
from clustersim.scheduler.key_checks import broken_order, broken_promise, place_of
from clustersim.scheduler.searches import hand_back

__all__ = ["PolicyCalls", "locate_policy_error"]

_OURS = (__name__.partition(".")[0], "itertime", "traces")
"""The packages of which a policy's author knows the face alone."""


class PolicyCalls:
    """The calls of one policy during a run, or in one scene.

    `state`: what the policy sees of `facts`. `admits_all`: whether it declines no job that its parameters
    allow. `wall_s`: wall-clock seconds spent in the policy. `when` gives the simulated time for error
    messages, for example " at t=60 s".
    `check_all_keys`: look up the keys of all waiting jobs after each decision, and the order of `run`;
    otherwise samples of keys (see `key_checks`).
    """

    def __init__(
        self,
        scheduler: Scheduler,
        facts: ClusterState[JobView],
        when: Callable[[], str] = str,
        check_all_keys: bool = False,
    ):
        self._scheduler, self._facts, self._when = scheduler, facts, when
        self._check_all_keys = check_all_keys
        self._hands_back = scheduler.leaves_idle is False
        self._is_simple = not (check_all_keys or self._hands_back)  # answers are seldom looked through
        self.state = State(facts)
        self.admits_all = type(scheduler).admit is Scheduler.admit
        self._refuses_none = type(scheduler).refusal is Scheduler.refusal
        self.wall_s = 0.0

    def schedule(self) -> Proposal:
        """What should run from now on. Where the policy leaves no GPUs idle, a job that it stops keeps those
        of which no other job gets any.
        """
        schedule = self._scheduler.schedule
        answer = self._call("schedule", schedule, self.state)
        if isinstance(answer, Proposal) and facts_of(answer) is self._facts:
            if answer.decision == self._facts.decision:
                if self._facts.waiting.rankings:
                    self._check_keys(answer)
                if self._is_simple and not answer.withdrawals and self._facts.changes is None:
                    return answer
                if self._check_all_keys and answer.order and (fault := broken_order(answer)):
                    raise self.error(fault)
                withdrawals = answer.withdrawals
                if self._hands_back:
                    stopped_jobs = [job for job, placement in answer.changes.items() if placement is None]
                    hand_back(answer, [job for job in stopped_jobs if job not in withdrawals])
                if withdrawals and (fault := _fault_of_withdrawals(answer)):
                    raise self.error(fault)
                if self._facts.changes is not None:
                    self._note_changes(answer)
                return answer
            fault = "a proposal of an earlier decision; begin each with state.proposal()"
        else:
            fault = f"{reprlib.repr(answer)}, not a proposal made by state.proposal()"
        raise self.error(f"schedule returned {fault} ({place_of(schedule)})")

    def _note_changes(self, answer: Proposal) -> None:
        """Note which jobs the policy will find changed at its next decision."""
        assert self._facts.changes is not None
        events = self.state.events
        self._facts.changes.end_decision(
            answer.decision,
            {event.job: None for event in events if event.job is not None},
            chain(answer.changes, answer.batches, answer.withdrawals),
        )

    def why_declined(self, job: JobView) -> str:
        """Why the policy declines a job that was just submitted; empty if it accepts the job."""
        if not self._refuses_none:
            refusal = self._call("refusal", self._scheduler.refusal, job)
            if not (isinstance(refusal, str) and refusal.isprintable()):
                raise self.error(f"refusal(job {job.id}) returned {refusal!r:.80}; return one line of text")
            if refusal:
                return f"{DECLINED}; {refusal}"
        if self.admits_all:
            return ""
        answer = self._call("admit", self._scheduler.admit, job, self.state)
        if not isinstance(answer, bool):
            raise self.error(f"admit(job {job.id}) returned {answer!r}; return True or False")
        return "" if answer else DECLINED

    def add_waiting(self, job: JobView) -> None:
        """Let `job` wait. Rankings of waiting jobs call the policy's keys."""
        waiting = self._facts.waiting
        if waiting.rankings:
            self._call("the key of pending_by", waiting.add, job)
        else:
            waiting.add(job)

    def _check_keys(self, proposal: Proposal) -> None:
        """PolicyError if a key breaks its promise."""
        broken = self._call("a key", broken_promise, self._facts, proposal, self._check_all_keys)
        if broken:
            raise self.error(str(broken))

    def error(self, text: str) -> PolicyError:
        """The error for a broken rule."""
        return PolicyError(f"policy {type(self._scheduler).__name__}{self._when()}: {text}")

    def _call(self, name: str, function: Callable[..., object], *arguments: object) -> object:
        began = perf_counter()
        try:
            return function(*arguments)
        except (Exception, SystemExit, GeneratorExit) as error:
            raise self.error(locate_policy_error(error, name)) from error
        finally:
            self.wall_s += perf_counter() - began


def _fault_of_withdrawals(proposal: Proposal) -> str:
    """What is wrong with a proposal that lets a job run and takes it out of the queue; else empty."""
    for job in proposal.withdrawals:
        if proposal.placement(job) is not None:
            return f"job {job.id} is requeued or cancelled, and holds GPUs in the same proposal"
    return ""


def locate_policy_error(error: BaseException, call: str) -> str:
    """What a policy's `call` raised, with file and line: of the innermost frame outside the
    packages of the simulator, if there is one.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    frames_of_policies = [entry for entry in frames if _package_of(entry[0].f_globals) not in _OURS]
    frame, line = (frames_of_policies or frames)[-1]
    where = f"{frame.f_code.co_filename}:{line}"
    if isinstance(error, PolicyError):
        return f"{error} ({where})"
    return f"{call} raised {type(error).__name__} at {where}: {error}"


def _package_of(module: dict[str, object]) -> str:
    return str(module.get("__name__", "")).partition(".")[0]
