"""BERT on up to 4,320 GPUs: the ideas of its fastest trainings one by one, and predicted beside measured.

    python -m experiments.bert --data ../shared/data/mlperf --out FOLDER

writes `ideas.md`, `launches.md` and `ablation.csv` (balancing x clipping x optimizer on 1,024 A100),
`submissions.md` (five submissions to MLPerf) and `scale.md` (8 to 4,320 GPUs), which need no data; from
`bert_iterations.csv` in the folder `--data` also `own_steps.md` and `measured.md` (predictions beside rows).
`scale.png` (with the extra `docs`) has the measured points where they are known. `--page experiments/BERT.md`
renews the tables of the page.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.bert_runs import (
    ALL,
    GPU_NAMES,
    GPUS,
    NONE,
    PACKED,
    SORTED,
    SUBMISSIONS,
    Measured,
    Point,
    gains,
    launches_ms,
    measured,
    points,
    step_at,
    trained,
    variant,
)
from experiments.output import draw_if_possible, make_folder
from itertime.calibration import Cells, read_table
from itertime.errors import UserError
from itertime.io import write_text
from itertime.planning import Steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILE = "bert_iterations.csv"
BALANCES = ("drawn", "exchanged", "stratified", "stratified-exchanged", "sorted")
LAYER_MS = (0.0, 1.0, 2.0, 2.5, 3.0, 3.5)
CLIPPINGS, OPTIMIZERS = ("before", "after", "bucket"), ("lamb", "fused-adam")
RATIOS = (("NVIDIA v1.1", 1.33), ("Azure v1.1", 1.57), ("NVIDIA v2.0", 1.13))
"""Submissions over Samsung's of the same round, and the ratio in the abstract of Kim et al. (2024)."""
PUBLISHED_4096, PUBLISHED_4320 = 12.34, 13.57
"""Seconds to train of NVIDIA's largest A100 systems in rounds 2.0 and 1.1 of MLPerf Training."""


def ablation_csv() -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("balance", "clipping", "optimizer", "step_s", "step_without_launches_s", "train_s"))
    for key in product(BALANCES, CLIPPINGS, OPTIMIZERS):
        found = variant(*key)
        seconds = (found.step_s, found.free_step_s, found.train_s)
        writer.writerow([*key, *(f"{each:.6g}" for each in seconds)])
    return text.getvalue()


def ideas_md() -> str:
    """What each idea saves: alone, and with all others in place, as Markdown."""
    lines = [
        "| idea | alone: ms a step | s to train | beside the others: ms a step | s to train "
        "| ms a step without launches |",
        "|---|---|---|---|---|---|",
    ]
    alone, beside = gains(NONE), gains(ALL)
    for name in alone:
        cells = []
        for old, new in (alone[name], beside[name]):
            cells += [_signed(1e3 * (new.step_s - old.step_s)), _signed(new.train_s - old.train_s)]
        old, new = beside[name]
        cells.append(_signed(1e3 * (new.free_step_s - old.free_step_s)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    first, last = variant(*NONE), variant(*ALL)
    lines += ["", "| | s a step | without launches | s to train |", "|---|---|---|---|"]
    for name, each in (("none of them", first), ("all of them", last)):
        lines.append(f"| {name} | {each.step_s:.4f} | {each.free_step_s:.4f} | {each.train_s:.2f} |")
    return "\n".join(lines) + "\n"


def launches_md() -> str:
    """Milliseconds a step by what the launches of a layer take: they hide differences between ranks."""
    times = (*LAYER_MS, launches_ms())
    lines = [
        "| launches of a layer, ms | " + " | ".join(f"{each:.1f}" for each in times) + " |",
        "|---" * (len(times) + 1) + "|",
    ]
    for balance in BALANCES[:-1]:
        steps = [1e3 * step_at(balance, each) for each in times]
        lines.append(f"| {balance} | " + " | ".join(f"{each:.2f}" for each in steps) + " |")
    return "\n".join(lines) + "\n"


def _signed(value: float) -> str:
    """Two decimals with their sign; a zero has none."""
    return f"{value:+.2f}" if abs(value) >= 0.005 else "0.00"


def submissions_md() -> str:
    """Five submissions: published and predicted seconds, and their order and ratios, as Markdown."""
    found = {each.name: trained(each.row)[0] for each in SUBMISSIONS}
    lines = [
        "| submission | steps (input) | s a step, logged | here | evaluations, s | start-up (input), s "
        "| s to train, published | here | difference |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in SUBMISSIONS:
        of = found[each.name]
        said = f"{each.step_s:.3f}" if each.step_s else ""
        lines.append(
            f"| {each.name} | {of.steps.count:,.0f} | {said} | {of.prediction.iteration_s:.4f} "
            f"| {of.parts['evaluations']:.2f} | {of.start_up.seconds:.2f} | {each.train_s:.2f} "
            f"| {of.seconds:.2f} | {of.seconds / (each.train_s or np.nan) - 1:+.1%} |"
        )
    return "\n".join(lines) + "\n\n" + ratios_md({name: of.seconds for name, of in found.items()})


def ratios_md(seconds: Mapping[str, float]) -> str:
    """Times over Samsung's of the same round beside the published ratios, and whether the order is right."""
    lines = ["| over Samsung of the same round | published | here | order |", "|---|---|---|---|"]
    for name, said in RATIOS:
        ratio = seconds[name] / seconds[f"Samsung {name.split()[1]}"]
        order = "right" if (ratio > 1) is (said > 1) else "wrong"
        lines.append(f"| {name} | {said:.2f} | {ratio:.2f} | {order} |")
    return "\n".join(lines) + "\n"


def own_steps_md(rows: Iterable[Cells]) -> str:
    """The same five with the steps of their own logs."""
    logs = {_label(row): row for row in rows if not row["duplicate_of"]}
    seconds = {}
    for each in SUBMISSIONS:
        count = logs[each.name]["steps_to_converge"]
        seconds[each.name] = trained(each.row, Steps.given(count))[0].seconds
    lines = ["| submission | s to train, published | here | difference |", "|---|---|---|---|"]
    for each in SUBMISSIONS:
        error = seconds[each.name] / (each.train_s or np.nan) - 1
        lines.append(f"| {each.name} | {each.train_s:.2f} | {seconds[each.name]:.2f} | {error:+.1%} |")
    return "\n".join(lines) + "\n\n" + ratios_md(seconds)


def _label(row: Cells) -> str:
    """Submitter and round of a row on 1,024 GPUs, like "Azure v1.1"; else its id."""
    parts = row["id"].split("-")
    return f"{parts[2]} v{parts[1]}" if row["gpus"] == 1024 and len(parts) > 2 else str(row["id"])


def scale_md() -> str:
    """Predicted seconds by GPUs, and the largest published runs, as Markdown."""
    head = [f"{gpu}, {way}" for gpu in GPU_NAMES for way in ("unpadded", "packed")]
    lines = [
        "| GPUs | batch | steps (input) | " + " | ".join(head) + " | A100, s to train | H100 |",
        "|---" * (len(head) + 5) + "|",
    ]
    ways = {(gpu, work): {p.gpus: p for p in points(gpu, work)} for gpu in GPU_NAMES for work in _WAYS}
    for gpus in GPUS:
        here = {key: each.get(gpus) for key, each in ways.items()}
        some = next(point for point in here.values() if point)
        cells = [f"{gpus:,}", f"{some.batch:,}", f"{some.steps:,.0f}" if some.steps else ""]
        cells += [f"{point.step_s:.4f}" if point else "" for point in here.values()]
        for gpu in GPU_NAMES:
            times = [p.train_s for (name, _), p in here.items() if p and name == gpu and p.train_s]
            cells.append(f"{min(times):.2f}" if times else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n\n" + _largest_md(ways["A100", PACKED])


_WAYS = (SORTED, PACKED)


def _largest_md(packed: Mapping[int, Point]) -> str:
    """NVIDIA's two largest A100 runs. The steps of the second are not known: those that its time leaves."""
    here, largest = packed[4096], packed[4320]
    assert here.train_s is not None
    steps, error = PUBLISHED_4320 / largest.step_s, here.train_s / PUBLISHED_4096 - 1
    return (
        "| NVIDIA | published, s | here |\n|---|---|---|\n"
        f"| 4,096 A100 (v2.0) | {PUBLISHED_4096} | {here.train_s:.2f} s ({error:+.1%}) |\n"
        f"| 4,320 A100 (v1.1) | {PUBLISHED_4320} | steps of {largest.step_s:.4f} s, of which fewer than "
        f"{steps:,.0f} fit |\n"
    )


def measured_md(found: Sequence[Measured]) -> str:
    """Mean absolute errors by GPU and their number, as Markdown."""
    lines = [
        "| GPU | GPUs | rows | step | time to train, steps of the table | with the log's own steps |",
        "|---|---|---|---|---|---|",
    ]
    for gpu in GPU_NAMES:
        counts = sorted({each.gpus for each in found if each.gpu == gpu})
        for name, wanted in [*((f"{count:,}", {count}) for count in counts), ("all", set(counts))]:
            rows = [each for each in found if each.gpu == gpu and each.gpus in wanted]
            cells = (
                _mape(rows, lambda each: each.predicted_step_s / each.step_s),
                _mape(rows, lambda each: each.table_s / each.train_s),
                _mape(rows, lambda each: each.own_s / each.train_s),
            )
            lines.append(f"| {gpu} | {name} | {len(rows)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _mape(rows: Sequence[Measured], ratio: Callable[[Measured], float]) -> str:
    """The mean absolute error; of one row the error with its sign."""
    errors = [ratio(each) - 1 for each in rows]
    return f"{errors[0]:+.1%}" if len(errors) == 1 else f"{np.mean(np.abs(errors)):.1%}"


def draw(found: Sequence[Measured], path: Path) -> None:
    """Seconds of a step and to train over GPUs: lines predicted for one recipe, rings measured rows, crosses
    the prediction of each row.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for axes, of_step in zip(panels, (True, False), strict=True):
        for colour, gpu in zip(("tab:blue", "tab:orange"), GPU_NAMES, strict=True):
            _panel(axes, [each for each in found if each.gpu == gpu], gpu, colour, of_step)
        axes.set(xscale="log", yscale="log", xlabel="GPUs")
        axes.set_ylabel("seconds a step" if of_step else "seconds to train")
        axes.set_xticks(GPUS[::2], [f"{gpus:,}" for gpus in GPUS[::2]], fontsize=8)
        axes.minorticks_off()
        axes.grid(visible=True, which="major", alpha=0.3)
    panels[1].legend(fontsize=8)
    figure.savefig(path, dpi=80, metadata={"Software": None}, format="png")
    plt.close(figure)


def _panel(axes: Axes, rows: Sequence[Measured], gpu: str, colour: str, of_step: bool) -> None:
    for work, style in zip(_WAYS, ("-", "--"), strict=True):
        line = [(p.gpus, p.step_s if of_step else p.train_s) for p in points(gpu, work)]
        known = [(gpus, seconds) for gpus, seconds in line if seconds is not None]
        name = f"{gpu}, {work.split(',')[0].split(':')[0]}: predicted"
        axes.plot(*zip(*known, strict=True), style, color=colour, linewidth=1, label=name)
    if rows:
        gpus = [each.gpus for each in rows]
        true = [each.step_s if of_step else each.train_s for each in rows]
        ours = [each.predicted_step_s if of_step else each.own_s for each in rows]
        axes.plot(gpus, true, "o", mfc="none", color=colour, markersize=6, label=f"{gpu}, measured")
        axes.plot(gpus, ours, "x", color=colour, markersize=5, label=f"{gpu}, predicted for each row")


def renewed(page: str, files: Mapping[str, str]) -> str:
    """The page with each file between the comments that name it: `<!-- ideas.md -->` and `<!-- end -->`."""
    for name, text in files.items():
        before, found, rest = page.partition(f"<!-- {name} -->")
        if found:
            page = f"{before}{found}\n\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help=f"the folder of {FILE}")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the results")
    parser.add_argument("--page", type=Path, help="a page whose tables are renewed")
    options = parser.parse_args(arguments)
    try:
        rows = read_table(options.data / FILE) if options.data else []
        files = {"ideas.md": ideas_md(), "launches.md": launches_md()}
        files |= {"submissions.md": submissions_md(), "scale.md": scale_md()}
        found, skipped = measured(rows)
        if rows:
            files |= {"own_steps.md": own_steps_md(rows), "measured.md": measured_md(found)}
        else:
            print(f"no measured rows: name the folder of {FILE} with --data", file=sys.stderr)
        for reason, count in sorted(skipped.items()):
            print(f"{count} row{'s' if count > 1 else ''} not compared: {reason}", file=sys.stderr)
        make_folder(options.out)
        for name, text in (files | {"ablation.csv": ablation_csv()}).items():
            write_text(options.out / name, text)
        draw_if_possible(options.out / "scale.png", lambda path: draw(found, path))
        if options.page:
            write_text(options.page, renewed(options.page.read_text(encoding="utf-8"), files))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("\n".join(files.values()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
