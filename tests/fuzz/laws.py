"""Laws of conservation that every run keeps, computed from the files of its folder alone.

Nothing of the simulator is imported: the tables are read with `csv`, the manifest with `json`, and sums are
made anew. So a mistake that the engine and the audit share shows here.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby, pairwise
from math import fsum, inf
from pathlib import Path
from typing import Any

__all__ = ["LAWS", "Ledger", "broken_laws"]

Row = dict[str, str]

ROUNDING_S = 1e-6
GIVES = ("start", "restart", "resize", "migrate")
TAKES = ("preempt", "interrupt", "requeue", "finish", "fail", "served")
ENDS = ("finish", "fail", "served", "reject")
COUNTED = {"preempt": "preemptions", "resize": "resizes", "restart": "restarts", "migrate": "migrations",
           "interrupt": "interruptions"}  # fmt: skip
USE = ("allocated", "stranded", "running", "pending", "down")
STATES = {"finish": "finished", "fail": "failed", "served": "served", "reject": "rejected"}


@dataclass(frozen=True)
class Place:
    """Where a job runs. `gpus`: by node. `share`: what the job holds of each; `shared`: which GPUs these are,
    None if it has them alone.
    """

    gpus: tuple[tuple[int, int], ...] = ()
    share: float = 1.0
    shared: str | None = None

    @property
    def held(self) -> float:
        return self.share * sum(count for _, count in self.gpus)


@lru_cache(1000)
def place_of(text: str) -> Place:
    """The cell of a table, such as `0-3x8;7x4` or `7x1#2:0.25`."""
    spots, _, shared = text.partition("#")
    gpus = []
    for spot in filter(None, spots.split(";")):
        first, last, count = re.fullmatch(r"(\d+)(?:-(\d+))?x(\d+)", spot).groups()  # type: ignore[union-attr]
        gpus += [(node, int(count)) for node in range(int(first), int(last or first) + 1)]
    if not shared:
        return Place(tuple(gpus))
    number, share = shared.split(":")
    return Place(tuple(gpus), float(share), f"{spots}#{number}")


@dataclass
class Span:
    """A time in which nothing changes for a job: from one of its events to the next one, or to the end of
    the run. `owed_s`: overhead that it had still to pay at the beginning. `on_hold`: it was not to be run.
    """

    from_s: float
    to_s: float
    place: Place
    unit_s: float
    owed_s: float
    on_hold: bool

    @property
    def seconds(self) -> float:
        return self.to_s - self.from_s

    @property
    def useful_s(self) -> float:
        return max(0.0, self.seconds - self.owed_s)


@dataclass
class Ledger:
    """The tables of a run as text, with numbers of nodes and spans of jobs that several laws need."""

    folder: Path
    events: list[Row]
    jobs: dict[str, Row]
    usage: list[Row]
    trace: dict[str, Row]
    manifest: dict[str, Any]
    summary: dict[str, Any]
    events_of: dict[str, list[Row]] = field(default_factory=dict)
    spans_of: dict[str, list[Span]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Ledger:
        def rows(path: Path) -> list[Row]:
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))

        manifest = json.loads((folder / "manifest.json").read_text())
        ledger = cls(
            folder,
            events=rows(folder / "events.csv"),
            jobs={row["job_id"]: row for row in rows(folder / "jobs.csv")},
            usage=rows(folder / "usage.csv"),
            trace={row["job_id"]: row for row in rows(Path(manifest["trace"]["path"]))},
            manifest=manifest,
            summary=json.loads((folder / "summary.json").read_text()),
        )
        for row in ledger.events:
            if row["job_id"] and row["event"] != "note":
                ledger.events_of.setdefault(row["job_id"], []).append(row)
        for job_id, events in ledger.events_of.items():
            ledger.spans_of[job_id] = list(_spans(events, manifest["end_s"]))
        return ledger

    @property
    def node_groups(self) -> list[dict[str, Any]]:
        """The group of each node."""
        cluster = self.manifest["cluster"]
        groups = [group for part in cluster.get("clusters", [cluster]) for group in part["groups"]]
        return [group for group in groups for _ in range(group["nodes"])]

    def finished(self) -> Iterator[tuple[str, Row]]:
        return ((job_id, row) for job_id, row in self.jobs.items() if row["state"] == "finished")

    def seconds(self, job_id: str, *, held: bool) -> float:
        """The seconds that a job was in the system with GPUs, or without though it could be run."""
        spans = [span for span in self.spans_of.get(job_id, ()) if not span.on_hold]
        return fsum(span.seconds for span in spans if bool(span.place.gpus) == held)

    def hold_s(self, job_id: str) -> float:
        """The seconds that a job was in the system and not to be run."""
        return fsum(span.seconds for span in self.spans_of.get(job_id, ()) if span.on_hold)


def _spans(events: list[Row], end_s: float) -> Iterator[Span]:
    place, unit_s, owed_s = Place(), 0.0, 0.0
    for row, following in pairwise([*events, None]):
        assert row is not None
        kind = row["event"]
        if kind in ENDS:
            return
        if kind in GIVES:
            place, owed_s = place_of(row["placement"]), float(row["overhead_s"])
        elif kind in TAKES:
            place, owed_s = Place(), 0.0
        elif kind == "loaded":
            owed_s = 0.0
        if kind != "loaded":
            unit_s = float(row["unit_s"])
        from_s = float(row["time_s"])
        to_s = max(end_s, from_s) if following is None else float(following["time_s"])
        yield Span(from_s, to_s, place, unit_s, owed_s, kind == "hold")
        owed_s = max(0.0, owed_s - (to_s - from_s))


def _near(a: float, b: float, error: float = 0.0) -> bool:
    return abs(a - b) <= 4 * ROUNDING_S + error + 1e-9 * max(abs(a), abs(b))


# Each law yields what breaks it, as sentences.


def one_record_each(ledger: Ledger) -> Iterator[str]:
    """A job of the trace has a record, which says when it was submitted; and nothing else has one."""
    if set(ledger.jobs) != set(ledger.trace):
        yield f"jobs {sorted(set(ledger.jobs) ^ set(ledger.trace))} in one of records and trace alone"
    for job_id, row in ledger.jobs.items():
        if not _near(float(row["submit_s"]), float(ledger.trace[job_id]["submit_s"])):
            yield f"{job_id} was submitted at {ledger.trace[job_id]['submit_s']}, not {row['submit_s']}"


def order_of_events(ledger: Ledger) -> Iterator[str]:
    """Time never runs back, a job begins with its submission, and has no event after its end."""
    times = [float(row["time_s"]) for row in ledger.events]
    if times != sorted(times):
        yield "events are not in order of time"
    for job_id, events in ledger.events_of.items():
        kinds = [row["event"] for row in events]
        if kinds.count("submit") != 1 or kinds[0] != "submit" or any(kind in ENDS for kind in kinds[:-1]):
            yield f"{job_id} has the events {kinds}"
        state = STATES.get(kinds[-1], "unfinished")
        if state != ledger.jobs[job_id]["state"]:
            yield f"{job_id} is {ledger.jobs[job_id]['state']} after {kinds[-1]}"


def counts_of_events(ledger: Ledger) -> Iterator[str]:
    for job_id, row in ledger.jobs.items():
        counts = Counter(event["event"] for event in ledger.events_of.get(job_id, ()))
        for kind, column in COUNTED.items():
            if int(row[column]) != counts[kind]:
                yield f"{job_id} has {counts[kind]} events {kind}, {row[column]} {column}"


def no_gpu_held_twice(ledger: Ledger) -> Iterator[str]:
    """After an instant no node gives more GPUs than it has, none while it is out of service, and the shares
    of a GPU are at most 1. The placement of a job has its GPUs, on one GPU type of one cluster.
    """
    groups, places, down = ledger.node_groups, dict[str, Place](), set[int]()
    for time_s, batch in groupby(ledger.events, key=lambda row: row["time_s"]):
        for row in batch:
            kind, job_id = row["event"], row["job_id"]
            if kind in GIVES:
                places[job_id] = place = place_of(row["placement"])
                types = {groups[node]["gpu_type"] for node, _ in place.gpus}
                if sum(count for _, count in place.gpus) != int(row["gpus"]) or len(types) != 1:
                    yield f"t={time_s}: {job_id} has {row['gpus']} GPUs of {types} at {row['placement']}"
            elif kind in TAKES:
                places.pop(job_id, None)
            elif kind in ("node_down", "node_up"):
                node = place_of(row["placement"]).gpus[0][0]
                (down.add if kind == "node_down" else down.discard)(node)
        in_use, shares = _use_of(places.values())
        wrong = [n for n, count in in_use.items() if n in down or count > groups[n]["gpus_per_node"]]
        if wrong or any(share > 1_000_000 for share in shares.values()):
            yield f"t={time_s}: nodes {wrong} give {dict(in_use)}, out of service are {down}; {dict(shares)}"


def _use_of(places: Iterable[Place]) -> tuple[Counter[int], Counter[str]]:
    """The GPUs in use by node, and the millionths in use of those that jobs share, by where these are."""
    in_use, shares = Counter[int](), Counter[str]()
    for place in places:
        if place.shared not in shares:
            in_use.update(dict(place.gpus))
        if place.shared is not None:
            shares[place.shared] += round(place.share * 1e6)
    return in_use, shares


def no_gpus_lost_for_nothing(ledger: Ledger) -> Iterator[str]:
    """A job that its policy stops could not have gone on: another job has some of its GPUs, or of the cores
    and the memory beside them. GPUs that the policy lets jobs share are not free while another one has them.
    """
    groups, places, down = ledger.node_groups, dict[str, Place](), set[int]()
    for time_s, batch in groupby(ledger.events, key=lambda row: row["time_s"]):
        lost = dict[str, Place]()
        for row in batch:
            kind, job_id = row["event"], row["job_id"]
            if kind in GIVES:
                places[job_id] = place_of(row["placement"])
            elif kind in TAKES:
                place = places.pop(job_id, None)
                if place is not None and kind == "preempt" and not row["detail"]:
                    lost.setdefault(job_id, place)
            elif kind in ("node_down", "node_up"):
                node = place_of(row["placement"]).gpus[0][0]
                (down.add if kind == "node_down" else down.discard)(node)
        for job_id in sorted(lost.keys() - places.keys()):
            place, packed = lost[job_id], not ledger.trace[job_id].get("gpu_fraction")
            in_use, shares = _use_of([*places.values(), replace(place, share=1.0) if packed else place])
            if (
                all(in_use[n] <= groups[n]["gpus_per_node"] and n not in down for n, _ in place.gpus)
                and (place.shared is None or shares[place.shared] <= 1_000_000)
                and _hosts({**places, job_id: place}, ledger.jobs, groups)
            ):
                yield f"t={time_s}: {job_id} loses {place}, and no job gets any of it"


def _hosts(places: dict[str, Place], jobs: dict[str, Row], groups: list[dict[str, Any]]) -> bool:
    """Whether all nodes have the cores and the memory that the jobs on them need."""
    for needed, stated in (
        ("cpus_per_gpu", "cpus_per_node"), ("host_gb_per_gpu", "host_memory_gb_per_node")
    ):  # fmt: skip
        use = Counter[int]()
        for job_id, place in places.items():
            for node, count in place.gpus:
                use[node] += count * float(jobs[job_id].get(needed) or 0)  # type: ignore[assignment]
        if any(amount > (groups[node].get(stated) or inf) for node, amount in use.items()):
            return False
    return True


def use_over_time(ledger: Ledger) -> Iterator[str]:
    """After each instant usage.csv says what the events add up to."""
    sizes = [group["gpus_per_node"] for group in ledger.node_groups]
    places, inside, down = dict[str, Place](), set[str](), set[int]()
    rows, stated = list(ledger.usage), ["0"] * len(USE)
    instants = [list(batch) for _, batch in groupby(ledger.events, key=lambda row: row["time_s"])]
    for place_in_log, batch in enumerate(instants):
        time_s = float(batch[0]["time_s"])
        for row in batch:
            kind, job_id = row["event"], row["job_id"]
            if kind in ("submit", "eligible"):
                inside.add(job_id)
            elif kind == "hold":
                inside.discard(job_id)
            elif kind in GIVES:
                places[job_id] = place_of(row["placement"])
            elif kind in TAKES:
                places.pop(job_id, None)
            elif kind in ("node_down", "node_up"):
                node = place_of(row["placement"]).gpus[0][0]
                (down.add if kind == "node_down" else down.discard)(node)
            if kind in ENDS:
                inside.discard(job_id)
        while rows and float(rows[0]["time_s"]) <= time_s:
            row = rows.pop(0)
            stated = [row[name] for name in USE]
        by_node = Counter[int]()
        for place in places.values():
            for node, count in place.gpus:
                by_node[node] += place.share * count  # type: ignore[assignment]
        held = fsum(place.held for place in places.values())
        stranded = fsum(sizes[node] - count for node, count in by_node.items())
        ours = (held, stranded, len(places), len(inside) - len(places), sum(sizes[node] for node in down))
        is_last = place_in_log == len(instants) - 1
        if not all(_near(float(text), value) for text, value in zip(stated, ours, strict=True)):
            if is_last and ledger.manifest["until_s"] is not None:
                continue  # the decision of the last instant was not enacted
            yield f"t={time_s}: allocated, stranded, running, pending, down are {stated}, not {ours}"


def gpu_seconds(ledger: Ledger) -> Iterator[str]:
    """The GPU-seconds of a job are those of its spans; those of all jobs are the integral of usage.csv."""
    for job_id, row in ledger.jobs.items():
        spans = ledger.spans_of.get(job_id, ())
        held = fsum(span.place.held * span.seconds for span in spans)
        most = max((span.place.held for span in spans), default=0.0)
        if not _near(float(row["gpu_seconds"]), held, 2 * ROUNDING_S * len(spans) * most):
            yield f"{job_id} held {held} GPU-seconds, and its record says {row['gpu_seconds']}"
    ends = [*(float(row["time_s"]) for row in ledger.usage[1:]), ledger.manifest["end_s"]]
    in_use = fsum(
        float(row["allocated"]) * (end_s - float(row["time_s"]))
        for row, end_s in zip(ledger.usage, ends, strict=bool(ledger.usage))
    )
    held = fsum(float(row["gpu_seconds"]) for row in ledger.jobs.values())
    if abs(in_use - held) > 1e-3 + 1e-6 * held:
        yield f"{in_use} GPU-seconds are in use over time, and jobs held {held}"


def times_of_jobs(ledger: Ledger) -> Iterator[str]:
    """A job waits or holds GPUs from its submission to its end; its overhead is part of what it held."""
    for job_id, row in ledger.jobs.items():
        error = 2 * ROUNDING_S * len(ledger.events_of.get(job_id, ()))
        waits_s, held_s = ledger.seconds(job_id, held=False), ledger.seconds(job_id, held=True)
        on_hold_s = ledger.hold_s(job_id)
        if not _near(float(row.get("held_s") or 0), on_hold_s, error):
            yield f"{job_id} is on hold for {on_hold_s} s, and its record says {row.get('held_s')}"
        lost_s = float(row["lost_s"])
        if row["state"] != "rejected" and not _near(float(row["wait_s"]), waits_s, error):
            yield f"{job_id} waits {waits_s} s, and its record says {row['wait_s']}"
        if not -error <= lost_s <= held_s + error:
            yield f"{job_id} loses {lost_s} of {held_s} s"
        if row["state"] in ("finished", "served"):
            jct_s = float(row["finish_s"]) - float(row["submit_s"])
            if not (_near(jct_s, float(row["jct_s"])) and _near(jct_s, on_hold_s + waits_s + held_s, error)):
                yield f"{job_id}: {waits_s} s of waits, {held_s} s with GPUs, jct_s={row['jct_s']}"
        if row["start_s"]:
            first = next(event for event in ledger.events_of[job_id] if event["event"] == "start")
            queue_s = float(first["time_s"]) - float(row.get("eligible_s") or row["submit_s"])
            if not (
                _near(float(row["start_s"]), float(first["time_s"])) and _near(queue_s, float(row["queue_s"]))
            ):
                yield f"{job_id} starts at {first['time_s']}, and its record says {row['start_s']}"


def work_done(ledger: Ledger) -> Iterator[str]:
    """A finished job has done its work, in the seconds that it held GPUs and lost none: by each span's speed
    if overhead is only paid at its beginning, else between its fastest and its slowest speed.
    """
    overheads, failures = ledger.manifest["overheads"], ledger.manifest["failures"]
    saves = overheads is not None and (
        overheads["storage_shared"] or not isinstance(overheads["checkpoint_interval_s"], str) or failures
    )
    for job_id, row in ledger.finished():
        job = ledger.trace[job_id]
        text = job.get("iterations") or job["duration_s"]
        asked = float(text)
        if not (job.get("iterations") or job.get("phases")):
            asked += float(job.get("suspended_s") or 0)
        began_s = max(
            (float(e["time_s"]) for e in ledger.events_of[job_id] if e["event"] == "requeue"), default=0
        )
        spans = [span for span in ledger.spans_of[job_id] if span.place.gpus and span.from_s >= began_s]
        useful_s = ledger.seconds(job_id, held=True) - float(row["lost_s"])
        units = [span.unit_s for span in spans if span.seconds > 0]
        if not units:
            units = [inf]
        error_s = 4 * ROUNDING_S * (1 + len(spans))
        low, high = (useful_s - error_s) / max(units), (useful_s + error_s) / min(units)
        slack = 1e-9 * asked + 1e-9
        if not low - slack <= asked <= high + slack:
            yield f"{job_id} asks for {asked} units, and does {low} to {high} in {useful_s} s"
        if not saves and row["interruptions"] == "0":
            done = fsum(span.useful_s / span.unit_s for span in spans)
            if abs(done - asked) > error_s / min(units) + slack:
                yield f"{job_id} asks for {asked} units, and does {done}"
            lost_s = fsum(span.seconds - span.useful_s for span in spans)
            if row.get("requeues"):
                continue  # what was lost ahead of these spans is work, too
            if not _near(lost_s, float(row["lost_s"]), error_s):
                yield f"{job_id} pays {lost_s} s of overhead, and its record says {row['lost_s']}"


def services_end(ledger: Ledger) -> Iterator[str]:
    """An instance of a service leaves when its time is over, whatever it has got."""
    for job_id, row in ledger.jobs.items():
        if row["state"] == "served":
            due_s = float(row["submit_s"]) + float(ledger.trace[job_id]["duration_s"])
            if not _near(due_s, float(row["finish_s"])):
                yield f"{job_id} is to end at {due_s}, and ends at {row['finish_s']}"
        if (row["state"] == "served") != bool(row.get("service")) and row["state"] == "finished":
            yield f"{job_id} of service {row.get('service')!r} is {row['state']}"


def costs(ledger: Ledger) -> Iterator[str]:
    """Where GPU types have prices, a job pays for the seconds that it held its GPUs."""
    groups, price = ledger.node_groups, ledger.manifest["price_usd_per_gpu_h"]
    if all(group["usd_per_gpu_hour"] is None for group in groups):
        return
    for job_id, row in ledger.jobs.items():
        paid, error = 0.0, ROUNDING_S
        for span in ledger.spans_of.get(job_id, ()):
            for node, count in span.place.gpus:
                of_node = groups[node]["usd_per_gpu_hour"]
                rate = count * span.place.share * (price if of_node is None else of_node) / 3600
                paid, error = paid + rate * span.seconds, error + 2 * ROUNDING_S * rate
        if not _near(float(row["cost_usd"] or 0), paid, error):
            yield f"{job_id} pays {paid} dollars, and its record says {row['cost_usd']}"


def deadlines(ledger: Ledger) -> Iterator[str]:
    for job_id, row in ledger.jobs.items():
        if bool(row["deadline_s"]) != bool(row["deadline_met"]):
            yield f"{job_id} has deadline_s={row['deadline_s']} and deadline_met={row['deadline_met']}"
        elif row["deadline_s"]:
            late_s = (float(row["finish_s"]) if row["finish_s"] else inf) - float(row["deadline_s"])
            if abs(late_s) > 2 * ROUNDING_S and (late_s < 0) != (row["deadline_met"] == "true"):
                yield f"{job_id} is {late_s} s late, and deadline_met={row['deadline_met']}"


def sums(ledger: Ledger) -> Iterator[str]:
    """The counts, sums and times of summary.json are those of jobs.csv."""
    rows, summary = list(ledger.jobs.values()), ledger.summary
    states = Counter(row["state"] for row in rows)
    ours: dict[str, Any] = {
        "jobs": len(rows), "events": len(ledger.events),
        **{name: states[name] for name in ("finished", "rejected", "unfinished", "failed")},
        **{name: sum(int(row[name]) for row in rows) for name in COUNTED.values()},
    }  # fmt: skip
    times = [float(row["jct_s"]) for _, row in ledger.finished()]
    ours["jct_mean_s"] = fsum(times) / len(times) if times else None
    ours["lost_gpu_h"] = (
        fsum(float(row["overhead_gpu_s"]) + float(row["lost_work_gpu_s"]) for row in rows) / 3600
    )
    ours["deadline_jobs"] = sum(bool(row["deadline_s"]) for row in rows)
    for name, value in ours.items():
        stated = summary[name]
        equal = stated is value if None in (stated, value) else _near(stated, value, ROUNDING_S * len(rows))
        if not equal:
            yield f"{name} is {stated} in summary.json, {value} by the records"


LAWS: dict[str, Callable[[Ledger], Iterator[str]]] = {
    law.__name__.replace("_", " "): law
    for law in (
        one_record_each, order_of_events, counts_of_events, no_gpu_held_twice, no_gpus_lost_for_nothing,
        use_over_time, gpu_seconds, times_of_jobs, work_done, services_end, costs, deadlines, sums,
    )
}  # fmt: skip


def broken_laws(folder: Path) -> Iterator[tuple[str, str]]:
    """The laws that the run in a folder breaks, each with the first sentence of how."""
    ledger = Ledger.of(folder)
    for name, law in LAWS.items():
        if (text := next(law(ledger), None)) is not None:
            yield name, text
