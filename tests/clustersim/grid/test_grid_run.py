"""`clustersim grid` from end to end: what is written, kept, made again, given up, and said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import clustersim
from clustersim.cli import main
from clustersim.grid import Store
from tests.places import ROOT

TRACE = "job_id,submit_s,gpus,duration_s\na,0,8,60\nb,0,8,30\nc,10,4,5\n=cmd(),20,4,5\n"
GRID = """
set: {trace: t.csv, cluster: n1g8, overheads: null}
matrix:
  policy: [fifo, srtf]
seeds: 2
"""
POLICIES = '''
"""Policies that do harm."""
import os, sys, time
from clustersim import Scheduler

class Base(Scheduler):
    def schedule(self, state):
        self.harm()
        proposal = state.proposal()
        proposal.run_by(lambda job: job.order)
        return proposal

    def harm(self):
        pass

class Sleeps(Base):
    """Takes a while, once."""
    def __init__(self, wait_s=0.2):
        self.wait_s = wait_s
    def harm(self):
        time.sleep(self.wait_s)
        self.wait_s = 0.0

class Hangs(Base):
    def harm(self):
        while True:
            time.sleep(0.01)

class Grows(Base):
    def harm(self):
        self.kept = [b"x" * 50_000_000 for _ in range(40)]
        time.sleep(10)

class Raises(Base):
    def harm(self):
        print("about to fail")
        raise RuntimeError("no policy for this")

class Exits(Base):
    def harm(self):
        os._exit(7)

class Crashes(Base):
    def harm(self):
        os.abort()

class Counts(Base):
    """A class that remembers earlier runs of its process."""
    runs = 0
    def __init__(self):
        Counts.runs += 1
    def schedule(self, state):
        proposal = super().schedule(state)
        if Counts.runs > 1:
            raise RuntimeError("another cell was here before")
        return proposal
'''


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "harm.py").write_text(POLICIES)
    (tmp_path / "g.yaml").write_text(GRID)
    return tmp_path


@pytest.fixture
def call(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    def run(*arguments: object) -> Done:
        words = ["grid", *(str(argument) for argument in arguments)]
        if "--workers" not in words and "--scheduler" not in words:
            words += ["--workers", "1"]  # each worker takes a second or two to start
        code = main(words)
        return Done(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of `GRID`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "t.csv").write_text(TRACE)
    (folder / "g.yaml").write_text(GRID)
    with chdir(folder):
        assert main(["grid", "g.yaml", "--workers", "1"]) == 0
    return folder / "g"


@pytest.fixture
def made_before(here: Path, finished: Path) -> Path:
    """A copy of these results, where the grid's call finds them."""
    return Path(shutil.copytree(finished, here / "g"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a results folder but the log of times."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "timings.csv"]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def test_a_grid_is_made_kept_and_tabled(here: Path, call: Callable[..., Done]) -> None:
    done = call("g.yaml", "--workers", 2)
    assert done.code == 0, done.err
    assert "4 of 4 cells done (0 cached), 0 failed" in done.err
    assert "srtf" in done.out
    assert "distributed" not in done.err
    before = contents(here / "g")
    cells = sorted({name.split("/")[1] for name in before if name.startswith("cells/")})
    assert len(cells) == 4
    files = {"jobs.csv", "events.csv", "usage.csv", "summary.json", "manifest.json", "cell.json"}
    assert {p.name for p in (here / "g" / "cells" / cells[0]).iterdir()} >= files
    again = call("g.yaml")
    assert again.code == 0
    assert "4 of 4 cells exist; simulating 0" in again.err
    assert contents(here / "g") == before
    assert call("g.yaml", "--out", "other").code == 0
    assert contents(here / "other") == before, "made elsewhere, on another number of workers"


def test_a_cell_is_what_run_writes_and_passes_check(here: Path, made_before: Path) -> None:
    result = clustersim.read_results("g")[2]
    assert result.axes == {"policy": "srtf"}
    arguments = ["run", "t.csv", "--policy", "srtf", "--cluster", "n1g8", "--no-overheads", "--out", "alone"]
    assert main(arguments) == 0
    for name in ("jobs.csv", "summary.json", "events.csv", "usage.csv"):
        assert (result.folder / name).read_bytes() == (here / "alone" / name).read_bytes()
    assert main(["check", str(result.folder)]) == 0
    repeated = result.run().manifest["command"]
    assert repeated[:4] == ["clustersim", "run", "t.csv", "--policy"]
    assert main([*repeated[1:], "--out", "repeated"]) == 0
    assert (here / "repeated" / "jobs.csv").read_bytes() == (here / "alone" / "jobs.csv").read_bytes()


def test_cells_without_queueing_are_counted(here: Path, call: Callable[..., Done]) -> None:
    """A stream of short jobs on 1 GPU each: on one node they wait, on four hardly any."""
    rows = [f"{i},{i},4,3" for i in range(12)]
    (here / "t.csv").write_text("\n".join(["job_id,submit_s,gpus,duration_s", *rows, "z,11,4,90", ""]))
    grid = "set: {trace: t.csv, overheads: null}\nmatrix: {policy: [fifo, srtf], cluster: [n1g8, n4g8]}\n"
    (here / "g.yaml").write_text(grid)
    done = call("g.yaml")
    assert done.code == 0
    assert "In 2 of 4 cells almost no job waited (waited_ratio below 1 %): they say little" in done.out
    assert "In 4 of 4 cells at least 25 % of the makespan is the tail of a few jobs" in done.out
    frame = pd.read_csv(here / "g" / "results.csv")
    assert list(frame["waited_ratio"] < 0.01) == [False, True, False, True]
    assert list(frame["load_jobs"]) == [13] * 4
    assert frame["offered_load"][0] == pytest.approx(4 * frame["offered_load"][1])
    (here / "g.yaml").write_text(grid + "window: {warmup_s: 50}\n")
    assert "In 4 of 4 cells no job is submitted in the window: state a shorter" in call("g.yaml").out


def test_json_is_one_document(made_before: Path, call: Callable[..., Done]) -> None:
    document = json.loads(call("g.yaml", "--json").out)
    assert document["done"] == 4
    assert document["baseline"] == {"policy": "fifo"}
    row = document["comparisons"][0]
    assert row["metric"] == "jct_mean_s"
    assert row["pairs"] == 2
    assert row["p"] is None, "two pairs give no test"
    assert row["difference"] == pytest.approx(row["variant"] - row["baseline"])


def test_what_fails_is_recorded_and_the_rest_finishes(here: Path, call: Callable[..., Done]) -> None:
    names = ["Hangs", "Grows", "Raises", "Exits", "Crashes", "Base"]
    policies = ", ".join(f"'harm.py:{name}'" for name in names)
    (here / "g.yaml").write_text(
        f"set: {{trace: t.csv, cluster: n1g8}}\nmatrix: {{policy: [{policies}]}}\n"
        "limits: {time_s: 5, memory_gb: 0.6, retries: 0}\n"
    )
    done = call("g.yaml", "--workers", 2)
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


def test_a_failed_cell_is_tried_again_by_the_next_call(here: Path, call: Callable[..., Done]) -> None:
    (here / "g.yaml").write_text(
        "set: {trace: t.csv, cluster: n1g8, policy.wait_s: 2}\nmatrix: {policy: ['harm.py:Sleeps']}\n"
        "limits: {time_s: 0.4, retries: 1}\n"
    )
    assert call("g.yaml").code == 5
    (failure,) = (here / "g" / "failures").iterdir()
    assert json.loads(failure.read_text())["attempts"] == 2
    (here / "g.yaml").write_text((here / "g.yaml").read_text().replace("0.4", "60"))
    assert call("g.yaml").code == 0
    assert not list((here / "g" / "failures").iterdir())


def test_no_cell_sees_what_another_left_behind(here: Path, call: Callable[..., Done]) -> None:
    (here / "g.yaml").write_text(GRID.replace("[fifo, srtf]", "['harm.py:Counts']").replace("2", "6"))
    assert call("g.yaml", "--workers", 1).code == 0


def test_every_changed_byte_is_found_and_its_cell_made_again(
    here: Path, made_before: Path, call: Callable[..., Done]
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
    done = call("g.yaml")
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


def test_a_cell_depends_on_the_modules_beside_its_policy(here: Path, call: Callable[..., Done]) -> None:
    """An edit of a module that the file of the policy imports makes the cell anew."""
    (here / "ranks.py").write_text("def rank(job):\n    return job.order\n")
    (here / "mine.py").write_text(
        "from clustersim import Scheduler\n"
        "class Mine(Scheduler):\n"
        "    def schedule(self, state):\n"
        "        from ranks import rank\n"
        "        proposal = state.proposal()\n"
        "        proposal.run_by(rank)\n"
        "        return proposal\n"
    )
    (here / "g.yaml").write_text("set: {trace: t.csv, cluster: n1g8}\nmatrix: {policy: ['mine.py:Mine']}\n")
    assert "1 of 1 cells done (0 cached)" in call("g.yaml").err
    assert "1 of 1 cells exist" in call("g.yaml").err
    first = clustersim.read_results("g")[0]
    (here / "ranks.py").write_text("def rank(job):\n    return -job.order\n")
    assert "1 of 1 cells done (0 cached)" in call("g.yaml").err
    second = clustersim.read_results("g")[0]
    assert first.run().summary["jct_mean_s"] != second.run().summary["jct_mean_s"]


def test_left_overs_of_a_killed_process_do_no_harm(
    here: Path, made_before: Path, call: Callable[..., Done]
) -> None:
    before = contents(here / "g")
    key = sorted((here / "g" / "cells").iterdir())[0].name
    (here / "g" / "cells" / key).rename(here / "g" / "cells" / f".{key}.0123abcd.tmp")
    (here / "g" / "cells" / f".{key}.0123abcd.tmp" / "jobs.csv").write_text("half")
    (here / "g" / "cells" / f".{key}.tmp").mkdir()  # as earlier versions named it
    (here / "g" / "locks" / key).touch()
    assert call("g.yaml").code == 0
    assert contents(here / "g") == before


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


def test_a_damaged_grid_json_is_written_again(
    here: Path, made_before: Path, call: Callable[..., Done]
) -> None:
    before = contents(here / "g")
    (here / "g" / "grid.json").write_bytes(b"{")
    assert call("g.yaml").code == 0
    assert contents(here / "g") == before


def test_no_table_carries_a_formula(here: Path, call: Callable[..., Done]) -> None:
    (here / "=cmd().csv").write_text(TRACE)
    text = GRID.replace("trace: t.csv, ", "").replace(
        "matrix:", "matrix:\n  trace: {'=HYPERLINK(\"x\")': '=cmd().csv', '@evil': t.csv}"
    )
    (here / "g.yaml").write_text(text)
    assert call("g.yaml").code == 0
    table = (here / "g" / "results.csv").read_text()
    rows = table.splitlines()
    assert rows[1].startswith("\"'=HYPERLINK")
    assert all(not cell.lstrip('"').startswith(("=", "@", "+")) for row in rows for cell in row.split(","))
    assert clustersim.read_results("g")[0].axes["trace"] == '=HYPERLINK("x")'


# The engine elsewhere, two at once, and interrupts


def spawn(here: Path, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "clustersim", "grid", *map(str, arguments)], cwd=here, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def slow_grid(here: Path, seeds: int = 8, wait_s: float = 0.3) -> Path:
    (here / "g.yaml").write_text(
        f"set: {{trace: t.csv, cluster: n1g8, policy.wait_s: {wait_s}}}\n"
        f"matrix: {{policy: ['harm.py:Sleeps']}}\nseeds: {seeds}\n"
    )
    return here / "g.yaml"


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def made(here: Path, folder: str = "g") -> int:
    return len(list((here / folder / "cells").glob("[0-9a-f]*"))) if (here / folder / "cells").exists() else 0


def test_two_clients_share_the_work(here: Path) -> None:
    slow_grid(here)
    clients = [spawn(here, "g.yaml", "--workers", 1) for _ in range(2)]
    outputs = [client.communicate(timeout=60) for client in clients]
    assert [client.returncode for client in clients] == [0, 0], outputs
    assert made(here) == 8
    assert all(r.status == "done" for r in clustersim.read_results(here / "g"))
    assert not list((here / "g" / "locks").iterdir())


def test_ctrl_c_ends_with_130_and_keeps_what_is_made(here: Path) -> None:
    slow_grid(here, seeds=40)
    client = spawn(here, "g.yaml", "--workers", 1)
    until(lambda: made(here) >= 2)
    client.send_signal(signal.SIGINT)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 130
    assert "error: interrupted" in err
    assert "Traceback" not in err
    kept = made(here)
    assert 2 <= kept < 40
    time.sleep(0.5)
    assert made(here) == kept, "nothing runs on"


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A dask scheduler and two workers, started by hand."""
    file = tmp_path / "scheduler.json"
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)],
        *[["worker", "--scheduler-file", str(file), "--nthreads", "1", "--no-dashboard"]] * 2,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *command], env=environment, cwd=tmp_path,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )
        for command in commands
    ]  # fmt: skip
    try:
        until(lambda: file.exists() and file.read_text().rstrip().endswith("}"))
        yield json.loads(file.read_text())["address"], processes
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_what_is_no_scheduler_is_said_at_once(here: Path) -> None:
    """Also at exit, where a client that was never connected would wait."""
    began = time.monotonic()
    client = spawn(here, "g.yaml", "--scheduler", "tls://127.0.0.1:1")
    _, err = client.communicate(timeout=60)
    assert client.returncode == 2, err
    assert "cannot be reached" in err
    assert "Traceback" not in err
    assert len(err) < 1000
    assert time.monotonic() - began < 45


def test_a_running_scheduler_gives_the_same_and_a_lost_one_loses_no_finished_cell(
    here: Path,
    finished: Path,
    call: Callable[..., Done],
    scheduler: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    address, processes = scheduler
    done = call("g.yaml", "--scheduler", address, "--out", "there")
    assert done.code == 0, done.err
    assert contents(here / "there") == contents(finished)
    slow_grid(here, seeds=30)
    client = spawn(here, "g.yaml", "--scheduler", address)
    until(lambda: made(here) >= 2)
    os.killpg(processes[0].pid, signal.SIGKILL)
    _, err = client.communicate(timeout=60)
    assert client.returncode == 5, err
    assert "run the grid again" in err
    assert "Traceback" not in err
    assert made(here) >= 2
    assert Store(here / "g").is_grid()


def test_compare_with_seeds_states_paired_differences(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", "t.csv", "--policies", "fifo,srtf", "--cluster", "n1g8", "--seeds", "6"]
    assert main(arguments) == 0
    assert "Seeds changed nothing" in capfd.readouterr().out
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)["comparisons"]
    assert rows[0]["axes"] == {"policy": "srtf"}
    assert (rows[0]["pairs"], rows[0]["p"]) == (6, None)
