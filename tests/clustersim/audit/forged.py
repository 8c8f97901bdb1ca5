"""Falsified runs, kept as text: what is changed in a sound run, and what the audit says of it.

A file of forgeries has a `run`: its `jobs` as columns by job, the `policy`, and the `settings` of
`clustersim.run`. Each of its `forgeries` is one change, with what the audit `finds`:

| key | what is changed |
|---|---|
| `events` | the event [kind, job, number], by default the first: `set` its fields, `multiply` them by
numbers, `move` it by seconds, or `drop` it |
| `jobs` | the record of a job, or of `all`: `set`, `drop`, or `twice` for a second record |
| `snapshots`, `plans` | a row by its number: `set`, `drop`, `twice` |
| `manifest`, `summary`, `window`, `cluster`, `fields` | entries there; `fields`: of the run itself |
| `replan` | the first start names this plan, in all files |
| `without` | a job, as if it had never been submitted |
| `swap` | by table, the numbers of two rows that change places |

`finds` has, by broken rule, its first violation, and how many there are if there are several; or `refused`:
what is said of a value that no program writes.

    python -m tests.clustersim.audit.forged FILE...     # write what the audit finds now into the files
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

import clustersim
from clustersim.audit.folder import check_run
from clustersim.cluster import SharedPlacement
from clustersim.records import Exact, Run
from itertime.errors import UserError
from tests.refusals import flow
from traces.job import Job
from traces.native import write_trace

__all__ = ["Forgery", "audited", "forge", "sound_run"]

Forgery = dict[str, Any]
ENTRIES = ("manifest", "summary")
ROWS = ("events", "jobs", "snapshots", "plans")


def sound_run(stated: dict[str, Any], folder: Path) -> Run:
    """The run of a file, from a trace in the folder."""
    jobs = [Job(**{"job_id": name, **columns}) for name, columns in stated["jobs"].items()]
    write_trace(jobs, folder / "trace.csv")
    return clustersim.run(folder / "trace.csv", stated["policy"], **stated.get("settings", {}))


def forge(run: Run, forgery: Forgery) -> Run:
    """The run with one change."""
    for name in ENTRIES:
        if name in forgery:
            return replace(run, **{name: {**getattr(run, name), **forgery[name]}})
    for name in ROWS:
        if name in forgery:
            return replace(run, **{name: _changed(list(getattr(run, name)), name, forgery)})
    if "window" in forgery:
        window = {**run.summary["window"], **forgery["window"]}
        return replace(run, summary={**run.summary, "window": window})
    if "cluster" in forgery:
        return replace(run, cluster=replace(run.cluster, **forgery["cluster"]))
    if "replan" in forgery:
        return _replanned(run, forgery["replan"])
    if "without" in forgery:
        return _without(run, forgery["without"])
    if "swap" in forgery:
        return replace(
            run, **{name: _swapped(getattr(run, name), *two) for name, two in forgery["swap"].items()}
        )
    return replace(run, **forgery["fields"])


def _changed(rows: list[Any], name: str, forgery: Forgery) -> list[Any]:
    for place in _places(rows, name, forgery[name]):
        row = rows[place]
        values = {key: _value(key, value) for key, value in forgery.get("set", {}).items()}
        for key, factor in forgery.get("multiply", {}).items():
            values[key] = Exact(getattr(row, key) * factor)
        if values:
            rows[place] = replace(row, **values) if name == "jobs" else row._replace(**values)
        if "move" in forgery:
            rows[place] = row._replace(time_s=row.time_s + forgery["move"])
            rows.sort(key=lambda event: event.time_s)
        if "drop" in forgery:
            del rows[place]
        if "twice" in forgery:
            rows.insert(place, row)
    return rows


def _places(rows: list[Any], name: str, stated: Any) -> Iterable[int]:
    if name == "jobs":
        return [i for i, row in enumerate(rows) if stated in ("all", row.job_id)]
    if name == "events":
        kind, job_id, number = *stated, *[1][len(stated) - 2 :]
        return [[i for i, row in enumerate(rows) if (row.event, row.job_id) == (kind, job_id)][number - 1]]
    return [stated]


def _swapped(rows: Iterable[Any], one: int, other: int) -> list[Any]:
    rows = list(rows)
    rows[one], rows[other] = rows[other], rows[one]
    return rows


def _value(key: str, value: Any) -> Any:
    if key != "placement":
        return value
    if isinstance(value, dict):
        return SharedPlacement(tuple(map(tuple, value["nodes"])), value["number"], value["share"])
    return tuple(map(tuple, value))


def _replanned(run: Run, plan: str) -> Run:
    first = next(event for event in run.events if event.plan)
    events = [event._replace(plan=plan) if event is first else event for event in run.events]
    rows = [row._replace(plan=plan) for row in run.plans if row.plan == first.plan]
    return replace(run, events=events, plans=[*run.plans, *rows])


def _without(run: Run, job_id: str) -> Run:
    jobs = [record for record in run.jobs if record.job_id != job_id]
    events = [event for event in run.events if event.job_id != job_id]
    manifest = {**run.manifest, "trace": {**run.manifest["trace"], "jobs": len(jobs)}}
    return replace(run, jobs=jobs, events=events, manifest=manifest)


def audited(run: Run, folder: Path) -> dict[str, str]:
    """The first violation of each broken rule, and how many there are."""
    violations_by_rule = {}
    try:
        findings = check_run(run)
    except UserError as error:
        return {"refused": str(error)}
    for finding in findings:
        count = len(finding.violations) + finding.more
        if count:
            text = re.sub("[0-9a-f]{24,}", "<hash>", finding.violations[0].text.replace(f"{folder}/", ""))
            violations_by_rule[finding.rule] = text if count == 1 else f"{text} (of {count})"
    return violations_by_rule


def _renew(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    head, _, _ = text.partition("\nforgeries:\n")
    document = yaml.safe_load(text)
    lines = [head, "forgeries:"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        run = sound_run(document["run"], folder)
        for forgery in document["forgeries"]:
            change = [f"{flow({key: value})[1:-1]}" for key, value in forgery.items() if key != "finds"]
            found = audited(forge(run, forgery), folder)
            lines += [f"- {change[0]}", *(f"  {line}" for line in change[1:]), "  finds:"]
            lines += [f"    {flow({rule: words})[1:-1]}" for rule, words in found.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _renew(Path(name))
