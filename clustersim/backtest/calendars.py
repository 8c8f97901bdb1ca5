"""When nodes were there, by a job log: a calendar that a run can read.

Rules, where the log names the nodes of its jobs
- **Out of service.** A gap is a time in which no logged job holds a GPU of a node. Idle or out? It counts as
  out if it lasts at least `least_s`, and in it a job that fits on one such node waits a minute or more and
  then starts on other nodes: a scheduler that had this node would have used it. The job must be of a
  partition and of a GPU type that the node has run. A gap before the first use of a node makes it appear
  (`add`), one after its last use makes it vanish (`remove`), others are `maintenance`.
- **Failure.** A job that ends as `NODE_FAIL` (Slurm) lost one of its nodes: of those on which nothing else
  went on, the one that is next used last. The node is out until its next use, if that gap is shorter than
  `least_s` or counts as out. Else the time to repair is not known, and the failure is only counted.

Where it does not, the capacity is that of the rules in `clustersim.backtest.use`, and the last nodes go.

The rate of failures is the GPU-hours in service over the failures, as `failures.mtbf_gpu_h` takes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from clustersim.cluster import Cluster
from itertime.errors import UserError

from .logged import Floats, LoggedRun, Rows
from .pools import SiteFacts, pools_of
from .use import in_use

__all__ = ["LogCalendar", "Outage", "calendar_of"]

_LEAST_S = 6 * 3600.0
_WAITED_S = 60.0
_TOGETHER_S = 60.0  # jobs that end within this time ended by one failure
_FAILED = re.compile(r"node[_ -]?fail(ed|ure)?", re.IGNORECASE)
_ROUND_S = 3


@dataclass(frozen=True)
class Outage:
    """Nodes were not there from `from_s` to `until_s`. `why`: appears, vanishes, gap, failure or capacity."""

    nodes: tuple[int, ...]
    from_s: float
    until_s: float
    why: str


@dataclass(frozen=True)
class LogCalendar:
    """What a log says of its nodes: `names` by number (empty if it names none), the cluster that they make,
    the outages in order of time, and the counts and rules as `summary` and `said`.
    """

    cluster: Cluster
    names: tuple[str, ...]
    outages: tuple[Outage, ...]
    summary: Mapping[str, Any]
    said: tuple[str, ...]

    def entries(self) -> list[dict[str, Any]]:
        """The calendar, as `clustersim run --set calendar=FILE` reads it."""
        return [_entry(outage) for outage in self.outages]

    def text(self, source: str) -> str:
        """The file: the entries as YAML, with the rules and the names of the nodes as comments."""
        lines = [f"# Nodes of {json.dumps(source)}, by clustersim trace calendar."]
        lines.append(f"# clustersim run TRACE --cluster {self.cluster.shape} --set calendar=FILE")
        lines += [f"# - {line}" for line in self.said]
        lines += [f"# node {i}: {json.dumps(name)}" for i, name in enumerate(self.names)]
        lines.append("calendar:" if self.outages else "calendar: []")
        for entry in self.entries():
            fields = ", ".join(f"{key}: {json.dumps(value)}" for key, value in entry.items())
            lines.append(f"  - {{{fields}}}")
        return "\n".join(lines) + "\n"


def calendar_of(
    log: LoggedRun,
    cluster: Cluster | None = None,
    gpus_per_node: int | None = None,
    least_s: float = _LEAST_S,
) -> LogCalendar:
    """The calendar of a log, by the rules of this module.

    `cluster`: what the user states; None infers it. UserError if the log shows more nodes, or larger ones.
    """
    if not 0 < least_s < 1e9:
        raise UserError(f"--least-s {least_s:g}: must be above 0 and below 1e9")
    failed = np.array([bool(_FAILED.fullmatch(job.state or "")) for job in log.jobs])
    if any(log.on_nodes):
        return _by_nodes(log, _NodeUse.of(log), failed, cluster, gpus_per_node, least_s)
    return _by_capacity(log, failed, cluster, gpus_per_node)


def _entry(outage: Outage) -> dict[str, Any]:
    nodes = _ranges(outage.nodes)
    if outage.why == "appears":
        return {"at_s": round(outage.until_s, _ROUND_S), "add": nodes, "announced": False}
    from_s = round(outage.from_s, _ROUND_S)
    if outage.why == "vanishes":
        return {"at_s": from_s, "remove": nodes, "announced": False}
    for_s = round(outage.until_s - from_s, _ROUND_S)
    return {"at_s": from_s, "maintenance": nodes, "for_s": for_s, "announced": False}


def _ranges(nodes: Sequence[int]) -> str:
    """Numbers in ascending order as a calendar names them: 0-3,9."""
    runs: list[list[int]] = []
    for node in nodes:
        if runs and runs[-1][1] == node - 1:
            runs[-1][1] = node
        else:
            runs.append([node, node])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


# Logs that name nodes


@dataclass(frozen=True)
class _Spans:
    """When a node was in use: disjoint spans in order of time, and what ran on it."""

    from_s: Floats
    until_s: Floats
    gpus: int
    kinds: frozenset[tuple[str | None, str | None]]

    def gaps(self, end_s: float) -> Iterator[tuple[float, float]]:
        """The times in which it is not in use, from 0 to the end of the log."""
        starts, ends = np.append(0.0, self.until_s), np.append(self.from_s, end_s)
        for from_s, until_s in zip(starts.tolist(), ends.tolist(), strict=True):
            if until_s > from_s:
                yield from_s, until_s


@dataclass(frozen=True)
class _NodeUse:
    """The nodes that a log names, in natural order of their names, and their spans of use."""

    names: tuple[str, ...]
    spans: tuple[_Spans, ...]

    @classmethod
    def of(cls, log: LoggedRun) -> _NodeUse:
        held: dict[str, list[tuple[float, float, float]]] = {}
        kinds: dict[str, set[tuple[str | None, str | None]]] = {}
        for job, places in zip(log.jobs, log.on_nodes, strict=True):
            for node_span in places:
                held.setdefault(node_span.node, []).append(
                    (node_span.from_s, node_span.until_s, node_span.gpus)
                )
                kinds.setdefault(node_span.node, set()).add((job.partition, job.gpu_type))
        names = sorted(held, key=_natural)
        return cls(tuple(names), tuple(_spans(held[name], frozenset(kinds[name])) for name in names))


def _natural(name: str) -> list[tuple[int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(int(part) if part.isascii() and part.isdecimal() else -1, part) for part in parts]


def _spans(held: list[tuple[float, float, float]], kinds: frozenset[tuple[str | None, str | None]]) -> _Spans:
    starts, ends, gpus = (np.array(column) for column in zip(*sorted(held), strict=True))
    peak_gpus = float(in_use(starts, ends - starts, np.ceil(gpus).astype(np.int64))[1].max())
    latest = np.maximum.accumulate(ends)
    first_rows = np.flatnonzero(np.append(True, starts[1:] > latest[:-1]))
    last_rows = np.append(first_rows[1:] - 1, len(starts) - 1)
    return _Spans(starts[first_rows], latest[last_rows], int(peak_gpus), kinds)


def _by_nodes(
    log: LoggedRun,
    use: _NodeUse,
    failed: np.ndarray,
    cluster: Cluster | None,
    gpus_per_node: int | None,
    least_s: float,
) -> LogCalendar:
    cluster = _cluster_of(use, cluster, gpus_per_node)
    places = [frozenset(outage.node for outage in spans) for spans in log.on_nodes]
    starts = _Starts.of(log, places)
    end_s = float(np.nanmax(log.start_s))
    gaps: list[Outage] = []
    idle = 0
    for number, (name, spans) in enumerate(zip(use.names, use.spans, strict=True)):
        for from_s, until_s in spans.gaps(end_s):
            if until_s - from_s < least_s:
                continue
            if not starts.elsewhere(name, spans, from_s, until_s):
                idle += 1
                continue
            cause = "appears" if from_s == 0 else "vanishes" if until_s == end_s else "gap"
            gaps.append(Outage((number,), from_s, until_s, cause))
    failures, unknown = _failures(log, use, failed, gaps, least_s)
    outages = _together([*[outage for outage in gaps if outage not in failures.values()], *failures])
    down_h = (
        sum(len(outage.nodes) * (outage.until_s - outage.from_s) for outage in outages)
        / 3600
        * cluster.gpus_per_node
    )
    counts = {cause: sum(len(outage.nodes) for outage in outages if outage.why == cause) for cause in _WHYS}
    assumptions = [
        f"{len(use.names):,} nodes, of which jobs hold at most {cluster.gpus_per_node} GPUs at once",
        f"out of service: no GPU in use for {least_s:g} s or more, while a job that fits waits a minute and "
        "starts on other nodes",
        f"{counts['gap']:,} such gaps; {counts['appears']:,} nodes appear and {counts['vanishes']:,} vanish; "
        f"{idle:,} long gaps in which no job waited for such a node count as idle",
        f"{counts['failure']:,} failures of nodes, by jobs that end as NODE_FAIL, until the next use; "
        f"{unknown:,} more of unknown length are left out",
    ]
    summary = {"nodes": len(use.names), **counts, "idle_gaps": idle, "failures_of_unknown_length": unknown}
    return _finished(
        log, cluster, use.names, outages, down_h, counts["failure"] + unknown, summary, assumptions
    )


_WHYS = ("gap", "appears", "vanishes", "failure")


def _cluster_of(use: _NodeUse, cluster: Cluster | None, gpus_per_node: int | None) -> Cluster:
    largest = max(spans.gpus for spans in use.spans)
    if cluster is None:
        return Cluster(len(use.names), max(largest, gpus_per_node or 1))
    if cluster.mixed or cluster.node_sizes != 1:
        raise UserError(f"--cluster {cluster.shape}: has nodes of several sizes; the log does not say which")
    if cluster.nodes < len(use.names) or cluster.gpus_per_node < largest:
        seen = f"the log has jobs on {len(use.names):,} nodes, and {largest} GPUs of one"
        raise UserError(f"--cluster {cluster.shape}: {seen}")
    return cluster


@dataclass(frozen=True)
class _Starts:
    """The jobs that a single node can hold, in order of their starts."""

    start_s: Floats
    rows: Rows
    log: LoggedRun
    places: Sequence[frozenset[str]]

    @classmethod
    def of(cls, log: LoggedRun, places: Sequence[frozenset[str]]) -> _Starts:
        on_single_node = np.array([len(where) == 1 for where in places]) & ~np.isnan(log.start_s)
        rows = np.flatnonzero(on_single_node)
        rows = rows[np.argsort(log.start_s[rows], kind="stable")].astype(np.int64)
        return cls(log.start_s[rows], rows, log, places)

    def elsewhere(self, name: str, spans: _Spans, from_s: float, until_s: float) -> bool:
        """Whether a job that fits on a node waited, and started elsewhere, while the node was not in use."""
        low = np.searchsorted(self.start_s, from_s + _WAITED_S)
        high = np.searchsorted(self.start_s, until_s)
        for i in self.rows[low:high].tolist():
            job = self.log.jobs[i]
            waited_s = self.log.start_s[i] - max(from_s, job.submit_s)
            fits = job.gpus <= spans.gpus and (job.partition, job.gpu_type) in spans.kinds
            if waited_s >= _WAITED_S and fits and name not in self.places[i]:
                return True
        return False


def _failures(
    log: LoggedRun, use: _NodeUse, failed: np.ndarray, gaps: Sequence[Outage], least_s: float
) -> tuple[dict[Outage, Outage | None], int]:
    """Outages by failures, each with the gap that it explains; the number of those of unknown length."""
    number = {name: i for i, name in enumerate(use.names)}
    gap_at = {(node_span.nodes[0], node_span.from_s): node_span for node_span in gaps}
    failures: dict[Outage, Outage | None] = {}
    last_s: dict[int, float] = {}
    unknown = 0
    for i in sorted(np.flatnonzero(failed).tolist(), key=lambda i: (float(np.nan_to_num(log.end_s[i])), i)):
        blamed = [
            (until_s, -number[node_span.node], node_span.until_s)
            for node_span in log.on_nodes[i]
            if (until_s := _next_use(use.spans[number[node_span.node]], node_span.until_s)) is not None
        ]
        if not blamed:
            unknown += 1
            continue
        until_s, negative, from_s = max(blamed)
        node = -negative
        if from_s - last_s.get(node, -np.inf) <= _TOGETHER_S:
            continue
        last_s[node] = from_s
        gap = gap_at.get((node, from_s))
        if gap is None and until_s - from_s >= least_s:
            unknown += 1
            continue
        failures[Outage((node,), from_s, gap.until_s if gap else until_s, "failure")] = gap
    return failures, unknown


def _next_use(spans: _Spans, time_s: float) -> float | None:
    """When a node that is freed at a time is used again (inf: never); None if something goes on there."""
    index = int(np.searchsorted(spans.until_s, time_s))
    if index == len(spans.until_s) or spans.until_s[index] != time_s:
        return None
    return float(spans.from_s[index + 1]) if index + 1 < len(spans.from_s) else np.inf


def _together(outages: Sequence[Outage]) -> tuple[Outage, ...]:
    """Outages of the same kind and time as one, in order of time."""
    merged: dict[tuple[float, float, str], list[int]] = {}
    for outage in outages:
        merged.setdefault((outage.from_s, outage.until_s, outage.why), []).extend(outage.nodes)
    parts = (Outage(tuple(sorted(nodes)), *key) for key, nodes in merged.items())
    return tuple(sorted(parts, key=lambda outage: (outage.from_s, outage.until_s, outage.nodes)))


# Logs that do not


def _by_capacity(
    log: LoggedRun, failed: np.ndarray, cluster: Cluster | None, gpus_per_node: int | None
) -> LogCalendar:
    site = SiteFacts("none", {} if cluster is None else {"": cluster}, gpus_per_node)
    pools, assumptions = pools_of(log, site)
    pool = pools[0]
    outages = []
    for part in pool.reduced:
        nodes = (pool.cluster.gpus - part.gpus) // pool.cluster.gpus_per_node
        if nodes > 0:
            last_nodes = tuple(range(pool.cluster.nodes - nodes, pool.cluster.nodes))
            outages.append(Outage(last_nodes, part.from_s, part.until_s, "capacity"))
    down_h = sum(len(outage.nodes) * (outage.until_s - outage.from_s) for outage in outages) / 3600
    assumptions = ["the log names no nodes: the last ones are out", *assumptions]
    summary = {"nodes": pool.cluster.nodes, "capacity": len(outages)}
    failures = _apart(log.end_s[failed])
    return _finished(
        log,
        pool.cluster,
        (),
        tuple(outages),
        down_h * pool.cluster.gpus_per_node,
        failures,
        summary,
        assumptions,
    )


def _apart(times_s: Floats) -> int:
    """The number of times, those within a minute of the one before not counted; unknown ones count."""
    sorted_times_s = np.sort(times_s[~np.isnan(times_s)])
    return int(np.isnan(times_s).sum()) + (
        1 + int((np.diff(sorted_times_s) > _TOGETHER_S).sum()) if len(sorted_times_s) else 0
    )


def _finished(
    log: LoggedRun,
    cluster: Cluster,
    names: tuple[str, ...],
    outages: tuple[Outage, ...],
    down_gpu_h: float,
    failures: int,
    summary: Mapping[str, Any],
    assumptions: Sequence[str],
) -> LogCalendar:
    """The calendar, with the rate of failures."""
    up_gpu_h = cluster.gpus * float(np.nanmax(log.start_s + log.run_s)) / 3600 - down_gpu_h
    rate = {"failures": failures, "gpu_h_out": down_gpu_h, "gpu_h_in_service": up_gpu_h}
    lines = list(assumptions)
    if failures:
        rate["mtbf_gpu_h"] = max(1, ceil(up_gpu_h / failures))
        failure_rate = f"{failures:,} failures in {up_gpu_h:,.0f} GPU-hours in service"
        lines.append(
            f"{failure_rate}: --set failures.mtbf_gpu_h={rate['mtbf_gpu_h']} draws others at that rate"
        )
    return LogCalendar(cluster, names, outages, {"cluster": cluster.shape, **summary, **rate}, tuple(lines))
