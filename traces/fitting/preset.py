"""From a log to a preset: the fit, its file, and how far what it generates is from the rest of the log."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from itertime.errors import UserError
from itertime.io import write_text
from traces.statistics import JobColumns, distances
from traces.synthetic import Preset, QuantileTable, Recipe, SizeClass, generate_stored

from .arrivals import fit_arrivals
from .owners import fit_owners, repeat_share
from .run_times import fit_sizes

__all__ = ["fit_preset", "held_out", "preset_text", "write_preset"]

_FEWEST_JOBS = 20


def fit_preset(columns: JobColumns, source: str) -> Preset:
    """The preset of a trace. Raises UserError for one with too few jobs of a run time, or without a span."""
    job_count = int((~np.isnan(columns.run_s) & ~np.isnan(columns.gpus)).sum())
    if job_count < _FEWEST_JOBS or not columns.span_s:
        found_text = f"{job_count} jobs with GPUs and run time, submitted over {columns.span_s:g} s"
        raise UserError(f"{found_text}: a preset needs {_FEWEST_JOBS} jobs, and submissions at several times")
    return Preset(
        source=source,
        sizes=fit_sizes(columns),
        arrivals=fit_arrivals(columns),
        tenants=fit_owners(columns),
        repeat_share=repeat_share(columns),
    )


def held_out(columns: JobColumns, folder: Path, share: float = 0.6, seed: int = 0) -> dict[str, Any]:
    """Fit the first part of a trace, generate as many jobs as the rest has, and compare both with the rest.

    `folder` is where the preset of the part lies for the moment. The result has the numbers of jobs, and by
    statistic the distance of the generated jobs to the rest (`distance`), of the first part to the rest
    (`first_to_rest`), and that between halves of the rest (`baseline`). Raises as `fit_preset`.
    """
    count = int(len(columns) * share)
    order = np.arange(len(columns))
    fitted_part, later_part = columns.where(order < count), columns.where(order >= count)
    path = folder / "first.preset.yaml"
    write_preset(fit_preset(fitted_part, "the first part of a log"), path)
    recipe = Recipe(
        jobs=len(later_part), rules="none", deadlines="none", load=None, preset=str(path), seed=seed
    )
    generated = JobColumns.of(generate_stored(recipe)[0], 0.0 if columns.zero_s is not None else None)
    baseline = {
        (distance["name"], distance["statistic"]): distance
        for distance in distances(later_part, fitted_part, seed)
    }
    return {
        "share": share,
        "seed": seed,
        "jobs": {"first": len(fitted_part), "rest": len(later_part)},
        "distances": [
            {**distance, "first_to_rest": baseline[key]["distance"]}
            for distance in distances(later_part, generated, seed)
            if (key := (distance["name"], distance["statistic"])) in baseline
        ],
    }


def write_preset(preset: Preset, path: Path, heading: str = "") -> None:
    """Write a preset file; `heading` becomes its first lines, as comments."""
    write_text(path, preset_text(preset, heading))


def preset_text(preset: Preset, heading: str = "") -> str:
    """A preset as YAML: one line a size."""
    rhythm = preset.arrivals
    lines = [*(f"# {line}" for line in heading.splitlines()), "source: >-"]
    lines += fill(preset.source, 118, initial_indent="  ", subsequent_indent="  ").splitlines()
    lines += [f"repeat_share: {preset.repeat_share:g}"] if preset.repeat_share else []
    if preset.tenants is not None:
        owners = preset.tenants
        owners_text = f"count: {owners.count}, exponent: {owners.exponent:g}, shift: {owners.shift:g}"
        lines.append(f"tenants: {{{owners_text}}}")
    lines += [
        "arrivals:",
        f"  jobs_per_day: {rhythm.jobs_per_day:g}",
        f"  gaps: {{points: {_pairs(rhythm.gaps)}}}",
    ]
    for name in ("zero_share", "gap_correlation", "day_sigma", "day_correlation"):
        lines += [f"  {name}: {getattr(rhythm, name):g}"] if getattr(rhythm, name) else []
    for name in ("hours", "weekdays"):
        if rates := getattr(rhythm, name):
            lines.append(f"  {name}: [{', '.join(f'{rate:g}' for rate in rates)}]")
    return "\n".join([*lines, "sizes:", *(_size(size) for size in preset.sizes)]) + "\n"


def _size(size: SizeClass) -> str:
    assert size.quantiles is not None
    table = _pairs(QuantileTable(size.quantiles.table))
    return f"  - {{gpus: {size.gpus}, share: {size.share:g}, quantiles: {{table: {table}}}}}"


def _pairs(table: QuantileTable) -> str:
    return f"[{', '.join(f'[{share:g}, {value:g}]' for share, value in table.points)}]"
