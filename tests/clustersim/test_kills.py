"""Commands that are killed at any time leave each file whole or not at all, and give the same when repeated.

All 105 kills take some minutes of CPU:  python -m pytest -m long tests/clustersim/test_kills.py
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.clustersim.grid.processes import descendants
from tests.places import ROOT
from tests.tables import TABLES, TEXTS

STARTED = TEXTS["a comparison that a server starts"]
COMMANDS: Mapping[str, list[str]] = TABLES["commands that are killed"]
GRID = "set: {trace: jobs.csv, cluster: n2g8}\nmatrix: {policy: [fifo, srtf]}\nseeds: 2\n"
UNSTABLE = ("timings", "manifest_sha256", "seconds")  # wall times, and a hash over them


@pytest.fixture
def here(tmp_path: Path) -> Path:
    draw = random.Random(1)
    jobs = ["job_id,submit_s,gpus,model,global_batch,iterations"]
    log = ["JobIDRaw|Account|Submit|Start|ElapsedRaw|AllocTRES|State"]
    for i in range(120):
        gpus, submit = draw.choice((1, 2, 4, 8)), f"2024-05-01T{i // 6:02}:{i % 6}0:00"
        jobs.append(f"{i},{30 * i},{gpus},megatron-1.7b,64,{draw.randint(10, 200)}")
        log.append(f"{i}|a|{submit}|{submit[:-2]}30|{draw.randint(10, 900)}|gres/gpu={gpus}|COMPLETED")
    for name, rows in (("jobs.csv", jobs), ("few.csv", jobs[:12]), ("log.txt", log)):
        (tmp_path / name).write_text("\n".join([*rows, ""]))
    (tmp_path / "g.yaml").write_text(GRID)
    return tmp_path


def begin(here: Path, name: str) -> subprocess.Popen[str]:
    (here / "out").mkdir(exist_ok=True)
    if name == "serve":
        shutil.copy(here / "jobs.csv", here / "out" / "jobs.csv")
    words = ["-m", "clustersim", *COMMANDS[name]] if COMMANDS[name] else ["-c", STARTED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ITERTIME_CACHE": str(here / "out" / "curves")}
    with (here / "printed").open("w") as printed:
        return subprocess.Popen(
            [sys.executable, *words], cwd=here, stdout=printed, stderr=subprocess.PIPE, text=True,
            env=environment, start_new_session=True,
        )  # fmt: skip


def finish(here: Path, name: str) -> None:
    process = begin(here, name)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err


def files(here: Path) -> dict[str, object]:
    """What lies in the folder under its last name, without what depends on the clock."""
    found: dict[str, object] = {}
    for path in sorted((here / "out").rglob("*")):
        name = path.relative_to(here / "out")
        if any(part.startswith(".") or part == "locks" for part in name.parts) or not path.is_file():
            continue
        if path.suffix == ".json" and path.parent.name != "curves":
            found[str(name)] = stable(json.loads(path.read_text()))
        elif path.name not in ("timings.csv", "report.html"):
            found[str(name)] = path.read_bytes()
    return found


def stable(document: Any) -> Any:
    if not isinstance(document, dict):
        return document
    return {key: stable(value) for key, value in document.items() if key not in UNSTABLE}


def used_s(process: subprocess.Popen[str]) -> float:
    """The CPU seconds of a process and those that it started; wall time says little on a busy machine."""
    total = 0.0
    with suppress(psutil.Error):
        for member in (psutil.Process(process.pid), *descendants(process)):
            with suppress(psutil.Error):
                total += sum(member.cpu_times()[:2])
    return total


def undisturbed_s(here: Path, name: str) -> float:
    """The CPU seconds of the command, as seen shortly before its end."""
    process, seen_s = begin(here, name), 0.0
    while process.poll() is None:
        seen_s = max(seen_s, used_s(process))
        time.sleep(0.01)
    assert process.returncode == 0, process.communicate()
    return seen_s


def killed(here: Path, name: str, after_s: float, alone: bool) -> bool:
    """Whether a command was killed before its end: with all that it started, or `alone`; those end too."""
    process = begin(here, name)
    while process.poll() is None and used_s(process) < after_s:
        time.sleep(0.01)
    was_running = process.poll() is None
    started = descendants(process)
    if alone or name == "serve":
        process.kill()
    elif was_running:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive, f"goes on without its client: {alive}"
    return was_running


def assault(here: Path, name: str, seed: int, rounds: int, kills: int) -> int:
    """So many rounds of kills, each of which begins on what the last one left, and then the command."""
    draw = random.Random(f"{name} {seed}")
    whole_s, whole = undisturbed_s(here, name), files(here)
    printed = stable(json.loads((here / "printed").read_text())) if name == "bound" else None
    count = 0
    for number in range(rounds):
        shutil.rmtree(here / "out")
        for _ in range(kills):
            count += killed(here, name, draw.uniform(0.4, 1.0) * whole_s, alone=number % 2 == 1)
            for file, content in files(here).items():
                assert content == whole[file], f"{file} is neither whole nor absent"
        finish(here, name)
        assert files(here) == whole
        assert not [path for path in (here / "out").glob("**/.*.tmp") if "curves" not in path.parts]
        if name == "bound":
            assert stable(json.loads((here / "printed").read_text())) == printed
    return count


def test_kills_leave_whole_files_and_change_none(here: Path) -> None:
    assert assault(here, "import", 0, rounds=1, kills=2) <= 2


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_fifteen_kills_leave_whole_files_and_change_none(here: Path, name: str) -> None:
    rounds, kills = (
        (15, 1) if name == "serve" else (5, 3)
    )  # what was started there goes on, and is not repeated
    assert assault(here, name, 1, rounds, kills) >= 8
