"""What happened to one job, and why it waited."""

from __future__ import annotations

from typing import Any

from clustersim.analysis import Explanation, Spell, Wait, explain
from clustersim.records import plan_words
from clustersim.rundir import placement_text, read_streamed
from itertime.errors import UserError

from .watched import Watched

__all__ = ["story_of"]

_NAMED = 8  # jobs that a wait names; all are counted


def story_of(watched: Watched, job_id: str) -> dict[str, Any]:
    """The events of a job so far; of a complete run also its waits and spells, and its record in numbers.

    UserError if the run has no such job.
    """
    events = watched.events_of(job_id)
    if not events:
        raise UserError("the run has no such job yet")
    lines = [
        [
            e.time_s,
            e.event,
            e.gpus,
            placement_text(e.placement),
            e.plan and plan_words(e.plan),
            e.overhead_s,
            e.detail,
        ]
        for e in events
    ]
    document: dict[str, Any] = {"job": job_id, "events": lines, "waits": [], "record": None}
    if watched.status != "complete":
        return document
    try:
        story = explain(read_streamed(watched.folder), job_id)
    except (UserError, ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        return document  # records that contradict each other; the events still tell what happened
    return {**document, "waits": _waits(story), "record": _record(story)}


def _waits(story: Explanation) -> list[dict[str, Any]]:
    return [
        {
            "from_s": wait.from_s,
            "to_s": wait.to_s,
            "needed": wait.needed,
            "free": [*wait.free],
            "ahead": len(wait.ahead),
            "holders": [job for job, _ in wait.holders[:_NAMED]],
            "overtakers": [*wait.overtakers[:_NAMED]],
        }
        for wait in story.spells
        if isinstance(wait, Wait)
    ]


def _record(story: Explanation) -> dict[str, Any]:
    record = story.record
    paid_s = sum(spell.paid_s for spell in story.spells if isinstance(spell, Spell))
    return {
        "state": record.state,
        "model": record.model,
        "tenant": record.tenant,
        "jct_s": record.jct_s,
        "wait_s": record.wait_s,
        "paid_s": paid_s,
        "lost_work_s": record.lost_work_s,
        "reason": record.reason,
    }
