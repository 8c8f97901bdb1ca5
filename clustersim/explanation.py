"""What became of one job, from the records of its run: why it waited, where it ran, what that cost it.

The records hold what happened, not what the policy thought: why a job waited is told by the GPUs that were
free, by who held the others, and by who was ahead of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from itertime.errors import UserError

from .allocations import stated_end_s
from .checking_sums import GIVES
from .explanation_others import WAITS, Surroundings, free_gpus
from .records import EventRecord, JobRecord
from .run_result import Recorded

__all__ = ["Explanation", "Spell", "Wait", "explain"]

_MOST_COMPARED = 10_000  # ids that are compared with one that is not there


@dataclass(frozen=True)
class Wait:
    """A time without GPUs. `needed`: the GPUs that ended it, or that were asked for if nothing did.

    `short_s`: seconds of it during which fewer were free. `free`: the fewest and the most. `holders`: who
    held GPUs meanwhile, with the GPU-seconds of it, most first. `ahead`: jobs that waited when it began, and
    were submitted earlier. `overtakers`: jobs submitted later that got GPUs meanwhile, by time. `after`: the
    event that made it wait. `down`: the most GPUs that were out of service meanwhile.
    """

    from_s: float
    to_s: float
    needed: int
    short_s: float
    free: tuple[int, int]
    holders: tuple[tuple[str, float], ...]
    ahead: tuple[str, ...]
    overtakers: tuple[str, ...]
    after: str
    down: int


@dataclass(frozen=True)
class Spell:
    """A time with GPUs: what gave them, and what ended it (None: the run), and why. `paid_s`: overhead of
    getting them, loads included. `lost_s`: seconds of work that a failure took at its end.

    `takers`: jobs that got GPUs on its nodes at the instant at which it was preempted.
    """

    given: EventRecord
    to_s: float
    ended: str | None
    paid_s: float
    takers: tuple[str, ...]
    lost_s: float = 0.0
    why: str = ""


@dataclass(frozen=True)
class Explanation:
    """The fate of a job: its record, and what it went through, in order of time. A job that was not
    `submitted`, because the run ended before, went through nothing.
    """

    record: JobRecord
    spells: tuple[Wait | Spell, ...]
    submitted: bool = True


def explain(run: Recorded, job_id: str) -> Explanation:
    """What became of `job_id`. UserError, with the ids most like it, if there is no such job.

    The tables of the run are gone through once or twice, up to where the job's story ends.
    """
    record = next((job for job in run.jobs if job.job_id == job_id), None)
    if record is None:
        known = [job.job_id for job in islice(run.jobs, _MOST_COMPARED)]
        raise UserError(f"--job {job_id}: {_instead(job_id, known)}")
    own, last_s = _own(run, job_id)
    log = [event for event in own if event.event not in ("rate", "loaded")]
    loads = {event.time_s: event.overhead_s for event in own if event.event == "loaded"}
    end_s = max(last_s, stated_end_s(run.manifest))
    pairs = [
        (event, after, end_s if after is None else after.time_s)
        for event, after in zip(log, [*log[1:], None], strict=False)  # no log: it was never submitted
    ]
    around = Surroundings(
        job_id,
        [(e.time_s, to_s) for e, after, to_s in pairs if _waits(e, after) and to_s > e.time_s],
        {to_s: e for e, after, to_s in pairs if after is not None and after.event == "preempt"},
    )
    around.read(run)
    spells: list[Wait | Spell] = []
    for event, after, to_s in pairs:
        if event.event in GIVES:
            loaded_s = sum(seconds for time_s, seconds in loads.items() if event.time_s < time_s <= to_s)
            spells.append(_spell(event, after, to_s, loaded_s, around))
        elif _waits(event, after) and to_s > event.time_s:
            needed = after.gpus if after is not None else record.gpus or 0
            spells.append(_wait(run, event, to_s, needed, around))
    return Explanation(record, tuple(spells), bool(log))


def _waits(event: EventRecord, after: EventRecord | None) -> bool:
    return event.event in WAITS and (after is None or after.event in GIVES)


def _own(run: Recorded, job_id: str) -> tuple[list[EventRecord], float]:
    """The events of a job, and the time of the last event up to the one with which it leaves."""
    own: list[EventRecord] = []
    last_s = 0.0
    for event in run.events:
        last_s = event.time_s
        if event.job_id == job_id:
            own.append(event)
            if event.event in ("finish", "reject", "fail"):
                break
    return own, last_s


def _instead(job_id: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(job_id, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"its jobs are {', '.join(known[:3])}, ..."
    return f"the run has no such job; {hint}" if known else "the run has no jobs"


def _spell(
    given: EventRecord, after: EventRecord | None, to_s: float, loaded_s: float, around: Surroundings
) -> Spell:
    paid_s = min(given.overhead_s + loaded_s, to_s - given.time_s)
    if after is None:
        return Spell(given, to_s, None, paid_s, ())
    takers = tuple(around.takers[to_s]) if after.event == "preempt" else ()
    lost_s = after.overhead_s if after.event == "interrupt" else 0.0
    return Spell(given, to_s, after.event, paid_s, takers, lost_s, after.detail)


def _wait(run: Recorded, after: EventRecord, to_s: float, needed: int, around: Surroundings) -> Wait:
    from_s = after.time_s
    others = around.waits[from_s, to_s]
    least, most, short_s, down = free_gpus(run, from_s, to_s, needed)
    held = sorted(others.held.items(), key=lambda item: (-item[1], others.first[item[0]]))
    return Wait(
        from_s, to_s, needed, short_s, (least, most), tuple(held), tuple(others.ahead),
        tuple(others.overtakers), after.event, down,
    )  # fmt: skip
