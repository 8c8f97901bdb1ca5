"""`clustersim grid` from end to end: what is written, kept, made again, given up, and said."""

from __future__ import annotations

import json
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

import pandas as pd
import psutil
import pytest

import clustersim
from clustersim.cli import main
from clustersim.grid import Store
from tests.clustersim.grid.processes import contents, dask_cluster, descendants, made, spawn, until
from tests.places import ROOT
from tests.printed import Call, Done


@pytest.fixture
def grid(call: Call) -> Call:
    """`clustersim grid g.yaml` on one worker, as each takes a second or two to start."""

    def run(*words: object) -> Done:
        stated = {"--workers", "--scheduler"} & set(words)
        return call("grid", "g.yaml", *words, *([] if stated else ["--workers", 1]))

    return run


def test_a_grid_is_made_kept_and_tabled(here: Path, grid: Call) -> None:
    done = grid("--workers", 2)
    assert done.code == 0, done.err
    assert "4 of 4 cells done (0 cached), 0 failed" in done.err
    assert "srtf" in done.out
    assert "distributed" not in done.err
    before = contents(here / "g")
    cells = sorted({name.split("/")[1] for name in before if name.startswith("cells/")})
    assert len(cells) == 4
    files = {"jobs.csv", "events.csv", "usage.csv", "summary.json", "manifest.json", "cell.json"}
    assert {p.name for p in (here / "g" / "cells" / cells[0]).iterdir()} >= files
    again = grid()
    assert again.code == 0
    assert "4 of 4 cells exist; simulating 0" in again.err
    assert contents(here / "g") == before
    assert grid("--out", "other").code == 0
    assert contents(here / "other") == before, "made elsewhere, on another number of workers"


def test_a_cell_is_what_run_writes_and_passes_check(here: Path, made_before: Path, call: Call) -> None:
    result = clustersim.read_results("g")[2]
    assert result.axes == {"policy": "srtf"}
    words = ("run", "t.csv", "--policy", "srtf", "--cluster", "n1g8", "--no-overheads", "--out", "alone")
    assert call(*words).code == 0
    for name in ("jobs.csv", "summary.json", "events.csv", "usage.csv"):
        assert (result.folder / name).read_bytes() == (here / "alone" / name).read_bytes()
    assert call("check", result.folder).code == 0
    repeated = result.run().manifest["command"]
    assert repeated[:4] == ["clustersim", "run", "t.csv", "--policy"]
    assert call(*repeated[1:], "--out", "repeated").code == 0
    assert (here / "repeated" / "jobs.csv").read_bytes() == (here / "alone" / "jobs.csv").read_bytes()


def test_what_fails_is_recorded_and_the_rest_finishes(here: Path, grid: Call) -> None:
    names = ["Hangs", "Grows", "Raises", "Exits", "Crashes", "Base"]
    policies = ", ".join(f"'harm.py:{name}'" for name in names)
    (here / "g.yaml").write_text(
        f"set: {{trace: t.csv, cluster: n1g8}}\nmatrix: {{policy: [{policies}]}}\n"
        "limits: {time_s: 5, memory_gb: 0.6, retries: 0}\n"
    )
    done = grid("--workers", 2)
    assert done.code == 5
    assert "5 of 6 cells failed" in done.err
    results = {r.axes["policy"].split(":")[1]: r for r in clustersim.read_results("g")}  # type: ignore[union-attr]
    assert {name: r.status for name, r in results.items()} == dict.fromkeys(names, "failed") | {
        "Base": "done"
    }
    assert "took longer than limits.time_s = 5 s" in results["Hangs"].reason
    assert "more than limits.memory_gb = 0.6" in results["Grows"].reason
    assert "no policy for this" in results["Raises"].reason
    assert "exit code 7" in results["Exits"].reason
    assert "SIGABRT" in results["Crashes"].reason
    records = {name: json.loads((here / f"g/failures/{r.cell}.json").read_text())
               for name, r in results.items() if name != "Base"}  # fmt: skip
    for name, record in records.items():
        if name != "Exits":
            assert any("harm.py" in line or "in harm" in line for line in record["traceback"]), name
    assert records["Raises"]["output"] == ["about to fail"]
    frame = pd.read_csv(here / "g" / "results.csv")
    assert list(frame["status"]) == ["failed"] * 5 + ["done"]
    assert frame["jobs"].isna().sum() == 5, "a failed cell is a row, not left out"


def test_a_failed_cell_is_tried_again_by_the_next_call(here: Path, grid: Call) -> None:
    (here / "g.yaml").write_text(
        "set: {trace: t.csv, cluster: n1g8, policy.wait_s: 2}\nmatrix: {policy: ['harm.py:Sleeps']}\n"
        "limits: {time_s: 0.4, retries: 1}\n"
    )
    assert grid().code == 5
    (failure,) = (here / "g" / "failures").iterdir()
    assert json.loads(failure.read_text())["attempts"] == 2
    (here / "g.yaml").write_text((here / "g.yaml").read_text().replace("0.4", "60"))
    assert grid().code == 0
    assert not list((here / "g" / "failures").iterdir())


def test_no_cell_sees_what_another_left_behind(here: Path, grid: Call) -> None:
    text = (here / "g.yaml").read_text()
    (here / "g.yaml").write_text(text.replace("[fifo, srtf]", "['harm.py:Counts']").replace("2", "6"))
    assert grid().code == 0


def test_every_changed_byte_is_found_and_its_cell_made_again(
    here: Path, made_before: Path, grid: Call
) -> None:
    before = contents(here / "g")
    store = Store(here / "g")
    cell = sorted(store.cells.iterdir())[1]
    files = sorted(cell.iterdir())
    assert len(files) >= 6
    for path in files:
        content = path.read_bytes()
        for at in range(0, len(content), max(1, len(content) // 50)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            assert store.damage(cell.name) or _means_the_same(path, content), (path.name, at)
        path.unlink()
        assert store.damage(cell.name), path.name
        path.write_bytes(content)
    assert store.damage(cell.name) is None
    files[0].write_bytes(b"")
    assert [r.status for r in clustersim.read_results("g")].count("missing") == 1
    done = grid()
    assert done.code == 0
    assert "3 of 4 cells exist; simulating 1" in done.err
    assert cell.name in done.err
    assert contents(here / "g") == before


def _means_the_same(path: Path, content: bytes) -> bool:
    """White space and names outside the hashed inputs of cell.json are all that may differ."""
    if path.name != "cell.json":
        return False
    now, then = json.loads(path.read_bytes()), json.loads(content)
    return bool(now["inputs"] == then["inputs"])


def test_left_overs_of_a_killed_process_do_no_harm(here: Path, made_before: Path, grid: Call) -> None:
    files = contents(here / "g")
    key = min(path.name for path in (here / "g" / "cells").iterdir())
    (here / "g" / "cells" / key).rename(here / "g" / "cells" / f".{key}.0123abcd.tmp")
    (here / "g" / "cells" / f".{key}.0123abcd.tmp" / "jobs.csv").write_text("half")
    (here / "g" / "cells" / f".{key}.tmp").mkdir()  # as earlier versions named it
    (here / "g" / "locks" / key).touch()
    (here / "g" / "grid.json").write_bytes(b"{")
    assert grid().code == 0
    assert contents(here / "g") == files


def test_the_claim_of_a_killed_process_is_dropped_and_that_of_a_living_one_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "g")
    store.open()
    (store.locks / "left").touch()
    with store.claim("held") as ours:
        assert ours
        for key in ("left", "held", "never"):
            store.drop_claim(key)
        assert [path.name for path in store.locks.iterdir()] == ["held"]
    assert not list(store.locks.iterdir())


def test_no_link_in_place_of_a_cell_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, elsewhere = Store(tmp_path / "g"), tmp_path / "elsewhere"
    store.open()
    elsewhere.mkdir()
    (elsewhere / "mine.txt").touch()
    (store.cells / ".k.tmp").symlink_to(elsewhere)
    (store.cells / ".k.guessed.tmp").symlink_to(elsewhere)
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    with pytest.raises(FileExistsError), store.making("k", {}) as folder:
        (folder / "jobs.csv").touch()
    assert [path.name for path in elsewhere.iterdir()] == ["mine.txt"]


# The engine elsewhere, two at once, and interrupts


def slow_grid(here: Path, seeds: int = 8) -> None:
    (here / "g.yaml").write_text(
        "set: {trace: t.csv, cluster: n1g8, policy.wait_s: 0.3}\n"
        f"matrix: {{policy: ['harm.py:Sleeps']}}\nseeds: {seeds}\n"
    )


def test_two_clients_share_the_work(here: Path) -> None:
    slow_grid(here)
    clients = [spawn(here, "--workers", 1) for _ in range(2)]
    outputs = [client.communicate(timeout=60) for client in clients]
    assert [client.returncode for client in clients] == [0, 0], outputs
    assert made(here / "g") == 8
    assert all(r.status == "done" for r in clustersim.read_results(here / "g"))
    assert not list((here / "g" / "locks").iterdir())


def test_ctrl_c_ends_with_130_and_keeps_what_is_made(here: Path) -> None:
    slow_grid(here, seeds=40)
    client = spawn(here, "--workers", 1)
    until(lambda: made(here / "g") >= 2)
    client.send_signal(signal.SIGINT)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 130
    assert "error: interrupted" in err
    assert "Traceback" not in err
    kept = made(here / "g")
    assert 2 <= kept < 40
    time.sleep(0.5)
    assert made(here / "g") == kept, "nothing runs on"


def test_what_is_no_scheduler_is_said_at_once(here: Path) -> None:
    """Also at exit, where a client that was never connected would wait."""
    began = time.monotonic()
    client = spawn(here, "--scheduler", "tls://127.0.0.1:1")
    _, err = client.communicate(timeout=60)
    assert client.returncode == 2, err
    assert "cannot be reached" in err
    assert "Traceback" not in err
    assert len(err) < 1000
    assert time.monotonic() - began < 45


def test_a_running_scheduler_gives_the_same_and_a_lost_one_loses_no_finished_cell(
    here: Path, finished: Path, grid: Call
) -> None:
    with dask_cluster(here) as (address, processes):
        done = grid("--scheduler", address, "--out", "there")
        assert done.code == 0, done.err
        assert contents(here / "there") == contents(finished)
        slow_grid(here, seeds=30)
        client = spawn(here, "--scheduler", address)
        until(lambda: made(here / "g") >= 2)
        os.killpg(processes[0].pid, signal.SIGKILL)
        _, err = client.communicate(timeout=60)
    assert client.returncode == 5, err
    assert "run the grid again" in err
    assert "Traceback" not in err
    assert made(here / "g") >= 2
    assert Store(here / "g").is_grid()


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
