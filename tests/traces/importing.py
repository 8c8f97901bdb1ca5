"""`import_log` with the options of reading as keywords, as tests write them."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from traces import Job
from traces.logs import ReadOptions
from traces.logs import import_log as _import_log

_READING = tuple(field.name for field in fields(ReadOptions))


def import_log(path: str | Path, **options: Any) -> tuple[list[Job], dict[str, Any]]:
    reading = {name: options.pop(name) for name in _READING if name in options}
    jobs, report = _import_log(path, ReadOptions(**reading), **options)
    return list(jobs), report


def write(path: Path, log: str | dict[str, str]) -> Path:
    """Write a log, which is a folder if it is several files."""
    if isinstance(log, str):
        path.write_text(log)
        return path
    path.mkdir(exist_ok=True)
    for name, text in log.items():
        (path / name).write_text(text)
    return path


def imported(
    folder: Path, log: str | dict[str, str], name: str = "log.txt", **options: Any
) -> tuple[list[Job], dict[str, Any]]:
    return import_log(write(folder / name, log), **options)
