"""That jobs were as fast as where they ran, and who shared their links, made them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .checking import Life, Log
from .checking_plans import Plans, same
from .checking_speeds import Recomputed
from .checking_sums import GIVES
from .cluster import Placement
from .network import Network
from .plan_records import PlanRecord, plan_key
from .records import EventRecord
from .speed import Curve

__all__ = ["PlacedPlans"]

_LOSES = ("preempt", "interrupt", "finish", "fail")


class _Sender:
    """A job on the links of the cluster."""

    __slots__ = ("curve", "job_id")

    def __init__(self, job_id: str, curve: Curve):
        self.job_id, self.curve = job_id, curve

    def curve_at(self, gpu_type: str) -> Curve:
        return self.curve


class PlacedPlans(Plans):
    """Where speeds follow from the places of jobs, and from who shares their links: the network is gone
    through again beside the log, an instant at a time.
    """

    def __init__(self, log: Log, due: Recomputed, rows: Iterable[PlanRecord], complete: bool):
        super().__init__(log, due, rows, complete)
        self._network = None if due.why_not else Network[_Sender](log.cluster, due.speed())
        self._senders: dict[str, _Sender] = {}
        self._speeds: dict[_Sender, float] = {}
        self._unsaid: list[tuple[int, EventRecord, str]] = []

    def _changed_speed(self, i: int, event: EventRecord) -> None:
        """Judged when the instant is over, if the job sends anything."""

    def speed_of(self, event: EventRecord, curve: Curve) -> float | None:
        if not curve.plans:
            return curve.unit_s[event.gpus]  # of a table: the same anywhere
        return None

    def instant(self, first: int, batch: Sequence[EventRecord]) -> None:
        self._say_unsaid()
        if self._network is None:
            return
        changes: dict[_Sender, Placement | None] = {}
        stated: dict[str, int] = {}  # whose speed this instant states, and where
        for i, event in enumerate(batch, first):
            if event.event in _LOSES or event.event in GIVES:
                old = self._senders.pop(event.job_id, None)
                if old is not None:
                    changes[old] = None
            if event.event in GIVES and event.plan and event.placement:
                new = self._sender(event)
                if new is None:
                    self._network = None  # of those who share its links nothing can be said
                    return
                changes[new], self._senders[event.job_id] = event.placement, new
            if event.event in GIVES or event.event == "rate":
                stated[event.job_id] = i
        changed = self._network.after(changes)
        self._speeds.update(changed)
        for sender, placement in changes.items():
            if placement is None:
                self._speeds.pop(sender, None)
        last = first + len(batch) - 1
        for job_id in dict.fromkeys([*stated, *[sender.job_id for sender in changed]]):
            i = stated.get(job_id, last)
            self._judge(job_id, i, batch[i - first])

    def _judge(self, job_id: str, i: int, event: EventRecord) -> None:
        """After an instant: is a job as fast as it must be?"""
        life, sender = self.log.lives.get(job_id), self._senders.get(job_id)
        if life is None or life.given is None:
            return
        stated, due = life.sums.unit_s, self._speeds.get(sender) if sender is not None else None
        if due is None:
            if event.event == "rate":
                self._unsaid.append((i, event, f"job {job_id} sends nothing, and changes its speed"))
        elif not same(stated, due):
            text = f"job {job_id}: where it runs it takes {due!r} s per unit, not {stated!r}"
            self._unsaid.append((i, event, text))

    def _sender(self, event: EventRecord) -> _Sender | None:
        life = self.log.lives.get(event.job_id)
        job = None if life is None else life.record
        if job is None:
            return None
        key = plan_key(job.model, job.global_batch, job.seq_len, event, self.log.cluster)
        curve = self.due.curve(*key[:5])
        return None if isinstance(curve, str) else _Sender(event.job_id, curve)

    def _say_unsaid(self) -> None:
        """What a decision that was not the last one left as it is."""
        for i, event, text in self._unsaid:
            self.differs(i, event, text)
        self._unsaid.clear()

    def end(self, unrecorded: Sequence[Life]) -> None:
        if self.complete:
            self._say_unsaid()
        super().end(unrecorded)
