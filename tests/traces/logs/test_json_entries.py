"""The elements of a JSON list: from any window the same as from the whole, in memory for a few."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from itertime.errors import TableError
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
