"""What an event log proves of jobs, one rule a class.

A log counts GPUs by node, and the GPUs of a node are alike: that no node gives more than it has is the same
as that no GPU serves two jobs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import isclose, prod
from operator import attrgetter

from .checking import Life, Log, Rule
from .checking_replay import repeated
from .cluster import Placement
from .records import (
    ALLOCATES,
    FAIL,
    FINISH,
    FINISHED,
    INTERRUPT,
    LOADED,
    MIGRATE,
    NODE_EVENTS,
    PREEMPT,
    RATE,
    REJECT,
    RESIZE,
    RESTART,
    START,
    SUBMIT,
    EventRecord,
)

__all__ = ["JOB_RULES"]

_DEGREES = re.compile(r"\b(?:tp|pp|dp|cp)(\d{1,9})\b")  # of a plan's label: their product is its GPUs
_BEFORE = {
    SUBMIT: "unknown", REJECT: "new", START: "new", RESTART: "stopped",
    RESIZE: "running", MIGRATE: "running", RATE: "running", PREEMPT: "running", FINISH: "running",
    LOADED: "running", INTERRUPT: "running", FAIL: "running",
}  # fmt: skip


class Causality(Rule):
    name = "causality"
    text = "time never runs back; a job is submitted, starts, moves and ends, in this order"

    def __init__(self, log: Log):
        super().__init__(log)
        self._now = float("-inf")

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        if event.time_s < self._now:
            text = f"the log goes back in time, from {self._now:g} s to {event}"
            self.say(text, i, event.time_s, event.job_id)
        self._now = event.time_s
        if life is None:
            return
        given_up = event.event == FAIL and life.phase == "stopped"
        if life.phase != _BEFORE.get(event.event) and not given_up:
            self._wrong(i, event, life.phase)

    def _wrong(self, i: int, event: EventRecord, phase: str) -> None:
        if phase == "unknown" and not self.more and self.log.known_before(event.job_id):
            phase = "gone"
        self.at(i, event, f"{event.event} of job {event.job_id}, which is {phase}")

    def end(self, unrecorded: Sequence[Life]) -> None:
        """Who was submitted again after he had gone."""
        ids = (event.job_id for event in self.evidence.events if event.event == SUBMIT)
        again = repeated(self.log.submitted, lambda: ids)
        if not again:
            return
        seen = set[str]()
        told = {violation.event for violation in self.violations}
        for i, event in enumerate(self.evidence.events):
            if event.event == SUBMIT and event.job_id in again:
                if event.job_id in seen and i not in told:
                    self.at(i, event, f"submit of job {event.job_id}, which was submitted before")
                seen.add(event.job_id)


class Capacity(Rule):
    name = "capacity"
    text = "no node gives more GPUs than it has, so no GPU serves two jobs"

    def instant(self, first: int, batch: Sequence[EventRecord]) -> None:
        """A decision may exchange the GPUs of two jobs, and the log writes one after the other."""
        log, used, size_of = self.log, self.log.used, self.log.cluster.size_of
        touched: dict[int, int] = {}
        for i, event in enumerate(batch, first):
            for node, _ in event.placement:
                touched[node] = i
        for node, i in touched.items():
            count = used.get(node, 0)
            if not 0 <= node < log.cluster.nodes or count > size_of(node):
                what = f"jobs {', '.join(log.holders(node))} hold {count} GPUs of node {node}"
                self.at(i, batch[i - first], f"{what}, on a cluster {log.cluster.shape}")


class Gang(Rule):
    name = "gang"
    text = "a job gets all GPUs of its size at once, of one type, enough for its plan, each node once"

    def __init__(self, log: Log):
        super().__init__(log)
        self._not_whole = lru_cache(10_000)(self._find_wrong)

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        wrong = ""
        if event.event in ALLOCATES and life is not None:
            wrong = self._not_whole(event.placement, event.gpus)
            if not wrong and life.known.alone and event.gpus not in life.known.unit_s:
                wrong = f"it can run on {sorted(life.known.unit_s)} GPUs"
            if not wrong and event.plan and _gpus_of(event.plan) > event.gpus:
                # Fewer it may use: not every count has a plan of its own.
                wrong = f"its plan {event.plan} is one for {_gpus_of(event.plan)} GPUs"
        elif event.event in NODE_EVENTS:
            wrong = "" if len(event.placement) == 1 and not event.gpus else "names not one node"
            if event.job_id:
                wrong = "names a job"
        elif event.gpus or event.placement:
            wrong = "gives no GPUs"
        if event.plan and event.event not in ALLOCATES:
            wrong = f"names the plan {event.plan}, and gives no GPUs"
        if wrong:
            what = f"{event.event} of job {event.job_id}, {event.gpus} GPUs at {event.placement}"
            self.at(i, event, f"{what}: {wrong}")

    def _find_wrong(self, placement: Placement, gpus: int) -> str:
        cluster, counts = self.log.cluster, [count for _, count in placement]
        if sum(counts) != gpus:
            return "the places do not add up"
        if min(counts, default=0) < 1:
            return "a place without GPUs"
        if len({node for node, _ in placement}) != len(counts):
            return "names a node twice"
        if cluster.mixed:
            types = dict.fromkeys(cluster.type_of(n) for n, _ in placement if 0 <= n < cluster.nodes)
            if len(types) > 1:
                return f"the places are GPUs of different types, {' and '.join(types)}"
        return ""


@lru_cache(1000)
def _gpus_of(plan: str) -> int:
    return prod(int(n) for n in _DEGREES.findall(plan))


class Progress(Rule):
    name = "progress"
    text = "who finished has done all its work: the integral of its speed"

    def __init__(self, log: Log):
        super().__init__(log)
        self._finished = self._unknown = 0

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        wrong = _not_a_speed(event, life)
        if wrong:
            what = f"{event.event} of job {event.job_id} at {event.unit_s!r} s per unit"
            self.at(i, event, f"{what}: {wrong}")

    def left(self, life: Life) -> None:
        record, work, sums = life.record, life.known.work, life.sums
        if record is None or record.state != FINISHED:
            return
        self._finished += 1
        self._unknown += work is None
        if work is None or sums.work is None:
            return
        if not _close(sums.work, work, sums.work_error + life.known.work_error):
            text = f"job {life.job_id} finished after {sums.work:g} of {work:g} units of work"
            self.say(text, time_s=record.finish_s, job_id=life.job_id)

    def unproved(self) -> str:
        if not self._unknown:
            return ""
        return f"the work of {self._unknown:,} of {self._finished:,} finished jobs is not known"


def _not_a_speed(event: EventRecord, life: Life | None) -> str:
    kind, unit_s = event.event, event.unit_s
    if life is None:
        return "nothing runs" if unit_s else ""
    known = life.known.unit_s
    if kind in ALLOCATES or kind == RATE:
        due = known.get(event.gpus)
        if due is not None and unit_s != due:
            return f"it takes {due!r} s there"
        return "" if unit_s > 0 else "must be positive"
    if kind == SUBMIT:
        fits = unit_s > 0 and (not known or unit_s in known.values())
        return "" if fits or unit_s == 0 else "that is not its speed on any number of GPUs"
    return "nothing runs" if unit_s else ""


class Conservation(Rule):
    name = "conservation"
    text = "GPU-seconds, overheads, waits and times of the records are those of the event log"

    def __init__(self, log: Log):
        super().__init__(log)
        self._open = 0

    def left(self, life: Life) -> None:
        record, sums = life.record, life.sums
        if not sums.closed:
            self._open += 1
            return
        for logged, recorded, name in zip(_compared(sums), _compared(record), _COMPARED, strict=True):
            if logged == recorded:
                continue
            if not _close(logged, recorded, sums.gpu_error if name in _GPU_SUMS else sums.seconds_error):
                what = f"{name} is {recorded} in its record, {logged} by the event log"
                self.say(f"job {life.job_id}: {what}", job_id=life.job_id)

    def unproved(self) -> str:
        return f"{self._open:,} jobs were in the system at the end, at a time unknown" if self._open else ""


_GPU_SUMS = ("gpu_seconds", "overhead_gpu_s", "lost_work_gpu_s")
_COMPARED = (*_GPU_SUMS, "start_s", "finish_s", "lost_s", "lost_work_s", "wait_s")
_compared = attrgetter(*_COMPARED)


class Overheads(Rule):
    name = "overheads"
    text = (
        "every start, restart, resize and migration pays what the overheads say, once; every failure costs "
        "the work since the last checkpoint"
    )

    def __init__(self, log: Log):
        super().__init__(log)
        self._unsized = 0
        self._start_s = lru_cache(10_000)(self.evidence.overheads.start_s)

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        kind = event.event
        if kind in ALLOCATES and life is not None:
            due = self._due_s(event, life)
            if due is not None and event.overhead_s != due:
                self._compare(i, event, due)
        elif event.overhead_s and kind not in (LOADED, INTERRUPT):  # the one is proved elsewhere, the
            self._compare(i, event, 0.0)  # other when it is known what it costs

    def interrupted(self, i: int, event: EventRecord, life: Life) -> None:
        if life.known.parameters is not None:
            self._compare(i, event, life.sums.crash_s)

    def _compare(self, i: int, event: EventRecord, due: float) -> None:
        if not _close(event.overhead_s, due, 3 * self.evidence.resolution_s):
            text = f"{event.event} of job {event.job_id} paid {event.overhead_s:g} s, due {due:g} s"
            self.at(i, event, text)

    def _due_s(self, event: EventRecord, life: Life) -> float | None:
        """What GPUs cost a job, by the constants; None if the size of its checkpoints is unknown."""
        overheads, nodes = self.evidence.overheads, max(1, len(event.placement))
        if event.event == START:
            return self._start_s(event.gpus)
        parameters = life.known.parameters
        if parameters is None:
            self._unsized += 1
            return None
        if life.sums.crashed:
            due = overheads.recover_s(parameters, nodes, event.gpus, life.sums.kept)
        else:
            due = overheads.restart_s(parameters, nodes, event.gpus, event.event)
        # A load takes a time that depends on the others.
        return due - overheads.load_s(parameters, nodes) if life.terms.loads else due

    def unproved(self) -> str:
        unknown = self._unsized
        return f"{unknown:,} events belong to models whose size is not known here" if unknown else ""


def _close(a: float | None, b: float | None, error: float) -> bool:
    if a is None or b is None:
        return a is b
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-6 + error)


JOB_RULES = (Causality, Capacity, Gang, Progress, Conservation, Overheads)
"""What an event log can prove of jobs, in order: a broken rule makes those below it hard to read."""
