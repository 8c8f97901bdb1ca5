"""Seconds of one run of a kernel: sustained, as in training, or in a burst on a GPU that has time to rest.

Sustained: the kernel runs without pause for a stated time, after a warm-up of the same kernel, so that the
power limit and the clocks that follow from it act as in training. Operands alternate between copies that
together exceed the L2 cache, so no run finds its operands there.

On a CPU it is the time that the kernel's thread has, so that no other program's turns on the core count.
Operands alternate there too, between copies that exceed a core's own caches together.

A kernel shorter than the CPU takes to issue it cannot be sustained. It is timed singly, with cold caches, and
its row says so (`mode` "single").
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .bench import Bench, Preparation
from .power import Meter, Reading, Watch

FLUSH_BYTES = 256 * 2**20  # larger than any L2 cache
CORE_BYTES = 4 * 2**20  # larger than the caches that a CPU core does not share
MOST_COPIES = 16
TRIAL_RUNS = 5  # few enough that the queue of launches never fills up
BATCH_S = 0.05  # of runs that are issued together; one batch always waits behind the one that runs
MOST_BATCH = 10_000
ISSUE_SHARE = 0.8  # of a run's time: above it the CPU decides how long a run takes
BURST_WARM_UP = 3

Run = Callable[[], Any]


@dataclass(frozen=True)
class Pace:
    """How long each kernel runs. `seconds` None: a burst of `repeats` single runs."""

    seconds: float | None
    warm_up_s: float
    repeats: int


@dataclass(frozen=True)
class Timing:
    """Seconds of one run; `runs` of them took `measured_s` together. `mode`: sustained, single or burst."""

    run_s: float
    runs: int
    measured_s: float
    mode: str
    reading: Reading


def timed(bench: Bench, prepare: Preparation, pace: Pace, meter: Meter | None) -> Timing:
    """The time of a kernel. Raises what `prepare` and the kernel raise."""
    base_bytes = bench.allocated_bytes()
    first_run = prepare(bench)
    held_bytes = bench.allocated_bytes() - base_bytes
    first_run()
    bench.synchronize()
    if pace.seconds is None:
        return _singly(bench, first_run, pace.repeats, "burst", meter)
    issue_s, run_s = _trial(bench, first_run)
    if bench.on_gpu and issue_s > ISSUE_SHARE * run_s:
        return _singly(bench, first_run, pace.repeats, "single", meter)
    cache_bytes = FLUSH_BYTES if bench.on_gpu else CORE_BYTES
    copies = min(math.ceil(cache_bytes / held_bytes), MOST_COPIES) if held_bytes > 0 else 1
    runs = [first_run, *(prepare(bench) for _ in range(copies - 1))]
    for run in runs[1:]:
        run()
    batch = min(max(math.ceil(BATCH_S / run_s), 1), MOST_BATCH)
    _sustain(bench, runs, batch, pace.warm_up_s)
    with Watch(meter) as watch:
        count, measured_s = _sustain(bench, runs, batch, pace.seconds)
    return Timing(measured_s / count, count, measured_s, "sustained", watch.mean)


def heat(bench: Bench, seconds: float) -> None:
    """Multiply matrices for so long, so that the first kernels do not find a cold GPU."""
    if not bench.on_gpu or seconds <= 0:
        return
    a, b = bench.random(8192, 8192), bench.random(8192, 8192)
    _sustain(bench, [lambda: bench.torch.matmul(a, b)], 10, seconds)


def _trial(bench: Bench, run: Run) -> tuple[float, float]:
    """Seconds that the CPU takes to issue a run, and that the device takes to run it."""
    begin = _Mark(bench)
    start = time.perf_counter()
    for _ in range(TRIAL_RUNS):
        run()
    issued = time.perf_counter() - start
    end = _Mark(bench)
    return issued / TRIAL_RUNS, begin.until(end) / TRIAL_RUNS


def _sustain(bench: Bench, runs: list[Run], batch: int, seconds: float) -> tuple[int, float]:
    """Run for at least `seconds` without a pause. Returns the number of runs and their seconds."""
    begin = previous_mark = _Mark(bench)
    start, count = time.perf_counter(), 0
    while True:
        for _ in range(batch):
            runs[count % len(runs)]()
            count += 1
        mark = _Mark(bench)
        previous_mark.wait()  # the batch before this one is done; this one runs
        previous_mark = mark
        if time.perf_counter() - start >= seconds:
            return count, begin.until(previous_mark)


def _singly(bench: Bench, run: Run, repeats: int, mode: str, meter: Meter | None) -> Timing:
    """The median of single runs with cold caches."""
    with Watch(meter) as watch:
        for _ in range(BURST_WARM_UP):
            run()
        times = sorted(_once_s(bench, run) for _ in range(repeats))
    return Timing(times[len(times) // 2], repeats, sum(times), mode, watch.mean)


def _once_s(bench: Bench, run: Run) -> float:
    if bench.on_gpu:
        bench.flush(FLUSH_BYTES)
    begin = _Mark(bench)
    run()
    return begin.until(_Mark(bench))


class _Mark:
    """A point in the device's stream of work."""

    def __init__(self, bench: Bench):
        self._event = bench.torch.cuda.Event(enable_timing=True) if bench.on_gpu else None
        self._time = time.thread_time()
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def until(self, end: _Mark) -> float:
        """Seconds from this point to the end, at least 1 ns."""
        if self._event is None:
            return max(end._time - self._time, 1e-9)
        end.wait()
        return max(float(self._event.elapsed_time(end._event)) * 1e-3, 1e-9)
