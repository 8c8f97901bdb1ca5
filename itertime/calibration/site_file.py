"""The system file of a calibrated site: written by `itertime calibrate`, read by `--system`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from itertime.arrays import Array
from itertime.io import sha256, write_text
from itertime.spec import Site, System

from .calibrate import Calibration, FitErrors


def report(calibration: Calibration) -> dict[str, Any]:
    """The JSON document of `itertime calibrate`: constants, and absolute errors in percent."""
    names, time = [str(cells["id"]) for cells in calibration.runs.cells], calibration.time
    return {
        "runs": len(names),
        "skipped": [{"id": name, "why": reason} for name, reason in calibration.runs.skipped],
        "constants": calibration.constants,
        "fitted": calibration.fitted,
        "refused": calibration.refused,
        "measured_over_predicted": calibration.site.measured_over_predicted,
        "folds": calibration.folds,
        "seed": calibration.seed,
        **_errors(calibration.time),
        "left_out": {name: _summary(errors) for name, errors in calibration.left_out.items()},
        "memory": _errors(calibration.memory),
        "at_bound": calibration.at_bound,
        "does_not_fit": calibration.does_not_fit,
        "rows": [
            {"id": name, "in_sample_pct": float(fitted), "held_out_pct": float(unseen)}
            for name, fitted, unseen in zip(names, time.in_sample, time.held_out, strict=True)
        ],
    }


def write_site(calibration: Calibration, files: Sequence[str | Path], path: str | Path) -> System:
    """Write the YAML file of the runs' most common system with the site's constants; returns that system.

    Raises UserError if the file cannot be written.
    """
    counted = Counter(dataclasses.replace(run.system, name="site") for run in calibration.runs.runs)
    common = counted.most_common(1)[0][0]
    tables = ", ".join(_described(Path(file)) for file in files)
    system = dataclasses.replace(
        common,
        name=Path(path).stem,
        profile=calibration.runs.runs[0].profile.name,
        source=f"itertime calibrate on {len(calibration.runs)} runs of {tables}",
        site=calibration.site,
    )
    write_text(path, _yaml(system, _comments(calibration, len(counted))))
    return system


def _described(file: Path) -> str:
    """The name of a table, and the beginning of its hash if it is no pipe, which was read already."""
    return f"{file.name} (sha256 {sha256(file)[:16]})" if file.is_file() else file.name


def _comments(calibration: Calibration, systems: int) -> list[str]:
    held_out = f"{calibration.folds} folds, seed {calibration.seed}"
    time, memory = calibration.time, calibration.memory
    lines = [
        "Mean absolute error of the iteration time, percent: "
        f"neutral {_mape(time.neutral):.2f}, in sample {_mape(time.in_sample):.2f}, "
        f"held out {_mape(time.held_out):.2f} ({held_out})"
    ]
    for name, errors in calibration.left_out.items():
        lines.append(f"  leaving out one {name} at a time: {_mape(errors):.2f}")
    if memory is not None:
        lines.append(
            f"Of memory: in sample {_mape(memory.in_sample):.2f}, held out {_mape(memory.held_out):.2f}"
        )
    for kind in calibration.refused:
        lines.append(f"REFUSED: the constants of {kind} that fit best predict worse than the neutral ones;")
        lines.append(f"  this file leaves {kind} neutral. The model lacks something that the runs have.")
    for name in calibration.at_bound:
        lines.append(f"The fit of {name} ended at its bound: the model lacks something that the runs have.")
    if systems > 1:
        lines.append(f"The runs are of {systems} kinds of nodes and networks; this is the most common.")
    return lines


_BLANK = System(
    name="x",
    profile="x",
    gpus_per_node=1,
    nic_bytes_per_s=1.0,
    nvlink_bytes_per_s=1.0,
    source="x",
)
"""Any system in which the optional fields have their defaults."""


def _yaml(system: System, comments: Sequence[str]) -> str:
    import yaml

    content = _changed(system, _BLANK)
    content["site"] = _changed(system.site, Site())
    head = "".join(f"# {line}\n" for line in comments)
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)


def _changed(value: Any, neutral: Any) -> dict[str, Any]:
    """The fields that differ from the neutral ones, as plain values for YAML."""
    changes = {}
    for field in dataclasses.fields(value):
        content = getattr(value, field.name)
        if content != getattr(neutral, field.name) and field.name != "site":
            changes[field.name] = list(content) if isinstance(content, tuple) else content
    return changes


def _errors(fit: FitErrors | None) -> dict[str, dict[str, float] | None]:
    names = ("neutral", "in_sample", "held_out")
    return {name: None if fit is None else _summary(getattr(fit, name)) for name in names}


def _summary(errors: Array) -> dict[str, float]:
    absolute = np.abs(errors)
    return {
        "mape": float(absolute.mean()),
        "median_ape": float(np.median(absolute)),
        "p95_ape": float(np.percentile(absolute, 95)),
        "bias": float(errors.mean()),
    }


def _mape(errors: Array) -> float:
    return float(np.abs(errors).mean())
