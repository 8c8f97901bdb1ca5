"""Times of collectives among the GPUs of this machine, with torch.distributed (NCCL; gloo between CPUs).

One process per rank. The first reports every time as soon as it is known.
"""

from __future__ import annotations

import datetime
import importlib
import itertools
import queue
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .bench import Bench, keep_freed_memory

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv")
SIZES = tuple(2**power for power in range(12, 31, 1))
LARGEST_BY_GLOO = 2**26  # bytes; between processes of a machine it copies a gigabyte a second
WARM_UP, REPEATS = 5, 20
PATIENCE_S = 120.0  # for a group to start, and for one time


@dataclass(frozen=True)
class RankGroup:
    """The ranks of one measurement: how many, on which device ("cuda" or "cpu"), through which library."""

    ranks: int
    device: str
    library: str


def rank_counts(bench: Bench) -> list[int]:
    """2, 4, 8 ... up to the number of GPUs; none with a single GPU or on a CPU."""
    count = int(bench.torch.cuda.device_count()) if bench.on_gpu else 1
    return [2**power for power in range(1, 12) if 2**power <= count]


def collective_cases(ranks: int, library: str = "nccl") -> list[dict[str, Any]]:
    """The columns of every row for a group of so many ranks; sends need two."""
    sizes = [size for size in SIZES if library == "nccl" or size <= LARGEST_BY_GLOO]
    operations = OPERATIONS if ranks == 2 else OPERATIONS[:-1]
    return [
        {"table": "collective", "op": operation, "ranks": ranks, "bytes": size}
        for operation, size in itertools.product(operations, sizes)
    ]


def collective_times(
    group: RankGroup, cases: list[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], float | str]]:
    """Each case with its seconds, or why it has none. After a failure the other cases have that reason."""
    context: Any = importlib.import_module("torch.multiprocessing").get_context("spawn")
    results = context.Queue()
    port = _free_port()
    workers = [
        context.Process(target=_work, args=(rank, group, port, cases, results), daemon=True)
        for rank in range(group.ranks)
    ]
    for worker in workers:
        worker.start()
    reason = ""
    try:
        for case in cases:
            if not reason:
                try:
                    result = results.get(timeout=PATIENCE_S)
                except queue.Empty:
                    result = f"no answer within {PATIENCE_S:g} s"
                if isinstance(result, float):
                    yield case, result
                    continue
                reason = result
            yield case, reason
    finally:
        for worker in workers:
            worker.terminate() if reason else worker.join(timeout=PATIENCE_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _work(rank: int, group: RankGroup, port: int, cases: list[dict[str, Any]], results: Any) -> None:
    """One rank. The first puts the seconds of every case, or the text of the error that ended the work."""
    try:
        torch: Any = importlib.import_module("torch")
        distributed: Any = importlib.import_module("torch.distributed")
        if group.device == "cuda":
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(1)
            keep_freed_memory()
        distributed.init_process_group(
            group.library,
            init_method=f"tcp://127.0.0.1:{port}",
            rank=rank,
            world_size=group.ranks,
            timeout=datetime.timedelta(seconds=PATIENCE_S / 2),
        )
        for case in cases:
            run = _operation(torch, distributed, case["op"], case["bytes"], rank, group)
            seconds = _seconds(torch, distributed, run, group.device)
            if rank == 0:
                results.put(seconds)
        distributed.destroy_process_group()
    except Exception as error:  # the parent process reports it
        if rank == 0:
            results.put(str(error).strip().partition("\n")[0] or repr(error))


def _operation(
    torch: Any, distributed: Any, name: str, nbytes: int, rank: int, group: RankGroup
) -> Callable[[], Any]:
    """The collective on bf16 numbers, 32-bit ones on a CPU; `nbytes` as in nccl-tests (see `Collective`)."""
    dtype = torch.bfloat16 if group.device == "cuda" else torch.float32
    count = nbytes // dtype.itemsize
    values = torch.randn(count, device=group.device).to(dtype)
    shard = values[: count // group.ranks].clone()
    received = torch.empty_like(values)
    # torch 2.13 has new names for both.
    gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
    scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)
    runs: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: distributed.all_reduce(values),
        "all_gather": lambda: gather(received, shard),
        "reduce_scatter": lambda: scatter(shard, values),
        "all_to_all": lambda: distributed.all_to_all_single(received, values),
        "send_recv": (
            (lambda: distributed.send(values, 1)) if rank == 0 else (lambda: distributed.recv(received, 0))
        ),
    }
    return runs[name]


def _seconds(torch: Any, distributed: Any, run: Callable[[], Any], device: str) -> float:
    """The mean of runs that are issued together; on a CPU, where each ends before the next, their median."""
    for _ in range(WARM_UP):
        run()
    distributed.barrier()
    if device == "cpu":
        return statistics.median(_once_s(run) for _ in range(REPEATS))
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(REPEATS):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / REPEATS


def _once_s(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
