"""Run folders from others: `clustersim check` opens only files, even if a manifest names a device, and no
file fills the memory.
"""

import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustersim.cli import main
from clustersim.commands.output.runs import of_sound_records
from clustersim.records import Run
from clustersim.rundir import write_run
from clustersim.runs import Trace, run
from clustersim.runs.fingerprints import recipe_hash
from itertime.spec.system import SYSTEMS
from tests.folders import rehashed
from tests.tables import TABLES
from traces.job import Job
from traces.native import write_trace
from traces.synthetic import Recipe

pytestmark = pytest.mark.usefixtures("wide_terminal")

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


THINGS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (os.mkfifo, "is not a regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    "folder": (Path.mkdir, "Is a directory"),
    "huge": (huge, "10000000000000"),
}
"""What may stand in the place of a file, and what is said of it."""


@pytest.fixture
def checked(check: Any, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Exit code and output of a check of a run with this manifest and new hashes; numbers without commas."""

    def answer(made: Run, **stated: Any) -> tuple[int, str]:
        write_run(tmp_path / "run", replace(made, manifest={**made.manifest, **stated}))
        code, out, err = check(tmp_path / "run")
        return code, (out + err).replace(",", "")

    return answer


FILES = ("jobs.csv", "events.csv", "usage.csv", "plans.csv", "summary.json", "manifest.json")


@pytest.mark.parametrize(("name", "kind"), list(zip(FILES, ["pipe", "device", "folder"] * 2, strict=True)))
def test_something_else_in_the_place_of_a_file(sound: Run, tmp_path: Path, name: str, kind: str) -> None:
    """The command does not wait for the end of a pipe or a device."""
    write_run(tmp_path / "run", sound)
    (tmp_path / "run" / name).unlink()
    THINGS[kind][0](tmp_path / "run" / name)
    for command in ("check", "report"):
        assert main([command, str(tmp_path / "run")]) == 2


@pytest.mark.parametrize("kind", THINGS)
def test_a_trace_and_a_table_are_files(sound: Run, tmp_path: Path, checked: Any, kind: str) -> None:
    THINGS[kind][0](tmp_path / "thing.csv")
    code, out = checked(sound, trace={"path": str(tmp_path / "thing.csv"), "jobs": 2, "sha256": "0"})
    assert code == 0
    assert f"thing.csv: cannot be read: {'has ' if kind == 'huge' else ''}{THINGS[kind][1]}" in out
    code, out = checked(sound, table=str(tmp_path / "thing.csv"), table_sha256="0")
    assert f"not recomputed: {tmp_path}/thing.csv: cannot be read" in out
    assert THINGS[kind][1] in out


@pytest.mark.parametrize("kind", THINGS)
@pytest.mark.parametrize("part", ["sizes", "rules", "system"])
def test_what_a_recipe_names_are_files(
    sound: Run, tmp_path: Path, checked: Any, part: str, kind: str
) -> None:
    thing = tmp_path / "thing.yaml"
    THINGS[kind][0](thing)
    recipe = {"jobs": 2, part: str(thing)}
    with pytest.raises((OSError, ValueError), match=r"file|directory|bytes"):
        recipe_hash(recipe)
    source = {"path": None, "sha256": "0", "recipe": recipe, "recipe_sha256": "0", "jobs": 2}
    code, out = checked(sound, trace=source)
    assert code == 0
    assert f"not proved: recipe={{'jobs': 2 '{part}'" in out
    assert THINGS[kind][1] in out


@pytest.mark.parametrize("kind", THINGS)
def test_a_system_and_its_profile_are_files(sound: Run, tmp_path: Path, checked: Any, kind: str) -> None:
    thing, system = tmp_path / "thing.json", tmp_path / "mine.yaml"
    THINGS[kind][0](thing)
    of_thing = replace(sound, cluster=replace(sound.cluster, system=str(thing)))
    assert THINGS[kind][1] in checked(of_thing)[1]
    text = (SYSTEMS / "dgx-a100-80gb.yaml").read_text()
    system.write_text(text.replace("profile: a100-80gb", f"profile: {thing}"))
    of_mine = replace(sound, cluster=replace(sound.cluster, system=str(system)))
    code, out = checked(of_mine)
    assert code == 0
    assert "not recomputed" in out
    assert THINGS[kind][1] in out


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
    write_run(tmp_path / "run", sound)
    table = tmp_path / "run" / "events.csv"
    header = table.read_bytes().partition(b"\n")[0]
    table.write_bytes(header + b"\n" + fill * 15_000)
    assert main(["check", str(tmp_path / "run")]) == 3
    assert "events.csv:2: a row of more than 10,000,000 characters" in capsys.readouterr().err


COMMANDS = ["check", "report", "timeline", "explain --job llm", "plot --kind gantt -o x.pdf"]


@pytest.mark.parametrize(
    ("name", "command"),
    [("jobs.csv", "check"), ("usage.csv", "check"), ("plans.csv", "check"),
     *(("events.csv", command) for command in COMMANDS)],
)  # fmt: skip
def test_a_packed_table_is_no_table_of_a_run(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, command: str
) -> None:
    """A few MB can unpack to billions of lines."""
    write_run(tmp_path / "run", sound)
    table = tmp_path / "run" / name
    table.write_bytes(gzip.compress(table.read_bytes() + b"\n" * 1000))
    rehashed(tmp_path / "run")
    arguments = command.split()
    code = main([arguments[0], str(tmp_path / "run"), *arguments[1:]])
    assert code in (2, 3)
    assert f"{name}: is not the kind of file that a run writes" in capsys.readouterr().err


def test_a_small_parquet_file_of_many_rows_is_not_read(
    sound: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.parquet as pq

    write_run(tmp_path / "run", sound, parquet=True)
    path = tmp_path / "run" / "jobs.parquet"
    one = pq.read_table(path)
    pq.write_table(one.take([0] * 1_000_000), path)
    assert path.stat().st_size < 1_000_000
    assert main(["check", str(rehashed(tmp_path / "run"))]) == 3
    assert "jobs.parquet: has 1,000,000 rows in few bytes" in capsys.readouterr().err


def test_no_more_jobs_are_generated_than_the_folder_can_hold(tmp_path: Path, check: Any) -> None:
    trace = Trace.generated(Recipe(jobs=3, gpus=8, load=0.5, rules="none"))
    run(trace, "fifo", cluster="n1g8", out=tmp_path / "run")
    code, out, _ = check(tmp_path / "run")
    assert (code, "recipe" in out) == (0, False)
    stated = json.loads((tmp_path / "run" / "manifest.json").read_text())["trace"]
    stated["recipe"]["jobs"] = 10_000_000
    rehashed(tmp_path / "run", trace=stated)
    began = time.process_time()
    code, *printed = check(tmp_path / "run", "--replay")
    assert time.process_time() - began < 5
    assert code == 2
    assert all("its recipe gives 10,000,000 jobs, the records are of at most" in text for text in printed)


@pytest.mark.parametrize("command", COMMANDS)
def test_records_that_contradict_each_other_are_said_to(
    sound: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """jobs.csv lacks a job of events.csv, and every hash is right."""
    write_run(tmp_path / "run", sound)
    table = tmp_path / "run" / "jobs.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(line for line in lines if not line.startswith("plain,")))
    rehashed(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    name, *options = command.split()
    code, done = main([name, "run", *options]), capsys.readouterr()
    assert "Traceback" not in done.err
    if name == "check":
        assert code == 4
        assert "plain" in done.out
    elif code:
        assert code == 2
        assert "its records contradict each other" in done.err
        assert "clustersim check run" in done.err


def test_a_failure_on_sound_records_stays_a_failure(sound: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "run", sound)
    with pytest.raises(ZeroDivisionError), of_sound_records([tmp_path / "run"]):
        raise ZeroDivisionError


@pytest.mark.parametrize("fields", TABLES["errors of a manifest name its folder"])
def test_errors_of_a_manifest_name_its_folder(
    sound: Run, tmp_path: Path, checked: Any, fields: dict[str, Any]
) -> None:
    """A check may be of many runs."""
    code, out = checked(sound, **fields)
    assert code == 2
    assert f"error: {tmp_path / 'run'}" in out
