"""What a recorded run says of the simulator, and repeated runs of each other.

All but the score of repeats comes from the commands of the page on backtests: `clustersim site slurm` and
`clustersim backtest`. A run that Slurm repeats is scored as a simulation is: the log of one run, the waits of
the other.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from clustersim.backtest import score_of_waits
from clustersim.cli import main as clustersim
from itertime.errors import UserError

from .recorded import read_run
from .steps import step_check

__all__ = ["Measures", "measured", "repeat_score", "waits_of"]

LOG = "sacct-duplicates.txt"
STEP_NODES = 16  # of the runs that `steps` reads
SITE_FILES = {
    "--config": "config.txt",
    "--nodes": "nodes.txt",
    "--partitions": "partitions.txt",
    "--qos": "qos.txt",
    "--assoc": "assoc.txt",
    "--reservations": "reservation.txt",
}


@dataclass(frozen=True)
class Measures:
    """A recorded run, as a row of runs.csv.

    | field | |
    |---|---|
    | `workload`, `repeat` | the workload, and which of its runs |
    | `jobs`, `runs` | jobs that started, and their runs: more, where jobs were preempted |
    | `wait_s` | the logged mean wait |
    | `slurm`, `slurm_least`, `slurm_most` | scores of the policy `slurm`: median and range of its phases |
    | `easy` | the score of `easy` on the same nodes |
    | `again` | the median score of the workload's other runs as simulations of this one; None without any |
    | `places`, `plans`, `priorities` | shares of the controller's steps that `steps` meets, for 16 nodes |
    | `load`, `wall_s` | the load of the machine as the run began, and how long it took |
    | `version` | of Slurm |
    """

    workload: str
    repeat: int
    jobs: int
    runs: int
    wait_s: float
    slurm: float | None
    slurm_least: float | None
    slurm_most: float | None
    easy: float | None
    again: float | None
    places: float | None
    plans: float | None
    priorities: float | None
    load: float
    wall_s: float
    version: str


def measured(folder: Path, repeats: Sequence[Path]) -> Measures:
    """The measures of the recorded run in a folder. `repeats`: the folders of its repeats."""
    notes = json.loads((folder / "notes.json").read_text(encoding="utf-8"))
    files = {option: folder / name for option, name in SITE_FILES.items() if (folder / name).exists()}
    site = str(folder / "site.yaml")
    _call("site", "slurm", *(str(word) for pair in files.items() for word in pair), "-o", site)
    log = str(folder / LOG)
    ours = json.loads(_call("backtest", log, "--site", site, "--policy", "slurm", "--json"))
    easy = json.loads(_call("backtest", log, "--site", site, "--policy", "easy", "--json"))
    scores = ours.get("phases", {}).get("scores", [])
    logged = waits_of(folder / LOG)
    repeat_scores = [
        score for repeat in repeats if (score := repeat_score(logged, waits_of(repeat / LOG))) is not None
    ]
    rows = _rows(folder / LOG)
    steps = _step_shares(folder)
    return Measures(
        workload=folder.parent.name,
        repeat=int(folder.name),
        jobs=len(logged),
        runs=sum(_is_run(row) for row in rows),
        wait_s=round(fmean(logged.values()), 2),
        slurm=_rounded(ours["parts"]["all"]["score"]),
        slurm_least=_rounded(min(scores, default=None)),
        slurm_most=_rounded(max(scores, default=None)),
        easy=_rounded(easy["parts"]["all"]["score"]),
        again=_rounded(median(repeat_scores)) if repeat_scores else None,
        places=steps.get("places"),
        plans=steps.get("plans"),
        priorities=steps.get("priorities"),
        load=round(notes["load_first"], 1),
        wall_s=notes["wall_s"],
        version=notes["version"],
    )


def _step_shares(folder: Path) -> dict[str, float]:
    """By kind of step, the share on which the rules and the controller's log agree."""
    if json.loads((folder / "workload.json").read_text(encoding="utf-8"))["nodes"] != STEP_NODES:
        return {}
    shares = step_check(read_run(folder)).shares()
    return {kind: round(share, 3) for kind, (share, count) in shares.items() if count}


def waits_of(path: Path) -> dict[str, float]:
    """Seconds from eligible to the first start of each job that started, by its name and task of an array."""
    waits: dict[str, float] = {}
    for row in _rows(path):
        name = row["JobName"] + "_" + row["JobID"].partition("_")[2]
        if _is_run(row) and name not in waits:
            span = datetime.fromisoformat(row["Start"]) - datetime.fromisoformat(row["Eligible"])
            waits[name] = max(0.0, span.total_seconds())
    return waits


def repeat_score(logged: Mapping[str, float], repeated: Mapping[str, float]) -> float | None:
    """The score of a backtest, with a repeated run as the simulation; None without common jobs."""
    names = sorted(logged.keys() & repeated.keys())
    if not names:
        return None
    return score_of_waits(*(np.array([waits[name] for name in names]) for waits in (logged, repeated)))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="|"))


def _is_run(row: Mapping[str, str]) -> bool:
    return row["Start"] not in ("Unknown", "None", "") and row["NodeList"] != "None assigned"


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 3)


def _call(*words: str) -> str:
    """What a command of clustersim prints. UserError if it fails."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(errors):
        code = clustersim(list(words))
    if code:
        raise UserError(f"clustersim {' '.join(words)}: {errors.getvalue().strip()}")
    return printed.getvalue()
