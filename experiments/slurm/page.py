"""The page SLURM.md from the table of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from statistics import median

from .measures import Measures
from .tables import markdown_table
from .workloads import KINDS

__all__ = ["page"]


def page(template: str, rows: Sequence[Measures]) -> str:
    """SLURM.md, from a template with places for tables."""
    workloads = [list(runs) for _, runs in groupby(rows, key=lambda row: row.workload)]
    loads = [row.load for row in rows] or [0.0]
    return template.format(
        version=" and ".join(sorted({row.version.removeprefix("slurm-wlm ") for row in rows})) or "none",
        runs=len(rows),
        load=f"{min(loads):.0f} to {max(loads):.0f}",
        workloads=markdown_table(
            ["workload", "what it has", "nodes", "jobs", "runs of Slurm"], map(_workload_row, workloads)
        ),
        scores=markdown_table(
            ["workload", "logged mean wait, s", "Slurm again", "`slurm`", "its 16 phases", "`easy`"],
            map(_score_row, workloads),
        ),
        steps=markdown_table(
            ["workload", "nodes of a start", "planned starts within 2 s", "priorities"],
            (_step_row(runs) for runs in workloads if runs[0].places is not None),
        ),
    )


def _workload_row(runs: Sequence[Measures]) -> list[str]:
    kind = runs[0].workload.rpartition("-")[0]
    settings = KINDS[kind]
    return [kind, settings.about, str(settings.nodes), str(runs[0].jobs), str(len(runs))]


def _score_row(runs: Sequence[Measures]) -> list[str]:
    waits = [run.wait_s for run in runs]
    phases = [score for run in runs for score in (run.slurm_least, run.slurm_most) if score is not None]
    return [
        runs[0].workload.rpartition("-")[0],
        f"{min(waits):.1f}" if len(waits) == 1 else f"{min(waits):.1f} to {max(waits):.1f}",
        _median(runs, lambda run: run.again),
        _median(runs, lambda run: run.slurm),
        f"{min(phases):.2f} to {max(phases):.2f}" if phases else "-",
        _median(runs, lambda run: run.easy),
    ]


def _step_row(runs: Sequence[Measures]) -> list[str]:
    columns = ([run.places for run in runs], [run.plans for run in runs], [run.priorities for run in runs])
    values = ([share for share in column if share is not None] for column in columns)
    return [runs[0].workload.rpartition("-")[0], *(f"{median(s):.0%}" if s else "-" for s in values)]


def _median(runs: Sequence[Measures], value: Callable[[Measures], float | None]) -> str:
    values = [number for run in runs if (number := value(run)) is not None]
    return f"{median(values):.2f}" if values else "-"
