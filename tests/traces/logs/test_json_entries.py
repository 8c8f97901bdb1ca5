"""The elements of a JSON list: from any window the same as from the whole, in memory for a few."""

from __future__ import annotations

import gzip
import json
import random
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import TableError, UserError
from tests.damage import ODD, damaged
from tests.traces.importing import import_log
from tests.traces.logs.test_formats import SAMPLES
from traces import Job, read_trace, write_trace
from traces.logs import FORMATS
from traces.logs import json_entries as module
from traces.logs.json_entries import json_entries
from traces.logs.source import open_log

TEXT = 'a"b\\c\n\u2028 \U0001f600'
ENTRIES: list[Any] = [
    {"name": "é" * i, "n": i, "list": [1.5e-3, True, None, -7], "text": TEXT} for i in range(9)
]
ENTRIES += [12345678901234567890, "text", [], None, 1.25, 1e-30, {}]


def read(path: Path, key: str = "") -> list[tuple[int, Any]]:
    with open_log(path) as source:
        return list(json_entries(source, key))


@pytest.mark.parametrize("window", [1, 2, 3, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_elements_and_lines_do_not_depend_on_the_window(
    window: int, indent: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", window)
    path = tmp_path / "log.json"
    for ascii_only in (True, False):
        text = json.dumps(ENTRIES, indent=indent, ensure_ascii=ascii_only)
        path.write_text("\ufeff \n" + text + "\n", encoding="utf-8")
        found = read(path)
        assert [entry for _, entry in found] == ENTRIES
        if indent:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            starts = [
                i for i, line in enumerate(lines, 1) if line[:2] == "  " and line[2:3] not in (" ", "}")
            ]
            assert [line for line, _ in found] == starts
    path.write_text(json.dumps({"a": [1, {"b": 2}], "items": ENTRIES, "z": 0}, indent=indent))
    assert [entry for _, entry in read(path, "items")] == ENTRIES


@pytest.mark.parametrize("window", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", ":1: is not JSON: a comma or ] is missing"),
        ("[1,\n2 3]", ":2: is not JSON: a comma or ] is missing"),
        ('[1,\n"ab', ":2: is not JSON: Unterminated string"),
        ('[1,\n\n{"a": nope' + " " * 40 + "}]", ":3: is not JSON: Expecting value"),
        ("[1,\nNaN]", ":2: is not JSON that can be read: NaN is no JSON number"),
        ("[" * 100_000, ":1: is not JSON that can be read: nested too deeply"),
        ("[" + "9" * 5000 + "]", ":1: is not JSON that can be read: Exceeds the limit"),
        ("3", ":1: is not a JSON list"),
    ],
)
def test_what_is_no_json_is_an_error_with_its_line(
    window: int, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", window)
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(TableError) as error:
        read(path)
    assert message in str(error.value)


def test_damage_after_the_list_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.json.gz"
    content = bytearray(gzip.compress(json.dumps(ENTRIES).encode()))
    content[-6] ^= 1  # of the checksum
    path.write_bytes(content)
    with pytest.raises(TableError, match="damaged gzip file"):
        read(path)
    plain = tmp_path / "log.json"
    plain.write_bytes(b"[1,\n2,\n3]\n\n\xff")
    with pytest.raises(TableError, match=r":5: byte 0xff is not UTF-8"):
        read(plain)


def test_one_entry_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", 100)
    monkeypatch.setattr(module, "_MOST_CHARACTERS", 1000)
    path = tmp_path / "log.json"
    path.write_text('["short",\n"' + "x" * 5000 + '"]')
    with pytest.raises(TableError, match=r":2: one entry has more than 1,000 characters"):
        read(path)


def test_memory_holds_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WINDOW_BYTES", 1 << 16)
    path = tmp_path / "log.json"
    with path.open("w") as file:
        file.write("[")
        file.write(",".join([json.dumps({"text": "x" * 500})] * 20_000))
        file.write("]")
    with open_log(path) as source:
        tracemalloc.start()
        count = sum(1 for _ in json_entries(source))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert count == 20_000
    assert peak < path.stat().st_size / 5


# Damaged logs


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
