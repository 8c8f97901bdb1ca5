"""Rewrite docs/accuracy.md and its pictures from measured iteration times (needs the extra `docs`).

python docs/accuracy.py [FOLDER]    FOLDER holds `iterations`, `modern_gpus`, `mlperf`; or ../shared/data
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # of `experiments`, which is not installed

import accuracy_bert as bert
import accuracy_tables as tables
import numpy as np
from accuracy_pictures import FAMILIES, draw
from accuracy_tables import ULTRASCALE, Measured, number, read, table

from experiments.evidence.choose_plans import Choice
from experiments.evidence.left_out import scores_of
from itertime.accuracy import errors_on
from itertime.calibration import RunSet, calibrate, read_table, source_of
from itertime.calibration.calibrate import Calibration
from itertime.costs import MEMORY_HEADROOM
from itertime.io import write_text
from itertime.planning.choice import choice_among
from itertime.spec import Site

DOCS = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("CLUSTERSIM_SHARED", DOCS.parent.parent / "shared"))
FOLDERS = ("iterations", "modern_gpus/iterations")
SETS = (
    *("a100_megatron_deepspeed", "a100_bigscience", "a100_internevo_zero1", "a100_llmfoundry_fsdp"),
    *("published", "a100_64gb_modalities_bf16", "a100_fms_fsdp_bf16"),
    *("h100_llmfoundry_fsdp", "h100_dgxc_nemo_bf16", "h100_torchtitan_2024_bf16", "h100_fms_fsdp_bf16"),
    *("h100_automodel_bf16", "h100_dgxc_nemo_fp8", "h100_nemo_2407_fp8", "h100_megatron_bridge_fp8"),
    *("h100_llmfoundry_fp8", "h100_torchtitan_2024_fp8"),
    *("h100_dgxc_nemo_moe_bf16", "h100_megatron_bridge_moe_bf16", "h100_automodel_moe_bf16"),
    *("h100_dgxc_nemo_moe_fp8", "h100_megatron_bridge_moe_fp8"),
    *("blackwell_dgxc_nemo", "blackwell_megatron_bridge", "blackwell_megatron_bridge_moe"),
    ULTRASCALE,
)
OTHERS = (
    *(f"iterations_2026/{name}.csv" for name in ("automodel_lora", "bridge_skills", "mlperf50_lora")),
    *(
        f"iterations_2026/{name}.csv"
        for name in ("mlperf51_lora", "nemo_long_sequence", "qwen_finetune_a100")
    ),
    str(bert.TABLE),
)
"""Tables whose sources are scored and have their part in the intervals, without a line for each set."""
LONG = "iterations_2026/nemo_long_sequence.csv"
CALIBRATED = (*SETS[:4], "h100_llmfoundry_fsdp")
FEWEST_PLANS = 4


def table_of(folder: Path, name: str) -> Path:
    """The file of a set. SystemExit if no folder has it."""
    found = [folder / each / f"{name}.csv" for each in FOLDERS]
    for path in found:
        if path.is_file():
            return path
    sys.exit(f"{found[0]}: no such file, nor {found[1]}")


def calibrated(results: Sequence[tuple[str, Calibration]]) -> str:
    rows = []
    for name, result in results:
        constants = ", ".join(f"{key} {value:.3g}" for key, value in result.fitted.items())
        constants += "".join(f"; those of {kind} refused" for kind in result.refused)
        unseen = [result.left_out.get(key) for key in ("model", "GPU count")]
        errors = [result.time.neutral, result.time.in_sample, result.time.held_out, *unseen]
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


def chosen_anew(paths: Sequence[Path]) -> str:
    """Held-out errors where every fold chooses its own constants from its own runs, and whether `calibrate`
    hands out the constants of the whole set.
    """
    rows = []
    for path in paths:
        result = calibrate([path], choose=True)
        unseen = [result.left_out.get(key) for key in ("model", "GPU count")]
        errors = (result.time.neutral, result.time.in_sample, result.time.held_out, *unseen)
        handed_out = "no: refused" if "time" in result.refused else "yes"
        rows.append([path.stem, *[mean(each) for each in errors], handed_out])
    header = ["set", "neutral", "in sample", "10 folds", "one model out", "one GPU count out"]
    return table([*header, "handed out"], rows)


def mean(errors: np.ndarray | None) -> str:
    return "-" if errors is None else f"{np.abs(errors).mean():.2f}"


def memory(results: Sequence[tuple[str, Calibration]]) -> str:
    lines = []
    for name, result in results:
        rows = np.isfinite(result.runs.measured_bytes)
        if result.memory is None:
            continue
        before = result.runs.evaluate(Site())[1][rows] / result.runs.measured_bytes[rows] - 1
        found = [before * 100, result.memory.in_sample, result.memory.held_out]
        lines.append([name, int(rows.sum()), *[mean(each) for each in found], len(result.does_not_fit)])
    header = ["set", "rows with memory", "neutral", "in sample", "10 folds", "called too large"]
    return table(header, lines)


def memory_stated(paths: Sequence[Path]) -> str:
    """Memory that rows state against predictions of the same, by table, and measured over predicted of the
    runs that fill more than half of a GPU.
    """
    lines = []
    for path in paths:
        runs = RunSet.of(read_table(path)).on_measured_chips()
        rows = np.isfinite(runs.measured_bytes)
        if not rows.any():
            continue
        ratios = (runs.measured_bytes / runs.evaluate()[1])[rows]
        half = 0.5 * np.array([run.profile.memory_bytes for run in runs.runs])[rows]
        large = ratios[runs.measured_bytes[rows] > half]
        quantiles = [number(each, 2) for each in np.quantile(large, (0.05, 0.5, 0.95))]
        errors = 100 * (1 / ratios - 1)
        beyond = f"{(large > 1 / (1 - MEMORY_HEADROOM)).sum()} of {len(large)}"
        cells = [rows.sum(), number(np.abs(errors).mean()), number(errors.mean())]
        lines.append([path.stem, *cells, *quantiles, beyond])
    header = ["set", "rows with memory", "MAPE %", "bias %", "5 %", "median", "95 %", "beyond the headroom"]
    return table(header, lines)


def headroom(paths: Sequence[Path]) -> str:
    """How many measured runs each headroom refuses by prediction, by organisation."""
    shares: dict[str, list[float]] = {}
    for path in paths:
        runs = RunSet.of(read_table(path)).on_measured_chips()
        capacity = [run.profile.memory_bytes for run in runs.runs]
        for cells, share in zip(runs.cells, runs.needed_bytes() / capacity, strict=True):
            kind = ", mixtures" if cells["experts"] else ""
            shares.setdefault(source_of(cells, path.stem) + kind, []).append(share)
    lines = []
    grouped = {name: values for name, values in sorted(shares.items()) if max(values) > 0.9}
    grouped["all others"] = [value for name in shares.keys() - grouped for value in shares[name]]
    grouped["all"] = [value for values in shares.values() for value in values]
    for name, values in grouped.items():
        refused = [sum(value > 1 - share for value in values) for share in (0.1, MEMORY_HEADROOM, 0.05, 0.0)]
        lines.append([name, len(values), *refused])
    percents = ("10 %", f"{100 * MEMORY_HEADROOM:.0f} %, the default", "5 %", "none")
    return table(["source", "runs", *(f"refused with {each}" for each in percents)], lines)


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
    rows: list[list[object]] = []
    for each in sets:
        for choice in each.choices:
            known = errors_on(choice.profile, choice.framework)
            if len(choice.plans) >= FEWEST_PLANS and known and known.beside_sd and not known.large:
                rows.append(
                    [f"{each.name}: {choice.label}", len(choice.plans), *_expected(choice, known.beside_sd)]
                )
    shown = [[*row[:2], *map(number, row[2:])] for row in rows]
    means = [np.mean([row[column] for row in rows]) for column in range(2, 6)] if rows else []
    header = ["model", "plans measured", "slower than the best measured", "more than predicted"]
    return table([*header, "slower, expected", "more, expected"], [*shown, ["mean", "", *map(number, means)]])


def _expected(choice: Choice, sd: float) -> list[float]:
    """Regret and optimism of a choice as they were, and as its predictions let expect; percent."""
    errors = np.log(choice.measured_s / choice.predicted_s)
    expected = choice_among(choice.predicted_s, sd)
    found = choice.regret, np.expm1(errors[choice.chosen] - errors.mean())
    return [100 * float(share) for share in (*found, expected.regret, expected.optimism)]


def page(folder: Path, names: Sequence[str] = SETS, pictures: Path | None = DOCS / "accuracy") -> str:
    """The text of docs/accuracy.md; also draws the pictures."""
    paths = {name: table_of(folder, name) for name in names}
    sets = [read(path) for path in paths.values()]
    fits = [(name, calibrate([paths[name]])) for name in CALIBRATED if name in names]
    a100 = [each for each in sets if each.name.startswith("a100") or each.name == "published"]
    usual = [each for each in sets if each.name != ULTRASCALE]
    without = tables.left_out()
    everything = [*paths.values(), *(folder / name for name in OTHERS if (folder / name).is_file())]
    of_plans = [path for path in everything if path != folder / bert.TABLE]
    scores = scores_of(everything)
    images = []
    for name, member in FAMILIES.items() if pictures else ():
        path = pictures / f"{name}.svg"
        draw(name, [each for each in sets if member(each)], path)
        images.append(f"![{name}: predicted against measured](accuracy/{path.name})")
    parts = {
        "means_of_sources": tables.means_of_sources(scores),
        "sources": tables.sources(scores),
        "reached": tables.reached(sets, without),
        "zero_shot": tables.zero_shot(sets, without),
        "by_kind": tables.by_kind(sets),
        "ultrascale": tables.ultrascale(sets),
        "long_sequences": tables.long_sequences(folder / LONG) if (folder / LONG).is_file() else "",
        "ultrascale_modes": tables.ultrascale_modes(sets),
        "calibrated": calibrated(fits),
        "memory": memory(fits),
        "memory_stated": memory_stated(of_plans),
        "headroom": headroom(of_plans),
        "transfer": transfer(sets, fits),
        "chosen_anew": chosen_anew([paths[name] for name, _ in fits]),
        "by_property": by_property(a100),
        "choosing": tables.choosing(sets),
        "causes": tables.regret_causes([each for each in usual if each.name.startswith("a100")]),
        "regret": regret(usual),
        "spreads": tables.spreads(),
        "coverage": tables.coverage(everything),
        "ranges": tables.ranges(),
        "skipped": tables.skipped(sets),
        "assumed": tables.assumed(sets),
        "pictures": "\n".join(images),
        **bert.parts(folder / bert.TABLE),
    }
    return filled("accuracy", parts)


def filled(name: str, parts: dict[str, str]) -> str:
    """The template of a page, with each placeholder replaced by the part of that name."""
    text = (DOCS / f"{name}.template.md").read_text()
    for part, content in parts.items():
        assert f"<!-- {part} -->" in text, part
        text = text.replace(f"<!-- {part} -->", content)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED / "data")
    folder = parser.parse_args().folder
    if not folder.is_dir():
        sys.exit(f"{folder}: no such folder; give the one that holds the iteration tables")
    write_text(DOCS / "accuracy.md", page(folder))


if __name__ == "__main__":
    main()
