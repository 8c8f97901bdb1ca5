"""The result of one run, whether it is in memory or in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from clustersim.cluster import Cluster

from .plans import PlanRecord
from .records import EventRecord, JobRecord, Snapshot

__all__ = ["COMPLETE", "INTERRUPTED", "STOPPED", "Recorded", "Run"]

COMPLETE, STOPPED, INTERRUPTED = "complete", "stopped", "interrupted"
"""How a run ended: by itself, by an error of its policy, by its user."""


@dataclass(frozen=True, repr=False)
class Run:
    """One policy on one trace: the settings, and everything that was recorded.

    `jobs` are in order of submission, `events` and `snapshots` in order of time. `manifest` is plain JSON
    data: how the run came about (versions, command, seed, trace, profile, overheads, timings). `plans`: each
    training plan that LLM jobs ran, once.
    """

    policy: str
    planner: str
    cluster: Cluster
    jobs: Sequence[JobRecord]
    events: Sequence[EventRecord]
    snapshots: Sequence[Snapshot]
    summary: dict[str, Any]
    manifest: dict[str, Any]
    plans: list[PlanRecord] = field(default_factory=list)

    def __repr__(self) -> str:
        """One line: policy, cluster, jobs and mean JCT."""
        jobs, finished, jct = (self.summary.get(name) for name in ("jobs", "finished", "jct_mean_s"))
        mean = "" if jct is None else f", mean JCT {jct:,.6g} s"
        return f"<Run {self.policy} on {self.cluster.gpus} GPUs: {finished} of {jobs} jobs finished{mean}>"


class Recorded(Protocol):
    """The records of a run: in memory (`Run`), or read from a folder in each iteration (`StreamedRun`)."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def jobs(self) -> Iterable[JobRecord]: ...
    @property
    def events(self) -> Iterable[EventRecord]: ...
    @property
    def snapshots(self) -> Iterable[Snapshot]: ...
    @property
    def plans(self) -> Iterable[PlanRecord]: ...
    @property
    def summary(self) -> Mapping[str, Any]: ...
    @property
    def manifest(self) -> Mapping[str, Any]: ...
