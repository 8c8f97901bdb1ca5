"""Grid files and `clustersim grid` from end to end: keys, what is made, kept, given up, said; kills."""

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
from math import prod
from pathlib import Path

import pandas as pd
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clustersim
from clustersim import Scheduler
from clustersim.cli import main
from clustersim.grid import Store, Variation, WhatIf, plan_variation, read_plan
from clustersim.grid.expand import Grid, expand
from clustersim.grid.gridfile import read_document, read_grid_file
from clustersim.grid.making import load_trace
from clustersim.grid.page import axis_number, difference_rows
from clustersim.grid.page.document import Mean, Scale, better
from clustersim.grid.page.tables import best_rows, effect_rows, heat_maps
from clustersim.report import load_differences
from itertime.errors import UserError
from itertime.spec.system import SYSTEMS as FOLDER
from tests.clustersim.grid.processes import contents, dask_cluster, descendants, made, spawn, until
from tests.effort import examples
from tests.places import ROOT
from tests.printed import Call, Done
from tests.tables import TABLES, TEXTS
from traces import Job, write_trace


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


def test_rows_alone_give_the_same_results(here: Path, made_before: Path, grid: Call) -> None:
    """Also after a row is changed and a file of rows is lost; only records of cells are missed."""
    whole = contents(made_before)
    shutil.rmtree(made_before)
    (here / "g.yaml").write_text((here / "g.yaml").read_text() + "keep: rows\n")
    assert grid().code == 0
    assert "4 of 4 cells exist" in grid().err
    files = sorted((here / "g/rows").iterdir())
    header, line, *others = files[0].read_text().splitlines()
    files[0].write_text("\n".join([header, line.replace(",4,", ",5,", 1), *others]) + "\n")
    again = grid()
    assert f"{files[0].resolve().relative_to(here.resolve())}:2: was changed; it is made again" in again.err
    assert "3 of 4 cells exist; simulating 1" in again.err
    assert "4 of 4 cells exist" in grid().err
    files[-1].unlink()
    assert "3 of 4 cells exist; simulating 1" in grid().err
    made_again = contents(here / "g")
    for name in ("results.csv", "comparison.csv", "grid.json"):
        assert made_again[name].decode() == whole[name].decode()
    with pytest.raises(UserError, match="has no records, as the grid was run with keep: rows"):
        clustersim.read_results("g")[0].run()
    assert not list((here / "g/cells").iterdir())
    assert not list((here / "g/locks").iterdir())
    (here / "g.yaml").write_text((here / "g.yaml").read_text() + "window: {warmup_s: 1}\n")
    assert "needs the records of cells, which keep: rows does not write" in grid().err


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


def test_two_clients_share_the_work(here: Path, grid: Call) -> None:
    slow_grid(here)
    client = spawn(here, "--workers", 1)
    until(lambda: made(here / "g") >= 1)
    done = grid()
    output = client.communicate(timeout=60)
    assert (client.returncode, done.code) == (0, 0), (output, done)
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


def assault(here: Path, grid: Call, seed: int, wait_s: float, kills: int, every_s: float) -> int:
    """Workers and the client killed, files corrupted, no space; then the same call, and the same bytes."""
    rng = random.Random(seed)
    write_grid(here, wait_s)
    assert grid("--out", "undisturbed").code == 0
    folder = here / "g"
    client = spawn(here, "--workers", "2")
    until(lambda: made(folder) >= 1)
    killed = kill_workers(client, kills // 2, every_s, rng)
    until(lambda: made(folder) >= 3 or client.poll() is not None)
    assert client.poll() is None, client.communicate()
    kill_client(client)
    corrupt(folder)
    full = spawn(here, "--workers", "1", limit_bytes=600)
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


def test_kills_corruption_and_a_full_disk_change_no_byte(here: Path, grid: Call) -> None:
    assert assault(here, grid, seed=1, wait_s=0.12, kills=2, every_s=0.2) >= 1


def test_kill_9_loses_no_row_that_was_written(here: Path, grid: Call) -> None:
    slow_grid(here, seeds=4)
    (here / "g.yaml").write_text((here / "g.yaml").read_text() + "keep: rows\n")
    client = spawn(here, "--workers", 1)
    until(lambda: len(list(here.glob("g/rows/*.csv"))) >= 1)
    kill_client(client)
    files = {path: path.read_bytes() for path in here.glob("g/rows/*.csv")}
    count = sum(content.count(b"\n") - 1 for content in files.values())
    assert f"{count} of 4 cells exist; simulating {4 - count}" in grid().err
    assert files.items() <= {path: path.read_bytes() for path in here.glob("g/rows/*.csv")}.items()
    assert grid("--out", "undisturbed").code == 0
    for name in ("results.csv", "grid.json"):
        assert (here / "g" / name).read_bytes() == (here / "undisturbed" / name).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_ten_kills_change_no_byte(here: Path, grid: Call, seed: int) -> None:
    assert assault(here, grid, seed, wait_s=1.5, kills=10, every_s=0.8) == 10


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


SBATCH = TEXTS["a stand-in for sbatch"]
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


TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n"


def grid_of(tmp_path: Path, text: str) -> Grid:
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    return expand(*read_grid_file(path))


# What it means


def test_an_axis_of_labels_stands_for_settings(tmp_path: Path) -> None:
    text = """
set: {trace: t.csv, placement: spread}
matrix:
  scheduler: {theirs: {policy: elasticflow}, ours: {policy: elasticflow, planner: vtrain}}
  trace: {small: s.csv, large: l.csv}
"""
    settings = dict(grid_of(tmp_path, text).cells[3].settings)
    assert settings == {"policy": "elasticflow", "planner": "vtrain", "placement": "spread", "trace": "l.csv"}


@pytest.mark.parametrize("system", ["dgx-a100-80gb", "dgx-h100", "dgx-b200"])
def test_a_generated_trace_offers_its_load_to_the_run(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the load is stated: nodes, system and planner are those of the cell."""
    monkeypatch.setenv("ITERTIME_CACHE", str(tmp_path / "curves"))  # as all cells have the same models
    (tmp_path / "g.yaml").write_text(
        f"set: {{cluster: n16g8, system: {system}, trace: {{jobs: 60, rules: llm-mix}}}}\n"
        "matrix: {policy: [fifo], trace.arrivals: [poisson, bursty, batches, day-night, regular]}\n"
        "include: [{policy: fifo, trace.arrivals: bursty, trace.load: 1.6, nodes: 8}]\nseeds: [1]\n"
    )
    for cell in read_plan(tmp_path / "g.yaml").cells:
        run = clustersim.run(
            load_trace(cell.inputs), config=cell.inputs.config.model_copy(update={"bound": "none"})
        )
        assert run.summary["offered_load"] == pytest.approx(cell.facts.stated_load, rel=0.05)
        assert not load_differences([run])
        other = clustersim.run(load_trace(cell.inputs), "fifo", cluster="n4g8", bound="none")
        assert load_differences([other])[0].startswith(
            f"The trace states a load of {cell.facts.stated_load:.2f}"
        )


def test_cells_that_are_compared_have_the_same_jobs(tmp_path: Path) -> None:
    """Jobs are those of the baseline, and of the first policy; other axes have loads of their own."""
    (tmp_path / "g.yaml").write_text(
        "set: {trace: {jobs: 5}}\nmatrix:\n  ours: {a: {policy: fifo}, b: {policy: edf, planner: megatron}}\n"
        "  nodes: [8, 16]\n  system: [dgx-h100, dgx-a100-80gb]\nbaseline: {nodes: 8}\n"
    )
    recipes = {
        tuple(cell.cell.axes.values()): cell.inputs.trace for cell in read_plan(tmp_path / "g.yaml").cells
    }
    assert {(r.gpus, r.system, r.planner) for r in recipes.values()} == {
        (64, "dgx-h100", Scheduler.planner),
        (64, "dgx-a100-80gb", Scheduler.planner),
    }
    assert all(recipe.system == axes[2] for axes, recipe in recipes.items())


def test_scalars_are_those_of_yaml_1_2(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: [yes, 1:30, 1e3, 010, 2026-01-01, '7', 0x10, ~, true, .5, 1_000]\n")
    data = read_document(path).data
    assert data == {"a": ["yes", "1:30", 1000.0, 10, "2026-01-01", "7", "0x10", None, True, 0.5, "1_000"]}


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 3), st.data())
def test_cells_are_the_product_less_what_is_excluded(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seeds: int, data: st.DataObject
) -> None:
    names = ["policy", "trace.load", "overheads.launch_s"][: len(sizes)]
    axes = {name: [f"{name[0]}{i}" for i in range(size)] for name, size in zip(names, sizes, strict=True)}
    out = data.draw(st.fixed_dictionaries({}, optional={n: st.sampled_from(v) for n, v in axes.items()}))
    lines = ["matrix:", *(f"  {name}: {values}" for name, values in axes.items()), f"seeds: {seeds}"]
    if out:
        lines.append(f"exclude: [{{{', '.join(f'{n}: {v}' for n, v in out.items())}}}]")
    gone = prod(len(values) for name, values in axes.items() if name not in out) if out else 0
    left = (prod(sizes) - gone) * seeds
    text = "\n".join(lines)
    folder = tmp_path_factory.mktemp("grid")
    if left == 0:
        with pytest.raises(UserError, match="leaves no cell"):
            grid_of(folder, text)
        return
    grid = grid_of(folder, text)
    assert len(grid.cells) == left
    assert len({cell.label for cell in grid.cells}) == left
    assert not any(all(cell.axes[n] == v for n, v in out.items()) for cell in grid.cells if out)


# What makes no sense


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{c}: &{c} [{', '.join([f'*{p}'] * 10)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "a: &a [*a]\n",
        "[" * 5000,
        "a: " + "{a: " * 50 + "1" + "}" * 50,
    ],
    ids=["laughs", "recursive", "brackets", "deep"],
)
def test_documents_that_explode_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        read_document(path)


def test_a_million_cells_are_refused_before_they_are_made(tmp_path: Path) -> None:
    axis = list(range(100))
    text = f"matrix:\n  policy: {axis}\n  trace.load: {axis}\n  trace.jobs: {axis}\n"
    with pytest.raises(UserError, match="1,000,000 cells; a grid has at most"):
        grid_of(tmp_path, text)
    with pytest.raises(UserError, match="bytes"):
        grid_of(tmp_path, "#" * 1_000_001)


# Keys


FIFO = "set: {trace: t.csv}\nmatrix: {policy: [fifo]}\n"
MINE = "set: {trace: t.csv}\nmatrix: {policy: ['mine.py:Mine']}\n"
IN_CLUSTER = "set: {trace: t.csv, cluster: made/cluster.yaml}\nmatrix: {policy: [fifo]}\n"
GENERATED = "set: {trace: {jobs: 3, rules: none, sizes: my.sizes.yaml}}\nmatrix: {policy: [fifo]}\n"
MODELS = "set: {trace: m.csv, model_path: [made]}\nmatrix: {policy: [fifo]}\n"
SYSTEM = (FOLDER / "dgx-a100-80gb.yaml").read_text()
SOUND = {"t.csv": TRACE, "other.csv": TRACE, "made/site.yaml": SYSTEM, **TABLES["files that grids name"]}


@pytest.mark.parametrize(
    ("grid", "changed_file", "content", "same"),
    [
        (FIFO, "grid.yaml", "# moved\n" + FIFO, True),
        (FIFO, "grid.yaml", FIFO + "limits: {time_s: 5}\nwindow: {warmup_s: 5}\n", True),
        (FIFO, "grid.yaml", FIFO.replace("t.csv", "other.csv"), True),  # equal content
        (FIFO, "grid.yaml", FIFO + "seeds: [1]\n", False),
        (FIFO, "grid.yaml", FIFO.replace("t.csv", "t.csv, placement: spread"), False),
        (FIFO, "t.csv", TRACE.replace("60", "61"), False),
        (IN_CLUSTER, "made/site.yaml", SYSTEM + "# a comment changes nothing\n", True),
        (IN_CLUSTER, "made/site.yaml", SYSTEM.replace("gpus_per_node: 8", "gpus_per_node: 4"), False),
        (MINE, "mine.py", SOUND["mine.py"] + "# another version\n", False),
        (MINE, "ranks.py", "rank = hash\n", False),
        (MODELS, "made/small.yaml", "extends: gpt3-1.3b\nlayers: 36\n", False),
        (GENERATED, "my.sizes.yaml", SOUND["my.sizes.yaml"].replace("60", "61"), False),
    ],
)
def test_the_key_is_the_hash_of_what_the_result_depends_on(
    here: Path, grid: str, changed_file: str, content: str, same: bool
) -> None:
    """Of the grid itself, and of the content of every file that it names, or that one of these names."""
    (here / "made").mkdir()
    keys = []
    for files in ({**SOUND, "grid.yaml": grid}, {changed_file: content}):
        for name, text in files.items():
            (here / name).write_text(text)
        keys.append([planned.key for planned in read_plan("grid.yaml").cells])
    assert (keys[0] == keys[1]) == same


def test_the_example_of_the_page_is_a_grid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "grids.md").read_text(encoding="utf-8")
    example = page.partition("## An example")[2].partition("\n\n")[2].partition("\n\n")[0]
    (tmp_path / "buy.yaml").write_text("\n".join(line[4:] for line in example.splitlines()))
    assert len(read_plan(tmp_path / "buy.yaml").cells) == 4 * 2 * 20


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"#" * 1_000_001, "has 1,000,001 bytes"),
        (b"a: 1\nb: \xe9\n", r"g\.yaml:2: byte 0xe9 is not UTF-8 text"),
    ],
    ids=["large", "latin-1"],
)
def test_a_grid_file_is_a_text_file_of_limited_size(tmp_path, content, error):
    (tmp_path / "g.yaml").write_bytes(content)
    with pytest.raises(UserError, match=error):
        read_plan(tmp_path / "g.yaml")


JOBS = [Job(f"j{i}", 120.0 * i, gpus=4 + 4 * (i % 3), duration_s=900.0 + 60 * (i % 7)) for i in range(24)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("what-if") / "jobs.csv"
    write_trace(JOBS, path)
    return path


@pytest.fixture(scope="module")
def found(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> WhatIf:
    """Two policies on two sizes of a cluster, with two costs of a launch."""
    folder = tmp_path_factory.mktemp("results") / "sizes"
    return clustersim.what_if(
        trace, ["fifo", "srtf"], {"nodes": [2, 3], "overheads.launch_s": [0, 60]},
        cluster="n2g8", out=folder, workers=1,
    )  # fmt: skip


def test_differences_are_to_the_first_values(found: WhatIf) -> None:
    assert found.baseline == {"policy": "fifo", "nodes": 2, "overheads.launch_s": 0}
    base = next(one for one in found if dict(one.axes) == dict(found.baseline))
    frame = found.to_pandas().set_index(["policy", "nodes", "overheads.launch_s"])
    compared = [one for one in found.compare() if one.metric == "jct_mean_s"]
    assert len(compared) == 7
    for one in compared:
        own = frame.loc[tuple(one.axes.values()), "jct_mean_s"]
        assert one.difference.difference == pytest.approx(own - base.metrics["jct_mean_s"])


def test_a_what_if_shows_itself(found: WhatIf, tmp_path: Path) -> None:
    assert repr(found) == "<WhatIf of 8 runs: policy=fifo, srtf; nodes=2, 3; overheads.launch_s=0, 60>"
    table = found._repr_html_()
    assert "Against policy=fifo, nodes=2, overheads.launch_s=0" in table
    assert table.count("<tr>") == 1 + len(difference_rows(found.document())[1])
    assert found.plot()._repr_png_()[:4] == b"\x89PNG"
    found.report().save(tmp_path / "page.html")
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()


def test_data_frames_are_traces_and_a_folder_of_its_own_goes() -> None:
    frame = pd.DataFrame(
        {"job_id": ["a", "b"], "submit_s": [0.0, 1.0], "gpus": [8, 8], "duration_s": [60.0, 60.0]}
    )
    settings = {"overheads": None, "cluster": "n1g8"}
    made = clustersim.what_if(frame, "fifo", {"nodes": [1, 2]}, workers=1, **settings)
    assert [result.metrics["makespan_s"] for result in made] == [120.0, 61.0]
    assert made[0].run().policy == "fifo"
    folder = made.folder
    assert folder.is_dir()
    del made
    assert not folder.exists()


def test_values_of_the_system_are_varied(trace: Path, tmp_path: Path) -> None:
    variation = Variation(["fifo"], {"system.nic_gbps": [100, 200]})
    plan = plan_variation(trace, variation, {}, tmp_path / "x")
    assert [cell.inputs.config.system for cell in plan.cells] == [
        "dgx-a100-80gb,nic_gbps=100", "dgx-a100-80gb,nic_gbps=200",
    ]  # fmt: skip


def test_a_refused_data_frame_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nodes"):
        clustersim.what_if(JOBS[:2], "fifo", {"nodes": [1, "x"]}, out=tmp_path / "bad", workers=1)
    assert list(tmp_path.iterdir()) == []


def test_pages_of_runs_and_their_links(found: WhatIf, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(found.folder), "--pages", "2"]) == 0
    page = (found.folder / "report.html").read_text()
    links = re.findall(r'href="(runs/\w+\.html)"', page)
    assert len(links) == 2
    assert all((found.folder / link).is_file() for link in links)
    assert main(["report", str(found.folder), "--baseline", "fifo"]) == 2
    assert "its file states baseline" in capsys.readouterr().err


def test_what_the_page_of_a_grid_says(found: WhatIf) -> None:
    document = found.document()
    maps, left_out = heat_maps(document)
    assert left_out == 0
    assert len(maps) == 3 * 2 * len(document.varying) == 18  # pairs of axes, values of the third, metrics
    axis, others, best = best_rows(document)
    assert (axis, others) == ("policy", ["nodes", "overheads.launch_s"])
    frame = found.to_pandas()
    for row in best:
        if row.metric.startswith("JCT mean"):
            cell = frame[
                (frame["nodes"] == int(row.labels[0])) & (frame["overheads.launch_s"] == int(row.labels[1]))
            ]
            least = cell["jct_mean_s"].min()
            assert set(row.winner.split(", ")) == set(cell.loc[cell["jct_mean_s"] == least, "policy"])
    assert all(row.trend == "" for m in document.scales for row in effect_rows(document, m)), "one seed"


def test_one_unit_for_each_metric() -> None:
    hours = Scale.of("jct_mean_s", [7200.0 * 5, 60.0])
    assert hours.head == "JCT mean, h"
    assert (hours.text(7200.0), hours.text(-7200.0, signed=True)) == ("2.00", "−2.00")
    assert hours.text(-360.0, signed=True) == "−0.100"
    share = Scale.of("deadline_met_ratio", [0.5])
    assert (share.head, share.text(0.25), share.text(None)) == ("Deadlines met, %", "25.0", "–")
    assert Scale.of("rejected", [3.0]).text(4.0) == "4"
    assert (better("deadline_met_ratio"), better("wait_mean_s"), better("events")) == ("higher", "lower", "")
    numbers = [axis_number(value) for value in (1, "0.5", "small", True, None, "nan")]
    assert numbers == [1, 0.5, *[None] * 4]
    mean = Mean.of([1.0, 2.0, 3.0])
    assert mean is not None
    assert (mean.mean, mean.half) == (2.0, pytest.approx(4.30265 / 3**0.5, rel=1e-4))


def test_hostile_names_do_not_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)<script>"
    policy = tmp_path / "evil.py"
    policy.write_text("from policies.fifo import Fifo\nclass Own(Fifo):\n    pass\n")
    made = clustersim.what_if(
        JOBS[:3], f"{policy}:Own", {"placement": ["pack", "any"]}, cluster="n2g8", workers=1
    )
    object.__setattr__(made, "name", evil)
    page = made.report().text
    assert evil not in page
    assert "&lt;script&gt;alert(1)" in page
