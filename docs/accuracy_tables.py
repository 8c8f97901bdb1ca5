"""Tables of docs/accuracy.md about errors without calibration, intervals and the choice of plans."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from experiments.evidence.build_intervals import Sample, samples_of
from experiments.evidence.choose_plans import CAUSES, Choice, causes, choices_of, summary
from experiments.evidence.left_out import HEADER, Scores, mean_line
from experiments.evidence.left_out import lines as left_out_lines
from itertime.accuracy import ANY, CLASSES, TABLE, kind_of
from itertime.accuracy.intervals import UNMEASURED, load_ranges, modes_s
from itertime.calibration.run_set import RunSet
from itertime.calibration.table import read_table
from itertime.calibration.validation import FileErrors, RowError, statistics, validate
from itertime.prediction import evaluate
from itertime.spec import PlanBatch, Site, load_framework

ULTRASCALE = "h100_ultrascale"
MOST_GPUS = 256  # of ultrascale's runs without a pipeline: larger ones follow no law
LAWLESS = "nanotron"
PEER_PCT = {
    "vtrain": 23.1,
    "bigscience": 27.0,
    "internevo": 8.1,
    "llm-foundry": 18.1,
    "selene": 18.7,
    "nanotron": 74.0,
}
"""Errors of llm-cluster-simulator by source, of the table of peers below; llm-foundry's are of both GPUs."""
LEAST = 5  # rows of a group with its own line
FRAMEWORKS = TABLE.parent / "frameworks.json"
SIXTEEN = "bf16"


@dataclass(frozen=True)
class Row:
    """One predicted row; `kind`: dense or mixture."""

    file: str
    error: RowError
    kind: str
    pp: int
    gpus: int

    def __getattr__(self, name: str) -> str:
        """The properties that `validate` groups by: gpu, precision, framework, source."""
        return self.error.groups[name]


@dataclass(frozen=True)
class Measured:
    """One file: its runs, their predicted seconds with neutral constants, and the errors by `validate`."""

    name: str
    runs: RunSet
    predicted_s: np.ndarray
    errors: FileErrors

    @property
    def error_pct(self) -> np.ndarray:
        return (self.predicted_s / self.runs.measured_s - 1) * 100

    @cached_property
    def rows(self) -> list[Row]:
        by_id = {row.id: row for row in self.errors.predicted}
        return [
            Row(self.name, by_id[cells["id"]], kind_of(run.model), run.plan.pp, run.plan.gpus)
            for cells, run in zip(self.runs.cells, self.runs.runs, strict=True)
        ]

    @property
    def mixture(self) -> bool:
        return any(row.kind == "mixture" for row in self.rows)

    @property
    def choices(self) -> list[Choice]:
        return choices_of(self.runs, self.predicted_s)


def read(path: Path) -> Measured:
    """A file without the rows of chips that only data sheets describe (docs/systems.md)."""
    runs = RunSet.of(read_table(path)).on_measured_chips()
    errors, ids = validate(path), {cells["id"] for cells in runs.cells}
    errors = replace(errors, predicted=tuple(row for row in errors.predicted if row.id in ids))
    return Measured(path.stem, runs, runs.evaluate(Site())[0], errors)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; every column but the first is right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def rows_of(sets: Sequence[Measured]) -> list[Row]:
    return [row for each in sets for row in each.rows]


def left_out(path: Path = FRAMEWORKS) -> dict[str, Mapping[str, float]]:
    """Errors of every file under constants of frameworks fitted without its source; empty if not computed."""
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    found: dict[str, Mapping[str, float]] = {}
    for entry in document["leave_one_out"].values():
        found |= entry.get("files", entry)
    return found


def zero_shot(sets: Sequence[Measured], without: Mapping[str, Mapping[str, float]]) -> str:
    rows = []
    for each in sets:
        found = statistics(each.errors.predicted)
        numbers = [number(found[key]) for key in ("mape", "median_ape", "p95_ape", "bias")]
        other = without.get(each.name, {})
        fitted = [number(other.get(key)) for key in ("mape", "bias")]
        counts = [each.errors.rows, len(each.errors.predicted)]
        rows.append([each.name, *counts, *numbers, *fitted, number(found["coverage"], 0)])
    header = ["set", "rows", "answered", "MAPE %", "median %", "p95 %", "bias %"]
    return table([*header, "source left out: MAPE %", "bias %", "in interval %"], rows)


def reached(sets: Sequence[Measured], without: Mapping[str, Mapping[str, float]]) -> str:
    """Errors by the questions that users ask: rows, sources, mean over rows and over sources."""
    low = lambda row: row.precision != SIXTEEN  # noqa: E731
    h100, ultra = lambda row: row.gpu.startswith("H100"), lambda row: row.file == ULTRASCALE
    nvidia = lambda row: row.source.startswith("nvidia")  # noqa: E731
    dense = lambda row: row.kind == "dense"  # noqa: E731
    blackwell = lambda row: row.gpu.startswith(("B", "GB"))  # noqa: E731
    groups: dict[str, Callable[[Row], bool]] = {
        "A100, dense": lambda row: row.gpu.startswith("A100"),
        "H100 bf16, dense, without h100_ultrascale": lambda row: (
            h100(row) and dense(row) and not low(row) and not ultra(row)
        ),
        "H100 fp8, dense, NVIDIA's software": lambda row: (
            h100(row) and dense(row) and low(row) and nvidia(row)
        ),
        "H100 fp8, dense, other software": lambda row: (
            h100(row) and dense(row) and low(row) and not nvidia(row)
        ),
        "H100, mixtures": lambda row: h100(row) and not dense(row),
        "B200, GB200, dense": lambda row: row.gpu.startswith(("B200", "GB200")) and dense(row),
        "B300, GB300, dense": lambda row: row.gpu.startswith(("B300", "GB300")) and dense(row),
        "Blackwell, mixtures": lambda row: blackwell(row) and not dense(row),
        "nvfp4": lambda row: row.precision == "nvfp4",
        f"{ULTRASCALE}, no pipeline, up to {MOST_GPUS} GPUs": lambda row: (
            ultra(row) and row.pp == 1 and row.gpus <= MOST_GPUS
        ),
        f"{ULTRASCALE}, the rest": lambda row: ultra(row) and not (row.pp == 1 and row.gpus <= MOST_GPUS),
    }
    every, lines = rows_of(sets), []
    for name, member in groups.items():
        if not (chosen := [row for row in every if member(row)]):
            continue
        errors = np.array([row.error.error_pct for row in chosen])
        by_source = _by(chosen, lambda row: row.source)
        means = [statistics([row.error for row in own])["mape"] for own in by_source.values()]
        files = dict.fromkeys(row.file for row in chosen)
        whole = all(sum(row.file == file for row in chosen) == len(_rows(sets, file)) for file in files)
        known = [without[file] for file in files if file in without] if whole else []
        total = sum(each["rows"] for each in known)
        fitted = sum(each["mape"] * each["rows"] for each in known) / total if total else None
        numbers = [
            np.abs(errors).mean(),
            np.median(np.abs(errors)),
            errors.mean(),
            np.mean(means),
            max(means),
        ]
        lines.append([name, len(chosen), len(by_source), *map(number, numbers), number(fitted)])
    header = ["", "rows", "sources", "MAPE %", "median %", "bias %", "mean over sources %", "worst source %"]
    return table([*header, "source left out: MAPE %"], lines)


def _rows(sets: Sequence[Measured], file: str) -> Sequence[Row]:
    return next(each.rows for each in sets if each.name == file)


def _by(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def by_kind(sets: Sequence[Measured]) -> str:
    """Errors by GPU, kind of model, precision, framework and source, without ultrascale."""
    rows = [row for row in rows_of(sets) if row.file != ULTRASCALE]
    keys: dict[str, Callable[[Row], str]] = {
        "GPU": lambda row: row.gpu,
        "kind": lambda row: row.kind,
        "precision": lambda row: row.precision,
        "framework": lambda row: row.framework,
        "source": lambda row: f"{row.source}, {row.gpu.partition('-')[0]}, {row.kind}",
    }
    lines = []
    for name, key in keys.items():
        for value, members in sorted(_by(rows, key).items()):
            found = statistics([row.error for row in members])
            numbers = [number(found[key]) for key in ("mape", "median_ape", "bias")]
            lines.append([f"{name} {value}", len(members), *numbers, number(found["coverage"], 0)])
    return table(["", "rows", "MAPE %", "median %", "bias %", "in interval %"], lines)


def ultrascale(sets: Sequence[Measured]) -> str:
    """Errors of ultrascale's runs by class of plan and number of GPUs: mean absolute, and bias."""
    found = [each for each in sets if each.name == ULTRASCALE]
    if not found:
        return ""
    runs, error = [run.plan for run in found[0].runs.runs], found[0].error_pct
    classes: dict[str, Callable[..., bool]] = {
        "no pipeline, tp <= 8": lambda plan: plan.pp == 1 and plan.tp <= 8,
        "no pipeline, tp > 8": lambda plan: plan.pp == 1 and plan.tp > 8,
        "pipeline in a node": lambda plan: plan.pp > 1 and plan.gpus <= 8,
        "pipeline over nodes": lambda plan: plan.pp > 1 and plan.gpus > 8,
    }
    lines = []
    for gpus in sorted({plan.gpus for plan in runs}):
        cells = []
        for member in classes.values():
            chosen = error[[member(plan) and plan.gpus == gpus for plan in runs]]
            cells.append(f"{np.abs(chosen).mean():.0f} ({chosen.mean():+.0f})" if len(chosen) else "-")
        lines.append([f"{gpus} GPUs", *cells])
    return table(["", *classes], lines)


def ultrascale_modes(sets: Sequence[Measured]) -> str:
    """Errors of its pipelines over nodes, each beside the nearer of its two modes, by number of GPUs."""
    errors: dict[float, dict[str, list[float]]] = {}
    for each in sets:
        measured = zip(each.runs.runs, each.runs.measured_s.tolist(), each.predicted_s.tolist(), strict=True)
        for run, measured_s, predicted_s in measured if each.name == ULTRASCALE else ():
            fast_s, slow_s = modes_s(run.plan, run.system, predicted_s)
            if fast_s < slow_s:
                slow = measured_s**2 > fast_s * slow_s
                error = 100 * ((slow_s if slow else fast_s) / measured_s - 1)
                for gpus in (run.plan.gpus, math.inf):
                    modes = errors.setdefault(gpus, {"without": [], "with": []})
                    modes["with" if slow else "without"].append(error)
    lines = []
    for gpus, modes in sorted(errors.items()):
        cells = [[len(mode), np.abs(mode).mean(), np.mean(mode)] for mode in modes.values() if mode]
        name = f"{gpus} GPUs" if gpus < math.inf else "all"
        lines.append([name, *(f"{count}: {mape:.1f} ({bias:+.1f})" for count, mape, bias in cells)])
    return table(["", "without stalls", "with stalls"], lines)


def long_sequences(path: Path) -> str:
    """Errors of NeMo's long sequences by GPU and kernel of attention, against the seconds of the table and
    against those that its TFLOP/s give where they count all scores, as NeMo did.
    """
    runs, te = RunSet.of(read_table(path)), load_framework("te")
    kernels = {
        "FlashAttention-2": (replace(te, attention="flash"), "bf16"),
        "cuDNN": (te, "bf16"),
        "cuDNN, 8 bit": (te, "fp8"),
    }
    errors: dict[str, list[list[float]]] = {}
    for cells, run, stated_s in zip(runs.cells, runs.runs, runs.measured_s.tolist(), strict=True):
        model, scores = run.model, 6 * run.model.seq_len / run.model.hidden
        products = 12 + 12 * model.kv_heads / model.heads + 18 * model.ffn_hidden / model.hidden
        counted = products + 6 * model.vocab / (model.layers * model.hidden) + scores
        for name, (framework, precision) in kernels.items():
            plan = replace(run.plan, options=replace(run.plan.options, attention_precision=precision))
            plans = PlanBatch.of([plan])
            found = evaluate(
                model, plans, run.system, run.profile, framework=framework, memory_headroom=0.0
            ).iteration_s[0]
            measured = np.array([stated_s, stated_s * (1 + scores / counted)])
            errors.setdefault(f"{cells['gpu']}, {name}", []).append((100 * (found / measured - 1)).tolist())
    lines = []
    for label, pairs in errors.items():
        means = zip(np.abs(pairs).mean(axis=0), np.mean(pairs, axis=0), strict=True)
        lines.append([label, len(pairs), *(f"{mape:.1f} ({bias:+.1f})" for mape, bias in means)])
    return table(["", "rows", "as stated", "all scores counted"], lines)


def sources(scores: Sequence[Scores]) -> str:
    """Every source, as shipped and left out, with an independent simulator's error."""
    rows = [[*cells, number(PEER_PCT.get(cells[0]))] for cells in left_out_lines(scores)]
    return table([*HEADER, "llm-cluster-simulator: MAPE %"], rows)


def means_of_sources(scores: Sequence[Scores]) -> str:
    """Means over sources with equal weight, by kind of evidence."""
    fitted = json.loads(FRAMEWORKS.read_text(encoding="utf-8"))["leave_one_out"]
    groups = {
        "in the fit of constants": lambda name: bool(fitted.get(name, {}).get("constants")),
        "in no fit": lambda name: not fitted.get(name, {}).get("constants") and name != LAWLESS,
        "all but nanotron": lambda name: name != LAWLESS,
        "all": lambda name: True,
    }
    lines = []
    for label, member in groups.items():
        if chosen := [entry for entry in scores if member(entry.source)]:
            lines.append([*mean_line(label, chosen), number(_peer_mean(chosen))])
    return table([*HEADER, "llm-cluster-simulator: MAPE %"], lines)


def _peer_mean(scores: Sequence[Scores]) -> float | None:
    answered = [PEER_PCT[entry.source] for entry in scores if entry.source in PEER_PCT]
    return float(np.mean(answered)) if answered else None


def coverage(paths: Iterable[Path]) -> str:
    """By class of plans and by what was measured: the share of runs inside intervals that did not see their
    source, as the mean over sources, and the mean ends of the intervals.
    """
    samples = [run for path in paths for run in samples_of(path)]
    groups: dict[str, Callable[[Sample, str], bool]] = {
        "dense": lambda run, basis: run.kind == "dense",
        "mixture": lambda run, basis: run.kind == "mixture",
        **{name: lambda run, basis, name=name: run.plans == name for name in CLASSES},
        "all of it measured": lambda run, basis: "not measured" not in basis,
        "software not measured on the GPU": lambda run, basis: f"not measured on {run.profile}" in basis,
        "software not measured": lambda run, basis: "as the software" in basis,
        "class not measured": lambda run, basis: "of the class" in basis,
    }
    known = [(run, _range_without(run), _basis_without(run)) for run in samples]
    lines = []
    for label, member in groups.items():
        by_source: dict[str, list[bool]] = {}
        ends = []
        for run, range_, basis in known:
            if range_ and member(run, basis):
                by_source.setdefault(run.source, []).append(range_[0] <= math.exp(run.outside) <= range_[1])
                ends.append(range_)
        if ends:
            share = 100 * np.mean([np.mean(held) for held in by_source.values()])
            low, high = np.mean(ends, axis=0)
            lines.append(
                [label, len(ends), len(by_source), number(share, 0), number(low, 2), number(high, 2)]
            )
    return table(["runs", "rows", "sources", "in it %", "lowest, mean", "highest, mean"], lines)


def _range_without(run: Sample) -> tuple[float, float] | None:
    return load_ranges(run.source).of(run.profile, run.kind, run.framework, run.plans)


def _basis_without(run: Sample) -> str:
    return load_ranges(run.source).basis(run.profile, run.kind, run.framework, run.plans)


def ranges() -> str:
    """The shipped ranges, one line each."""
    document = json.loads(TABLE.read_text(encoding="utf-8"))
    lines = []
    for name, (low, high, rows, sources) in document["ranges"].items():
        place, kind, framework, plans = name.split("/")
        words = [
            kind,
            "any framework" if framework == ANY else framework,
            "a class not measured" if plans == UNMEASURED else plans,
        ]
        lines.append(
            [
                f"{'any GPU' if place == ANY else place}: {', '.join(words)}",
                rows,
                sources,
                f"{low:.2f}",
                f"{high:.2f}",
            ]
        )
    header = ["GPU or generation, kind, framework, class", "runs", "sources", "lowest", "highest"]
    classes = "\n".join(f"- *{name}*: {text}." for name, text in CLASSES.items())
    return f"{table(header, lines)}\n\nClasses, the first that holds:\n\n{classes}"


def spreads() -> str:
    parts = json.loads(TABLE.read_text(encoding="utf-8"))["spreads"]
    sources, gpus, software, plans = (100 * parts[name] for name in ("sources", "GPUs", "software", "plans"))
    added = f"GPU {gpus:.0f} %, software {software:.0f} %, class of plans {plans:.0f} %"
    return f"{sources:.0f} % between sources; not measured: {added}"


def choosing(sets: Sequence[Measured]) -> str:
    found = {each.name: choices for each in sets if (choices := each.choices)}
    rows = [
        [name, each.groups, each.plans, *map(number, (each.mean, each.p95, each.most))]
        for name, each in summary(found).items()
    ]
    header = ["set", "groups", "plans", "slower than the best, mean %", "p95 %", "most %"]
    return table(header, rows)


def regret_causes(sets: Sequence[Measured]) -> str:
    return table(CAUSES, causes({each.name: each.choices for each in sets}))


def skipped(sets: Sequence[Measured]) -> str:
    reasons: dict[tuple[str, str], int] = {}
    for each in sets:
        for row in each.errors.skipped:
            reasons[each.name, row.why] = reasons.get((each.name, row.why), 0) + 1
    lines = [f"- {name}: {count} rows, {why}" for (name, why), count in reasons.items()]
    return "\n".join(lines) or "None: every row of every set is predicted and counted."


def assumed(sets: Sequence[Measured]) -> str:
    """What rows leave open, by set, with the number of rows."""
    rows = []
    for each in sets:
        counts: dict[str, int] = {}
        for row in each.errors.predicted:
            for what in row.assumed:
                text = re.sub(r"\s+", " ", what).replace("|", "/")
                counts[text] = counts.get(text, 0) + 1
        rows += [[each.name, count, text] for text, count in sorted(counts.items(), key=lambda x: -x[1])]
    lines = ["| set | rows | assumed |", "|---|---:|---|"]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])
