"""Whether the keys of a policy keep their promises: to stay the same while a job waits, or never to grow
while it runs. A broken promise is a wrong order, which no record shows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

from .cluster_state import ClusterState
from .draft import Draft
from .job_view import JobView
from .ranking import Key

__all__ = ["broken_promise", "place_of"]

_SAMPLED = 4  # one decision in so many
_REMEDY_WAITING = (
    "pass changing=True to run_by or pending_by, or call rerank(job) of the ranking when its key changes"
)


def broken_promise(facts: ClusterState[JobView], proposal: Draft, everywhere: bool) -> str:
    """What is wrong with a key after the decision that made `proposal`, with file and line and the remedy;
    empty if nothing is. The keys of jobs that the proposal starts may change: they wait no longer.

    `everywhere` looks up the keys of all jobs. Otherwise every fourth decision looks at one waiting job, each
    time at another one. That finds a frozen key that ages within a few decisions, and takes about a hundredth
    of a run's time.
    """
    if not everywhere and facts.decision % _SAMPLED:
        return ""
    turn, rankings = facts.decision // _SAMPLED, list(facts.waiting.rankings.items())
    if not everywhere and rankings:
        turn, which = divmod(turn, len(rankings))
        rankings = [rankings[which]]
    for (key, _, _), ranking in rankings:
        for job, known, now in ranking.outdated(None if everywhere else turn):
            if not proposal.placement(job) and not _same(known, now):
                if _has_nan(now):
                    return f"the key of job {job.id} is {now!r:.80}: NaN has no order ({place_of(key)})"
                text = f"the key of job {job.id} changed while it waits, from {known!r:.80} to {now!r:.80}"
                return f"{text}, but a key is looked up once ({place_of(key)}); {_REMEDY_WAITING}"
    for key, order in facts.orders.items() if everywhere else ():
        for job, known, now in order.grown():
            if not _same(known, now):
                text = f"the key of job {job.id} grew while it runs, from {known!r:.80} to {now!r:.80}"
                return f"{text} ({place_of(key)}); leave out falling=True of run_by"
    return ""


def place_of(function: Callable[..., object] | Key[JobView]) -> str:
    """File and line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _has_nan(key: Any) -> bool:
    return any(map(_has_nan, key)) if isinstance(key, tuple) else bool(key != key)


def _same(one: Any, other: Any) -> bool:
    """Whether two keys are equal but for rounding, number by number."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return bool(one == other)
