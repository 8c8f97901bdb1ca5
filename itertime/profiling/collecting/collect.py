"""`itertime profile collect`: every case of a grid timed, into one table."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from itertime.errors import UnknownName, UserError
from itertime.io import write_bytes

from .bench import Bench, Unsupported, bench_on
from .cases import COLUMNS, GRIDS, KernelCase, bytes_in_32_bit, cases_of
from .collectives import RankGroup, collective_cases, collective_times, rank_counts
from .company import Company
from .journal import Journal
from .model_cases import ModelGrid
from .power import Meter, Reading, meter_of
from .timing import Pace, Timing, heat, timed

LEFT_OUT = "left out"
HEAT_S = 10.0
NO_MEMORY = "not enough memory"
ONE_GPU = "collectives need several GPUs"
COMPILED = "compiled"


def collect(
    device: str,
    grid: str | ModelGrid,
    pace: Pace,
    output: Path,
    processes: int = 1,
    ranks: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Time every case of a grid and write the table. Returns the numbers of rows with and without a time.

    With `processes` > 1 so many run each kernel of a `ModelGrid` at a time, on cores of a CPU. Collectives
    are timed among `ranks` processes; None: among 2, 4, 8 ... of several GPUs, and not on a CPU. What is
    measured stays in a journal until the table is complete; the same call goes on with it.

    Raises `UserError` if torch or the device is missing, for an unknown grid, for a model without a grid of
    its own, for a file that cannot be written, for a journal of another measurement, and for `processes`
    that cannot run. A case that the device cannot run, or that runs out of memory, is a row without a time,
    in the table "left out", with the reason.
    """
    if isinstance(grid, str) and grid not in GRIDS:
        raise UnknownName("grid", grid, GRIDS)
    if not output.name.endswith((".csv", ".csv.gz")):
        raise UserError(f"-o {output}: must end in .csv or .csv.gz")
    _check_processes(processes, device, grid, pace)
    bench = bench_on(device)
    meter, reason = meter_of(bench.address) if bench.on_gpu else (None, "a CPU has none")
    print(f"{bench.name}: {_metered(meter, reason)}", file=sys.stderr)
    cases = grid.cases() if isinstance(grid, ModelGrid) else _once_each(cases_of(GRIDS[grid]))
    about = {"gpu": bench.name, "source": bench.source, "grid": grid, **asdict(pace)}
    if isinstance(grid, ModelGrid):
        about["grid"] = [model.name for model in grid.models]
    if processes > 1:
        about["processes"] = processes
    with Journal(output, about) as journal:
        places = [place for place, case in enumerate(cases) if Journal.key(case.columns) not in journal.rows]
        company: Any = contextlib.nullcontext()
        if processes > 1 and isinstance(grid, ModelGrid):
            company = Company(processes - 1, device, grid, pace, places)
        with company as companions:
            _time_all(bench, cases, places, pace, meter, journal, companions)
        _collectives(bench, journal, ranks)
        rows = [row | {"processes": processes} for row in journal.rows.values()]
        _write(rows, output)
        journal.remove()
    missing = sum(row["table"] == LEFT_OUT for row in rows)
    return len(rows) - missing, missing


def _once_each(cases: Iterable[KernelCase]) -> list[KernelCase]:
    return list({Journal.key(case.columns): case for case in cases}.values())


def _check_processes(processes: int, device: str, grid: str | ModelGrid, pace: Pace) -> None:
    """Raises UserError for processes that cannot run each kernel at a time."""
    cores = os.cpu_count() or 1
    broken = {
        "GPUs do not share what slows cores of a CPU; take --device cpu": device != "cpu",
        "kernels in company are those of a model; add --for": isinstance(grid, str),
        "single runs do not meet; leave --burst out": pace.seconds is None,
        f"this machine has {cores} cores": processes > cores,
    }
    reasons = [reason for reason, holds in broken.items() if holds]
    if processes > 1 and reasons:
        raise UserError(f"--processes {processes}: {'; '.join(reasons)}")


def _metered(meter: Meter | None, reason: str) -> str:
    if meter is None:
        return f"power, clocks and temperature are not recorded: {reason}"
    now = meter.read()
    values = [f"{name} {value:g}" for name, value in asdict(now).items() if value is not None]
    return f"recorded through {meter.name}: {', '.join(values)}"


def _time_all(
    bench: Bench,
    cases: list[KernelCase],
    places: list[int],
    pace: Pace,
    meter: Meter | None,
    journal: Journal,
    company: Company | None = None,
) -> None:
    """Time the cases at `places`, those that the journal lacks."""
    open_cases = [cases[place] for place in places]
    case_s = pace.warm_up_s + pace.seconds if pace.seconds is not None else 0.0
    duration = f", at most {len(open_cases) * case_s / 60:.0f} min and the time to compile" if case_s else ""
    print(
        f"{len(open_cases)} of {len(cases)} kernels to time{duration}; repeat the command to go on",
        file=sys.stderr,
    )
    if pace.seconds is not None and open_cases:
        heat(bench, HEAT_S)
    for place, case in enumerate(open_cases, 1):
        if company is not None:
            company.meet()
        row = _row(bench, case, pace, meter)
        if row["table"] == LEFT_OUT:
            sizes = {name: value for name, value in case.columns.items() if value != ""}
            print(f"left out, {row['note']}: {sizes}", file=sys.stderr)
        journal.add(case.columns, row)
        if place % 100 == 0:
            print(f"{place} of {len(open_cases)}", file=sys.stderr)


def _row(bench: Bench, case: KernelCase, pace: Pace, meter: Meter | None) -> dict[str, Any]:
    origin = {"dtype": bench.dtype_name, "gpu": bench.name, "source": bench.source}
    row = origin | case.columns
    if not bench.on_gpu and row["table"] == "elementwise":
        row["bytes"] = bytes_in_32_bit(row)
    if case.columns.get("impl") == COMPILED:
        _forget_compiled(bench)
    try:
        timing = timed(bench, case.prepare, pace, meter)
    except Unsupported as error:
        return _left_out(row, str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error).lower():
            raise
        bench.forget()
        return _left_out(row, NO_MEMORY)
    return row | _measured(timing)


def _forget_compiled(bench: Bench) -> None:
    """Compile anew: torch runs a function eagerly, in silence, after eight shapes."""
    reset = getattr(getattr(bench.torch, "compiler", None), "reset", None)
    if reset is not None:
        reset()


def _measured(timing: Timing) -> dict[str, Any]:
    columns = {name: value for name, value in asdict(timing.reading).items() if value is not None}
    return columns | {
        "time_us": f"{timing.run_s * 1e6:.3f}",
        "mode": timing.mode,
        "repeats": timing.runs,
        "seconds": f"{timing.measured_s:.4g}",
    }


def _left_out(row: dict[str, Any], reason: str) -> dict[str, Any]:
    return row | {"table": LEFT_OUT, "note": f"{row['table']}: {reason}"}


def _collectives(bench: Bench, journal: Journal, ranks: Sequence[int] | None) -> None:
    """Time the collectives that the journal lacks; without any, a row that says that there are none."""
    origin = {"dtype": bench.dtype_name, "gpu": bench.name, "source": bench.source}
    counts = rank_counts(bench) if ranks is None else list(ranks)
    library = "nccl" if bench.on_gpu else "gloo"
    if not counts:
        columns = {"table": "collective", "op": "all"}
        if Journal.key(columns) not in journal.rows:
            journal.add(columns, _left_out(origin | columns, ONE_GPU))
            print(f"left out, {ONE_GPU}", file=sys.stderr)
    for count in counts:
        cases = [case for case in collective_cases(count, library) if Journal.key(case) not in journal.rows]
        for case, result in collective_times(RankGroup(count, bench.device, library), cases) if cases else ():
            row = origin | case
            if isinstance(result, float):
                journal.add(case, row | _measured(Timing(result, 20, 20 * result, "burst", Reading())))
            else:
                journal.add(case, _left_out(row, result))


def _write(rows: list[dict[str, Any]], output: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    write_bytes(output, gzip.compress(content, mtime=0) if output.suffix == ".gz" else content)
