"""`clustersim grid` from end to end: what is written, kept, made again, given up, and said."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest

import clustersim
from clustersim.grid import Store
from tests.clustersim.grid.processes import contents, dask_cluster, made, spawn, until
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
