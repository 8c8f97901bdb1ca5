"""Predicted against measured: predictions for the rows of tables of measured runs, and their errors."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from itertime.accuracy import interval_s
from itertime.costs import OVERHEADS
from itertime.errors import UnknownName, UserError
from itertime.io import with_guard, write_text
from itertime.prediction import Prediction, predict
from itertime.spec import DEFAULT_RULES, RULES, Plan, Site, refusals

from .bert_run import stated_precision
from .conventions import source_of, stated_gb
from .measured_run import MeasuredRun
from .run_set import expressed
from .table import BERT, Cells, read_table

GROUPINGS = ("framework", "precision", "gpu", "source", "batching")
"""What `summary` can group rows by."""


@dataclass(frozen=True)
class RowError:
    """One predicted row; `memory_measured_gb` is None without a measurement, and where memory is `allocated`
    it is that of tensors alone.

    `interval_s` is the prediction's interval, computed without the runs of the row's own source. `assumed`:
    what the prediction takes for granted because the row does not say it, or no plan can state it. `groups`:
    the row's value of each of `GROUPINGS`. `plan`: the plan of the run, or of those that it may have had the
    one that is predicted.
    """

    id: str
    measured_s: float
    plan: Plan
    prediction: Prediction
    memory_measured_gb: float | None
    interval_s: tuple[float, float] | None = None
    assumed: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    allocated: bool = False

    @property
    def memory_predicted_gb(self) -> float:
        """The prediction of what the row states as its memory."""
        parts = self.prediction.memory_parts
        beyond = sum(parts[name] for name in OVERHEADS) if self.allocated else 0.0
        return (self.prediction.memory_bytes - beyond) / 1e9

    @property
    def error_pct(self) -> float:
        """Predicted over measured seconds, minus one, in percent."""
        return (self.prediction.iteration_s / self.measured_s - 1) * 100


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be expressed, and the reason."""

    id: str
    why: str


@dataclass(frozen=True)
class FileErrors:
    """All rows of one file, in order: the predicted rows and the skipped ones."""

    file: str
    predicted: tuple[RowError, ...]
    skipped: tuple[Skipped, ...]

    @property
    def rows(self) -> int:
        return len(self.predicted) + len(self.skipped)


def validate(path: str | Path, site: Site | None = None, rules: str = DEFAULT_RULES) -> FileErrors:
    """Predict every row of a table of measured runs, with the constants of `site`; None: those of the system
    that a row names, or neutral ones. Rows of plans that the `rules` cannot say are skipped.

    Raises TableError for a malformed file, UnknownName for unknown rules.
    """
    if rules not in RULES:
        raise UnknownName("rules", rules, RULES)
    predicted, skipped = [], []
    for row in read_table(path):
        try:
            predicted.append(_predict_row(row, site, Path(path).stem, rules))
        except UserError as error:
            skipped.append(Skipped(row["id"], str(error)))
    return FileErrors(str(path), tuple(predicted), tuple(skipped))


def statistics(rows: Sequence[RowError]) -> dict[str, float | None]:
    """Errors over rows: mean, median and 95th percentile of the absolute error and the mean signed error, in
    percent; R^2 of seconds.

    `memory_mape` covers the rows with measured memory. `coverage` is the percentage of rows with an interval
    that lie in it. A figure without rows is None.
    """
    if not rows:
        return dict.fromkeys(("mape", "median_ape", "p95_ape", "bias", "r2", "memory_mape", "coverage"))
    errors = np.array([row.error_pct for row in rows])
    measured = np.array([row.measured_s for row in rows])
    predicted = np.array([row.prediction.iteration_s for row in rows])
    spread = float(((measured - measured.mean()) ** 2).sum())
    memory = [
        abs(row.memory_predicted_gb / row.memory_measured_gb - 1) * 100
        for row in rows
        if row.memory_measured_gb
    ]
    return {
        "mape": float(np.abs(errors).mean()),
        "median_ape": float(np.median(np.abs(errors))),
        "p95_ape": float(np.percentile(np.abs(errors), 95)),
        "bias": float(errors.mean()),
        "r2": 1 - float(((measured - predicted) ** 2).sum()) / spread if np.ptp(measured) > 0 else None,
        "memory_mape": float(np.mean(memory)) if memory else None,
        "coverage": _coverage(rows),
    }


def _coverage(rows: Sequence[RowError]) -> float | None:
    hits = [row.interval_s[0] <= row.measured_s <= row.interval_s[1] for row in rows if row.interval_s]
    return 100 * float(np.mean(hits)) if hits else None


def write_rows(files: Sequence[FileErrors], path: str | Path) -> None:
    """Write one CSV row per predicted row of all files: measured and predicted seconds and memory."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["id", "measured_s", "predicted_s", "error_pct", "memory_measured_gb", "memory_predicted_gb"]
    )
    for file in files:
        for row in file.predicted:
            memory = "" if row.memory_measured_gb is None else repr(row.memory_measured_gb)
            run = row.prediction
            numbers = [repr(value) for value in (row.measured_s, run.iteration_s, row.error_pct)]
            writer.writerow([with_guard(row.id), *numbers, memory, repr(row.memory_predicted_gb)])
    write_text(path, text.getvalue())


def _predict_row(row: Cells, site: Site | None, file: str, rules: str) -> RowError:
    """Predict one row. Raises UserError, with the reason, for a row that cannot be expressed.

    Where the source leaves open the micro-batch or what is recomputed, the run is the fastest that fits in
    memory of all that it can be, or the one that needs least if none fits. Runs may fill the memory: a
    measured run needs no headroom.
    """
    run, plans = expressed(row, site)
    if rules != DEFAULT_RULES:
        plans = [replace(plan, rules=rules) for plan in plans]
        broken = [refusals(plan, run.model) for plan in plans]
        if all(broken):
            raise UserError("; ".join(broken[0]))
        plans = [plan for plan, reasons in zip(plans, broken, strict=True) if not reasons]
    predictions = [
        (plan, predict(run.model, plan, run.system, run.profile, memory_headroom=0.0)) for plan in plans
    ]
    possible = [pair for pair in predictions if pair[1].fits] or predictions[:1]
    plan, prediction = min(possible, key=lambda pair: pair[1].iteration_s)
    source = row["site"] or file
    interval = interval_s(run.model, plan, run.system, prediction.iteration_s, without=source_of(row, file))
    prediction = _with_evaluation(prediction, run.evaluation)
    return RowError(
        id=row["id"],
        measured_s=row["iteration_s"],
        plan=plan,
        prediction=prediction,
        memory_measured_gb=stated_gb(row),
        interval_s=interval,
        assumed=run.assumed,
        groups=_groups(row, run, source),
        allocated=run.allocated,
    )


def _with_evaluation(prediction: Prediction, share: float) -> Prediction:
    """The prediction of a measured time that holds evaluations: so many times the iteration's."""
    if share == 0:
        return prediction
    added = share * prediction.iteration_s
    return replace(
        prediction,
        iteration_s=prediction.iteration_s + added,
        breakdown=prediction.breakdown | {"evaluation": added},
    )


def _groups(row: Cells, run: MeasuredRun, source: str) -> dict[str, str]:
    precision = stated_precision(row) if row.get("kind") == BERT else run.plan.precision
    options = run.plan.options
    batching = options.batching if options.balance == "drawn" else f"{options.batching}, {options.balance}"
    values = (run.system.framework, precision, row["gpu"], source, batching)
    return dict(zip(GROUPINGS, values, strict=True))


def summary(files: Sequence[FileErrors], by: str | None = None) -> dict[str, Any]:
    """The JSON document of `itertime validate`; `by`, one of `GROUPINGS`, adds errors by that property."""
    documents = []
    for file in files:
        skipped = [{"id": row.id, "why": row.why} for row in file.skipped]
        too_large = [row.id for row in file.predicted if not row.prediction.fits]
        documents.append(
            {
                "file": file.file,
                "rows": file.rows,
                "skipped": skipped,
                "does_not_fit": too_large,
                "assumed": [
                    {"id": row.id, "what": list(row.assumed)} for row in file.predicted if row.assumed
                ],
                **statistics(file.predicted),
            }
        )
    everything = [row for file in files for row in file.predicted]
    total = {"rows": sum(file.rows for file in files), "skipped": sum(len(file.skipped) for file in files)}
    document = {"files": documents, "all": {**total, **statistics(everything)}}
    if by is not None:
        names = sorted({row.groups[by] for row in everything})
        members = {name: [row for row in everything if row.groups[by] == name] for name in names}
        document["by"] = {name: {"rows": len(rows), **statistics(rows)} for name, rows in members.items()}
    return document
