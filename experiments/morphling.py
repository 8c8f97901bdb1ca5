"""Morphling's measured iterations on A800 beside predicted ones: plans and placements of one model.

    python -m experiments.morphling ../shared/data/clusters/morphling --out FOLDER

reads `placements_MODEL.csv` and writes `rows.csv` (every measured row with its prediction) and `summary.md`
(the tables of experiments/MORPHLING.md). `rows.csv` holds measurements of others and stays where it is.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from experiments.morphling_rows import DEGREES, KINDS, SYSTEM, TUNED, WORKLOADS, Row, fitted, read_rows
from experiments.output import make_folder
from itertime import load_system
from itertime.errors import UserError
from itertime.io import write_text

Array = NDArray[np.float64]
COLUMNS = ("model", "plan", "placement", "gpus", "measured_s", "predicted_s", "memory_gb", "even", "half")


def ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured seconds, in units of their median."""
    found = np.array([row.predicted_s / row.measured_s for row in rows])
    return np.asarray(found / np.median(found))


def spearman(rows: Sequence[Row]) -> float:
    """Rank correlation of predicted and measured seconds; nan for fewer than three rows."""
    if len(rows) < 3:
        return float("nan")
    ranks = [rankdata([getattr(row, name) for row in rows]) for name in ("measured_s", "predicted_s")]
    return float(np.corrcoef(*ranks)[0, 1])


def mape(found: Array) -> float:
    """Mean absolute difference from 1, percent."""
    return float(100 * np.abs(found - 1).mean())


def pairwise(rows: Sequence[Row]) -> float:
    """MAPE of the ratios of all ordered pairs of rows, percent."""
    found = ratios(rows)
    pairs = found[:, None] / found[None, :]
    return mape(pairs[~np.eye(len(found), dtype=bool)]) if len(found) > 1 else float("nan")


def same(rows: Iterable[Row], key: Callable[[Row], object]) -> list[list[Row]]:
    """Rows in groups of equal `key`, in the order of their first row."""
    groups = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def plan_ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured ratio of each plan to the first one of the same placement."""
    return _to_first(same(rows, lambda row: row.placement))


def placement_ratios(rows: Sequence[Row]) -> Array:
    """Predicted over measured ratio of each placement to the fullest nodes with the same plan and GPUs."""
    groups = same(rows, lambda row: (row.plan, row.gpus))
    return _to_first([sorted(group, key=lambda row: len(row.placement)) for group in groups])


def _to_first(groups: Sequence[Sequence[Row]]) -> Array:
    found = [
        (row.predicted_s / group[0].predicted_s) / (row.measured_s / group[0].measured_s)
        for group in groups
        for row in group[1:]
    ]
    return np.array(found)


def at_one_placement(rows: Sequence[Row]) -> float:
    """Mean rank correlation of the plans of a placement, over placements with at least four."""
    each = [spearman(group) for group in same(rows, lambda row: row.placement) if len(group) > 3]
    return float(np.mean(each)) if each else float("nan")


Line = tuple[str, Sequence[Row]]


def accuracy_table(lines: Sequence[Line]) -> str:
    """Errors of groups of rows, as a Markdown table."""
    text = [
        "| | rows | plans | placements | Spearman, all rows | at one placement | ratio to the median, MAPE % "
        "| pairs, MAPE % | plans at one placement, MAPE % | placements of one plan, MAPE % "
        "| predicted / measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in lines:
        level = np.median([row.predicted_s / row.measured_s for row in rows])
        cells = [len(rows), len({row.plan for row in rows}), len({row.placement for row in rows})]
        numbers = [
            _shown(spearman(rows), 3),
            _shown(at_one_placement(rows), 2),
            _shown(mape(ratios(rows)), 1),
        ]
        numbers += [_shown(pairwise(rows), 1)]
        numbers += [
            _shown(mape(each), 1) if len(each) else "" for each in (plan_ratios(rows), placement_ratios(rows))
        ]
        text.append(f"| {name} | {' | '.join(map(str, cells))} | {' | '.join(numbers)} | {level:.2f} |")
    return "\n".join(text) + "\n"


def _shown(number: float, digits: int) -> str:
    return "" if np.isnan(number) else f"{number:.{digits}f}"


def kinds_table(models: Sequence[Line]) -> str:
    """Median of predicted over measured seconds by model and kind of plan, as a Markdown table."""
    names = (*KINDS, DEGREES)
    text = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for model, rows in models:
        cells = []
        for name in names:
            found = [row.predicted_s / row.measured_s for row in rows if row.kind == name]
            cells.append(f"{np.median(found):.2f}" if found else "")
        text.append(f"| {model} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def hosts_table(models: Sequence[Line]) -> str:
    """How much longer the forward pass takes than under ZeRO-Offload, whose forward pass is the same, at the
    same placement of eight GPUs: medians over the plans that run on the GPU alone, as a Markdown table.
    """
    text = ["| | even GPUs on every node | an odd number on some | most |", "|---|---|---|---|"]
    for model, rows in models:
        base = {row.placement: row.forward for row in rows if row.kind == "zero-offload" and row.gpus == 8}
        both: dict[bool, list[float]] = {True: [], False: []}
        for row in rows:
            if row.kind in KINDS[:3] and base.get(row.placement):
                both[row.even].append(row.forward / base[row.placement])
        if both[True] and both[False]:
            medians = [f"{np.median(both[even]):.2f}" for even in (True, False)]
            text.append(f"| {model} | {' | '.join(medians)} | {max(both[False]):.1f} |")
    return "\n".join(text) + "\n"


def rows_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        head = (row.model, row.plan, row.placement, row.gpus)
        numbers = (f"{value:.6g}" for value in (row.measured_s, row.predicted_s, row.memory_bytes / 1e9))
        writer.writerow([*head, *numbers, int(row.even), int(row.half)])
    return text.getvalue()


def summary(models: dict[str, list[Row]], apart: dict[str, list[Row]]) -> str:
    """The tables of the page. `apart`: the models whose exchange overlaps, without overlap."""
    parts: list[Line] = list(models.items())
    clean: list[Line] = []
    for name, rows in parts:
        whole = [row for row in rows if not row.half]
        if len(whole) < len(rows):
            clean.append((f"{name}, full samples", whole))
        if name in ("vit", "t5"):
            clean.append((f"{name}, hosts not slow", _fast_hosts(rows)))
        if name == "llama7":
            clean.append((f"{name}, degrees", [row for row in rows if row.kind == DEGREES]))
        if name in apart:
            clean.append((f"{name}, no overlap", apart[name]))
            if name == "vit":
                clean.append((f"{name}, no overlap, hosts not slow", _fast_hosts(apart[name])))
    tables = [accuracy_table(parts), accuracy_table(clean), kinds_table(parts), hosts_table(parts)]
    return "\n".join(tables)


def _fast_hosts(rows: Sequence[Row]) -> list[Row]:
    """The rows with an even number of GPUs on every node, and those of ZeRO-Offload."""
    return [row for row in rows if row.even or row.plan == "zero-offload"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of placements_MODEL.csv")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    options = parser.parse_args(arguments)
    try:
        make_folder(options.out)
        system = load_system(SYSTEM)
        models, apart, left_out = {}, {}, []
        for name, workload in WORKLOADS.items():
            if (options.folder / f"placements_{name}.csv").is_file():
                models[name], without = read_rows(options.folder, name, system)
                left_out += without
                if workload.overlaps:
                    apart[name], _ = read_rows(options.folder, name, system, overlap=False)
        if not models:
            raise UserError(f"{options.folder}: has no placements_MODEL.csv of {', '.join(WORKLOADS)}")
        bare = replace(system, site=replace(system.site, cpu_adam_s=0.0, cpu_gradient_s=0.0))
        tuning = [row for name in TUNED if name in models for row in read_rows(options.folder, name, bare)[0]]
        if tuning:
            adam_s, gradient_s = fitted(tuning, bare)
            print(f"cpu_adam_s {adam_s:.3g}, cpu_gradient_s {gradient_s:.3g}\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for why in left_out:
        print(why, file=sys.stderr)
    text = summary(models, apart)
    write_text(options.out / "rows.csv", rows_csv([row for rows in models.values() for row in rows]))
    write_text(options.out / "summary.md", text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
