"""What a manifest states of a run, as far as it shows in the log: how it ended, and when nodes were out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from traces.files import shown

from .calendar import Calendar
from .checking import Life, Log, Rule
from .checking_sums import NODES
from .manifest import is_of_this_code, malformed_versions
from .outages import NodeChange, Outages
from .records import EventRecord
from .run_result import COMPLETE

__all__ = ["Drawn", "Stated"]


class Drawn(Rule):
    """The changes of service are drawn again, and held against those of the log, one by one."""

    name = "outages"
    text = "nodes go out of service and come back when the seed and the calendar say so"

    def __init__(self, log: Log, manifest: Mapping[str, Any]):
        super().__init__(log)
        self.sees = NODES if "calendar" in manifest else ()
        self._manifest, self._ours = manifest, is_of_this_code(manifest)
        self._outages: Outages | None = None
        self._next: NodeChange | None = None
        self._other = False

    def event(self, i: int, event: EventRecord, life: Life | None) -> None:
        if self._other:
            return
        outages = self._begin()
        due = self._next
        if due is not None and self._is(event, due):
            self._next = outages.next()
            return
        self._wrong(i, event, f"{event.event} of node {_node(event)}; {_told(due)} is due next")

    def _begin(self) -> Outages:
        if self._outages is None:
            cluster, seed = self.evidence.cluster, self._manifest.get("seed")
            self._outages = Outages(
                [cluster.size_of(node) for node in range(cluster.nodes)], self.log.first_s,
                failures=self.evidence.failures,
                calendar=Calendar.of(self._manifest["calendar"], cluster.nodes),
                seed=seed if isinstance(seed, int) and seed >= 0 else 0,
            )  # fmt: skip
            self._next = self._outages.next()
        return self._outages

    def _is(self, event: EventRecord, due: NodeChange) -> bool:
        kind = "node_up" if due.up else "node_down"
        same = (event.event, _node(event), event.detail) == (kind, due.node, due.kind)
        return same and abs(event.time_s - due.time_s) <= self._slack_s(due.time_s)

    def _slack_s(self, now: float) -> float:
        return 1e-9 * abs(now) + 3 * self.evidence.resolution_s

    def _wrong(self, i: int | None, event: EventRecord | None, text: str) -> None:
        self._other = True  # what follows is out of step
        if not self._ours:
            return
        if event is None:
            self.say(text)
        else:
            self.at(i or 0, event, text)

    def end(self, unrecorded: Sequence[Life]) -> None:
        if self.sees and self.log.count:
            self._begin()
        due = self._next
        if due is not None and not self._other and due.time_s < self.log.last_s - self._slack_s(due.time_s):
            self._wrong(None, None, f"{_told(due)} is due; the log has no such thing")

    def unproved(self) -> str:
        if "calendar" not in self._manifest:
            return "manifest.json states no calendar"
        other = self._other and not self._ours
        return "another version made the run, and its draws are others" if other else ""


def _node(event: EventRecord) -> int:
    return event.placement[0][0] if event.placement else -1


def _told(due: NodeChange | None) -> str:
    if due is None:
        return "nothing"
    return f"{'node_up' if due.up else 'node_down'} of node {due.node} at t={due.time_s:g} ({due.kind})"


class Stated(Rule):
    """How the run ended, and on what."""

    name = "manifest"
    text = "manifest.json states versions, a cluster and a planner that can be, and an end that the log has"

    def __init__(self, log: Log, manifest: Mapping[str, Any], until_s: float | None):
        super().__init__(log)
        self._manifest, self._until_s = manifest, until_s

    def end(self, unrecorded: Sequence[Life]) -> None:
        from itertime import PLANNERS

        stated, document = self._manifest.get("cluster"), self.evidence.cluster.document()
        for name, value in document.items():
            given = stated.get(name, value) if isinstance(stated, dict) else value
            if given != value:
                self.say(f"cluster.{name} is {given!r:.60}, {value!r:.60} by the rest of it")
        if wrong := malformed_versions(self._manifest):
            self.say(wrong)
        planner = self._manifest.get("planner", PLANNERS[0])
        if planner not in PLANNERS and is_of_this_code(self._manifest):
            self.say(f"planner is {shown(planner)}; there are {', '.join(PLANNERS)}")
        complete, status = self._manifest.get("complete") is True, self._manifest.get("status", COMPLETE)
        if "status" in self._manifest and complete != (status == COMPLETE):
            self.say(f"status is {status!r:.60}, and complete {complete}")
        log, end_s, until_s = self.log, self.evidence.end_s, self._until_s
        slack_s = self.evidence.resolution_s
        if end_s is not None and end_s < log.last_s - slack_s:
            self.say(f"end_s is {end_s:g}, before the last event at t={log.last_s:g}")
        last_s = inf if until_s is None else max(until_s, log.first_s)
        if log.last_s > last_s + slack_s:
            self.say(f"until_s is {until_s:g}, and the last event at t={log.last_s:g}")
        if not complete:
            return
        if until_s is None:
            for life in [life for life in self.log.lives.values() if life.given is not None]:
                text = f"job {life.job_id} runs for ever: nothing says that the run ended before it did"
                self.say(text, job_id=life.job_id)
        elif end_s is not None and log.count and abs(end_s - last_s) > slack_s:
            self.say(f"end_s is {end_s:g}; until_s ends the run at {last_s:g}")
