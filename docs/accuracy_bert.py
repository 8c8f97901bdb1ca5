"""Tables of docs/accuracy.md about MLPerf's BERT: errors by GPU and way of batching, rows that are far off,
and sites that are calibrated.
"""

from __future__ import annotations

import csv
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from accuracy_tables import number, table

from itertime.calibration import Cells, calibrate, read_table
from itertime.calibration.validation import FileErrors, RowError, statistics, validate

TABLE = Path("mlperf") / "bert_iterations.csv"
FAR_PCT = 15.0
_CHIPS = {
    "A100 SXM": r"A100-SXM",
    "A100 PCIe": r"A100-PCIE",
    "A30": r"A30\b",
    "H100 SXM": r"H100-SXM",
    "H100 PCIe": r"H100-PCIE",
    "H200": r"H200",
    "B200": r"B200|GB200",
}
SITES: dict[str, Callable[[Cells], object]] = {
    "NVIDIA's A100": lambda row: "NVIDIA/" in (row["source"] or "") and "A100" in row["gpu"],
    "Dell": lambda row: "Dell/" in (row["source"] or ""),
    "Supermicro's H100 and H200": lambda row: (
        re.search("H[12]00", row["gpu"]) and "supermicro/" in (row["source"] or "").lower()
    ),
    "one node of H100 SXM, all submitters": lambda row: "H100-SXM" in row["gpu"] and row["gpus"] <= 8,
    "H100, all submitters": lambda row: "H100" in row["gpu"],
    "H100 and H200, all submitters": lambda row: re.search("H[12]00", row["gpu"]),
}


def chip_of(gpu: str) -> str:
    """The GPU as the tables name it."""
    return next((name for name, pattern in _CHIPS.items() if re.search(pattern, gpu.upper())), gpu)


def parts(path: Path) -> dict[str, str]:
    """The parts of the page, by their placeholders."""
    errors, cells = validate(path), {row["id"]: row for row in read_table(path)}
    return {
        "bert": groups(errors),
        "bert_far": far(errors),
        "bert_skipped": skipped(errors),
        "bert_calibrated": calibrated(path, cells),
    }


def groups(errors: FileErrors) -> str:
    """Errors by chip, way of batching and precision, and those that limits are stated for."""
    members: dict[str, list[RowError]] = {}
    for row in errors.predicted:
        of = row.groups
        key = f"{chip_of(of['gpu'])}; {of['batching']}; {_precision(of['precision'])}"
        members.setdefault(key, []).append(row)
    ordered = sorted(members.items(), key=lambda item: (list(_CHIPS).index(item[0].split(";")[0]), item[0]))
    together: dict[str, Callable[[Mapping[str, str]], bool]] = {
        "A100, all": lambda of: "A100" in of["gpu"],
        "H100 and H200, FP8 or unstated": lambda of: re.search("H[12]00", of["gpu"]) is not None,
    }
    totals = [
        (name, [row for row in errors.predicted if held(row.groups)]) for name, held in together.items()
    ]
    lines = []
    for name, rows in (*ordered, *totals):
        found = statistics(rows)
        worst = max(rows, key=lambda row: abs(row.error_pct)).error_pct
        numbers = [number(found[key]) for key in ("mape", "median_ape", "bias")]
        lines.append([name, len(rows), *numbers, number(worst)])
    return table(["GPU; batching; precision", "rows", "MAPE %", "median %", "bias %", "worst %"], lines)


def _precision(name: str) -> str:
    return {"bf16": "fp16"}.get(name, name)


def far(errors: FileErrors) -> str:
    """Rows whose prediction is more than `FAR_PCT` off."""
    rows = [row for row in errors.predicted if abs(row.error_pct) > FAR_PCT]
    rows.sort(key=lambda row: row.error_pct)
    lines = [
        [row.id.removeprefix("mlperf-"), number(1e3 * row.measured_s), number(row.error_pct)] for row in rows
    ]
    return table(["row", "measured, ms", "error %"], lines)


def skipped(errors: FileErrors) -> str:
    """Rows that are not predicted, by reason."""
    reasons: dict[str, int] = {}
    for row in errors.skipped:
        why = re.sub(
            r"^the measurement of .*? submitted again", "the measurement of another row again", row.why
        )
        why = why.split(";")[0]
        reasons[why] = reasons.get(why, 0) + 1
    return "\n".join(f"- {count}: {why}" for why, count in reasons.items())


def calibrated(path: Path, cells: Mapping[str, Cells]) -> str:
    """Errors with the constants of a site, in sample and held out."""
    lines = []
    for name, member in SITES.items():
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / "site.csv"
            _write(path, part, {key for key, row in cells.items() if member(row)})
            result = calibrate([part])
        errors = [result.time.neutral, result.time.in_sample, result.time.held_out]
        means = [number(float(np.abs(each).mean()), 2) for each in errors]
        constants = ", ".join(f"{key} {value:.3g}" for key, value in result.fitted.items())
        refused = "; refused" if "time" in result.refused else ""
        lines.append([name, len(result.runs), *means, constants + refused])
    return table(["rows of", "rows", "neutral", "in sample", "10 folds", "constants"], lines)


def _write(path: Path, part: Path, names: Sequence[str] | set[str]) -> None:
    with path.open(newline="", encoding="utf-8") as source, part.open("w", newline="") as file:
        reader = csv.DictReader(source)
        writer = csv.DictWriter(file, list(reader.fieldnames or ()))
        writer.writeheader()
        writer.writerows(row for row in reader if row["id"] in names)
