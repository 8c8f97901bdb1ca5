"""Rewrite docs/h100.md: errors of the runs of `h100_ultrascale`, by cause (needs the extra `docs`).

python docs/h100.py [FOLDER]    FOLDER holds the iteration tables; ../shared/data/iterations if left out

The text comes from docs/h100.template.md. All fits use the runs on 8, 32 and 128 GPUs; the others, on 16, 64,
256 and 512, are reported beside them.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from accuracy import filled, mean, number, table, write_page
from h100_laws import FITTED_ON, Array, Columns, Laws, laws, sorted_by_kind

from itertime import Site, load_system
from itertime.calibration import calibrate
from itertime.calibration.calibrate import Calibration
from itertime.calibration.measured_run import MeasuredRun
from itertime.calibration.run_set import RunSet
from itertime.calibration.site_constants import constants_named, site_of
from itertime.calibration.site_fit import SiteFit
from itertime.calibration.table import read_table

NAME = "h100_ultrascale"
FITTED = {
    "launch_s": "+ launches as fitted",
    "all_reduce_multiplier": "+ collectives as fitted",
    "gemm_multiplier": "+ GEMMs as fitted",
}  # constants of the site, in the order in which they are added
CONSTANTS = tuple(FITTED)
TELLING = 1.5  # times the prediction: from here on a law differs visibly from the prediction

Change = Callable[[MeasuredRun, MeasuredRun], MeasuredRun]


def bare(run: MeasuredRun) -> MeasuredRun:
    """The run as its columns state it, without knowledge of its software and network."""
    model = replace(run.model, ffn_hidden=4 * run.model.hidden, tied_embeddings=False)
    split = "even" if model.layers % run.plan.pp == 0 else "balanced"
    plan = replace(run.plan, split=split, fp32_gradients=False, grad_overlap=False)
    return replace(run, model=model, plan=plan, system=load_system("dgx-h100"))


STEPS: dict[str, Change] = {
    "+ the models of nanotron's benchmarks": lambda state, run: replace(state, model=run.model),
    "+ pipelines split by arithmetic": lambda state, run: replace(
        state, plan=replace(state.plan, split=run.plan.split)
    ),
    "+ gradients summed in 32 bit": lambda state, run: replace(state, plan=run.plan),
    "+ hops of the network": lambda state, run: replace(state, system=run.system),
}


def predictions(runs: RunSet, fitted: Site) -> dict[str, Array]:
    """Seconds of every run; each step adds one fact to the model."""
    silent = Site(launch_s=0.0)
    states = [bare(run) for run in runs.runs]
    found = {"columns alone": RunSet(runs.cells, tuple(states), ()).evaluate(silent)[0]}
    for name, change in STEPS.items():
        states = [change(state, run) for state, run in zip(states, runs.runs, strict=True)]
        found[name] = RunSet(runs.cells, tuple(states), ()).evaluate(silent)[0]
    found["+ launches: nothing fitted"] = runs.evaluate(Site())[0]
    values: dict[str, float] = {}
    for name, step in FITTED.items():
        values[name] = getattr(fitted, name)
        found[step] = runs.evaluate(site_of(values))[0]
    return found


def fitted_site(runs: RunSet, rows: Array) -> Site:
    """Three constants, fitted to those of `rows` without a pipeline over nodes."""
    columns = Columns.of(runs)
    clean = np.flatnonzero(rows & ((columns.pp == 1) | (columns.gpus <= 8)))
    return site_of(SiteFit(runs).fit(constants_named(CONSTANTS), clean))


def ablation(found: dict[str, Array], columns: Columns, rows: Array) -> str:
    """Mean absolute error and bias, percent, by class of run."""
    lines = []
    for name, predicted in found.items():
        error = 100 * (predicted / columns.measured - 1)
        cells = []
        for members in columns.classes.values():
            chosen = error[members & rows]
            cells.append(f"{np.abs(chosen).mean():.1f} ({chosen.mean():+.0f})" if len(chosen) else "-")
        lines.append([name, *cells])
    counts = [f"{name}: {int((members & rows).sum())}" for name, members in columns.classes.items()]
    return table(["", *counts], lines)


def behaviour(kinds: dict[str, Array], columns: Columns, rows: Array) -> str:
    """The number of runs of pipelines over nodes, by kind."""
    chosen = {name: members & rows for name, members in sorted_by_kind(kinds, columns).items()}
    total = sum(int(members.sum()) for members in chosen.values())
    lines = [
        [name, str(int(members.sum())), number(100 * members.sum() / total)]
        for name, members in chosen.items()
    ]
    return table(["", "runs", "of all %"], lines)


def slow_sends_by(kinds: dict[str, Array], columns: Columns, memory: Array) -> str:
    """Where slow sends are frequent among pipelines over nodes."""
    found = sorted_by_kind(kinds, columns)
    slow, over = found["slow sends"] | found["slow layers and sends"], np.any(list(found.values()), axis=0)
    replicas = columns.gpus > columns.tp * columns.pp
    places = {
        "memory of 70 GB and more": memory >= 70e9,
        "less memory, several replicas, no ZeRO": (memory < 70e9) & replicas & (columns.zero == 0),
        "less memory, several replicas, ZeRO-1": (memory < 70e9) & replicas & (columns.zero == 1),
        "less memory, one replica": (memory < 70e9) & ~replicas,
    }
    places |= {f"{gpus} GPUs": columns.gpus == gpus for gpus in np.unique(columns.gpus[over])}
    lines = []
    for name, members in places.items():
        total, share = int((members & over).sum()), (slow & members).sum()
        lines.append([name, str(total), number(100 * share / total if total else None)])
    return table(["", "pipelines over nodes", "with slow sends %"], lines)


def obeying(law: Laws, predicted: Array, columns: Columns) -> str:
    """Runs with tp > 1 for which slow layers would make a difference, counted by measured speed."""
    least = law.least(columns)
    telling = (columns.tp > 1) & (least > TELLING * predicted)
    ratio = columns.measured / least
    alone, node = columns.pp == 1, columns.gpus <= 8
    kinds = {
        "on one node": node,
        "no pipeline, 16 to 256 GPUs": alone & ~node & (columns.gpus <= 256),
        "no pipeline, 512 GPUs": alone & (columns.gpus > 256),
        "pipeline over nodes": ~alone & ~node,
    }
    lines = []
    for name, members in kinds.items():
        chosen = ratio[members & telling]
        counts = [(chosen < 0.75), (chosen >= 0.75) & (chosen <= 1.25), (chosen > 1.25)]
        lines.append([name, str(len(chosen)), *(str(int(each.sum())) for each in counts)])
    return table(["", "runs", "faster than slow layers", "as slow, within 25 %", "slower"], lines)


def by_gpus(predicted: Array, columns: Columns) -> str:
    """Mean absolute error and bias, percent, of the runs without a pipeline over nodes, by GPU count."""
    error = 100 * (predicted / columns.measured - 1)
    names = list(columns.classes)[1:4]
    lines = []
    for gpus in np.unique(columns.gpus):
        cells = []
        for name in names:
            chosen = error[columns.classes[name] & (columns.gpus == gpus)]
            cells.append(f"{np.abs(chosen).mean():.1f} ({chosen.mean():+.0f})" if len(chosen) else "-")
        seen = "fitted" if gpus in FITTED_ON else "held out"
        lines.append([f"{gpus} GPUs, {seen}", *cells])
    return table(["", *names], lines)


def calibrated(path: Path, columns: Columns) -> str:
    """Results of `itertime calibrate` on all runs, and on those without a pipeline over nodes."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    clean = (columns.pp == 1) | (columns.gpus <= 8)
    lines = []
    with TemporaryDirectory() as folder:
        for name, kept, constants in (
            ("all runs", np.ones(len(rows), bool), None),
            ("no pipeline over nodes", clean, None),
            ("no pipeline over nodes", clean, CONSTANTS),
            ("... and tp <= 8", clean & (columns.tp <= 8), CONSTANTS),
        ):
            part = Path(folder) / "part.csv"
            with part.open("w", newline="") as file:
                csv.writer(file).writerows(
                    [header, *(row for row, keep in zip(rows, kept, strict=True) if keep)]
                )
            lines.append(_calibration(name, calibrate([part], constants)))
    header = ["", "runs", "neutral", "in sample", "10 folds", "one model out", "one GPU count out"]
    return table([*header, "constants"], lines)


def _calibration(name: str, result: Calibration) -> list[str]:
    unseen = [result.left_out[key] for key in ("model", "GPU count")]
    errors = [mean(each) for each in (result.neutral, result.in_sample, result.held_out, *unseen)]
    time = {key: value for key, value in result.fitted.items() if not key.startswith("memory")}
    told = ", ".join(f"{key} {value:.3g}" for key, value in time.items())
    return [name, str(len(result.runs)), *errors, told + ("; refused" if "time" in result.refused else "")]


def memory(runs: RunSet) -> str:
    """Errors of the memory of the fullest GPU, by measured size."""
    needed, measured = runs.evaluate(Site())[1], runs.measured_bytes
    error = 100 * (needed / measured - 1)
    too_large = needed > np.array([run.profile.memory_bytes for run in runs.runs])
    lines = []
    for low, high in itertools.pairwise((0, 10, 20, 40, 60, 80)):
        chosen = (measured >= low * 1e9) & (measured < high * 1e9)
        numbers = [np.abs(error[chosen]).mean(), np.median(error[chosen])]
        lines.append([f"{low} to {high} GB", str(int(chosen.sum())), *map(number, numbers)])
        lines[-1].append(str(int((too_large & chosen).sum())))
    return table(["measured", "runs", "mean error %", "median of the error %", "called too large"], lines)


def page(folder: Path) -> str:
    """The text of docs/h100.md."""
    path = folder / f"{NAME}.csv"
    runs = RunSet.of(read_table(path))
    columns = Columns.of(runs)
    site = fitted_site(runs, columns.fitted_on)
    found = predictions(runs, site)
    predicted = found["+ GEMMs as fitted"]
    law = laws(predicted, columns)
    found["+ slow layers, see below"] = law.slow_layers(predicted, columns)
    kinds = law.kinds(predicted, columns)
    constants = ", ".join(f"`{name}` {getattr(site, name):.3g}" for name in CONSTANTS)
    parts = {
        "ablation_fitted": ablation(found, columns, columns.fitted_on),
        "ablation_held_out": ablation(found, columns, ~columns.fitted_on),
        "constants": constants,
        "laws": f"{law.layer_s * 1e3:.1f} ms + tp x {law.rank_s * 1e3:.1f} ms",
        "send": f"{law.send_s:.2f} s",
        "behaviour_fitted": behaviour(kinds, columns, columns.fitted_on),
        "behaviour_held_out": behaviour(kinds, columns, ~columns.fitted_on),
        "obeying": obeying(law, predicted, columns),
        "slow_sends_by": slow_sends_by(kinds, columns, runs.measured_bytes),
        "by_gpus": by_gpus(predicted, columns),
        "memory": memory(runs),
        "calibrated": calibrated(path, columns),
    }
    return filled("h100", parts)


if __name__ == "__main__":
    write_page("h100", page, __doc__)
