"""Damaged logs: each is read in full or refused, with a reason for every row without a job."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import UserError
from tests.damage import ODD, damaged
from tests.traces.importing import import_log
from tests.traces.logs.test_formats import SAMPLES
from traces import Job, read_trace, write_trace
from traces.logs import FORMATS

FEW, MANY = 12, 2000  # damaged logs of each format
CELLS = [
    *ODD, "5e-324", "1e18", "4000000001", "-5", "0.5", "8", "1970-01-01 00:00:00", "0001-01-01", "2017-10-07",
    "9999-12-31 23:59:59+00:00", "2024-05-01T12:00:00-23:59", "3-04:05:06", "99999999-00:00:00", "Unknown",
    "None", "|", ";", "1" * 4400, "\ufeff", "\u0661", "gres/gpu=1", "gres/gpu:1g.5gb=2", "1_0", "inf",
]  # fmt: skip
CELL = re.compile(rb"[^,;|\t\n ]+")


def longer(text: str) -> str:
    """A sample with its last row three more times: ids that repeat, and rows that differ in one digit."""
    lines = text.rstrip("\n").split("\n")
    if text.lstrip()[:1] in ("[", "{") or "=" in lines[0]:
        return text
    rows = [re.sub(r"^(\W*)\w", rf"\g<1>{i}", lines[-1]) for i in range(3)]
    return "\n".join([*lines, *rows]) + "\n"


def damaged_log(content: bytes, rng: random.Random) -> bytes:
    """Half of the logs have one to three cells of a row replaced, the others any damage."""
    if rng.random() < 0.5:
        return damaged(content, rng)
    for _ in range(rng.randint(1, 3)):
        cells = list(CELL.finditer(content))
        if cells:
            one = rng.choice(cells)
            odd = rng.choice(CELLS).encode("utf-8", "surrogatepass")
            content = content[: one.start()] + odd + content[one.end() :]
    return content


def wrong_with(jobs: list[Job], report: dict[str, Any], folder: Path) -> str:
    """What is wrong with an import; "" if nothing is."""
    counts = report["counts"]
    if counts["jobs"] != len(jobs) or counts["rows"] != counts["jobs"] + counts["dropped"]:
        return f"{counts} do not add up"
    if any(not row["reason"] for row in report["dropped"]):
        return "a row is dropped without a reason"
    for job in jobs:
        times = (job.submit_s, job.duration_s, job.deadline_s, job.estimate_s, job.logged_start_s)
        if any(time is not None and time < 0 for time in times):
            return f"{job} has a negative time"
    json.dumps(report, allow_nan=False).encode()
    write_trace(jobs, folder / "out.csv")
    known = sorted({job.model for job in jobs if job.model})
    return "" if read_trace(folder / "out.csv", known_models=known) == jobs else "does not read back"


def failures(name: str, seeds: range, folder: Path) -> list[tuple[int, str]]:
    """The seeds whose damaged log of a format is neither read in full nor refused in words."""
    sample = SAMPLES[name]
    files = {"": sample} if isinstance(sample, str) else sample
    found = []
    for seed in seeds:
        rng = random.Random(f"{name} {seed}")
        victim = rng.choice(sorted(files))
        for file, text in files.items():
            path = folder / "log" / file if file else folder / "log"
            path.parent.mkdir(exist_ok=True)
            content = longer(text).encode()
            path.write_bytes(damaged_log(content, rng) if file == victim else content)
        log_format = name if rng.random() < 0.5 else None
        try:
            jobs, report = import_log(folder / "log", log_format=log_format)
            wrong = wrong_with(jobs, report, folder)
        except UserError as refused:
            wrong = "" if str(refused) and len(str(refused)) < 5000 else "is refused without a message"
        except Exception as error:  # any other error is what this test looks for
            wrong = repr(error)
        if wrong:
            found.append((seed, wrong))
    return found


@pytest.mark.parametrize("name", list(FORMATS))
def test_a_damaged_log_is_read_in_full_or_refused(name: str, tmp_path: Path) -> None:
    assert not failures(name, range(FEW), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", list(FORMATS))
def test_many_damaged_logs(name: str, tmp_path: Path) -> None:
    assert not failures(name, range(10_000, 10_000 + MANY), tmp_path)
