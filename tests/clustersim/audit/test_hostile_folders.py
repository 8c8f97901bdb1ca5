"""Run folders from others: `clustersim check` opens only files, even if a manifest names a device, and no
file fills the memory.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli import main
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import run
from clustersim.runs.fingerprints import recipe_hash
from itertime.spec.system import FOLDER as SYSTEMS
from traces.job import Job
from traces.native import write_trace

JOBS = [
    Job("llm", 20.0, model="megatron-1.7b", global_batch=64, iterations=50.5, gpus=8),
    Job("plain", 30.0, gpus=8, duration_s=20.0),
]
HUGE = 10**13  # bytes, all of them holes


@pytest.fixture
def sound(tmp_path: Path) -> Run:
    write_trace(JOBS, tmp_path / "trace.csv")
    return run(tmp_path / "trace.csv", "fifo", cluster="n2g8")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


THINGS: dict[str, Callable[[Path], Any]] = {
    "pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": Path.mkdir,
    "huge": huge,
}  # fmt: skip
WHY = {
    "pipe": "is not a regular file",
    "device": "is not a regular file",
    "folder": "Is a directory",
    "huge": "10000000000000",
}


def checked(made: Run, folder: Path, capsys: pytest.CaptureFixture[str], **stated: Any) -> tuple[int, str]:
    """Exit code and output of a check of this manifest, with new hashes; numbers without commas."""
    write_run(folder / "run", replace(made, manifest={**made.manifest, **stated}))
    code = main(["check", str(folder / "run")])
    return code, "".join(capsys.readouterr()).replace(",", "")


@pytest.mark.parametrize("kind", THINGS)
def test_a_trace_and_a_table_are_files(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    THINGS[kind](tmp_path / "thing.csv")
    code, out = checked(sound, tmp_path, capsys, trace={"path": str(tmp_path / "thing.csv"), "jobs": 2})
    assert code == 0
    assert f"thing.csv: cannot be read: {'has ' if kind == 'huge' else ''}{WHY[kind]}" in out
    code, out = checked(sound, tmp_path, capsys, table=str(tmp_path / "thing.csv"), table_sha256="0")
    assert f"not recomputed: {tmp_path}/thing.csv: cannot be read" in out
    assert WHY[kind] in out


@pytest.mark.parametrize("kind", THINGS)
@pytest.mark.parametrize("part", ["sizes", "rules", "system"])
def test_what_a_recipe_names_are_files(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, kind: str
) -> None:
    thing = tmp_path / "thing.yaml"
    THINGS[kind](thing)
    recipe = {"jobs": 2, part: str(thing)}
    with pytest.raises(OSError, match=r"file|directory|bytes"):
        recipe_hash(recipe)
    code, out = checked(sound, tmp_path, capsys, trace={"recipe": recipe, "recipe_sha256": "0", "jobs": 2})
    assert code == 0
    assert f"not proved: recipe={{'jobs': 2 '{part}'" in out
    assert WHY[kind] in out


@pytest.mark.parametrize("kind", THINGS)
def test_a_system_and_its_profile_are_files(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    thing, system = tmp_path / "thing.json", tmp_path / "mine.yaml"
    THINGS[kind](thing)
    of_thing = replace(sound, cluster=replace(sound.cluster, system=str(thing)))
    assert WHY[kind] in checked(of_thing, tmp_path, capsys)[1]
    text = (SYSTEMS / "dgx-a100-80gb.yaml").read_text()
    system.write_text(text.replace("profile: a100-80gb", f"profile: {thing}"))
    of_mine = replace(sound, cluster=replace(sound.cluster, system=str(system)))
    code, out = checked(of_mine, tmp_path, capsys)
    assert code == 0
    assert "not recomputed" in out
    assert WHY[kind] in out


@pytest.mark.parametrize("name", ["summary.json", "manifest.json"])
def test_json_of_any_size_is_not_read(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    write_run(tmp_path / "run", sound)
    huge(tmp_path / "run" / name)
    assert main(["check", str(tmp_path / "run")]) == 2
    assert f"{name}: has 10,000,000,000,000 bytes; no run writes more" in capsys.readouterr().err


@pytest.mark.parametrize("fill", [b"x" * 1000, b'"\n",' * 250])
def test_a_row_without_end_is_not_read_to_its_end(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], fill: bytes
) -> None:
    """A few KB that unpack to gigabytes."""
    write_run(tmp_path / "run", sound)
    table = tmp_path / "run" / "events.csv"
    header = table.read_bytes().partition(b"\n")[0]
    table.write_bytes(gzip.compress(header + b"\n" + fill * 15_000))
    assert main(["check", str(tmp_path / "run")]) == 3
    assert "events.csv:2: a row of more than 10,000,000 characters" in capsys.readouterr().err
