"""Computes the steps to convergence by optimizer and global batch, and the seconds before the first step,
from measured BERT trainings; run it with `--help` for its usage.

A log here is one system of one round, itself a median over its runs; measurements that were submitted again
count once. What ships is medians and ranges over logs.

Steps: by update rule and global batch; LAMB and distributed LAMB are one rule. The range holds eight in ten
logs (quantiles 0.1 and 0.9). Batches with fewer than `FEWEST` logs have no such range of their own: the
quantiles of steps over the median of their batch, over all batches with enough logs, stand in.

Start-up: time before the first step that the clock of MLPerf counts, from `run_start`; building the model and
connecting ranks precede it (`init_s` of the logs), as MLPerf's rules have it (training_rules.adoc, "Timing").
By whether an iteration is one CUDA graph, and by GPUs. A row that says neither that nor how it makes
batches tells nothing about its launches, and is left out. A class with a single log goes with the one below.
A few starts are negative, since they are what is left of minutes after steps times their seconds; medians
ignore them.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from itertime.commandline import run_task
from itertime.errors import TableError, UserError, quoted
from itertime.io import open_table, write_text
from itertime.planning.convergence import CONVERGENCE, STARTUP, STEPS_SUFFIX

from .arguments import program_parser

__all__ = ["main", "start_up_table", "steps_table"]

PROGRAM = "python -m experiments.evidence.build_convergence"
EXAMPLE = f"""\
Example, which rewrites the shipped tables:

    {PROGRAM} ../shared/data/mlperf/bert_iterations.csv
"""
MODEL = "bert-large-wikipedia"
FEWEST = 5  # logs of a batch with its own range
FEWEST_STARTS = 2  # logs of a row of start-up
RANGE = (0.1, 0.5, 0.9)
GPUS_FROM = (1, 9, 65)  # a node, nodes of one or a few racks, beyond
COLUMNS = (
    *("id", "duplicate_of", "gpus", "global_batch", "work", "optimizer", "cuda_graph"),
    *("steps_to_converge", "startup_s", "source"),
)
Row = dict[str, str]
_NUMBERS: dict[str, tuple[Callable[[str], float], str]] = {
    "gpus": (int, "a whole number from 1"),
    "global_batch": (int, "a whole number from 1"),
    "steps_to_converge": (float, "a number above 0"),
    "startup_s": (float, "a number"),
}


def steps_table(rows: Iterable[Row]) -> list[list[str]]:
    """The lines of the table of steps below its header, by rule and batch."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        if row["optimizer"].startswith(("LAMB", "Adam")):
            rule = "lamb" if row["optimizer"].startswith("LAMB") else "adam"
            found[rule, int(row["global_batch"])].append(row)
    steps = {key: np.array([float(row["steps_to_converge"]) for row in each]) for key, each in found.items()}
    ratios = [each / np.median(each) for each in steps.values() if len(each) >= FEWEST]
    if not ratios:
        raise UserError(f"no global batch has {FEWEST} logs, so that no range of steps is known")
    low, _, high = np.quantile(np.concatenate(ratios), RANGE)
    table = []
    for (rule, batch), logs in sorted(found.items()):
        counts = steps[rule, batch]
        own = len(counts) >= FEWEST
        middle = float(np.median(counts))
        between = np.quantile(counts, RANGE) if own else (low * middle, middle, high * middle)
        numbers = [f"{number:.6g}" for number in between]
        table.append([rule, str(batch), str(len(logs)), *_origin(logs), *numbers, "yes" if own else "no"])
    return table


def _origin(logs: Sequence[Row]) -> tuple[str, str]:
    """The rounds and the organisations of logs."""
    rounds = sorted({row["round"] for row in logs}, key=lambda name: [int(part) for part in name.split(".")])
    names = {row["organisation"].casefold(): row["organisation"] for row in reversed(logs)}
    span = rounds[0] if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    return span, "; ".join(names[key] for key in sorted(names))


def start_up_table(rows: Iterable[Row]) -> list[list[str]]:
    """The lines of the table of start-up below its header, with one graph an iteration or not, by GPUs."""
    found: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        graph = row["cuda_graph"] == "yes"
        if graph or row["work"] != "unknown":
            first = max(least for least in GPUS_FROM if least <= int(row["gpus"]))
            found["yes" if graph else "no", first].append(row)
    table = []
    for kind in ("no", "yes"):
        kept: list[tuple[int, list[Row]]] = []
        for first in GPUS_FROM:
            logs = found.get((kind, first), [])
            if kept and len(logs) < FEWEST_STARTS:
                kept[-1][1].extend(logs)
            else:
                kept.append((first, list(logs)))
        for first, logs in kept:
            seconds = [float(row["startup_s"]) for row in logs]
            numbers = [f"{max(each, 0.0):.4g}" for each in np.quantile(seconds, RANGE)]
            table.append([kind, str(first), str(len(logs)), *_origin(logs), *numbers])
    return table


def _rows(path: Path) -> list[Row]:
    """The rows that repeat no other, with round and organisation. TableError for another table."""
    with open_table(path) as table:
        missing = [name for name in COLUMNS if name not in table.columns]
        if missing:
            raise TableError(f"{path}:1: column {missing[0]} is missing; give the table of BERT iterations")
        rows = []
        for where, cells in table.rows:
            row = dict(zip(table.columns, cells, strict=False))
            if len(cells) != len(table.columns):
                raise TableError(f"{path}:{where}: {len(cells)} cells, {len(table.columns)} columns")
            source = re.match(r"\S*training_results_v([\d.]+)@\S+ ([^/]+)/", row["source"])
            if source is None:
                raise TableError(
                    f"{path}:{where}: source={quoted(row['source'])}: must be "
                    "REPOSITORY/training_results_vROUND@COMMIT ORGANISATION/..."
                )
            for name in _NUMBERS:
                _check_number(f"{path}:{where}", name, row[name])
            if not row["duplicate_of"]:
                rows.append(row | {"round": source[1], "organisation": source[2]})
    return rows


def _check_number(where: str, name: str, text: str) -> None:
    kind, rule = _NUMBERS[name]
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (rule != "a number" and number <= 0):
        raise TableError(f"{where}: {name}={quoted(text)}: must be {rule}")


def _write(path: Path, header: str, lines: Sequence[Sequence[str]], comment: str) -> None:
    text = "\n".join((comment, header, *(",".join(line) for line in lines)))
    write_text(path, text + "\n")


def _build(table: Path, folder: Path) -> None:
    rows = _rows(table)
    sha256 = hashlib.sha256(table.read_bytes()).hexdigest()
    comment = (
        f"# Medians and ranges over {len(rows)} result logs of MLPerf Training "
        "(mlcommons/training_results_*, Apache-2.0), BERT.\n"
        f"# Computed by {PROGRAM} from {table.name} with SHA-256 {sha256}."
    )
    header = "optimizer,global_batch,logs,rounds,organisations,steps_low,steps,steps_high,own_range"
    _write(folder / f"{MODEL}{STEPS_SUFFIX}", header, steps_table(rows), comment)
    header = "one_graph,gpus_from,logs,rounds,organisations,startup_low_s,startup_s,startup_high_s"
    _write(folder / STARTUP, header, start_up_table(rows), comment)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = program_parser(
        PROGRAM,
        "Compute steps to convergence and start-up from measured BERT trainings.",
        EXAMPLE,
    )
    parser.add_argument("table", type=Path, help="BERT iterations")
    parser.add_argument("-o", "--output", type=Path, default=CONVERGENCE, help="default: the shipped folder")
    options = parser.parse_args(arguments)
    return run_task(lambda: _build(options.table, options.output))


if __name__ == "__main__":
    sys.exit(main())
