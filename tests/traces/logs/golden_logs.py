"""Logs by hand, and what each becomes: the cases of `golden/*.yaml`, and how a result is written down.

A case is a `log` (a text, or the texts of a folder's files), the `options` of `ReadOptions` and what comes of
it: its jobs, and what the report says of them, or the error. Other files that the options name lie `beside`
the log. `python -m tests.traces.logs.golden_logs` writes the results anew; what has changed is then read in
the difference, line by line.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from itertime.errors import UserError
from tests.traces.importing import import_log, write
from traces import Job
from traces.logs.importer import read
from traces.logs.log import LoggedJob, ReadOptions
from traces.logs.source import open_log

__all__ = ["FILES", "cases", "result"]

FILES = sorted((Path(__file__).parent / "golden").glob("*.yaml"))
TOLD = ("format", "clock", "parts_of_gpus", "held_gpu_seconds", "times", "warnings", "assumptions")
"""What of a report is written down beside jobs and dropped rows."""
ALWAYS = ("the clock starts at 0 with the first job", "jobs are as logged: no models assigned")
"""Assumptions of every log."""


def cases(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def result(case: dict[str, Any], folder: Path) -> str:
    """What the log of a case becomes, as text. The names of files in errors are those without the folder."""
    for name, log in case.get("beside", {}).items():
        write(folder / name, log)
    options = {
        name: str(folder / value) if name in ("speeds", "work_of") else value
        for name, value in case.get("options", {}).items()
    }
    path = write(folder / "log", case["log"])
    lines: list[str] = []
    if case.get("as_logged"):
        lines += _lines(path, folder, lambda: _as_logged(path, options))
    if case.get("as_logged") != "alone":
        lines += _lines(path, folder, lambda: _as_imported(path, options))
    return "\n".join(lines) + "\n"


def _lines(path: Path, folder: Path, told: Any) -> list[str]:
    try:
        return list(told())
    except UserError as error:
        return [
            f"{type(error).__name__}: {line}".replace(f"{folder}/", "") for line in str(error).splitlines()
        ]


def _as_logged(path: Path, options: dict[str, Any]) -> Iterator[str]:
    """The jobs on the log's own clock, before those that have not ended get a run time."""
    with open_log(path) as source:
        log = read(source, ReadOptions(**options))
    yield from (_shown("logged", job) for job in log.jobs)
    yield from (f"dropped line {row.line} {row.job_id}: {row.reason}" for row in log.dropped)


def _as_imported(path: Path, options: dict[str, Any]) -> Iterator[str]:
    jobs, report = import_log(path, **options)
    yield from (_shown("job", job) for job in jobs)
    yield from (f"dropped line {row['line']} {row['job_id']}: {row['reason']}" for row in report["dropped"])
    for name in TOLD:
        value = report.get(name)
        for one in value if isinstance(value, list) else [value]:
            if one and not str(one).startswith(ALWAYS):
                yield f"{name}: {_number(one)}"
    yield from (f"speeds of {source.get('format', 'a folder')}" for source in report.get("speeds") or ())


def _shown(kind: str, job: Job | LoggedJob) -> str:
    """The fields of a job that differ from those of one that states nothing."""
    told = [f"{field.name}={_number(getattr(job, field.name))}" for field in fields(job) if _told(job, field)]
    return f"{kind} {' '.join(told)}"


def _told(job: Job | LoggedJob, field: Any) -> bool:
    return bool(getattr(job, field.name) != field.default) and getattr(job, field.name) is not None


def _number(value: object) -> str:
    """Numbers to ten digits: the last bits of logarithms differ between processors."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines stand as they are."""


_Dumper.add_representer(str, _text)


def dumped(found: list[dict[str, Any]]) -> str:
    return "\n".join(
        yaml.dump([case], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000)
        for case in found
    )


def renew(files: list[Path], key: str, text_of: Callable[[dict[str, Any], Path], str]) -> None:
    """Writes into the cases of files, under a key, what each is now in an empty folder."""
    for file in files:
        found = cases(file)
        for case in found:
            with tempfile.TemporaryDirectory() as folder:
                case[key] = text_of(case, Path(folder))
        file.write_text(dumped(found), encoding="utf-8")


if __name__ == "__main__":
    renew(FILES, "becomes", result)
