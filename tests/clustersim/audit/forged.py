"""Falsified runs, kept as text: what is changed in a sound run, and what the audit says of it.

A file of forgeries has a `run`: its `jobs` as columns by job, the `policy`, the `settings` of
`clustersim.run`, and the `files` that they name. Each of its `forgeries` is one change, or a list of
`changes`, with what the audit `finds`:

| key | what is changed |
|---|---|
| `events` | the event [kind, job, number], by default the first: `set` its fields, `multiply` them by
numbers, `move` it by seconds, or `drop` it |
| `jobs` | the record of a job, or of `all`: `set`, `drop`, or `twice` for a second record |
| `snapshots`, `plans` | a row by its number, or `all`: `set`, `drop`, `twice` |
| `manifest`, `summary`, `cluster`, `fields` | entries there; `fields`: of the run itself |
| `window`, `bound`, `trace` | entries of `summary` and of `manifest` that have entries |
| `lacks` | entries of `summary` or `manifest` that are left out |
| `version` | `other`: another version of the program made the run |
| `replan` | the first start names this plan, in all files |
| `without` | a job, as if it had never been submitted |
| `swap` | by table, the numbers of two rows that change places |

`finds` has, by broken rule, its first violation, and how many there are if there are several; what a rule
does not prove; or `refused`: what is said of a value that no program writes.

    python -m tests.clustersim.audit.forged FILE...     # write what the audit finds now into the files
"""

import re
import sys
import tempfile
from collections.abc import Iterable
from contextlib import chdir
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
NESTED = {"window": "summary", "bound": "manifest", "trace": "manifest"}
ROWS = ("events", "jobs", "snapshots", "plans")


def sound_run(stated: dict[str, Any], folder: Path) -> Run:
    """The run of a file, from a trace in the folder."""
    jobs = [Job(**{"job_id": name, **columns}) for name, columns in stated["jobs"].items()]
    write_trace(jobs, folder / "trace.csv")
    for name, text in stated.get("files", {}).items():
        (folder / name).write_text(text, encoding="utf-8")
    with chdir(folder):
        return clustersim.run(folder / "trace.csv", stated["policy"], **stated.get("settings", {}))


def forge(run: Run, forgery: Forgery) -> Run:
    """The run with the changes of a forgery."""
    for change in forgery.get("changes", [forgery]):
        run = _with(run, change)
    return run


def _with(run: Run, change: Forgery) -> Run:
    """The run with one change."""
    if change.get("version") == "other":
        versions = {**run.manifest["versions"], "code": "0" * 64}
        run = replace(run, manifest={**run.manifest, "versions": versions})
    for name, lacking in change.get("lacks", {}).items():
        entries = {key: value for key, value in getattr(run, name).items() if key not in lacking}
        run = replace(run, **{name: entries})
    for name in ENTRIES:
        run = replace(run, **{name: {**getattr(run, name), **change.get(name, {})}})
    for name, owner in NESTED.items():
        if name in change:
            entries = {**getattr(run, owner)[name], **change[name]}
            run = replace(run, **{owner: {**getattr(run, owner), name: entries}})
    for name in ROWS:
        if name in change:
            run = replace(run, **{name: _changed(list(getattr(run, name)), name, change)})
    for name, two in change.get("swap", {}).items():
        run = replace(run, **{name: _swapped(getattr(run, name), *two)})
    if "cluster" in change:
        run = replace(run, cluster=replace(run.cluster, **change["cluster"]))
    if "replan" in change:
        run = _replanned(run, change["replan"])
    if "without" in change:
        run = _without(run, change["without"])
    return replace(run, **change.get("fields", {}))


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
    return range(len(rows)) if stated == "all" else [stated]


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
    """What the audit finds."""
    found = {}
    try:
        findings = check_run(run)
    except UserError as error:
        return {"refused": str(error).replace(f"{folder}/", "")}
    for finding in findings:
        count = len(finding.violations) + finding.more
        if count:
            text = finding.violations[0].text
            found[finding.rule] = text if count == 1 else f"{text} (of {count})"
        elif finding.unproved:
            found[f"{finding.rule}, not proved"] = finding.unproved
    return {
        rule: re.sub("[0-9a-f]{24,}", "<hash>", text.replace(f"{folder}/", ""))
        for rule, text in found.items()
    }


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
