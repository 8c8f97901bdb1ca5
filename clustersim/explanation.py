"""What became of one job, from the records of its run: why it waited, where it ran, what that cost it.

The records hold what happened, not what the policy thought: why a job waited is told by the GPUs that were
free, by who held the others, and by who was ahead of it.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from itertime.errors import UserError

from .allocations import allocations, end_of_run_s
from .checking_sums import GIVES
from .records import EventRecord, JobRecord
from .rundir import Run

__all__ = ["Explanation", "Spell", "Wait", "explain"]

_WAITS = ("submit", "preempt", "interrupt")
"""After these a job waits."""


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


def explain(run: Run, job_id: str) -> Explanation:
    """What became of `job_id`. UserError, with the ids most like it, if there is no such job."""
    record = next((job for job in run.jobs if job.job_id == job_id), None)
    if record is None:
        raise UserError(f"--job {job_id}: {_instead(job_id, [job.job_id for job in run.jobs])}")
    end_s = end_of_run_s(run)
    own = [event for event in run.events if event.job_id == job_id]
    log = [event for event in own if event.event not in ("rate", "loaded")]
    loads = {event.time_s: event.overhead_s for event in own if event.event == "loaded"}
    spells: list[Wait | Spell] = []
    for event, after in zip(log, [*log[1:], None], strict=False):  # no log: it was never submitted
        to_s = end_s if after is None else after.time_s
        if event.event in GIVES:
            loaded_s = sum(seconds for time_s, seconds in loads.items() if event.time_s < time_s <= to_s)
            spells.append(_spell(run, event, after, to_s, loaded_s))
        elif event.event in _WAITS and (after is None or after.event in GIVES):
            needed = after.gpus if after is not None else record.gpus or 0
            if to_s > event.time_s:
                spells.append(_wait(run, record, event, to_s, needed))
    return Explanation(record, tuple(spells), bool(log))


def _instead(job_id: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(job_id, known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"its jobs are {', '.join(known[:3])}, ..."
    return f"the run has no such job; {hint}" if known else "the run has no jobs"


def _spell(run: Run, given: EventRecord, after: EventRecord | None, to_s: float, loaded_s: float) -> Spell:
    takers: tuple[str, ...] = ()
    if after is not None and after.event == "preempt":
        nodes = {node for node, _ in given.placement}
        takers = tuple(
            e.job_id
            for e in run.events
            if e.time_s == to_s and e.event in GIVES and any(node in nodes for node, _ in e.placement)
        )
    paid_s = min(given.overhead_s + loaded_s, to_s - given.time_s)
    if after is None:
        return Spell(given, to_s, None, paid_s, takers)
    lost_s = after.overhead_s if after.event == "interrupt" else 0.0
    return Spell(given, to_s, after.event, paid_s, takers, lost_s, after.detail)


def _wait(run: Run, record: JobRecord, after: EventRecord, to_s: float, needed: int) -> Wait:
    from_s = after.time_s
    free = list(_free(run, from_s, to_s))
    short_s = sum(seconds for gpus, seconds in free if gpus < needed)
    submitted = {job.job_id: (job.submit_s, i) for i, job in enumerate(run.jobs)}
    me = submitted[record.job_id]
    held: dict[str, float] = {}
    overtakers: dict[str, None] = {}
    for then in allocations(run):
        given, until_s = then.given, then.to_s
        seconds = min(to_s, until_s) - max(from_s, given.time_s)
        if seconds > 0:
            held[given.job_id] = held.get(given.job_id, 0.0) + seconds * given.gpus
        begins = given.event in ("start", "restart") and from_s <= given.time_s < to_s
        if begins and submitted.get(given.job_id, me) > me:
            overtakers[given.job_id] = None
    return Wait(
        from_s, to_s, needed, short_s, (min(g for g, _ in free), max(g for g, _ in free)),
        tuple(sorted(held.items(), key=lambda item: -item[1])),
        tuple(job_id for job_id in _waiting(run, from_s) if submitted[job_id] < me), tuple(overtakers),
        after.event, _down(run, from_s, to_s),
    )  # fmt: skip


def _down(run: Run, from_s: float, to_s: float) -> int:
    """The most GPUs that were out of service at any time from `from_s` to `to_s`."""
    rows = [snapshot for snapshot in run.snapshots if snapshot.time_s < to_s]
    inside = [row.down for row in rows if row.time_s > from_s]
    before = [row.down for row in rows if row.time_s <= from_s]
    return max([*inside, *before[-1:]], default=0)


def _free(run: Run, from_s: float, to_s: float) -> Iterator[tuple[int, float]]:
    """(free GPUs, seconds) over an interval of positive length."""
    times = [snapshot.time_s for snapshot in run.snapshots]
    row = bisect_right(times, from_s) - 1
    now = from_s
    while now < to_s:
        until_s = min(to_s, times[row + 1]) if row + 1 < len(times) else to_s
        taken = run.snapshots[row].allocated + run.snapshots[row].down if row >= 0 else 0
        if until_s > now:
            yield run.cluster.gpus - taken, until_s - now
        now, row = until_s, row + 1


def _waiting(run: Run, now: float) -> list[str]:
    """The jobs that waited after all that happened at `now`, in order of submission."""
    waiting: dict[str, bool] = {}
    for event in run.events:
        if event.time_s > now:
            break
        waiting[event.job_id] = event.event in _WAITS
    return [job.job_id for job in run.jobs if waiting.get(job.job_id, False)]
