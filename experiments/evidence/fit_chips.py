"""What chips that only data sheets describe reach of their peak: fitted to measured iterations, and scored on
models that the fit has not seen; run it with `--help` for its usage.

One constant a chip, `efficiency` of `ChipSheet`, is fitted to its measured iterations: each model counts
the same, and the sum of absolute logarithms of predicted over measured seconds is least. The constant
`expert_efficiency` is one for all chips of a class, from those with mixtures. A class has the geometric mean
of its chips; the class of GPUs counts the measured NVIDIA chips too, one a generation, by what their profiles
reach.

Errors are given as fitted, with the model of each row left out of everything, and for a chip by its class:
with all of its own rows left out. Ranges are those of a run of another model on the chip, or on another chip
of the class. The deviations between models of a chip, and between chips of a class, are pooled over all
chips and classes, because each has few (Student's t with the pooled degrees of freedom).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from experiments.profiles.by_sheet import SAME_DIE, SHEETS
from itertime.accuracy import CHIPS_TABLE
from itertime.calibration import MeasuredRun, RunSet, read_table
from itertime.commandline import run_task
from itertime.errors import UserError
from itertime.io import write_text
from itertime.profiling import ChipSheet, profile_by_sheet, reached_share, read_sheet
from itertime.spec import Site, load_profile

from .arguments import tables_parser

__all__ = ["ChipRuns", "chip_document", "chip_runs", "main", "report"]

PROGRAM = "python -m experiments.evidence.fit_chips"
EXAMPLE = f"""\
Example, which rewrites the shipped figures:

    cd ../shared/data
    {PROGRAM} iterations_2026/other_accelerators.csv iterations_2026/mlperf5[01]_lora.csv
"""
LEVEL = 0.9
EFFICIENCIES = np.geomspace(0.2, 1.0, 17)
EXPERTS = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MEASURED = {"gpu": ("a100-80gb", "h100-80gb", "b200-180gb")}
"""Profiles that stand for their generations in the class of GPUs."""
Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class ChipRuns:
    """Measured runs on one chip: `logs` of predicted over measured seconds by model, run, efficiency and
    expert efficiency, (runs, efficiencies, experts); `models` and `mixtures` by run.
    """

    name: str
    chip_class: str
    models: tuple[str, ...]
    mixtures: tuple[bool, ...]
    logs: Array

    def without(self, model: str) -> ChipRuns:
        """The runs of all other models."""
        return self._of([name != model for name in self.models])

    def of(self, model: str) -> ChipRuns:
        """The runs of one model."""
        return self._of([name == model for name in self.models])

    def by_kind(self, mixtures: bool) -> ChipRuns:
        """The runs of mixtures, or those of dense models."""
        return self._of([mixture is mixtures for mixture in self.mixtures])

    def _of(self, rows: list[bool]) -> ChipRuns:
        index = np.flatnonzero(rows)
        return ChipRuns(
            self.name,
            self.chip_class,
            tuple(self.models[row] for row in index),
            tuple(self.mixtures[row] for row in index),
            self.logs[index],
        )

    def at(self, efficiency: float, experts: float) -> Array:
        """Logarithms of predicted over measured seconds of every run."""
        column = self.logs[:, :, EXPERTS.index(experts)]
        grid = np.log(EFFICIENCIES)
        return np.array([np.interp(math.log(efficiency), grid, row) for row in column])

    def loss(self, efficiency: float, experts: float) -> float:
        """The sum over models of their mean absolute logarithm."""
        logs = np.abs(self.at(efficiency, experts))
        names = np.array(self.models)
        return float(sum(logs[names == model].mean() for model in set(self.models)))

    def best(self, experts: float) -> float:
        """The efficiency of least loss."""
        grid = np.exp(np.linspace(math.log(EFFICIENCIES[0]), math.log(EFFICIENCIES[-1]), 161))
        return float(min(grid, key=lambda efficiency: self.loss(efficiency, experts)))


def chip_runs(files: Sequence[str | Path]) -> list[ChipRuns]:
    """The measured runs of every chip with a sheet. Raises TableError for a malformed file."""
    tables = [RunSet.of(read_table(path)) for path in files]
    runs = []
    for path in sorted(SHEETS.glob("*.yaml")):
        name, (sheet, _) = path.stem, read_sheet(path)
        parts = [table.only(functools.partial(_is_on, name)) for table in tables]
        parts = [part for part in parts if len(part)]
        if parts and not sheet.die:
            runs.append(_runs_of(name, sheet, parts))
    return runs


def _is_on(name: str, run: MeasuredRun) -> bool:
    return run.profile.name == name


def _runs_of(name: str, sheet: ChipSheet, parts: list[RunSet]) -> ChipRuns:
    """The runs of one chip, predicted at every pair of efficiencies."""
    models = [_model_name(cells) for part in parts for cells in part.cells]
    mixtures = [run.model.experts > 1 for part in parts for run in part.runs]
    logs = np.zeros((len(models), len(EFFICIENCIES), len(EXPERTS)))
    for column, experts in enumerate(EXPERTS):
        if column and not any(mixtures):
            logs[:, :, column] = logs[:, :, 0]
            continue
        for row, efficiency in enumerate(EFFICIENCIES.tolist()):
            fitted_sheet = dataclasses.replace(sheet, efficiency=efficiency, expert_efficiency=experts)
            logs[:, row, column] = np.concatenate(
                [_logs(part, profile_by_sheet(name, fitted_sheet)) for part in parts]
            )
    return ChipRuns(name, sheet.chip_class, tuple(models), tuple(mixtures), logs)


def _model_name(cells: Mapping[str, Any]) -> str:
    """The model of a row, under one name in all tables."""
    spec = cells.get("spec")
    name = spec.name if spec is not None else cells["model"]
    return str(name).removesuffix("-lora")


def _logs(runs: RunSet, profile: Any) -> Array:
    """Logarithms of predicted over measured seconds with another profile; infinite where the profile would
    beat its peak.
    """
    scaled_runs = tuple(dataclasses.replace(run, profile=profile) for run in runs.runs)
    try:
        seconds = RunSet(runs.cells, scaled_runs, ()).evaluate(Site())[0]
    except UserError:
        return np.concatenate([_logs_of_one(runs, row, profile) for row in range(len(runs))])
    return np.asarray(np.log(seconds / runs.measured_s))


def _logs_of_one(runs: RunSet, row: int, profile: Any) -> Array:
    run = dataclasses.replace(runs.runs[row], profile=profile)
    try:
        seconds = RunSet((runs.cells[row],), (run,), ()).evaluate(Site())[0]
    except UserError:
        return np.array([np.log(1e-3)])
    return np.asarray(np.log(seconds / runs.measured_s[row]))


class Fit:
    """Efficiencies of chips and classes, fitted to runs."""

    def __init__(self, runs: Iterable[ChipRuns]):
        self.runs = {chip.name: chip for chip in runs if chip.models}

    @cached_property
    def experts(self) -> dict[str, float]:
        """The expert efficiency of every class: the geometric mean of 1, which is assumed, and of what each
        chip with mixtures and dense models asks for; the nearest of `EXPERTS`.
        """
        by_class = {}
        for chip_class in sorted({chip.chip_class for chip in self.runs.values()}):
            values = [1.0]
            for chip in self.runs.values():
                dense, mixed = chip.by_kind(mixtures=False), chip.by_kind(mixtures=True)
                if chip.chip_class == chip_class and dense.models and mixed.models:
                    efficiency = dense.best(1.0)
                    values.append(min(EXPERTS, key=lambda value: mixed.loss(efficiency, value)))
            mean = float(np.mean(np.log(values)))
            by_class[chip_class] = min(EXPERTS, key=lambda value: abs(math.log(value) - mean))
        return by_class

    def experts_of(self, chip_class: str) -> float:
        return self.experts.get(chip_class, 1.0)

    @cached_property
    def chips(self) -> dict[str, float]:
        """The efficiency of every chip."""
        return {name: chip.best(self.experts_of(chip.chip_class)) for name, chip in self.runs.items()}

    def members(self, chip_class: str) -> dict[str, float]:
        """Efficiencies of the chips of a class, measured profiles included; chips of one die count once."""
        fitted = {
            name: efficiency
            for name, efficiency in self.chips.items()
            if self.runs[name].chip_class == chip_class and name not in SAME_DIE
        }
        return fitted | {name: reached_share(load_profile(name)) for name in MEASURED.get(chip_class, ())}

    def of_class(self, chip_class: str, without: str = "") -> float:
        """The geometric mean of a class, without a chip and others of its die."""
        members = self.members(chip_class)
        left_out = SAME_DIE.get(without, without)
        values = [value for name, value in members.items() if name != left_out]
        return float(np.exp(np.mean(np.log(values or list(members.values())))))


def _left_out(runs: Sequence[ChipRuns], chip: ChipRuns) -> Array:
    """Logarithms of the runs of a chip, each predicted without its model on any chip; of a chip with one
    model by the chips of its class.
    """
    logs = np.zeros(len(chip.models))
    for model in set(chip.models):
        fit = Fit(other.without(model) for other in runs)
        alone = set(chip.models) == {model}
        efficiency = fit.of_class(chip.chip_class, chip.name) if alone else fit.chips[chip.name]
        index = [row for row, name in enumerate(chip.models) if name == model]
        logs[index] = chip.of(model).at(efficiency, fit.experts_of(chip.chip_class))
    return logs


def _pooled(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation about the means of groups, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for group in groups:
        values = np.array(group)
        squares += float(((values - values.mean()) ** 2).sum())
        freedom += len(values) - 1
    return (math.sqrt(squares / freedom) if freedom else 0.0), freedom


def _range(between: tuple[float, int], members: int, within: float, mean: float = 0.0) -> list[float]:
    """The range of measured over predicted seconds of a run of another member."""
    sd, freedom = between
    width = stats.t.ppf((1 + LEVEL) / 2, max(freedom, 1)) * math.hypot(
        sd * math.sqrt(1 + 1 / members), within
    )
    return [round(math.exp(mean - width), 4), round(math.exp(mean + width), 4)]


def chip_document(runs: Sequence[ChipRuns]) -> dict[str, Any]:
    """The document of efficiencies and ranges."""
    fit = Fit(runs)
    by_model = {
        chip.name: {
            model: fit.runs[chip.name].of(model).at(fit.chips[chip.name], fit.experts_of(chip.chip_class))
            for model in sorted(set(chip.models))
        }
        for chip in runs
    }
    within, _ = _pooled(logs.tolist() for models in by_model.values() for logs in models.values())
    models_apart = _pooled([float(logs.mean()) for logs in models.values()] for models in by_model.values())
    classes = sorted({chip.chip_class for chip in runs})
    chips_apart = _pooled([math.log(value) for value in fit.members(name).values()] for name in classes)
    return {
        "level": LEVEL,
        "classes": {
            name: {
                "efficiency": round(fit.of_class(name), 3),
                "expert_efficiency": fit.experts_of(name),
                "range": _range(chips_apart, len(fit.members(name)), math.hypot(within, models_apart[0])),
                "chips": len(fit.members(name)),
                "rows": sum(len(chip.models) for chip in runs if chip.chip_class == name),
            }
            for name in classes
        },
        "chips": {
            chip.name: {
                "efficiency": round(fit.chips[chip.name], 3),
                "expert_efficiency": fit.experts_of(chip.chip_class),
                "range": _range(models_apart, len(set(chip.models)), within),
                "models": len(set(chip.models)),
                "rows": len(chip.models),
            }
            for chip in runs
        },
    }


def report(runs: Sequence[ChipRuns]) -> str:
    """Errors in percent by chip and family: as fitted, with the model left out, and by the class alone."""
    fit = Fit(runs)
    tables: dict[str, list[Array]] = {}
    for chip in runs:
        experts = fit.experts_of(chip.chip_class)
        columns = (
            chip.at(fit.chips[chip.name], experts),
            _left_out(runs, chip),
            chip.at(fit.of_class(chip.chip_class, chip.name), experts),
        )
        for family in (chip.name, f"all {_family(chip.name)}"):
            tables.setdefault(family, []).append(np.abs(np.exp(np.array(columns)) - 1) * 100)
    heads = (
        ("rows", 5),
        ("models", 8),
        ("efficiency", 12),
        ("fitted", 8),
        ("model out", 11),
        ("chip out", 10),
    )
    lines = [" " * 16 + "".join(f"{head:>{width}}" for head, width in heads)]
    for family, parts in sorted(tables.items()):
        table = np.concatenate(parts, axis=1)
        models = efficiency = ""
        if family in fit.runs:
            models, efficiency = str(len(set(fit.runs[family].models))), f"{fit.chips[family]:.3f}"
        cells = (table.shape[1], models, efficiency, *(f"{error:.1f}" for error in table.mean(axis=1)))
        lines.append(f"{family:<14}" + "".join(f"{cell:>12}" for cell in cells))
    for name, experts in fit.experts.items():
        lines.append(f"class {name}: {fit.of_class(name):.3f}, experts {experts:g}")
    return "\n".join(lines)


def _family(name: str) -> str:
    """The maker of a chip, as tables of errors group them."""
    makers = {"mi": "AMD", "tpu": "TPU", "trn": "Trainium"}
    return next((maker for start, maker in makers.items() if name.startswith(start)), "others")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns its exit code."""
    parser = tables_parser(
        PROGRAM, "Fit what chips by data sheets reach of their peak, and print errors.", EXAMPLE
    )
    parser.add_argument("-o", "--output", type=Path, default=CHIPS_TABLE, help="default: the shipped table")
    options = parser.parse_args(arguments)
    return run_task(lambda: _write(options.files, options.output))


def _write(files: Sequence[Path], output: Path) -> None:
    runs = chip_runs(files)
    print(report(runs))
    write_text(output, json.dumps(chip_document(runs), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
