"""Whether a policy keeps its own order. Its keys promise to stay the same while a job waits, or never to grow
while it runs; and no job loses its GPUs to one that `Proposal.run` was told is less important. A broken
promise is a wrong order, which no record shows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isclose
from typing import Any

from .cluster_state import ClusterState
from .draft import Draft
from .job_view import JobView
from .proposal import Proposal
from .ranking import Key

__all__ = ["broken_order", "broken_promise", "place_of"]

_SAMPLED = 4  # one decision in so many
_REMEDY_WAITING = (
    "pass changing=True to run_by or pending_by, or call rerank(job) of the ranking when its key changes"
)


def broken_promise(facts: ClusterState[JobView], proposal: Draft, everywhere: bool) -> str:
    """What is wrong with a key after the decision that made `proposal`, with file and line and the remedy;
    empty if nothing is. The keys of jobs that the proposal starts or stops may change.

    `everywhere` looks up the keys of all jobs. Otherwise every fourth decision looks at one waiting job, each
    time at another one. That finds a frozen key that ages within a few decisions, and takes about a hundredth
    of a run's time.
    """
    if not everywhere and facts.decision % _SAMPLED:
        return ""
    turn, rankings = facts.decision // _SAMPLED, list(facts.waiting.rankings.items())
    if not everywhere and rankings:
        turn, index = divmod(turn, len(rankings))
        rankings = [rankings[index]]
    for (key, _, _), ranking in rankings:
        for job, old_key, now in ranking.outdated(None if everywhere else turn):
            if not proposal.placement(job) and not _same(old_key, now):
                if _has_nan(now):
                    return f"the key of job {job.id} is {now!r:.80}: NaN has no order ({place_of(key)})"
                text = f"the key of job {job.id} changed while it waits, from {old_key!r:.80} to {now!r:.80}"
                return f"{text}, but a key is looked up once ({place_of(key)}); {_REMEDY_WAITING}"
    for key, order in facts.orders.items() if everywhere else ():
        for job, old_key, now in order.grown():
            if proposal.placement(job) and not _same(old_key, now):
                text = f"the key of job {job.id} grew while it runs, from {old_key!r:.80} to {now!r:.80}"
                return f"{text} ({place_of(key)}); leave out falling=True of run_by"
    return ""


def broken_order(proposal: Proposal) -> str:
    """Which job loses its GPUs to a less important one; empty if none does.

    A job does if it runs, has no GPUs in the proposal, and would find those that it holds free if less
    important jobs did not get other GPUs than they hold: jobs that come behind all its entries in the last
    call of `run`, or are in none.
    """
    first_places: dict[JobView, int] = {}
    last_places: dict[JobView, int] = {}
    for place, job in enumerate(proposal.order):
        first_places.setdefault(job, place)
        last_places[job] = place
    for loser, last_place in last_places.items():
        if not loser.running or proposal.placement(loser):
            continue
        draft, robbers = proposal.copy(), []
        for job, placement in proposal.changes.items():
            if placement and first_places.get(job, len(proposal.order)) > last_place:
                draft.stop(job)
                robbers.append(job.id)
        if robbers and draft.keep(loser):
            text = f"job {loser.id} loses its GPUs to jobs less important in run(), of"
            return f"{text} {', '.join(robbers)}"
    return ""


def place_of(function: Callable[..., object] | Key[JobView]) -> str:
    """File and line of a function."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _has_nan(key: Any) -> bool:
    return any(map(_has_nan, key)) if isinstance(key, tuple) else bool(key != key)


def _same(key: Any, second_key: Any) -> bool:
    """Whether two keys are equal but for rounding, number by number."""
    if isinstance(key, tuple) and isinstance(second_key, tuple):
        return len(key) == len(second_key) and all(map(_same, key, second_key))
    if isinstance(key, float) and isinstance(second_key, float):
        return isclose(key, second_key, rel_tol=1e-9, abs_tol=1e-9)
    return bool(key == second_key)
