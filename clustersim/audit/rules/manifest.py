"""The rules that compare the manifest with the log: end and settings of the run, outages of nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from clustersim.audit.evidence import slack_s, stated_number
from clustersim.audit.expected import Recomputed
from clustersim.audit.history import ClusterHistory, JobHistory, Rule
from clustersim.failures import Maintenance, NodeChange, Outages, Spot
from clustersim.records import ALLOCATES, COMPLETE, NODE_DOWN, NODE_EVENTS, NODE_UP, REPLAN, EventRecord
from clustersim.runs import is_of_this_code, malformed_versions, missing_entries, other_libraries
from itertime.errors import UserError
from itertime.io import quoted, shown
from itertime.planning import FORMER_NAMES, PLANNERS

__all__ = ["ManifestConsistent", "OutagesAsDrawn"]

_LEAST_INTERVAL_S = 0.001  # of the setting


class OutagesAsDrawn(Rule):
    """Draws the outages again and compares them with those of the log, one by one."""

    name = "outages"
    text = "nodes go out of service and come back when the seed and the calendar say so"

    def __init__(self, history: ClusterHistory, manifest: Mapping[str, Any]):
        super().__init__(history)
        self.kinds = NODE_EVENTS if "calendar" in manifest else ()
        self._manifest = manifest
        self._ours = is_of_this_code(manifest) and not other_libraries(manifest)
        self._outages: Outages | None = None
        self._next: NodeChange | None = None  # drawn, and not met in the log yet
        self._out_of_step = False  # since the first difference

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        if self._out_of_step:
            return
        expected = self._due_by(event.time_s + self._slack_s(event.time_s))
        if expected is not None and self._matches(event, expected):
            self._next = None
            return
        self._out_of_step = True
        if self._ours:
            expected = self._due_by(max(event.time_s, self.evidence.end_s or 0.0))
            self.report_at(i, event, f"{event.event} of node {_node(event)}; {_words(expected)} is due next")

    def _due_by(self, time_s: float) -> NodeChange | None:
        """The first change that the log has yet to state, if it is due by then."""
        if self._outages is None:
            cluster, seed = self.evidence.cluster, self._manifest.get("seed")
            self._outages = Outages(
                [cluster.size_of(node) for node in range(cluster.nodes)], self.history.first_s,
                failures=self.evidence.failures,
                maintenance=Maintenance.of(self._manifest["calendar"], cluster.nodes),
                spot=Spot.of(self._manifest["spot"], cluster.nodes) if self._manifest.get("spot") else None,
                seed=seed if isinstance(seed, int) and seed >= 0 else 0,
            )  # fmt: skip
        if self._next is None:
            self._next = self._outages.next_until(time_s)
        return self._next

    def _matches(self, event: EventRecord, expected: NodeChange) -> bool:
        kind = NODE_UP if expected.up else NODE_DOWN
        is_same = (event.event, _node(event), event.detail) == (kind, expected.node, expected.kind)
        return is_same and abs(event.time_s - expected.time_s) <= self._slack_s(expected.time_s)

    def _slack_s(self, now: float) -> float:
        return slack_s(now, 3 * self.evidence.resolution_s)

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        if self._out_of_step or not self.kinds or not self.history.event_count:
            return
        last_s = self.history.last_s
        expected = self._due_by(last_s)
        if expected is not None and expected.time_s < last_s - self._slack_s(last_s):
            self._out_of_step = True
            if self._ours:
                self.report(f"{_words(expected)} is due; the log has no such event")

    def unproved(self) -> str:
        if "calendar" not in self._manifest:
            return "manifest.json states no calendar"
        has_other_outages = self._out_of_step and not self._ours
        return (
            "another version, or other libraries, made the run and may draw other outages"
            if has_other_outages
            else ""
        )


def _node(event: EventRecord) -> int:
    return event.placement[0][0] if event.placement else -1


def _words(expected: NodeChange | None) -> str:
    if expected is None:
        return "nothing"
    event = NODE_UP if expected.up else NODE_DOWN
    return f"{event} of node {expected.node} at t={expected.time_s:g} ({expected.kind})"


class ManifestConsistent(Rule):
    """The manifest is consistent in itself, and with how the log ends."""

    name = "manifest"
    text = "manifest.json states possible versions, cluster and planner, and an end that agrees with the log"

    def __init__(
        self, history: ClusterHistory, manifest: Mapping[str, Any], until_s: float | None, speeds: Recomputed
    ):
        super().__init__(history)
        self._manifest, self._until_s, self._speeds = manifest, until_s, speeds
        self._complete = manifest.get("complete") is True
        self._interval_s = 0.0
        if manifest.get("decision_interval_s") is not None:
            self._interval_s = stated_number(manifest, "decision_interval_s")
            if self._interval_s < _LEAST_INTERVAL_S:
                raise UserError(
                    f"manifest.json: decision_interval_s={self._interval_s:g}: too short; run again"
                )
        self.kinds = tuple(kind for kind in ALLOCATES if kind != REPLAN) if self._interval_s else ()

    def on_event(self, i: int, event: EventRecord, job: JobHistory | None) -> None:
        """Jobs get GPUs at multiples of the interval of decisions alone; instances of services do at any
        time.
        """
        if job is not None and job.record is not None and job.record.service:
            return
        off_s = abs(event.time_s - round(event.time_s / self._interval_s) * self._interval_s)
        if off_s > slack_s(event.time_s, 3 * self.evidence.resolution_s):
            text = f"{event.event} of job {event.job_id} is no multiple of decision_interval_s"
            self.report_at(i, event, f"{text}, {self._interval_s:g}")

    def on_end(self, unrecorded: Sequence[JobHistory]) -> None:
        self._check_program()
        self._check_status()
        self._check_times()
        if self._complete and self._until_s is None:
            for job in self.history.jobs.values():
                if job.allocation is not None:
                    text = f"job {job.job_id} never ends, but the run states no earlier end"
                    self.report(text, job_id=job.job_id)

    def _check_program(self) -> None:
        cluster_entry = self._manifest.get("cluster")
        for name, value in self.evidence.cluster.document().items():
            recorded = cluster_entry.get(name, value) if isinstance(cluster_entry, dict) else value
            if recorded != value:
                self.report(f"cluster.{name} is {quoted(recorded)}, {quoted(value)} by its other entries")
        if wrong := malformed_versions(self._manifest):
            self.report(wrong)
        elif is_of_this_code(self._manifest) and (names := missing_entries(self._manifest)):
            self.report(f"the manifest states no {', '.join(names)}, which every run of this program does")
        self._check_files()
        planner = self._manifest.get("planner", PLANNERS[0])
        if planner not in (*PLANNERS, *FORMER_NAMES) and is_of_this_code(self._manifest):
            self.report(f"planner is {shown(planner)}; there are {', '.join(PLANNERS)}")

    def _check_files(self) -> None:
        manifest = self._manifest
        if manifest.get("table") is None and manifest.get("table_sha256") is not None:
            self.report(f"table_sha256 is {quoted(manifest['table_sha256'])}, and there is no table")
        profile = self._speeds.profile()
        if "profile" in manifest and profile is not None and manifest["profile"] != profile:
            self.report(f"profile is {quoted(manifest['profile'])}; that of the system is {quoted(profile)}")
        systems = self._speeds.systems()
        if "systems_sha256" in manifest and systems is not None and manifest["systems_sha256"] != systems:
            recorded = quoted(manifest["systems_sha256"])
            self.report(f"systems_sha256 is {recorded}; that of the nodes' systems is {systems}")
        policy = manifest.get("policy_sha256")
        if policy is not None and not (isinstance(policy, str) and re.fullmatch("[0-9a-f]{64}", policy)):
            self.report(f"policy_sha256 is {quoted(policy)}, which no program writes")

    def _check_status(self) -> None:
        status = self._manifest.get("status", COMPLETE)
        if "status" in self._manifest and self._complete != (status == COMPLETE):
            self.report(f"status is {quoted(status)}, and complete {self._complete}")

    def _check_times(self) -> None:
        history, end_s, until_s = self.history, self.evidence.end_s, self._until_s
        error_s = self.evidence.resolution_s
        if end_s is not None and end_s < history.last_s - error_s:
            self.report(f"end_s is {end_s:g}, before the last event at t={history.last_s:g}")
        ended = self._complete and until_s is None and history.event_count and not history.inside
        if ended and end_s is not None and end_s > history.last_s + error_s:
            self.report(f"end_s is {end_s:g}; no job is left after the last event at t={history.last_s:g}")
        if until_s is None:
            return
        latest_s = max(until_s, history.first_s)
        if history.last_s > latest_s + error_s:
            self.report(f"until_s is {until_s:g}, and the last event at t={history.last_s:g}")
        if self._complete and end_s is not None and history.event_count and abs(end_s - latest_s) > error_s:
            self.report(f"end_s is {end_s:g}; until_s ends the run at {latest_s:g}")
