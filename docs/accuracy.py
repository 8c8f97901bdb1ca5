"""Rewrite docs/accuracy.md and its pictures from measured iteration times (needs the extra `docs`).

python docs/accuracy.py [FOLDER]    FOLDER holds the iteration tables; ../shared/data/iterations if left out
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from itertime.accuracy import CLASSES, errors_on
from itertime.accuracy.intervals import load_ranges
from itertime.calibration import calibrate
from itertime.calibration.calibrate import Calibration
from itertime.calibration.run_set import RunSet
from itertime.calibration.table import read_table
from itertime.calibration.validation import FileErrors, statistics, validate
from itertime.costs import MEMORY_HEADROOM
from itertime.evidence.build_errors import work_of
from itertime.io import write_text
from itertime.planning.choice import choice_among
from itertime.spec import Site

DOCS = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", DOCS.parent.parent / "shared"))
SETS = (
    "a100_megatron_deepspeed",
    "a100_bigscience",
    "a100_internevo_zero1",
    "a100_llmfoundry_fsdp",
    "published",
    "h100_llmfoundry_fsdp",
    "h100_ultrascale",
)
CALIBRATED = (*SETS[:4], "h100_llmfoundry_fsdp")
FEWEST_PLANS = 4
LARGEST_PICTURE = 200  # runs


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


def read(folder: Path, name: str) -> Measured:
    path = folder / f"{name}.csv"
    runs = RunSet.of(read_table(path))
    return Measured(name, runs, runs.evaluate(Site())[0], validate(path))


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; every column but the first is right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def zero_shot(sets: Sequence[Measured]) -> str:
    rows = []
    for each in sets:
        found = statistics(each.errors.predicted)
        numbers = [number(found[key]) for key in ("mape", "median_ape", "p95_ape", "bias")]
        counts = [each.errors.rows, len(each.errors.skipped)]
        rows.append([each.name, *counts, *numbers, number(found["r2"], 3), number(found["coverage"], 0)])
    header = ["set", "rows", "skipped", "MAPE %", "median %", "p95 %", "bias %", "R²", "in interval %"]
    return table(header, rows)


def calibrated(results: Sequence[tuple[str, Calibration]]) -> str:
    rows = []
    for name, result in results:
        constants = ", ".join(f"{key} {value:.3g}" for key, value in result.fitted.items())
        constants += "".join(f"; those of {kind} refused" for kind in result.refused)
        unseen = [result.left_out.get(key) for key in ("model", "GPU count")]
        errors = [result.neutral, result.in_sample, result.held_out, *unseen]
        low, high = result.site.measured_over_predicted or (0.0, 0.0)
        rows.append([name, *[mean(each) for each in errors], f"{low:.2f}-{high:.2f}", constants])
    header = ["set", "neutral", "in sample", "10 folds", "one model out", "one GPU count out", "range"]
    return table([*header, "constants"], rows)


def transfer(sets: Sequence[Measured], results: Sequence[tuple[str, Calibration]]) -> str:
    """Errors on every calibrated set with the constants of every other."""
    runs = [each.runs for each in sets if each.name in CALIBRATED]
    rows = []
    for name, result in results:
        errors = [each.evaluate(result.site)[0] / each.measured_s - 1 for each in runs]
        rows.append([name, *[number(100 * np.abs(error).mean()) for error in errors]])
    return table(["fitted on, in sample on the diagonal", *[name for name, _ in results]], rows)


def chosen_anew(folder: Path, names: Sequence[str]) -> str:
    """Held-out errors where every fold chooses its own constants from its own runs, and whether `calibrate`
    hands out the constants of the whole set.
    """
    rows = []
    for name in names:
        result = calibrate([folder / f"{name}.csv"], choose=True)
        unseen = [result.left_out.get(key) for key in ("model", "GPU count")]
        errors = (result.neutral, result.in_sample, result.held_out, *unseen)
        handed_out = "no: refused" if "time" in result.refused else "yes"
        rows.append([name, *[mean(each) for each in errors], handed_out])
    header = ["set", "neutral", "in sample", "10 folds", "one model out", "one GPU count out"]
    return table([*header, "handed out"], rows)


def mean(errors: np.ndarray | None) -> str:
    return "-" if errors is None else f"{np.abs(errors).mean():.2f}"


def memory(results: Sequence[tuple[str, Calibration]]) -> str:
    lines = []
    for name, result in results:
        rows = np.isfinite(result.runs.measured_bytes)
        if result.memory_in_sample is None or result.memory_held_out is None:
            continue
        before = result.runs.evaluate(Site())[1][rows] / result.runs.measured_bytes[rows] - 1
        found = [before * 100, result.memory_in_sample, result.memory_held_out]
        lines.append([name, int(rows.sum()), *[mean(each) for each in found], len(result.does_not_fit)])
    header = ["set", "rows with memory", "neutral", "in sample", "10 folds", "called too large"]
    return table(header, lines)


def headroom(sets: Sequence[Measured]) -> str:
    """How much memory measured runs need by prediction, and how much more than predicted they took."""
    lines = []
    for each in sets:
        runs = [row.prediction for row in each.errors.predicted]
        shares = np.array([run.memory_bytes / run.capacity_bytes for run in runs])
        measured = [row.memory_measured_gb or np.nan for row in each.errors.predicted]
        ratios = np.array(measured) * 1e9 / [run.memory_bytes for run in runs]
        ratios = ratios[np.isfinite(ratios) & (shares > 0.5)]
        limits = [(shares > limit).sum() for limit in (1 - MEMORY_HEADROOM, 1)]
        over = [f"{(ratios > factor).sum()} of {len(ratios)}" for factor in (1, 1 / (1 - MEMORY_HEADROOM))]
        lines.append([each.name, len(runs), *limits, *(over if len(ratios) else "--")])
    header = ["set", "runs", "refused with 10 %", "refused with 0", "took more than predicted", "1.11 times"]
    return table(header, lines)


def by_property(sets: Sequence[Measured]) -> str:
    """Errors of all sets together by tp, pp, dp and hidden size."""
    rows = []
    kinds: list[tuple[str, Callable[..., int], Sequence[int]]] = [
        ("tp", lambda run: run.plan.tp, (1, 2, 4, 8, 16)),
        ("pp", lambda run: run.plan.pp, (1, 2, 4, 8, 16, 32)),
        ("dp", lambda run: run.plan.dp, (1, 4, 8, 16, 32, 64, 128)),
        ("hidden", lambda run: run.model.hidden, (1, 2049, 4097, 8193, 12289)),
    ]
    runs = [run for each in sets for run in each.runs.runs]
    errors = np.concatenate([each.error_pct for each in sets])
    for name, key, edges in kinds:
        values = np.array([key(run) for run in runs])
        for low, high in zip(edges, [*edges[1:], np.inf], strict=True):
            chosen = errors[(values >= low) & (values < high)]
            if len(chosen):
                label = f"{name} {low}" if high == low + 1 else f"{name} {low} to {high - 1:.0f}"
                label = label.replace(" to inf", " and more")
                numbers = [np.abs(chosen).mean(), np.median(np.abs(chosen)), chosen.mean()]
                rows.append([label, len(chosen), *map(number, numbers)])
    return table(["", "rows", "MAPE %", "median %", "bias %"], rows)


def regret(sets: Sequence[Measured]) -> str:
    """Measured choices of at least `FEWEST_PLANS` plans for the same work: what the plan predicted best
    costs, and what `itertime search` would have expected. Percent.
    """
    known = errors_on("a100-80gb")
    rows: list[list[object]] = []
    for each in sets:
        groups: dict[tuple[object, ...], list[int]] = {}
        for row, run in enumerate(each.runs.runs):
            groups.setdefault(work_of(run), []).append(row)
        for members in groups.values():
            if len(members) >= FEWEST_PLANS:
                measured, predicted = each.runs.measured_s[members], each.predicted_s[members]
                chosen, run = int(np.argmin(predicted)), each.runs.runs[members[0]]
                errors = np.log(measured / predicted)
                expected = choice_among(predicted, known.beside_sd)
                found = measured[chosen] / measured.min() - 1, np.expm1(errors[chosen] - errors.mean())
                percent = [100 * share for share in (*found, expected.regret, expected.optimism)]
                name = f"{each.name}: {run.model.layers} layers, h {run.model.hidden}, {run.plan.gpus} GPUs"
                rows.append([name, len(members), *percent])
    shown = [[*row[:2], *map(number, row[2:])] for row in rows]
    means = [np.mean([row[column] for row in rows]) for column in range(2, 6)] if rows else []
    header = ["model", "plans measured", "slower than the best measured", "more than predicted"]
    return table([*header, "slower, expected", "more, expected"], [*shown, ["mean", "", *map(number, means)]])


def ranges() -> str:
    known = load_ranges()
    rows = [[f"{name}: {text}", *(f"{end:.2f}" for end in known.of(name))] for name, text in CLASSES.items()]
    return table(["class of plan", "lowest", "highest"], rows)


def skipped(sets: Sequence[Measured]) -> str:
    reasons: dict[tuple[str, str], int] = {}
    for each in sets:
        for row in each.errors.skipped:
            reasons[each.name, row.why] = reasons.get((each.name, row.why), 0) + 1
    lines = [f"- {name}: {count} rows, {why}" for (name, why), count in reasons.items()]
    return "\n".join(lines) or "None: every row of every set is predicted and counted."


def draw(each: Measured, path: Path, fitted: Calibration | None) -> None:
    """Draw predicted against measured seconds, both axes logarithmic, as a reproducible SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": each.name, "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(4.2, 4.0), layout="constrained")
    rows = np.arange(len(each.runs))
    if len(rows) > LARGEST_PICTURE:
        rows = np.sort(np.random.default_rng(0).permutation(rows)[:LARGEST_PICTURE])
    measured, predicted = each.runs.measured_s[rows], each.predicted_s[rows]
    ends = [0.8 * min(measured.min(), predicted.min()), 1.25 * max(measured.max(), predicted.max())]
    for factor, style in ((1.0, "-"), (1.1, ":"), (1 / 1.1, ":")):
        axes.plot(ends, [end * factor for end in ends], style, color="#888888", linewidth=0.8)
    axes.plot(measured, predicted, "o", color="#0072b2", markersize=4, alpha=0.8, label="neutral constants")
    if fitted is not None:
        held_out = measured * (1 + fitted.held_out[rows] / 100)
        axes.plot(measured, held_out, "x", color="#d55e00", markersize=4, label="calibrated, held out")
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel="measured, s per iteration", ylabel="predicted, s per iteration", title=each.name)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.set_minor_formatter(ticker.NullFormatter())
    axes.legend(frameon=False, loc="upper left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def page(folder: Path, names: Sequence[str] = SETS, pictures: Path | None = DOCS / "accuracy") -> str:
    """The text of docs/accuracy.md; also draws the pictures."""
    sets = [read(folder, name) for name in names]
    fits = [(name, calibrate([folder / f"{name}.csv"])) for name in CALIBRATED if name in names]
    a100 = [each for each in sets if not each.name.startswith("h100")]
    images = []
    for each in sets if pictures else ():
        path = pictures / f"{each.name}.svg"
        draw(each, path, dict(fits).get(each.name))
        images.append(f"![{each.name}: predicted against measured](accuracy/{path.name})")
    parts = {
        "zero_shot": zero_shot(sets),
        "calibrated": calibrated(fits),
        "memory": memory(fits),
        "headroom": headroom(sets),
        "transfer": transfer(sets, fits),
        "chosen_anew": chosen_anew(folder, [name for name, _ in fits]),
        "by_property": by_property(a100),
        "regret": regret(a100),
        "ranges": ranges(),
        "skipped": skipped(sets),
        "pictures": "\n".join(images),
    }
    return filled("accuracy", parts)


def filled(name: str, parts: dict[str, str]) -> str:
    """The template of a page, with each placeholder replaced by the part of that name."""
    text = (DOCS / f"{name}.template.md").read_text()
    for part, content in parts.items():
        assert f"<!-- {part} -->" in text, part
        text = text.replace(f"<!-- {part} -->", content)
    return text


def write_page(name: str, page: Callable[[Path], str], description: str | None) -> None:
    """The command line that writes a page of these docs from the folder of the iteration tables."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data" / "iterations")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder; give the one that holds the iteration tables")
    write_text(DOCS / f"{name}.md", page(folder))


if __name__ == "__main__":
    write_page("accuracy", page, __doc__)
