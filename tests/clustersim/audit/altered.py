"""Run folders in which one value is another: a cell of a table, or an entry of the manifest or the summary.

The hashes are made anew, as a careful forger would. Each column and each entry is altered in two ways, by a
little and by a lot; so is an empty one, which then states something.
"""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustersim.audit import check_run_folder, replay
from itertime.errors import UserError
from tests.folders import rehashed

__all__ = ["TABLES", "Alteration", "alterations", "noticed"]

TABLES = ("events.csv", "jobs.csv", "usage.csv", "plans.csv")
ENTRIES = ("manifest.json", "summary.json")
HASHES = ("manifest_sha256", "files", "result_hash")
"""The entries of a manifest that are made anew."""

DROPPED, TWICE = "dropped", "twice"
"""What may happen to a row."""

Place = tuple[str | int, ...]


@dataclass(frozen=True)
class Alteration:
    """`place`: a row and a column of a table, or the keys of an entry. `value`: what is there then."""

    file: str
    place: Place
    value: Any

    @property
    def name(self) -> str:
        """The file and the column or the key, without numbers of rows, such as `jobs.csv: wait_s`."""
        return f"{self.file}: {'.'.join(str(key) for key in self.place if not isinstance(key, int))}"

    def __str__(self) -> str:
        return f"{self.file} {'.'.join(map(str, self.place))} {self.value}"

    def apply(self, folder: Path) -> None:
        """Alter the file in a folder, and make the hashes anew."""
        path = folder / self.file
        if self.file in TABLES:
            rows, row = _rows(path), int(self.place[0])
            columns = list(rows[0])
            if self.value in (DROPPED, TWICE):
                rows[row : row + 1] = [rows[row]] * (self.value == TWICE) * 2
            else:
                rows[row][str(self.place[1])] = self.value
            text = io.StringIO()
            writer = csv.DictWriter(text, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            path.write_text(text.getvalue())
        else:
            document = json.loads(path.read_text())
            part = document
            for key in self.place[:-1]:
                part = part[key]
            part[self.place[-1]] = self.value
            path.write_text(json.dumps(document))
        rehashed(folder)


def alterations(folder: Path) -> Iterator[Alteration]:
    """Two of each column and of each entry that the run in a folder has, and two of rows of each table."""
    for name in TABLES:
        rows = _rows(folder / name)
        for column in rows[0] if rows else ():
            cells = [row[column] for row in rows]
            stated_rows = [number for number, cell in enumerate(cells) if cell] or [0]
            little, much = stated_rows[0], stated_rows[len(stated_rows) // 2]
            yield Alteration(name, (little, column), _other_cells(cells[little])[0])
            yield Alteration(name, (much, column), _other_cells(cells[much])[1])
        if rows:
            yield Alteration(name, (len(rows) // 2,), DROPPED)
            yield Alteration(name, (len(rows) // 3,), TWICE)
    for name in ENTRIES:
        for place, value in _leaves(json.loads((folder / name).read_text())):
            if place[0] not in HASHES:
                yield from (Alteration(name, place, other) for other in _other_values(value))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The entries of a document that hold no others; the first of a list alone."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            yield from _leaves(entry, (*place, key))
    elif isinstance(value, list) and value:
        yield from _leaves(value[0], (*place, 0))
    else:
        yield place, value


def _other_cells(cell: str) -> tuple[str, str]:
    """Another cell that differs a little, and one that differs a lot."""
    if cell in ("true", "false"):
        return "false" if cell == "true" else "true", ""
    if not cell:
        return "1", "1000"
    try:
        number = float(cell)
    except ValueError:
        return cell + "x", "other"
    close = f"{number + 1:g}" if number == int(number) else repr(number * 1.0001 + 1e-4)
    return close, repr(3 * number + 77).removesuffix(".0")


def _other_values(value: Any) -> tuple[Any, Any]:
    """Another value that differs a little, and one that differs a lot."""
    if isinstance(value, bool):
        return not value, None
    if isinstance(value, int):
        return value + 1, 3 * value + 77
    if isinstance(value, float):
        return value * 1.001 + 1e-4, 3 * value + 77
    if isinstance(value, str):
        return "other", f"{value[:-1]}{(int(value[-1], 16) + 1) % 10}" if value[
            -1:
        ].isdigit() else value + "x"
    empty: Any = 1.0 if value is None else [1] if isinstance(value, list) else None
    return empty, {"other": 1}


def noticed(folder: Path, left_open: dict[str, str]) -> str:
    """What notices that a folder is not what a run wrote: rules that are broken or left open, "refused" or
    "replay"; empty if nothing does. `left_open`: by rule, what the folder leaves open where it is sound.
    """
    try:
        findings = check_run_folder(folder)
        broken = [finding.rule for finding in findings if finding.violations]
        unproved = [f.rule for f in findings if f.unproved != left_open.get(f.rule, "")]
        if broken or unproved:
            return ", ".join(broken or [f"{rule} is left open" for rule in unproved])
        return "replay" if replay(folder).violations else ""
    except UserError as error:
        return f"refused: {error}"
