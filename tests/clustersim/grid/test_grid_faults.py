"""Grids whose workers and clients are killed, whose files are damaged and whose disk is full; Slurm.

In the end there must be every cell exactly once, equal to an undisturbed run byte for byte. The heavy tests
take a few minutes:  python -m pytest -m long tests/clustersim/grid/test_grid_faults.py
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

import clustersim
from clustersim.cli import main
from tests.clustersim.grid.processes import contents, dask_cluster, descendants, made, spawn, until
from tests.places import ROOT

CELLS = 16


def write_grid(here: Path, wait_s: float) -> None:
    (here / "g.yaml").write_text(
        f"set: {{trace: t.csv, cluster: n1g8, policy: 'harm.py:Sleeps', policy.wait_s: {wait_s}}}\n"
        f"matrix: {{placement: [pack, spread], overheads.launch_s: [0, 10]}}\nseeds: {CELLS // 4}\n"
        "baseline: {placement: pack}\n"
    )


def finish(here: Path, *arguments: str) -> None:
    client = spawn(here, *arguments)
    _, err = client.communicate(timeout=300)
    assert client.returncode == 0, err


def kill_workers(client: subprocess.Popen[str], times: int, every_s: float, rng: random.Random) -> int:
    """Kill a random one of the client's descendants so often, or until the client ends; how often it was."""
    killed = 0
    while killed < times and client.poll() is None:
        time.sleep(every_s * rng.uniform(0.5, 1.5))
        victims = sorted(descendants(client), key=lambda process: process.pid)
        if victims:
            with suppress(psutil.Error):
                rng.choice(victims).kill()
                killed += 1
    return killed


def kill_client(client: subprocess.Popen[str]) -> None:
    """kill -9; what it started must end by itself."""
    left = descendants(client)
    client.kill()
    client.wait()
    _, alive = psutil.wait_procs(left, timeout=10)
    assert not alive


def corrupt(folder: Path) -> None:
    """Change one byte in a cell, and cut another one's file."""
    first, second = sorted(folder.glob("cells/[0-9a-f]*"))[:2]
    content = bytearray((first / "jobs.csv").read_bytes())
    content[-3] ^= 1
    (first / "jobs.csv").write_bytes(content)
    (second / "events.csv").write_bytes(b"")


def assault(here: Path, seed: int, wait_s: float, kills: int, every_s: float) -> int:
    """Workers and the client killed, files corrupted, no space; then the same call, and the same bytes."""
    rng = random.Random(seed)
    write_grid(here, wait_s)
    finish(here, "--out", "undisturbed", "--workers", "1")
    folder = here / "g"
    client = spawn(here, "--workers", "2")
    until(lambda: made(folder) >= 1)
    killed = kill_workers(client, kills // 2, every_s, rng)
    until(lambda: made(folder) >= 3 or client.poll() is not None)
    assert client.poll() is None, client.communicate()
    kill_client(client)
    corrupt(folder)
    full = spawn(here, "--workers", "2", limit_bytes=600)
    _, err = full.communicate(timeout=120)
    assert full.returncode in (2, 5), err  # 2: where not even grid.json can be written
    assert "Traceback" not in err
    client = spawn(here, "--workers", "2")
    killed += kill_workers(client, kills - killed, every_s, rng)
    _, err = client.communicate(timeout=300)
    assert client.returncode == 0, err
    assert made(folder) == CELLS
    assert not [path for path in folder.rglob("*.tmp*") if path.exists()]
    assert not list((folder / "locks").iterdir())
    assert contents(folder) == contents(here / "undisturbed")
    return killed


def test_kills_corruption_and_a_full_disk_change_no_byte(here: Path) -> None:
    assert assault(here, seed=1, wait_s=0.12, kills=4, every_s=0.2) >= 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_change_no_byte(here: Path, seed: int) -> None:
    assert assault(here, seed, wait_s=1.5, kills=10, every_s=0.8) == 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB, where mounting is allowed."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=200k,nr_inodes=10000", "clustersim-test", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.long
def test_a_full_disk_stops_the_grid_and_room_completes_it(here: Path, small_disk: Path) -> None:
    write_grid(here, 0.0)
    finish(here, "--out", "undisturbed")
    client = spawn(here, "--out", str(small_disk))
    _, err = client.communicate(timeout=120)
    assert client.returncode == 5, err
    assert "No space left on device" in err
    assert "Traceback" not in err
    kept = made(small_disk)
    assert 0 < kept < CELLS
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    finish(here, "--out", str(small_disk))
    assert contents(small_disk) == contents(here / "undisturbed")


@pytest.mark.long
def test_workers_of_a_dask_scheduler_are_killed(here: Path) -> None:
    """As above on `dask worker` processes, whose nannies start new ones."""
    write_grid(here, 1.0)
    finish(here, "--out", "undisturbed", "--workers", "2")
    rng = random.Random(0)
    with dask_cluster(here) as (address, processes):
        client = spawn(here, "--scheduler", address)
        until(lambda: made(here / "g") >= 1)
        for _ in range(10):
            time.sleep(1.0)
            victims = [child for nanny in processes[1:] for child in descendants(nanny)]
            if victims and client.poll() is None:
                with suppress(psutil.Error):
                    rng.choice(victims).kill()
        _, err = client.communicate(timeout=300)
        assert client.returncode == 0, err
        assert contents(here / "g") == contents(here / "undisturbed")


SBATCH = """#!/bin/sh
echo "$0 $@" >> "$STUB/calls"
cp "$1" "$STUB/script"
setsid sh "$STUB/script" > "$STUB/output" 2>&1 &
echo $! >> "$STUB/pids"
echo "Submitted batch job 42"
"""
SCANCEL = '#!/bin/sh\necho "$0 $@" >> "$STUB/calls"\n'


def documented() -> str:
    """The Python of the page, on one processor instead of sixteen."""
    page = (ROOT / "docs" / "grids.md").read_text()
    (example,) = re.findall(r"^```python\n(from dask_jobqueue.*?)^```$", page, re.DOTALL | re.MULTILINE)
    for large, small in (("cores=16", "cores=1"), ("processes=16", "processes=1"), ("jobs=4", "jobs=1")):
        assert large in example
        example = example.replace(large, small)
    return example.replace("64GB", "2GB")


@pytest.fixture
def slurm(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = here / "bin"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / name).write_text(text)
        (folder / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("STUB", str(here))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return here


@pytest.mark.long
def test_the_documented_way_onto_slurm(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    names: dict[str, object] = {}
    try:
        exec(compile(documented(), "docs/grids.md", "exec"), names)
        address = capsys.readouterr().out.split()[-1]
        assert main(["grid", "g.yaml", "--scheduler", address]) == 0, capsys.readouterr().err
        assert main(["grid", "g.yaml", "--out", "here"]) == 0
    finally:
        if "cluster" in names:
            names["cluster"].close()  # type: ignore[attr-defined]
        for pid in (slurm / "pids").read_text().split():
            with suppress(ProcessLookupError):  # it has ended with its scheduler
                os.killpg(int(pid), signal.SIGKILL)
    assert (slurm / "calls").read_text().count("sbatch") == 1
    script = (slurm / "script").read_text()
    assert "#SBATCH -p normal" in script
    assert "#SBATCH -t 04:00:00" in script
    assert [r.status for r in clustersim.read_results("g")] == ["done"] * 4
    assert (slurm / "g" / "results.csv").read_bytes() == (slurm / "here" / "results.csv").read_bytes()
