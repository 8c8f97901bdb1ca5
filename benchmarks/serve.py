"""What it costs a simulation to be watched, and how many frames a browser gets.

    python benchmarks/serve.py [--jobs 10000] [--policies fifo,srtf] [--cluster n128g8] [--repeats 3]

Runs `clustersim demo` with that many jobs, without bound and report, first alone and then while a client
follows every run at once. Prints the CPU seconds of the simulating processes, their ratio, and
the frames per second that the client got of each run while it was in progress.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from threading import Thread
from time import monotonic, sleep

import httpx

POLL_S = 0.05


def simulate(folder: Path, options: Sequence[str]) -> tuple[float, float]:
    """CPU seconds of the comparison and its workers, and seconds on the clock."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), monotonic()
    command = [sys.executable, "-P", "-m", "clustersim", "demo", *options, "--out", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, monotonic() - began


class Server:
    """`clustersim serve` of a folder, and a client that has entered."""

    def __init__(self, folder: Path):
        # waited for after the simulation, so its CPU time does not count as that of the simulation
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "clustersim", "serve", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(2)]
        address = lines[1].removeprefix("Open ").strip()
        self.client = httpx.Client(base_url=address.partition("/enter")[0], timeout=60.0)
        self.client.get(address)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def watch(server: Server, path: str, times: list[float], done: list[int]) -> None:
    """Note when each frame of a run in progress arrives."""
    with server.client.stream("GET", f"/runs/{path}/stream") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and '"time_s"' in line:
                frame = json.loads(line.removeprefix("data: "))
                if frame["status"] != "running":
                    return
                times.append(monotonic())
                done.append(frame["events"])


def watch_all(server: Server, name: str, policies: Sequence[str], found: dict[str, list[float]]) -> None:
    """Follow each run from the moment that the server lists it."""
    watchers = []
    left = {f"{name}/{policy}" for policy in policies}
    while left:
        for run in server.client.get("/state").json()["runs"]:
            if run["path"] in left:
                left.remove(run["path"])
                times = found.setdefault(run["path"], [])
                watchers.append(Thread(target=watch, args=(server, run["path"], times, [])))
                watchers[-1].start()
        sleep(POLL_S)
    for watcher in watchers:
        watcher.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--policies", default="fifo,srtf")
    parser.add_argument("--cluster", default="n128g8")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    policies = given.policies.split(",")
    options = ["--jobs", str(given.jobs), "--policies", given.policies, "--cluster", given.cluster]
    options += ["--no-bound", "--no-report"]
    alone, watched = [], []
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for k in range(given.repeats):
            alone.append(simulate(folder / f"alone{k}", options)[0])
            server = Server(folder)
            found: dict[str, list[float]] = {}
            follower = Thread(target=watch_all, args=(server, f"watched{k}", policies, found))
            follower.start()
            watched.append(simulate(folder / f"watched{k}", options)[0])
            follower.join()
            server.close()
            for path, times in sorted(found.items()):
                gaps = sorted(b - a for a, b in pairwise(times))
                if gaps:
                    rate, late = len(gaps) / sum(gaps), gaps[int(0.95 * len(gaps))]
                    print(f"{path}: {len(times)} frames, {rate:.1f} a second, 95% within {late:.2f} s")
                else:
                    print(f"{path}: {len(times)} frames")
    print(f"{os.cpu_count()} processors; CPU seconds, median of {given.repeats}:")
    print(f"alone {median(alone):.2f} ({', '.join(f'{s:.2f}' for s in alone)})")
    print(f"watched {median(watched):.2f} ({', '.join(f'{s:.2f}' for s in watched)})")
    print(f"ratio {median(watched) / median(alone):.3f}")


if __name__ == "__main__":
    main()
